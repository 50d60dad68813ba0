/** Numbers and callers' words as text. */

const MINUS = "\u2212";

/**
 * @param {number | null | undefined} value
 * @param {number} [digits] significant ones
 * @returns {string}
 */
export function number(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : `${MINUS}∞`;
  const size = Math.abs(value);
  const text = size !== 0 && (size >= 1e7 || size < 1e-4) ? value.toExponential(2) : trimmed(value, digits);
  return text.replace("-", MINUS);
}

/** @param {number} value @param {number} digits */
function trimmed(value, digits) {
  const places = Math.max(0, digits - 1 - Math.floor(Math.log10(Math.abs(value) || 1)));
  const text = value.toFixed(Math.min(places, 8));
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

/** @param {number | null | undefined} value @returns {string} with its sign */
export const signed = (value, digits = 3) =>
  (value !== null && value !== undefined && value > 0 ? "+" : "") + number(value, digits);

/** @param {number | null | undefined} value a share; one below 1 is never called 100 % @returns {string} */
export function percent(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  for (let places = value !== 0 && Math.abs(value) < 0.0995 ? 1 : 0; places <= 2; places += 1) {
    const text = (100 * value).toFixed(places);
    if (value >= 1 || Number(text) < 100) return `${text} %`;
  }
  return "> 99.99 %";
}

/** @param {number | null | undefined} value seconds @returns {string} */
export function duration(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  return value < 1 ? `${number(value * 1000, 3)} ms` : `${number(value, 3)} s`;
}

/** @param {number | null | undefined} value @returns {string} grouped by thousands */
export function count(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  return Math.round(value).toLocaleString("en").replaceAll(",", "\u202f");
}

/** @param {number} value @returns {string} */
export function bytes(value) {
  return value < 1e9 ? `${number(value / 1e6, 3)} MB` : `${number(value / 1e9, 3)} GB`;
}

/**
 * @param {unknown} text a caller's own words, of any length
 * @param {number} [most] characters
 * @returns {string}
 */
export function shortened(text, most = 60) {
  const whole = String(text ?? "");
  if (whole.length <= most) return whole;
  return `${Array.from(whole.slice(0, most))
    .slice(0, most - 1)
    .join("")}…`; // no half of a character that takes two
}

/**
 * @param {number | string | null | undefined} value of a feature
 * @returns {string}
 */
export function cell(value) {
  if (value === null || value === undefined) return "missing";
  return typeof value === "number" ? number(value) : shortened(value, 40);
}

/**
 * @param {number} value
 * @returns {number} the one with the fewest digits that is the same float32: the service computes with no other
 */
export function shortest(value) {
  const wanted = Math.fround(value);
  if (!Number.isFinite(wanted) || wanted === 0) return value;
  for (let digits = 1; digits < 9; digits += 1) {
    const short = Number(value.toPrecision(digits));
    if (Math.fround(short) === wanted) return short;
  }
  return Number(value.toPrecision(9));
}

/**
 * @param {number | string | null | undefined} value of a feature
 * @returns {string} the same with all digits that count: of a threshold, a rounded one may lie on the other side
 */
export function exactCell(value) {
  return typeof value === "number" && Number.isFinite(value)
    ? String(shortest(value)).replace("-", MINUS)
    : cell(value);
}

/** @param {number} n @param {string} one @param {string} [many] @returns {string} */
export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;
