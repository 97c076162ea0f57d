// Compare: one input in two runs, or two inputs in one run; on one colour scale, with the difference.

import { chosenAnswer } from "regard/answers.js";
import { largest } from "regard/arrays.js";
import { lines } from "regard/charts.js";
import { answerBeside, candidates, contributions } from "regard/compared_answers.js";
import { comparedScores } from "regard/compared_heads.js";
import { comparedImages } from "regard/compared_images.js";
import { choice, h, note, orProblem, problem, table, visible } from "regard/dom.js";
import { inputForm } from "regard/header.js";
import { heatmap } from "regard/heatmap.js";
import { nameOf, sidesOf } from "regard/names.js";
import { tokenLine } from "regard/tokens.js";

export const id = "compare";
export const title = "Compare";

const INPUT = "input"; // B is another input of the same run

export function fits(page) {
  return page.runs.length > 1 || page.live;
}

export async function show(page) {
  const chosen = otherSide(page);
  const controls = [h("p", { class: "note" }, noteOf(page, chosen)), choices(page, chosen)];
  if (chosen.run === page.run && !chosen.input) {
    return h("section", { class: "compare" }, controls, note("B starts as a copy of A: edit it, then press Compare."));
  }
  let content;
  try {
    const overview = await page.source.ask(chosen.run, chosen.input, "overview");
    const a = { letter: "A", title: titleOf(page, page.run, page.overview, "A"), overview: page.overview, run: page.run, input: page.input };
    const b = { ...chosen, letter: "B", title: titleOf(page, chosen.run, overview, "B"), overview };
    content = await compared(page, a, b);
  } catch (error) {
    if (!error.what) throw error;
    content = problem(error);
  }
  return h("section", { class: "compare" }, controls, content);
}

function noteOf(page, { kind }) {
  if (kind !== INPUT) {
    const limits = page.live ? "" : " A second input, and A's output forced on B, are not in this file: they need the live page.";
    return `The same input in both runs, on one colour scale.${limits}`;
  }
  const hint = page.live && page.runs.length === 1 ? " To compare two runs, start with: regard explore RUN --beside OTHER" : "";
  return `A second input in the same run (B), beside the one above (A).${hint}`;
}

function titleOf(page, run, { input_text: text }, letter) {
  const shortened = text.length > 60 ? `${text.slice(0, 60)}…` : text;
  return `${letter}: ${page.runs[run].name}${text ? ` · ${shortened}` : ""}`;
}

function otherSide(page) {
  const others = page.runs.map((_, run) => run).filter((run) => run !== page.run);
  const wanted = page.state.get("beside");
  if (!others.length || (wanted === INPUT && page.live)) return { kind: INPUT, run: page.run, input: secondInput(page) };
  const run = others.includes(wanted) ? wanted : others[0];
  const input = page.inputFor(run);
  if (page.state.get("same") && page.runs[run].fields.includes("target")) input.target = page.overview.output_text;
  return { kind: run, run, input };
}

// The one that was asked for; to begin with, another example of the run, if there is one.
function secondInput(page) {
  const { examples } = page.runs[page.run];
  return page.state.get("other") ?? examples.find((example) => JSON.stringify(example) !== JSON.stringify(page.input));
}

function choices(page, { kind, run, input }) {
  const kinds = page.runs.map(({ name }, index) => [index, name]).filter(([index]) => index !== page.run);
  if (page.live) kinds.push([INPUT, "another input"]);
  const canForce = page.live && kind !== INPUT && [run, page.run].every((number) => page.runs[number].fields.includes("target"));
  return [
    h(
      "div",
      { class: "controls" },
      kinds.length > 1 ? choice("beside", kinds, kind, (value) => page.state.set({ beside: value === INPUT ? INPUT : Number(value) })) : null,
      canForce ? sameOutput(page) : null,
    ),
    kind === INPUT
      ? inputForm(page, { label: "Second input", button: "Compare", input: input ?? page.input, submit: (other) => page.state.set({ other }) })
      : null,
  ];
}

// Outputs differ from run to run, and so does what the decoders read, unless B is given A's output.
function sameOutput(page) {
  const box = h("input", { type: "checkbox", id: "same-output", checked: Boolean(page.state.get("same")) });
  box.addEventListener("change", () => page.state.set({ same: box.checked || undefined }));
  return h("span", { class: "field" }, box, h("label", { for: "same-output" }, "force A's output on B"));
}

