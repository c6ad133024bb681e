// Controls that are lower than they should be; links in a text may be as low as its lines.
(least) => {
  const CONTROLS = 'button, .button, select, summary, input:not([type=checkbox], [type=radio], [type=hidden], [type=file]), textarea, nav a';
  const low = [...document.querySelectorAll(CONTROLS)].filter((one) => one.checkVisibility() && !one.closest('.hidden, .skip') && one.getBoundingClientRect().height < least - 0.5);
  return low.slice(0, 3).map((one) => `lower than ${least} px: ${one.outerHTML.slice(0, 120)}`);
}
