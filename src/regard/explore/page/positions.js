// Positional encodings: the vectors that are added, or the angles by which queries and keys are rotated.

import { largest, matrixOf } from "regard/arrays.js";
import { h, problem } from "regard/dom.js";
import { heatmap } from "regard/heatmap.js";
import { edgeOf, tokensName } from "regard/names.js";

export async function positions(page) {
  const kind = page.runs[page.run].positions;
  const sections = [];
  let previous = null;
  for (const stack of page.overview.stacks.filter(({ tokens }, i) => i === 0 || tokens)) {
    const matrix = await page.matrix(`${stack.name}.position`).catch((error) => ({ error }));
    if (matrix.error) sections.push(problem(matrix.error));
    else if (largest(matrix.values) && !same(matrix, previous)) sections.push(added(page, stack, matrix));
    previous = matrix;
  }
  if (!sections.length) sections.push(await rotated(page));
  return h("div", { class: "positions" }, h("h2", {}, `Positions${kind ? `: ${kind}` : ""}`), sections);
}

// Whether two stacks have the same encodings, as far as both reach.
function same(matrix, other) {
  if (!other?.values || matrix.head.shape[1] !== other.head.shape[1]) return false;
  const count = Math.min(matrix.values.length, other.values.length);
  return matrix.values.subarray(0, count).every((value, i) => Math.abs(value - other.values[i]) < 1e-3);
}

function added(page, stack, matrix) {
  const [rows, columns] = matrix.head.shape;
  return h(
    "div",
    {},
    h("p", { class: "note" }, `The vector added at each position${stack.name === tokensName(stack.name) ? ` of the ${stack.name}` : ""}: ${rows} positions × ${columns} channels.`),
    heatmap(page, {
      matrix,
      label: `Positional encodings, ${tokensName(stack.name)}`,
      rows: edgeOf(stack, "position"),
      columns: { labels: Array.from({ length: columns }, (_, i) => String(i + 1)), axis: "channel", plain: true },
      scale: "signed",
      cell: Math.max(3, Math.min(14, Math.floor(1160 / columns))),
    }),
  );
}

async function rotated(page) {
  const stack = page.overview.stacks[0];
  const cosines = await page.ask("rotations", { stack: stack.name });
  if (!cosines) return h("p", {}, "No positional encoding: only the mixer distinguishes positions.");
  return h(
    "div",
    {},
    h(
      "p",
      { class: "note" },
      "Nothing is added to the vectors. In every attention layer, each pair of numbers of a query or key is rotated by an angle that grows with the position, fast for the first pairs and slowly for the last, so that positions enter q · k only through their distance. Shown: the cosine of that angle.",
    ),
    heatmap(page, {
      matrix: matrixOf(cosines),
      label: "Cosine of the angle",
      rows: { labels: stack.pieces, stack: stack.name, axis: "position" },
      columns: { labels: cosines.labels[1], axis: "pair", plain: true },
      scale: "signed",
    }),
  );
}
