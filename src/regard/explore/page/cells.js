// Cells of matrices in words.

import { placeAt, tokensName, whole } from "regard/names.js";

const WORDS = {
  token: "vector x", place: "position vector p", summed: "x + p", embedded: "input of the first layer",
  before: "x", read: "input", sum: "x with the output added", after: "x afterwards", wrote: "output", inner: "inner vector h",
  queries: "query", keys: "key", values: "value", scores: "score", weights: "weight", heads: "output z",
  joined: "outputs of the heads", out: "after the last layer", hidden: "x, from which the answer is read",
  projected: "streams before the short convolution", streams: "streams", states: "state", memories: "memory c",
  pairs: "pairs", mixed: "y",
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
  if (quantity === "hidden") return `${WORDS.hidden}, ${component(column)}`;
  if (dot < 0) return name === "logits" ? "logit" : "probability";
  const part = page.parts().find(({ name }) => name === owner);
  const stack = part?.stack ?? page.stack(owner);
  const ofKeys = part && ["keys", "values"].includes(quantity) ? part.keys : stack;
  const at = placeAt(ofKeys, row);
  const pair = ["scores", "weights"].includes(quantity);
  const to = pair ? ` → ${placeAt(part?.keys, column)}` : `, ${component(column)}`;
  const layer = part ? `layer ${part.layer + 1}, ` : "";
  const stackName = stack?.name ?? owner;
  const prefix = tokensName(stackName) === "tokens" ? "" : `${stackName}, `; // an only stack is not named
  return `${prefix}${layer}${quantityName(quantity)}${head === null || part?.heads === 1 ? "" : ` of head ${head + 1}`}, ${at}${to}`;
}

function component(column) {
  return `component ${whole(column + 1)}`;
}
