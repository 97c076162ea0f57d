// Steps: one position's way through the model, one step at a time, with the model's own numbers.

import { chosenAnswer } from "regard/answers.js";
import { largest, row as rowOf } from "regard/arrays.js";
import { arithmeticPanel, formula } from "regard/arithmetic.js";
import { describe } from "regard/cells.js";
import { bars } from "regard/charts.js";
import { choice, h, percent, problem, visible } from "regard/dom.js";
import { heatmap } from "regard/heatmap.js";
import { edgeOf, pieceAt, placeAt, whole } from "regard/names.js";
import { Problem } from "regard/source.js";
import { strip } from "regard/strip.js";
import { swatch, tokenLine } from "regard/tokens.js";
import { neighbour, place } from "regard/walk.js";

export const id = "steps";
export const title = "Steps";
const MOST_TOKENS = 160; // shown as buttons; of more, as a list

export function fits(page) {
  return page.overview.stacks.length > 0;
}

// The current step, layer, position and head: from the address, as far as they exist.
async function currentStep(page) {
  const stacks = page.overview.stacks;
  const within = (value, most) => Math.max(0, Math.min(Number.isInteger(value) ? value : 0, most - 1));
  const stack = stacks.find(({ name }) => name === page.state.get("stack")) ?? stacks[0];
  const layer = within(page.state.get("layer"), stack.layers.length);
  const walk = await page.ask("steps", { stack: stack.name, layer });
  const position = within(page.state.get("position") ?? walk.position, stack.pieces.length);
  const heads = Math.max(0, ...stack.layers[layer].parts.map((part) => part.heads));
  const number = Math.max(0, walk.steps.findIndex((step) => step.id === page.state.get("step")));
  const last = stack === stacks.at(-1);
  return {
    stack, layer, layers: walk.layers, steps: walk.steps, position, heads, number, last,
    head: within(page.state.get("head"), heads || 1),
    step: walk.steps[number],
    answer: last ? answerAt(page, position) : -1,
  };
}

// The answer that is read at a position: the chosen one if there are several, −1 if there is none.
function answerAt(page, position) {
  const here = page.overview.answers.flatMap((answer, index) => ([null, position].includes(answer.position) ? [index] : []));
  return here.includes(chosenAnswer(page)) ? chosenAnswer(page) : (here[0] ?? -1);
}

export async function show(page) {
  const here = await currentStep(page);
  const open = (changes) => page.state.set({ cell: undefined, window: undefined, ...changes });
  const step = await stepInDetail(page, here);
  return h(
    "section",
    { class: "steps" },
    h(
      "p",
      { class: "note" },
      "One position on its way through the model. Next and Previous (or the arrow keys) move; ",
      "click any number to see how it was computed.",
    ),
    moves(page, here), // before the positions and the list of steps: the keyboard gets here first
    controls(page, here, open),
    patchPicker(page, here, open),
    answerLine(page, here, open),
    h("div", { class: "walk" }, overview(here, open), h("div", { class: "one-step" }, step)),
  );
}

// ---------------------------------------------------------------- choosing a position

function controls(page, here, open) {
  const { stack, layer, position, heads, head } = here;
  const numbered = (count, word) => Array.from({ length: count }, (_, i) => [i, `${word} ${i + 1} of ${count}`]);
  const stacks = page.overview.stacks.map(({ name }) => [name, name]);
  return h(
    "div",
    { class: "controls" },
    stacks.length > 1
      ? choice("stack", stacks, stack.name, (name) => open({ stack: name, layer: 0, position: undefined }))
      : null,
    choice("layer", numbered(here.layers, "layer"), layer, (value) => open({ layer: Number(value) })),
    heads > 1 ? choice("head", numbered(heads, "head"), head, (value) => open({ head: Number(value) })) : null,
    stack.grid || stack.pieces.length > MOST_TOKENS
      ? [
          choice(
            "position",
            stack.pieces.map((_, i) => [i, stack.grid ? pieceAt(stack, i) : `${whole(i + 1)}: ${pieceAt(stack, i)}`]),
            position,
            (value) => open({ position: Number(value) }),
          ),
          swatch(stack.pieces[position]),
        ]
      : h(
          "span",
          { class: "field" },
          h("span", { class: "quiet" }, "position"),
          tokenLine(page, stack, { pick: (value) => open({ position: value }), chosen: position }),
        ),
  );
}

