// Attribution: how much each input position contributes to an answer, and whether that is faithful.

import { chosenAnswer } from "regard/answers.js";
import { largest } from "regard/arrays.js";
import { choice, h, number, numbersBelow, percent, problem, visible } from "regard/dom.js";
import { faithful } from "regard/faithful.js";
import { legend } from "regard/heatmap.js";
import { tokensName } from "regard/names.js";
import { onGrid, picture } from "regard/picture.js";
import { otherToken } from "regard/search.js";
import { tokenLine } from "regard/tokens.js";

export const id = "attribution";
export const title = "Attribution";

const METHODS = [
  ["integrated-gradients", "integrated gradients", "the gradient of the logit, averaged along the path from an empty input to this one, times the difference. Over all positions it sums to the change of the logit."],
  ["gradient-input", "gradient × input", "the gradient of the logit at this input, times the difference from an empty one: a linear approximation at one point."],
  ["occlusion", "occlusion", "the drop in the log-probability of the answer when this position alone is emptied."],
  ["rollout", "attention rollout", "the share of each position in the vector the answer is read from, with attention (½) and the residual stream (½) traced through all layers."],
];

export function fits(page) {
  return page.overview.answers.length > 0;
}

export async function show(page) {
  const methods = METHODS.filter(([name]) => name !== "rollout" || page.overview.can.rollout);
  const method = methods.find(([name]) => name === page.state.get("method")) ?? methods[0];
  const answers = page.overview.answers;
  const answer = chosenAnswer(page);
  return h(
    "section",
    { class: "attribution" },
    h("p", { class: "note" }, `Contribution of each input position to the chosen answer (${method[1]}): ${method[2]}`),
    h(
      "div",
      { class: "controls" },
      choice("method", methods, method[0], (value) => page.state.set({ method: value })),
      page.live ? otherToken(page) : null,
    ),
    answers.length > 1 ? outputs(page, answers, answer) : null,
    await explained(page, method[0], answer),
  );
}

function outputs(page, answers, chosen) {
  const output = { name: "answers", pieces: answers.map(({ label }) => label) };
  return h(
    "div",
    { class: "named-line" },
    h("span", { class: "line-name" }, "answer"),
    tokenLine(page, output, { pick: (position) => page.state.set({ answer: position, token: undefined }), chosen }),
  );
}

async function explained(page, method, answer) {
  let attribution;
  try {
    attribution = await page.ask("attribution", { method, answer, token: page.state.get("token") ?? undefined });
  } catch (error) {
    return problem(error);
  }
  const names = Object.keys(attribution.stacks);
  const scale = method === "rollout" ? "unit" : "signed";
  const most = Math.max(...names.map((name) => largest(attribution.stacks[name].values))) || 1;
  return h(
    "div",
    {},
    h("h2", {}, "For ", h("q", {}, visible(attribution.token))),
    names.map((name) => scores(page, page.stack(name), attribution.stacks[name], scale, most)),
    names.every((name) => page.stack(name).grid)
      ? null
      : h("p", {}, legend(scale, most), " ", h("span", { class: "quiet" }, attribution.stacks[names[0]].unit)),
    completeness(attribution),
    faithful(attribution),
  );
}

function scores(page, stack, { values, unit }, scale, most) {
  const label = `Attribution, ${tokensName(stack.name)}${unit ? ` (${unit})` : ""}`;
  if (stack.grid) {
    return [outsideGrid(stack, values), picture(page, { address: page.overview.picture, stack, label, values: onGrid(stack, values), scale, most })];
  }
  return h(
    "div",
    {},
    h("div", { class: "named-line" }, h("span", { class: "line-name" }, tokensName(stack.name)), tokenLine(page, stack, { values, scale, most })),
    numbersBelow(`Numbers: ${label}`, ["position", "token", "value"], () =>
      stack.pieces.map((piece, i) => [String(i + 1), visible(piece), number(values[i], 4)]),
    ),
  );
}

// The scores of positions outside the grid, such as a class token.
function outsideGrid(stack, values) {
  if (!stack.before) return null;
  const others = stack.pieces.slice(0, stack.before).map((piece, i) => `${piece}: ${number(values[i])}`);
  return h("p", { class: "quiet" }, others.join(" · "));
}

function completeness({ sum, f_x, f_baseline, difference, error, nodes }) {
  if (sum === undefined) return null;
  return h(
    "p",
    { class: "completeness" },
    `Sum over all positions ${number(sum)} · f(input) − f(baseline) = ${number(f_x)} − ${f_baseline < 0 ? `(${number(f_baseline)})` : number(f_baseline)} = ${number(difference)} · completeness error ${percent(error)}`,
    nodes ? ` with ${nodes} nodes` : "",
  );
}
