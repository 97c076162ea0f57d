// Names of parts, and of the rows and columns of their maps, as shown on the page: counted from 1, in words.

import { visible } from "regard/dom.js";

// A count or a number of a list, with thousands separators.
export const whole = (count) => count.toLocaleString("en");

// The row and the column of a patch or a pixel, from 1; null for other positions.
export function cellOf(stack, position) {
  const cell = position - (stack?.before ?? 0);
  return stack?.grid && cell >= 0 ? [Math.floor(cell / stack.grid[1]) + 1, (cell % stack.grid[1]) + 1] : null;
}

// The piece at a position in words: of a patch "row 3, column 1", of a pixel its colour too.
export function pieceAt(stack, position) {
  const piece = stack?.pieces[position] ?? "";
  const cell = cellOf(stack, position);
  if (!cell) return stack?.grid ? piece : visible(piece);
  return `${piece.startsWith("#") ? `${piece}, ` : ""}row ${cell[0]}, column ${cell[1]}`;
}

// The same with its number, for the middle of a sentence.
export function placeAt(stack, position) {
  return stack?.grid ? pieceAt(stack, position) : `“${pieceAt(stack, position)}” (${whole(position + 1)})`;
}

// One edge of a map over the positions of a stack, as heatmap.js takes it. `axis`: what it stands for.
export function edgeOf(stack, axis) {
  if (!stack.grid) return { labels: stack.pieces, stack: stack.name, axis, plain: false };
  const labels = stack.pieces.map((piece, i) => cellOf(stack, i)?.join(",\u00a0") ?? piece);
  return { labels, stack: stack.name, axis: `${axis} (row, column)`, plain: true };
}

const ALONE = "layers"; // the name of a model's only stack

export function stackName(name) {
  return name === ALONE ? "all layers" : `${name}, all layers`;
}

// The tokens of a stack; a model's only stack needs no name.
export function tokensName(name) {
  return name === ALONE ? "tokens" : name;
}

// "decoder.0.cross.3" as "decoder, layer 1, cross-attention, head 4"; other names stay as they are.
export function partName(page, name, { stack = true } = {}) {
  const match = /^(.+?)\.(\d+)(?:\.(\w+))?(?:\.(\d+))?$/.exec(name);
  if (!match) return name;
  const [, owner, layer, part, head] = match;
  const words = [stack && owner !== ALONE ? owner : null, `layer ${Number(layer) + 1}`, part && titleOf(page, `${owner}.${layer}.${part}`)];
  if (head !== undefined) words.push(`head ${Number(head) + 1}`);
  return words.filter(Boolean).join(", ");
}

// The title of a part: "self-attention", "Hyena".
function titleOf(page, name) {
  return page.parts().find((part) => part.name === name)?.title ?? name.split(".").at(-1);
}

// An attention by its layer, and by what it attends to.
export function nameOf(part) {
  const layer = `layer ${part.layer + 1}`;
  if (part.cross) return `${part.stack.name} → ${part.keys.name}, ${layer}`;
  return part.stack.name === ALONE ? layer : `${part.stack.name}, ${layer}`;
}

// The edges of a part's map. A decoder step is labelled with what it reads and what it writes next.
export function sidesOf(part) {
  const writes = new Map(part.answers.map((answer) => [answer.position, visible(answer.label)]));
  const step = (piece, i) => (writes.has(i) ? `${visible(piece)} → ${writes.get(i)}` : visible(piece));
  return {
    rows: part.cross
      ? { labels: part.stack.pieces.map(step), stack: part.stack.name, axis: "decoder step: reads → writes", plain: true }
      : edgeOf(part.stack, "query"),
    columns: edgeOf(part.keys, "key"),
  };
}
