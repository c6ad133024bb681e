// In the colours of the system: chosen controls that look like those beside them, and invisible icons and borders.
() => {
  const look = (one) => {
    const { backgroundColor, color, outlineStyle, borderTopStyle, borderBottomStyle } = getComputedStyle(one);
    return [backgroundColor, color, outlineStyle, borderTopStyle, borderBottomStyle].join();
  };
  const CHOSEN = '[aria-current], [aria-pressed=true], [aria-selected=true]';
  const open = (one) => one.checkVisibility();
  const same = [...document.querySelectorAll(CHOSEN)].filter(open).filter((one) => [...one.parentElement.children].some((other) => other.localName === one.localName && !other.matches(CHOSEN) && open(other) && look(other) === look(one)));
  const behind = (one) => {
    for (let at = one; at; at = at.parentElement) {
      const { backgroundColor } = getComputedStyle(at);
      if (!/, 0\)$|transparent/.test(backgroundColor)) return backgroundColor;
    }
    return getComputedStyle(document.documentElement).backgroundColor;
  };
  const unseen = [...document.querySelectorAll('.icon, .wire, .badge, .meter i')].filter(open).filter((one) => {
    const { stroke, color, borderTopColor, backgroundColor } = getComputedStyle(one);
    const drawn = one.matches('.icon') ? color : one.matches('.wire') ? stroke : one.matches('.badge') ? borderTopColor : backgroundColor;
    return drawn === behind(one.parentElement);
  });
  return [...same.map((one) => `looks like what is not chosen: ${one.outerHTML.slice(0, 120)}`), ...unseen.slice(0, 3).map((one) => `invisible: ${one.outerHTML.slice(0, 120)}`)];
}
