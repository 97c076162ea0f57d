// Cells of matrices in words.

import { visible } from "regard/dom.js";
import { tokensName } from "regard/names.js";

const WORDS = {
  token: "token vector", place: "position vector", summed: "token + position", embedded: "input of the first layer",
  before: "x", read: "input", sum: "x + written", after: "x afterwards", wrote: "output", inner: "inner vector",
  queries: "query", keys: "key", values: "value", scores: "score", weights: "weight", heads: "weighted values",
  joined: "heads, concatenated", out: "after the last layer", hidden: "input of the output head",
  projected: "streams before the short convolution", streams: "streams", states: "state", memories: "memory c",
  pairs: "pairs", mixed: "input of W_out",
};

// Stages of Hyena have a number: "gated2".
function quantityName(quantity) {
  const [, stage, number] = /^(gated|convolved)(\d)$/.exec(quantity) ?? [];
  return WORDS[quantity] ?? (stage ? `${stage === "gated" ? "after gate" : "after long convolution"} ${number}` : quantity);
}

// A cell is [name, head, row, column], as in arithmetic.py.
export function describe(page, [name, head, row, column]) {
  const dot = name.lastIndexOf(".");
  const [owner, quantity] = [name.slice(0, dot), name.slice(dot + 1)];
  if (quantity === "hidden") return `${WORDS.hidden}, number ${column + 1}`;
  if (dot < 0) return name === "logits" ? "logit" : "probability";
  const part = page.parts().find(({ name }) => name === owner);
  const stack = part?.stack ?? page.stack(owner);
  const ofKeys = part && ["keys", "values"].includes(quantity) ? part.keys : stack;
  const at = `“${pieceAt(ofKeys, row)}” (${row + 1})`;
  const pair = ["scores", "weights"].includes(quantity);
  const to = pair ? ` → “${pieceAt(part?.keys, column)}” (${column + 1})` : `, number ${column + 1}`;
  const layer = part ? `layer ${part.layer + 1}, ` : "";
  const stackName = stack?.name ?? owner;
  const prefix = tokensName(stackName) === "tokens" ? "" : `${stackName}, `; // an only stack is not named
  return `${prefix}${layer}${quantityName(quantity)}${head === null ? "" : ` of head ${head + 1}`}, ${at}${to}`;
}

// The piece at a position. The space in the name of a patch stays as it is.
export function pieceAt(stack, position) {
  const piece = stack?.pieces[position] ?? "";
  return stack?.grid ? piece : visible(piece);
}
