// Training: the curves of the run, and the same input at every checkpoint.

import { matrixOf } from "regard/arrays.js";
import { lines } from "regard/charts.js";
import { choice, h, note, number, percent, problem, table, visible } from "regard/dom.js";
import { heatmap, thumbnail } from "regard/heatmap.js";
import { partName, sidesOf } from "regard/names.js";

export const id = "training";
export const title = "Training";

const MOST_ANSWERS = 40; // rows of the table

export function fits() {
  return true;
}

export async function show(page) {
  const sections = [curves, checkpoints];
  const drawn = await Promise.all(sections.map((section) => section(page).catch((error) => problem(error))));
  return h("section", { class: "training" }, drawn);
}

// ---------------------------------------------------------------- curves

async function curves(page) {
  const panels = await page.ask("curves");
  const charts = panels.map(({ title, series }) => {
    const drawn = series.filter(({ values }) => values.length).map(({ name, steps, values }) => ({ name, x: steps, values }));
    return h("div", {}, h("h3", {}, title), lines({ label: `${title} over steps`, series: drawn, xLabel: "step", yLabel: title, width: 420, height: 200 }));
  });
  return h(
    "div",
    { class: "curves" },
    h("h2", {}, "Training curves"),
    lossNote(page.runs[page.run]),
    charts.length ? h("div", { class: "side-by-side" }, charts) : h("p", {}, "The run has no metrics."),
  );
}

// A note on why the two losses are not comparable.
function lossNote({ smoothing, dropout }) {
  const extras = [smoothing ? `label smoothing (${smoothing})` : "", dropout ? `dropout (${dropout})` : ""].filter(Boolean);
  if (!extras.length) return null;
  return note(`The training loss includes ${extras.join(" and ")}; the validation loss does not, so it may be lower.`);
}

// ---------------------------------------------------------------- checkpoints

// The options of `at_checkpoint`; the final model has no step.
function optionsAt(moment, options = {}) {
  return moment.step === null ? options : { step: moment.step, ...options };
}

async function checkpoints(page) {
  const heading = [
    h("h2", {}, "The same input, at every checkpoint"),
    h("p", { class: "note" }, "The run's checkpoints, loaded one after the other; input and answers stay those of the final model. ", "A training keeps two; training.keep_checkpoints=20 keeps more."),
  ];
  const { steps, shown, problems, final } = await page.ask("checkpoints");
  const moments = [
    ...shown.map((step) => ({ step, name: `step ${step.toLocaleString("en")}` })),
    { step: null, name: final === null ? "final" : `final (step ${final.toLocaleString("en")})` },
  ];
  const others = steps.length - (final === null ? 0 : 1);
  const damaged = Object.entries(problems).map(([step, why]) => h("p", { class: "problem" }, `The checkpoint of step ${step} cannot be used: ${why}.`));
  const sections = [answers, page.overview.can.lens ? lens : null, page.overview.can.attention ? oneHead : null].filter(Boolean);
  const drawn = await Promise.all(sections.map((section) => section(page, moments).catch((error) => problem(error))));
  return h(
    "div",
    { class: "checkpoints" },
    heading,
    damaged,
    shown.length ? null : h("p", {}, "The run has no other usable checkpoint; only the final model is shown."),
    shown.length < others ? h("p", { class: "quiet" }, `${shown.length} of ${others} checkpoints.`) : null,
    drawn,
  );
}

async function answers(page, moments) {
  const results = await Promise.all(moments.map((moment) => page.ask("at_checkpoint", optionsAt(moment))));
  const cell = ({ values, words }, label, i) => `${percent(values[i])}${words[i] === label ? "" : ` (${visible(words[i])})`}`;
  const rows = page.overview.answers.map(({ label }, i) => [visible(label), ...results.map((result) => cell(result, label, i))]);
  const means = results.map(({ values }) => values.reduce((a, b) => a + b, 0) / values.length);
  return h(
    "div",
    { class: "answers-over-time" },
    h("h3", {}, "Probability of the final answers"),
    table(
      rows.length > MOST_ANSWERS ? `The first ${MOST_ANSWERS} of ${rows.length} answers; in brackets, the likeliest token where it differs` : "In brackets: the likeliest token where it differs",
      ["answer", ...moments.map((moment) => moment.name)],
      [["mean", ...means.map(percent)], ...rows.slice(0, MOST_ANSWERS)],
    ),
  );
}

