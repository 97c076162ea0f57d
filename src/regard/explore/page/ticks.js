// Ticks: the round numbers along an axis.

import { number } from "regard/dom.js";

/* Round numbers from below `low` to above `high` in about `most` steps: [{value, name}]. `whole`: integers only, as for
   steps and layers. */
export function ticks(low, high, most, { whole = false } = {}) {
  if (!Number.isFinite(high - low)) return ticks(0, 1, most); // nothing to draw
  const rough = (high - low || Math.abs(high) || 1) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const round = [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= 0.999 * rough);
  const step = whole ? Math.max(1, Math.round(round)) : round;
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const [first, last] = [Math.floor(low / step + 1e-9), Math.ceil(high / step - 1e-9)];
  return Array.from({ length: last - first + 1 }, (_, i) => tick((first + i) * step, digits));
}

// Only the ticks between two numbers, or the first number itself if there are none.
export function ticksWithin(low, high, most, options) {
  const nearly = (high - low) * 1e-9;
  const within = ticks(low, high, most, options).filter(({ value }) => value >= low - nearly && value <= high + nearly);
  return within.length || !Number.isFinite(low) ? within : [tick(low, 0)];
}

// A tick with its name: "12,500", "1.5M", and tiny numbers in scientific notation.
function tick(value, digits) {
  if (value === 0) return { value: 0, name: "0" };
  if (digits > 4) return { value, name: number(value, 0) };
  const decimals = { maximumFractionDigits: digits, minimumFractionDigits: digits };
  const format = Math.abs(value) < 1e5 ? decimals : { notation: "compact", maximumSignificantDigits: 3 };
  return { value, name: value.toLocaleString("en", format).replace("-", "−") };
}
