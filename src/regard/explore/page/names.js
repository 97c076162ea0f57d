// What parts, and the rows and columns of their maps, are called on the page: counted from 1, in words.

import { visible } from "regard/dom.js";

const ALONE = "layers"; // the name of a stack that is the only one

export function stackName(name) {
  return name === ALONE ? "all layers" : `${name}, all layers`;
}

// The positions of a stack; of the only one there is nothing to tell apart.
export function tokensName(name) {
  return name === ALONE ? "tokens" : name;
}

// "decoder.0.cross.3" as "decoder, layer 1, cross-attention, head 4"; what is not a part stays as it is.
export function partName(page, name, { stack = true } = {}) {
  const found = /^(.+?)\.(\d+)(?:\.(\w+))?(?:\.(\d+))?$/.exec(name);
  if (!found) return name;
  const [, of, layer, part, head] = found;
  const words = [stack && of !== ALONE ? of : null, `layer ${Number(layer) + 1}`, part && titleOf(page, `${of}.${layer}.${part}`)];
  if (head !== undefined) words.push(`head ${Number(head) + 1}`);
  return words.filter(Boolean).join(", ");
}

// What the model's own part is called: "self-attention", "Hyena".
function titleOf(page, name) {
  return page.parts().find((part) => part.name === name)?.title ?? name.split(".").at(-1);
}

// Of a part that looks: whose layer it is, and at what it looks.
export function nameOf(part) {
  const layer = `layer ${part.layer + 1}`;
  if (part.cross) return `${part.stack.name} → ${part.keys.name}, ${layer}`;
  return part.stack.name === ALONE ? layer : `${part.stack.name}, ${layer}`;
}

// What stands along the edges of a part's map. A step that writes has two names: what it reads, and what it writes next.
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