async function lens(page, moments) {
  const results = await Promise.all(moments.map((moment) => page.ask("at_checkpoint", optionsAt(moment, { what: "lens" }))));
  const layers = results[0].agreement.labels[0].map((name, i) => (i ? `layer ${name}` : name));
  const chart = (label, unit, what, range = null) =>
    lines({
      label,
      x: layers.map((_, i) => i),
      series: results.map((result, i) => ({ name: moments[i].name, values: result[what].values })),
      xLabel: "layer (0: embedding)",
      yLabel: unit,
      range,
      width: 460,
    });
  return h(
    "div",
    { class: "lens-over-time" },
    h("h3", {}, "Logit lens: agreement and KL with each checkpoint's own final layer"),
    h("div", { class: "side-by-side" }, chart("Agreement by layer at every checkpoint", "%", "agreement", [0, 100]), chart("KL by layer at every checkpoint", "nats", "kl")),
  );
}

async function oneHead(page, moments) {
  const parts = page.parts().filter((part) => part.attends);
  const part = parts.find(({ name }) => name === page.state.get("part")) ?? parts.at(-1);
  const head = Math.min(page.state.get("head") ?? 0, part.heads - 1);
  const maps = await Promise.all(moments.map((moment) => page.ask("at_checkpoint", optionsAt(moment, { what: "weights", part: part.name, head: head || undefined }))));
  const chosen = Math.max(0, moments.findIndex(({ step }) => step === (page.state.get("checkpoint") ?? null)));
  const name = partName(page, `${part.name}.${head}`);
  const options = parts.flatMap(({ name, heads }) => Array.from({ length: heads }, (_, i) => [`${name}.${i}`, partName(page, `${name}.${i}`)]));
  const pick = (value) => {
    const cut = value.lastIndexOf(".");
    page.state.set({ part: value.slice(0, cut), head: Number(value.slice(cut + 1)) });
  };
  const pictures = maps.map((map, i) =>
    h(
      "button",
      { type: "button", "aria-pressed": String(i === chosen), "aria-label": `${name} at ${moments[i].name}`, onclick: () => page.state.set({ checkpoint: moments[i].step ?? undefined }) },
      thumbnail(matrixOf(map)),
      moments[i].name,
    ),
  );
  return h(
    "div",
    { class: "head-over-time" },
    h("h3", {}, "Attention of one head"),
    page.live ? h("div", { class: "controls" }, choice("head", options, `${part.name}.${head}`, pick)) : h("p", { class: "quiet" }, `${name}. The live page has the others.`),
    h("div", { class: "over-time", role: "group", "aria-label": `${name} at every checkpoint` }, pictures),
    heatmap(page, {
      matrix: matrixOf(maps[chosen]),
      label: `${name} at ${moments[chosen].name}`,
      ...sidesOf(part),
    }),
    maps.length > 1
      ? note(
          "Change of the map from one checkpoint to the next: mean |weight − previous weight| over its cells ",
          `(0: no change): ${changes(maps, moments)}.`,
        )
      : null,
  );
}

function changes(maps, moments) {
  const flat = maps.map((map) => map.values.flat());
  const means = flat.slice(1).map((now, i) => now.reduce((sum, value, at) => sum + Math.abs(value - flat[i][at]), 0) / now.length);
  return means.map((value, i) => `${moments[i].name} → ${moments[i + 1].name} ${number(value)}`).join(" · ");
}
