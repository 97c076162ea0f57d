// Layers: what the model would predict after each, what each part added to an answer, and the norms of the vectors.

import { chosenAnswer } from "regard/answers.js";
import { matrixOf } from "regard/arrays.js";
import { bars, lines } from "regard/charts.js";
import { colour, css, ink } from "regard/colours.js";
import { choice, h, missing, number, numbersBelow, percent, problem, visible } from "regard/dom.js";
import { heatmap } from "regard/heatmap.js";
import { partName, tokensName } from "regard/names.js";
import { otherToken } from "regard/search.js";

export const id = "layers";
export const title = "Layers";

const MOST_COLUMNS = 120; // answers in the lens table
const MOST_BARS = 30;
const NO_READOUT = { what: "Not available for this model.", why: "Its answer is not a linear map of the last layer's output." };

export function fits() {
  return true;
}

export async function show(page) {
  const sections = [lens, contributions, norms];
  const [lensSection, parts, normSection] = await Promise.all(sections.map((section) => section(page).catch((error) => problem(error))));
  return h("section", { class: "layers" }, lensSection, h("div", { class: "side-by-side halves" }, parts, normSection));
}

// ---------------------------------------------------------------- the lens

async function lens(page) {
  const heading = [
    h("h2", {}, "Logit lens"),
    h(
      "p",
      { class: "note" },
      "What the model would predict if it stopped after each layer: the final norm and head, applied to the residual stream. " +
        "Agreement: share of answers whose likeliest prediction is already the final one. KL: divergence of the final distribution from the layer's, mean over answers." +
        (page.overview.answers.some((answer) => answer.given) ? " Columns are the tokens that follow in the text; underlined cells predict another." : ""),
    ),
  ];
  if (!page.overview.can.lens) return h("div", {}, heading[0], missing(NO_READOUT));
  const result = await page.ask("lens");
  const layers = result.agreement.labels[0];
  const probabilities = result.answer.values.map((row) => row[chosenAnswer(page)]);
  const depth = layers.map((_, i) => i);
  const kl = result.kl.values.map((row) => row.reduce((a, b) => a + (b ?? 0), 0) / row.length);
  return h(
    "div",
    {},
    heading,
    lensTable(page, result, kl),
    h(
      "div",
      { class: "side-by-side" },
      lines({ label: "Agreement by layer", x: depth, series: [{ name: "agreement", values: result.agreement.values }], xLabel: "layer (0: embedding)", yLabel: "%", range: [0, 100], width: 360, height: 170 }),
      lines({ label: "KL by layer", x: depth, series: [{ name: "KL", values: kl }], xLabel: "layer (0: embedding)", yLabel: "nats", range: [0, Math.max(...kl)], width: 360, height: 170 }),
      lines({
        label: "Probability of the chosen answer by layer",
        x: depth,
        series: [{ name: `p of ${visible(page.overview.answers[chosenAnswer(page)].label)}`, values: probabilities }],
        range: [0, Math.max(...probabilities)],
        xLabel: "layer (0: embedding)",
        yLabel: "p",
        width: 360,
        height: 170,
      }),
    ),
  );
}

function lensTable(page, { agreement, answer: p, kl, likeliest }, meanKl) {
  const answers = page.overview.answers;
  const chosen = chosenAnswer(page);
  const from = answers.length > MOST_COLUMNS ? Math.max(0, Math.min(chosen - MOST_COLUMNS / 2, answers.length - MOST_COLUMNS)) : 0;
  const columns = answers.slice(from, from + MOST_COLUMNS).map((answer, i) => ({ ...answer, index: from + i }));
  const stack = page.overview.stacks.at(-1).name;
  const head = (answer) => {
    const button = h(
      "button",
      {
        type: "button",
        class: "token",
        "aria-pressed": String(answer.index === chosen),
        "aria-label": `answer ${answer.index + 1}: ${visible(answer.label)}`,
        onclick: () => page.state.set({ answer: answer.index, token: undefined }),
      },
      visible(answer.label),
    );
    return h("th", { scope: "col" }, answer.position === null ? button : page.highlight.register(button, stack, answer.position));
  };
  const cell = (row, answer) => {
    const pLikeliest = likeliest.values[row][answer.index];
    const word = visible(likeliest.words[row][answer.index]);
    const background = colour(pLikeliest);
    const about = `${word}: ${percent(pLikeliest)}; ${visible(answer.label)}: ${percent(p.values[row][answer.index])}; KL ${number(kl.values[row][answer.index])}`;
    const missed = answer.given && likeliest.words[row][answer.index] !== answer.label;
    const element = h("td", { class: missed ? "lens-cell missed" : "lens-cell", title: about, style: { background: css(background), color: ink(background) } }, word);
    if (answer.position !== null) page.highlight.register(element, stack, answer.position);
    return element;
  };
  const rows = agreement.labels[0].map((name, row) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, row ? `layer ${name}` : name),
      h("td", { class: "number" }, `${number(agreement.values[row], 0)} %`),
      h("td", { class: "number" }, meanKl[row].toFixed(2)),
      columns.map((answer) => cell(row, answer)),
    ),
  );
  const table = h(
    "table",
    { class: "lens" },
    h("caption", {}, columns.length < answers.length ? `Answers ${from + 1} to ${from + columns.length} of ${answers.length}; cell colour is the probability of the prediction.` : "Cell colour: probability of the prediction, from dark (0) to yellow (1)."),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "after"), h("th", { scope: "col" }, "agreement"), h("th", { scope: "col" }, "KL"), columns.map(head))),
    h("tbody", {}, rows),
  );
  return [
    h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Logit lens" }, table),
    numbersBelow("Numbers: probability of the likeliest after each layer", ["answer", ...likeliest.labels[0]], () =>
      columns.map((answer) => [visible(answer.label), ...likeliest.values.map((row, i) => `${visible(likeliest.words[i][answer.index])} ${number(row[answer.index])}`)]),
    ),
  ];
}

