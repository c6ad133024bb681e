// Elements that stick out of the window to the right, other than in a box that scrolls.
(width) => {
  const edge = (element) => element.getBoundingClientRect().right;
  const scrolls = (element) => element !== document.body && element !== document.documentElement && getComputedStyle(element).overflowX !== 'visible' && edge(element) <= width + 0.5;
  function isCut(element) {
    for (let around = element.parentElement; around; around = around.parentElement) if (scrolls(around)) return true;
    return false;
  }
  const wide = [...document.querySelectorAll('body *')].filter((one) => edge(one) > width + 0.5 && one.checkVisibility() && !isCut(one));
  return wide.slice(0, 3).map((one) => `wider than ${width} px: ${one.outerHTML.slice(0, 120)}`);
}
