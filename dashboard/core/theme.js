// @ts-check
/** Light or dark: the system's choice, or the one made with the button. */
import { signal } from '../vendor/preact.js';

const KEY = 'fieldbrook.theme';
const system = matchMedia('(prefers-color-scheme: dark)');
const root = document.documentElement;

const kept = localStorage.getItem(KEY);
if (kept === 'light' || kept === 'dark') root.dataset.theme = kept;

const isDark = () => (root.dataset.theme ? root.dataset.theme === 'dark' : system.matches);
/** Charts read their colours again when it changes. */
export const dark = signal(isDark());
system.addEventListener('change', () => (dark.value = isDark()));

export function toggleTheme() {
  root.dataset.theme = isDark() ? 'light' : 'dark';
  localStorage.setItem(KEY, root.dataset.theme);
  dark.value = isDark();
}

/**
 * A custom property as a colour for a canvas, which resolves neither `var()` nor `light-dark()`.
 * @param {string} name @param {number} [alpha]
 */
export function colour(name, alpha = 1) {
  const probe = document.body.appendChild(document.createElement('i'));
  probe.style.forcedColorAdjust = 'none'; // else all lines of a chart have the colour of text
  probe.style.color = `color-mix(in srgb, var(${name}) ${alpha * 100}%, transparent)`;
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}