async function compared(page, a, b) {
  const answer = chosenAnswer(page);
  const numbers = [answer, answerBeside(answer, a, b)]; // of the answer, on each side
  const where = ([a, b].every((side) => side.overview.answers.length === 1)) ? "" : `, answer ${numbers.map((number) => number + 1).join(" of A and ")} of B`;
  return h(
    "div",
    {},
    h("h2", {}, "Output"),
    h("div", { class: a.overview.picture ? "side-by-side" : null }, [a, b].map((side, i) => output(page, side, numbers[i]))),
    answers(a, b),
    h("h2", {}, `Candidates${where}`),
    await orProblem(candidates(page, [a, b], numbers)),
    h("h2", {}, `What each part added${where}`),
    await orProblem(contributions(page, [a, b], numbers)),
    h("h2", {}, "Attention"),
    await attention(page, a, b, numbers),
    h("h2", {}, "Layers"),
    await layers(page, a, b),
  );
}

// ---------------------------------------------------------------- outputs

// The answers of A can be chosen; those of B follow.
function output(page, { letter, title: name, overview }, chosen) {
  const words = { name: `answers of ${name}`, pieces: overview.answers.map(({ label }) => label) };
  const values = overview.answers.map(({ probability }) => probability);
  const pick = (answer) => page.state.set({ answer });
  const options = letter === "A" ? { pick, chosen } : { marked: (position) => position === chosen };
  return h(
    "div",
    { class: "output-of" },
    h("h3", {}, name),
    overview.picture ? h("img", { src: overview.picture, alt: `the image of ${letter}`, class: "pixels compared-image" }) : null,
    overview.output_text ? h("p", {}, h("strong", {}, overview.output_text)) : null,
    overview.answers.length > 1 ? tokenLine(page, words, { values, scale: "unit", most: 1, ...options }) : null,
  );
}

function answers(a, b) {
  const same = samePieces(a.overview.stacks.at(-1), b.overview.stacks.at(-1)) && a.overview.answers.length === b.overview.answers.length;
  const count = Math.min(a.overview.answers.length, b.overview.answers.length, 60);
  const rows = Array.from({ length: count }, (_, i) => {
    const [first, second] = [a.overview.answers[i], b.overview.answers[i]];
    const difference = same && first.label === second.label ? second.probability - first.probability : "–";
    return [String(i + 1), visible(first.label), first.probability, visible(second.label), second.probability, difference];
  });
  const reason = same || a.overview.answers.length === 1 ? "" : " The answers are at different positions: rows do not correspond.";
  return table(
    `The answers, with their probabilities${count < a.overview.answers.length ? `: the first ${count}` : ""}.${reason}`,
    ["answer", "A", "p of A", "B", "p of B", "p of B − p of A"],
    rows,
  );
}

function samePieces(a, b) {
  return a.pieces.length === b.pieces.length && a.pieces.every((piece, i) => piece === b.pieces[i]);
}

// ---------------------------------------------------------------- attention

async function attention(page, a, b, numbers) {
  const parts = page.parts(a.overview).filter((part) => part.attends);
  const others = page.parts(b.overview).filter((part) => part.attends);
  const pairs = parts.map((part) => [part, counterpart(others, part)]).filter(([, other]) => other);
  if (!pairs.length) return h("p", {}, reasonForNone(parts, others));
  const [part, other] = pairs.find(([{ name }]) => name === page.state.get("part")) ?? pairs.at(-1);
  const heads = Math.min(part.heads, other.heads);
  const head = Math.min(page.state.get("head") ?? 0, heads - 1);
  const controls = h(
    "div",
    { class: "controls" },
    choice("layer", pairs.map(([ours]) => [ours.name, nameOf(ours)]), part.name, (value) => page.state.set({ part: value })),
    choice("head", Array.from({ length: heads }, (_, i) => [i, String(i + 1)]), head, (value) => page.state.set({ head: Number(value) })),
  );
  let weights;
  try {
    weights = await Promise.all([[a, part], [b, other]].map(([{ run, input }, { name }]) => page.source.matrix(run, input, `${name}.weights`, { head })));
  } catch (error) {
    return h("div", {}, controls, problem(error));
  }
  const why = whyNoDifference(part, other, ...weights);
  const maps = [[a, part, weights[0]], [b, other, weights[1]]].map(([side, part, matrix]) =>
    h("div", {}, h("h3", {}, side.title), map(page, part, matrix, `${nameOf(part)}, head ${head + 1} of ${side.title}`, "unit", 1)),
  );
  return h(
    "div",
    {},
    controls,
    part.heads === other.heads ? null : h("p", { class: "quiet" }, `A has ${part.heads} heads in this layer, B has ${other.heads}; head numbers do not correspond across runs.`),
    h("div", { class: "side-by-side maps" }, maps, why ? note(why) : difference(page, part, weights, head)),
    part.keys.grid && other.keys.grid && a.overview.picture && b.overview.picture
      ? await orProblem(comparedImages(page, [a, b], numbers, [part, other], head))
      : null,
    comparedScores(page, [a, b], pairs),
  );
}

