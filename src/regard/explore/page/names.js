// Names of parts, and of the rows and columns of their maps, as shown on the page: counted from 1, in words.

import { visible } from "regard/dom.js";

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
  const plain = ({ grid }) => Boolean(grid);
  return {
    rows: part.cross
      ? { labels: part.stack.pieces.map(step), stack: part.stack.name, axis: "decoder step: reads → writes", plain: true }
      : { labels: part.stack.pieces, stack: part.stack.name, axis: "query", plain: plain(part.stack) },
    columns: { labels: part.keys.pieces, stack: part.keys.name, axis: "key", plain: plain(part.keys) },
  };
}