// The picture with the patch outlined; a click chooses another. (By keyboard, the list of positions does.)
function patchPicker(page, { stack, position }, open) {
  if (!stack.grid || !page.overview.picture) return null;
  const [rows, columns] = stack.grid;
  const patch = position - stack.before;
  const at = (index, count) => `${(100 * index) / count}%`;
  const outline = h("div", {
    class: "at-cell outlined",
    hidden: patch < 0,
    style: {
      left: at(patch % columns, columns),
      top: at(Math.floor(patch / columns), rows),
      width: at(1, columns),
      height: at(1, rows),
    },
  });
  const choose = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    const down = Math.min(rows - 1, Math.floor(((event.clientY - box.top) / box.height) * rows));
    const across = Math.min(columns - 1, Math.floor(((event.clientX - box.left) / box.width) * columns));
    open({ position: stack.before + down * columns + across });
  };
  const alt = `the input; the position is ${pieceAt(stack, position)}`;
  const image = h("img", { src: page.overview.picture, class: "pixels", alt });
  return h("div", { class: "pick-patch", onclick: choose }, image, outline);
}

// The answer read at this position; of generated text, the words so far and the next one.
function answerLine(page, here, open) {
  const { stack, position, answer, last } = here;
  if (!last) return null;
  const current = page.overview.answers[answer];
  if (!current) {
    const positions = page.overview.answers.map(({ position }) => position).filter(Number.isInteger);
    const link = (position) =>
      h("button", { type: "button", onclick: () => open({ position }) }, placeAt(stack, position));
    const text = "No answer is read at this position. Answers are read at ";
    return h("p", { class: "writing" }, text, [...new Set(positions)].slice(0, 8).map(link));
  }
  const label = h("span", {}, swatch(current.label), h("strong", {}, visible(current.label)), ` (${percent(current.probability)})`);
  if (!stack.causal || page.overview.answers.length < 2) {
    return h("p", { class: "writing" }, "answer: ", label, " ", otherAnswers(page, here, open));
  }
  const next = page.overview.answers.some((answer) => answer.position === position + 1);
  return h(
    "p",
    { class: "writing" },
    h("span", { class: "quiet" }, "so far: "),
    stack.pieces.slice(Math.max(0, position - 12), position + 1).map((piece) => h("span", { class: "token" }, swatch(piece), visible(piece))),
    h("span", { class: "quiet" }, " → next: "),
    label,
    " ",
    next ? h("button", { type: "button", onclick: () => open({ position: position + 1 }) }, "Next position") : null,
  );
}

// The other answers read at the same position, such as the start and the end of a span.
function otherAnswers(page, { position, answer }, open) {
  return page.overview.answers.flatMap((other, index) =>
    other.position !== position || index === answer
      ? []
      : [h("button", { type: "button", onclick: () => open({ answer: index }) }, visible(other.label))],
  );
}

function overview(here, open) {
  let group = null;
  const lines = here.steps.flatMap((step, index) => {
    const heading = step.group !== group ? h("li", { class: "group" }, groupName(here, step)) : null;
    group = step.group;
    const button = h(
      "button",
      { type: "button", "aria-current": index === here.number ? "step" : null, onclick: () => open({ step: step.id }) },
      formula(step.title),
    );
    return [heading, h("li", {}, button)].filter(Boolean);
  });
  return h("nav", { class: "overview", "aria-label": "All steps" }, h("ol", {}, lines));
}

function groupName(here, step) {
  if (["Input", "Output", "Next layer"].includes(step.group)) return step.group;
  return `Layer ${here.layer + 1}: ${step.group}`;
}

// ---------------------------------------------------------------- from step to step

let refocus = null; // the button that was used, which gets the focus back when the view is redrawn

function moves(page, here) {
  const where = h("span", { class: "quiet" }, place(page, here));
  return h("div", { class: "moves" }, moveButton(page, here, -1, "← Previous"), moveButton(page, here, 1, "Next →"), where);
}

