// Put into each page before its own scripts: what can be clicked, and what the Tab key has reached.
(() => {
  const NATIVE = 'a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex="0"]';
  const MODAL = 'dialog:modal';
  const clickable = new Set();
  const listen = EventTarget.prototype.addEventListener;
  EventTarget.prototype.addEventListener = function (type, ...rest) {
    if (type === 'click' && this instanceof Element) clickable.add(this);
    return listen.call(this, type, ...rest);
  };
  let stops = [];
  const reached = new Map(); // elements, each with what is wrong with its focus
  const name = (element) => `${element.tagName.toLowerCase()}.${element.className} "${(element.ariaLabel || element.textContent || element.name || '').trim().slice(0, 40)}"`;
  const isOpen = (element) => element.checkVisibility({ visibilityProperty: true }) && element.getClientRects().length > 0;
  const inTabOrder = (element) => isOpen(element) && !element.disabled && element.tabIndex >= 0 && !element.closest('[inert]') && !(element.type === 'radio' && !element.checked);

  // How many sides of the outline something cuts off.
  function hiddenSides(element, { outlineOffset, outlineWidth }) {
    const grown = parseFloat(outlineOffset) + parseFloat(outlineWidth) - 1;
    const box = element.getBoundingClientRect();
    const sides = new Set();
    for (let around = element.parentElement; around; around = around.parentElement) {
      const style = getComputedStyle(around);
      if (style.overflowX === 'visible' || around === document.body || around === document.documentElement) continue;
      const edge = around.getBoundingClientRect();
      if (box.left - grown < edge.left - 0.5) sides.add('left');
      if (box.right + grown > edge.right + 0.5) sides.add('right');
      if (box.top - grown < edge.top - 0.5) sides.add('top');
      if (box.bottom + grown > edge.bottom + 0.5) sides.add('bottom');
    }
    return sides.size;
  }
  function wrong(element) {
    if (!element.matches(':focus')) return ''; // the focus is in a part of the browser's own, such as a calendar's button
    const style = getComputedStyle(element);
    if (style.outlineStyle === 'none' || parseFloat(style.outlineWidth) < 1) return 'its focus has no outline';
    return hiddenSides(element, style) > 2 ? 'the outline of its focus is cut off' : '';
  }
  let left = false; // whether the focus was outside of the open dialog
  listen.call(document, 'focusin', ({ target }) => {
    reached.set(target, '');
    left ||= Boolean(document.querySelector(MODAL)) && !target.closest(MODAL);
  }, true);
  // Before a Tab moves the focus the browser has scrolled to what has it.
  listen.call(window, 'keydown', ({ key }) => key === 'Tab' && look(), true);
  function look() {
    const element = document.activeElement;
    if (element && element !== document.body) reached.set(element, element.tabIndex < 0 ? '' : wrong(element));
  }

  window.keyboard = {
    // How many stops there are; those that come meanwhile need not be reached.
    count(root) {
      stops = [...document.querySelector(root).querySelectorAll(NATIVE)].filter(inTabOrder);
      return stops.length;
    },
    begin() {
      reached.clear();
      left = false;
    },
    // What the keyboard did not reach, or what does not show that it has.
    problems() {
      const missed = stops.filter((one) => one.isConnected && inTabOrder(one) && !reached.has(one)).map((one) => `${name(one)}: not reached`);
      const unseen = [...reached].filter(([one, problem]) => problem && one.isConnected).map(([one, problem]) => `${name(one)}: ${problem}`);
      const mouse = [...clickable].filter((one) => one.isConnected && isOpen(one) && !one.matches(`${NATIVE}, label, [role=option]`) && !one.querySelector(NATIVE) && !one.closest('[role=img]'));
      return [...(left ? ['the focus leaves the dialog'] : []), ...missed, ...unseen, ...mouse.map((one) => `${name(one)}: only the pointer can click it`)];
    },
  };
})();
