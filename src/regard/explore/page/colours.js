// Colour scales that colour-blind people can read: cividis for amounts, orange to blue through grey for signed numbers.

const CIVIDIS = [
  [0, 34, 78], [18, 53, 112], [59, 73, 108], [87, 93, 109], [112, 113, 115], [138, 134, 120], [165, 156, 116],
  [195, 179, 105], [225, 204, 85], [254, 232, 56],
];
const SIGNED = [
  [127, 59, 8], [179, 88, 6], [224, 130, 20], [253, 184, 99], [247, 247, 247], [146, 197, 222], [67, 147, 195],
  [33, 102, 172], [5, 48, 97],
];

function between(stops, share) {
  const at = Math.min(Math.max(share, 0), 1) * (stops.length - 1);
  const low = Math.min(Math.floor(at), stops.length - 2);
  return stops[low].map((value, i) => Math.round(value + (stops[low + 1][i] - value) * (at - low)));
}

function tableOf(stops) {
  return Array.from({ length: 256 }, (_, i) => between(stops, i / 255));
}

const AMOUNTS = tableOf(CIVIDIS);
const TABLES = { unit: AMOUNTS, positive: AMOUNTS, root: AMOUNTS, signed: tableOf(SIGNED) };

// The colour of a value as [r, g, b]. `most`: the value of the last colour. Missing values are grey.
// Scale "root": by the square root, so that one large value does not hide all small ones.
export function colour(value, scale = "unit", most = 1) {
  if (value === null || Number.isNaN(value) || value === -Infinity) return [128, 128, 128];
  const part = value / (most || 1);
  const share = scale === "signed" ? 0.5 + 0.5 * part : scale === "root" ? Math.sqrt(Math.max(part, 0)) : part;
  return TABLES[scale][Math.round(Math.min(Math.max(share, 0), 1) * 255)];
}

export function css([r, g, b]) {
  return `rgb(${r}, ${g}, ${b})`;
}

// Black or white, whichever is legible on the colour.
export function ink([r, g, b]) {
  const linear = (c) => ((c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b) > 0.179 ? "#000" : "#fff";
}