function moveButton(page, here, by, text) {
  const target = neighbour(page, here, by);
  const name = by > 0 ? "next-step" : "previous-step";
  return h(
    "button",
    {
      type: "button",
      id: name,
      disabled: target === null,
      onclick: () => {
        refocus = name;
        page.state.set({ cell: undefined, window: undefined, ...target });
      },
    },
    text,
  );
}

// Arrow keys move, unless the focused element needs them itself.
document.addEventListener("keydown", (event) => {
  const name = { ArrowRight: "next-step", ArrowLeft: "previous-step" }[event.key];
  const busy = event.target.closest?.("input, select, textarea, [role=tab], [role=application], .scroll, .line");
  if (!name || busy || event.ctrlKey || event.altKey || event.metaKey || event.shiftKey) return;
  if (document.querySelector("#panel[data-view=steps]")) document.getElementById(name)?.click();
});

// ---------------------------------------------------------------- one step in detail

async function stepInDetail(page, here) {
  const { step } = here;
  const panel = arithmeticPanel(page, {
    describe: (cell) => describe(page, cell),
    onopen: (cell) => page.state.set({ cell }, { quietly: true }),
  });
  const drawn = []; // every figure, so that only one of them has a chosen cell
  const open = (figure, cell) => {
    for (const other of drawn) if (other !== figure) other.keep?.(null);
    page.state.set({ cell }, { quietly: true });
    return panel.start(cell);
  };
  const wanted = page.state.get("cell");
  const figures = await Promise.all(step.figures.map((spec) => loaded(page, here, spec)));
  const cell = Array.isArray(wanted) && wanted.length === 4 ? wanted : firstCell(here, figures);
  shareScales(figures);
  const pictures = figures.map((figure) => {
    const { spec } = figure;
    const element = picture(page, here, figure, cell, (opened) => open(element, opened));
    drawn.push(element);
    const sign = spec.sign ? h("span", { class: "sign", "aria-hidden": "true" }, spec.sign) : null;
    const heading = h("h3", {}, sign, h("span", {}, formula(spec.label), ofHead(here, spec)));
    return h("div", { class: `shown ${spec.draw}` }, heading, element);
  });
  if (cell) await panel.start(cell);
  if (refocus) {
    const name = refocus;
    refocus = null;
    setTimeout(() => document.getElementById(name)?.focus());
  }
  page.say(`${step.title}: ${place(page, here)}`);
  return [
    h("h2", {}, formula(step.title), where(here)),
    h("p", { class: "sentence" }, formula(step.sentence)),
    h("p", { class: "formula large-formula" }, formula(step.formula)),
    step.legend ? h("p", { class: "quiet where" }, formula(step.legend)) : null,
    page.state.get("window")
      ? h("button", { type: "button", onclick: () => page.state.set({ window: undefined }) }, "Show the full map")
      : null,
    h("div", { class: "step-body" }, h("div", { class: "pictures" }, pictures), cell ? panel : null),
  ];
}

function where(here) {
  const { stack, position } = here;
  const at = stack.grid ? pieceAt(stack, position) : `position ${whole(position + 1)} “${pieceAt(stack, position)}”`;
  return ["Input", "Output"].includes(here.step.group) ? `, ${at}` : `, layer ${here.layer + 1}, ${at}`;
}

function ofHead(here, spec) {
  return spec.heads && here.heads > 1 ? `, head ${here.head + 1}` : "";
}

// A figure of a step (step.py) with its numbers, or an error in their place.
async function loaded(page, here, spec) {
  const head = spec.heads ? here.head : null;
  const window = page.state.get("window");
  try {
    if (!spec.rows && here.answer < 0) {
      throw new Problem({ what: "No answer is read at this position.", why: "The model predicts nothing here.", fix: "Choose another." });
    }
    if (spec.draw === "bars") return { spec, head, likeliest: await page.ask("likeliest", { answer: here.answer }) };
    const row = spec.rows ? here.position : here.answer;
    const options = head === null ? {} : { head };
    if (spec.draw === "map") {
      const region = spec.columns ? (window ?? {}) : window ? { rows: window.columns ?? window.rows } : {};
      return { spec, head, row, matrix: await page.matrix(spec.matrix, { ...options, ...region }) };
    }
    const columns = spec.draw === "row" && window?.columns ? { columns: window.columns } : {};
    const request = page.live ? { ...options, rows: [row, row + 1], ...columns } : options;
    return { spec, head, row, matrix: onlyRow(await page.matrix(spec.matrix, request), row) };
  } catch (error) {
    if (!error.what) console.error(error);
    return { spec, head, error };
  }
}

