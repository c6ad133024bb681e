// @ts-check
/** Amounts of a chain's coin. */

const [GWEI, ETHER] = [10n ** 9n, 10n ** 18n];

/** @param {bigint} value @param {bigint} unit @param {number} digits */
function decimal(value, unit, digits) {
  const text = ((value * 10n ** BigInt(digits)) / unit).toString().padStart(digits + 1, '0');
  return `${text.slice(0, -digits)}.${text.slice(-digits)}`.replace(/\.?0+$/, '');
}

/** An amount in the unit in which it is short: wei, Gwei or ether. @param {string | null | undefined} wei */
export function amount(wei) {
  if (wei == null || !/^\d+$/.test(wei)) return '–';
  const value = BigInt(wei);
  if (value < GWEI / 1000n) return `${value} wei`;
  return value < ETHER / 10_000n ? `${decimal(value, GWEI, 3)} Gwei` : `${decimal(value, ETHER, 6)} ether`;
}

/** The beginning and the end of a hash or an address. @param {string | null | undefined} text */
export const short = (text) => (text && text.length > 14 ? `${text.slice(0, 8)}…${text.slice(-4)}` : (text ?? ''));