// The attention to the same stack in the same layer. In a Bahdanau decoder, that is the mixer itself.
function counterpart(others, part) {
  return others.find(({ stack, layer, cross }) => stack.name === part.stack.name && layer === part.layer && cross === part.cross);
}

function reasonForNone(parts, others) {
  if (!parts.length || !others.length) return "There is nothing to compare: one of the two models has no attention.";
  const names = [parts, others].map((all) => [...new Set(all.map((part) => part.stack.name))].join(", "));
  return `There is nothing to compare: the two models have different stacks (A: ${names[0]}; B: ${names[1]}).`;
}

function whyNoDifference(part, other, a, b) {
  if (!samePieces(part.stack, other.stack) || !samePieces(part.keys, other.keys)) {
    return "There is no difference map: the tokens differ, so the cells of the two maps do not correspond.";
  }
  return a.head.shape.join() === b.head.shape.join() ? "" : "There is no difference map: the two maps have different sizes.";
}

function difference(page, part, [a, b], head) {
  const values = a.values.map((value, i) => b.values[i] - value);
  const matrix = { head: a.head, values };
  const label = `B − A, ${nameOf(part)}, head ${head + 1}`;
  return h("div", {}, h("h3", {}, "Difference: B − A"), map(page, part, matrix, label, "signed", largest(values) || 1));
}

function map(page, part, matrix, label, scale, most) {
  return heatmap(page, {
    matrix, label, scale, most, cell: Math.max(1, Math.min(22, Math.floor(400 / Math.max(...matrix.head.shape)))),
    ...sidesOf(part),
  });
}

// ---------------------------------------------------------------- layers

async function layers(page, a, b) {
  const [lenses, norms] = await Promise.all(["lens", "norms"].map((what) => Promise.all([a, b].map((side) => answerOrProblem(page, side, what)))));
  const charts = [];
  if (lenses.every(({ agreement }) => agreement)) {
    charts.push(
      overLayers("Lens: share of answers that each layer already predicts", "% agreement", [a, b].map((side, i) => [side.title, lenses[i].agreement.values])),
    );
  } else charts.push(problem(lenses.find(({ what }) => what)));
  for (const stack of a.overview.stacks.filter(({ name }) => norms.every((byStack) => byStack[name]))) {
    charts.push(
      overLayers(`Residual stream of the ${stack.name}: mean norm`, "length", [a, b].map((side, i) => [side.title, norms[i][stack.name].values.map(mean)])),
    );
  }
  return h("div", { class: "side-by-side" }, charts);
}

// An answer, or its error as a value, so that an error on one side does not take the rest of the view away.
async function answerOrProblem(page, { run, input }, what) {
  try {
    return await page.source.ask(run, input, what);
  } catch (error) {
    if (!error.what) throw error;
    return error;
  }
}

function overLayers(label, yLabel, curves) {
  const count = Math.max(...curves.map(([, values]) => values.length));
  const chart = lines({
    label,
    x: Array.from({ length: count }, (_, i) => i),
    series: curves.map(([name, values]) => ({ name, values: Array.from({ length: count }, (_, i) => values[i] ?? null) })),
    xLabel: "layer (0: embedding)",
    yLabel,
    width: 420,
  });
  return h("div", { class: "chart-column" }, h("h3", {}, label), chart);
}

function mean(values) {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