// One row: a file has the whole matrix.
function onlyRow(matrix, row) {
  const [count, columns] = matrix.head.shape;
  if (count === 1) return matrix;
  const index = Math.min(count - 1, Math.floor(row / (matrix.head.step?.[0] ?? 1)));
  const values = rowOf(matrix, index);
  return { head: { ...matrix.head, shape: [1, columns], from: [row, matrix.head.from?.[1] ?? 0] }, values };
}

// The last figure is what the step is about: its first number, or the largest of a row.
function firstCell(here, figures) {
  const figure = figures.filter(({ error, spec }) => !error && spec.draw !== "map").at(-1);
  if (!figure) return null;
  const { spec, head, row, matrix, likeliest } = figure;
  if (spec.draw === "bars") return [spec.matrix, null, here.answer, likeliest.tokens[0]];
  if (spec.draw === "strip") return [spec.matrix, head, row, 0];
  let best = 0;
  matrix.values.forEach((value, i) => value > matrix.values[best] && (best = i));
  return [spec.matrix, head, row, (matrix.head.from?.[1] ?? 0) + best * (matrix.head.step?.[1] ?? 1)];
}

// The summands share the scale of their sum, so that colours can be compared.
function shareScales(figures) {
  const sum = figures.findIndex(({ spec }) => spec.sign === "=");
  if (sum < 0) return;
  const together = figures.slice(0, sum + 1).filter(({ matrix }) => matrix);
  const most = Math.max(...together.map(({ matrix }) => largest(matrix.values)));
  for (const figure of together) figure.most = most;
}

function picture(page, here, figure, cell, open) {
  const { spec, head, row, matrix, error } = figure;
  if (error) return problem(error);
  const label = `${spec.label.replaceAll("_", "")}${ofHead(here, spec)}`;
  const stack = spec.rows && page.stack(spec.rows);
  if (spec.draw === "bars") return likeliestBars(page, here, figure, open);
  if (spec.draw === "strip") {
    const chosen = cell && cell[0] === spec.matrix && cell[1] === head && cell[2] === row ? cell[3] : null;
    const joined = spec.matrix.endsWith(".joined");
    const options = joined ? { part: here.head, parts: here.heads } : {};
    return strip(page, {
      values: matrix.values, label, most: figure.most ?? null, chosen, ...options,
      open: (column) => open([spec.matrix, head, row, column]),
    });
  }
  const width = matrix.head.shape[1];
  const columns = spec.columns
    ? edgeOf(page.stack(spec.columns), "key")
    : { labels: Array.from({ length: width }, (_, i) => whole(i + 1)), axis: "component" };
  const isRow = spec.draw === "row";
  const from = matrix.head.from?.[0] ?? 0;
  return heatmap(page, {
    matrix,
    label,
    scale: spec.matrix.endsWith(".weights") ? "unit" : "signed",
    rows: edgeOf(stack, spec.columns ? "query" : "position"),
    columns,
    cell: isRow ? null : Math.max(3, Math.min(16, Math.floor(480 / Math.max(...matrix.head.shape)))),
    markedRow: !isRow && stack === here.stack ? Math.floor((here.position - from) / (matrix.head.step?.[0] ?? 1)) : null,
    markedCell: cell && isRow && cell[0] === spec.matrix && cell[1] === head && cell[2] === row ? [row, cell[3]] : null,
    open: (down, across) => open([spec.matrix, head, down, across]),
    zoom: (window) => page.state.set({ window: isRow ? { columns: window.columns } : window }),
  });
}

function likeliestBars(page, here, { spec, likeliest }, open) {
  const logits = spec.matrix === "logits";
  return bars(page, {
    label: spec.label,
    names: likeliest.names.map((name, i) => `${visible(name)}${likeliest.tokens[i] === likeliest.output ? "\u00a0✓" : ""}`),
    values: logits ? likeliest.logits : likeliest.probabilities,
    pick: (index) => open([spec.matrix, null, here.answer, likeliest.tokens[index]]),
    ...(logits ? {} : { format: percent, most: 1 }),
  });
}