// ---------------------------------------------------------------- what parts added

async function contributions(page) {
  const answer = chosenAnswer(page);
  const token = page.state.get("token") ?? undefined;
  const heading = [
    h("h2", {}, "Direct logit attribution"),
    h(
      "p",
      { class: "note" },
      "The residual stream is the sum of the outputs of all parts, so its dot product with the output vector of a token or class splits its logit exactly.",
    ),
    h("div", { class: "controls" }, answerPicker(page, answer), page.live ? otherToken(page) : null),
  ];
  if (!page.overview.can.lens) return h("div", {}, heading[0], missing(NO_READOUT));
  let parts;
  try {
    parts = await page.ask("contributions", token === undefined ? { answer } : { answer, token });
  } catch (error) {
    return h("div", {}, heading, problem(error)); // with the heading, so that another word can be chosen
  }
  const split = page.state.get("split") ?? "parts";
  const order = page.state.get("order") ?? "layer";
  const sums = [...grouped(parts.labels[0], parts.values, split)];
  const terms = ordered(sums.map(([name, value]) => [nameOf(page, name), value]), order);
  const sum = parts.values.reduce((a, b) => a + b, 0);
  const word = visible(parts.token);
  return h(
    "div",
    { class: "contributions" },
    heading,
    h(
      "div",
      { class: "controls" },
      choice("split into", [["layers", "layers"], ["parts", "parts"], ["heads", "heads"]], split, (value) => page.state.set({ split: value })),
      choice("sort by", [["layer", "layer"], ["size", "size"]], order, (value) => page.state.set({ order: value })),
    ),
    h(
      "p",
      { class: "total" },
      "Logit of ",
      h("strong", {}, word),
      `: ${number(parts.logit)}. The parts sum to `,
      h("span", { class: "sum" }, number(sum)),
      `; the measured difference is ${parts.error.toExponential(1).replace("-", "−")}.`,
      Math.abs(parts.final_logit - parts.logit) > 1e-3
        ? ` This is the logit of the head; with words copied from the source it is ${number(parts.final_logit)}.`
        : "",
    ),
    bars(page, { label: `Contributions to ${word}`, names: terms.map(([name]) => name), values: terms.map(([, value]) => value), unit: "logit", plain: true }),
    numbersBelow("Numbers: all contributions", ["part", "logit"], () => parts.labels[0].map((name, i) => [nameOf(page, name), number(parts.values[i], 4)])),
  );
}

function answerPicker(page, answer) {
  const { answers } = page.overview;
  const stack = page.overview.stacks.at(-1).name;
  const pick = (index) => page.state.set({ answer: index, token: undefined });
  if (answers.length > 400) {
    return choice("answer", answers.map(({ label }, i) => [i, `${i + 1} ${visible(label)}`]), answer, (value) => pick(Number(value)));
  }
  const tokens = answers.map(({ label, position }, i) => {
    const button = h("button", { type: "button", class: "token", "aria-pressed": String(i === answer), onclick: () => pick(i) }, visible(label));
    return position === null ? button : page.highlight.register(button, stack, position);
  });
  return h("div", { class: "line answers", role: "group", "aria-label": "Answer" }, tokens);
}

function nameOf(page, name) {
  return partName(page, name, { stack: /^stage /.test(name) });
}

// Contributions summed by head, part or layer, in the order of the model.
export function grouped(names, values, split) {
  const sums = new Map();
  names.forEach((name, i) => {
    const [, layer, part] = /^(.+\.\d+)\.(\w+)/.exec(name) ?? [];
    const group = !layer || split === "heads" ? name : split === "parts" ? `${layer}.${part}` : layer;
    sums.set(group, (sums.get(group) ?? 0) + values[i]);
  });
  return sums;
}

function ordered(terms, order) {
  if (order !== "size") return terms;
  const sorted = [...terms].sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
  if (sorted.length <= MOST_BARS) return sorted;
  const rest = sorted.slice(MOST_BARS);
  return [...sorted.slice(0, MOST_BARS), [`${rest.length} others`, rest.reduce((a, [, value]) => a + value, 0)]];
}

// ---------------------------------------------------------------- norms

async function norms(page) {
  const byStack = await page.ask("norms");
  const maps = Object.entries(byStack).map(([stack, named]) =>
    h(
      "div",
      {},
      h("h3", {}, tokensName(stack)),
      heatmap(page, {
        matrix: matrixOf(named),
        label: `Norms, ${tokensName(stack)}`,
        rows: { labels: named.labels[0].map((name, i) => (i ? `layer ${name}` : name)), axis: "after the layer", plain: true },
        columns: { labels: named.labels[1], stack, axis: "position", plain: Boolean(page.stack(stack).grid) },
        scale: "positive",
      }),
    ),
  );
  return h(
    "div",
    { class: "norms" },
    h("h2", {}, "Norms of the residual stream"),
    h("p", { class: "note" }, "‖x‖ at each position: of the embedding, and after each layer."),
    maps,
  );
}
