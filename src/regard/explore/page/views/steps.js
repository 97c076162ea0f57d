// Steps: what happens to one position on its way through the model, one step at a time, with the model's own numbers.

import { chosenAnswer } from "regard/answers.js";
import { largest, row as rowOf } from "regard/arrays.js";
import { arithmeticPanel, formula } from "regard/arithmetic.js";
import { bars } from "regard/charts.js";
import { choice, h, percent, problem, visible } from "regard/dom.js";
import { heatmap } from "regard/heatmap.js";
import { tokensName } from "regard/names.js";
import { Problem } from "regard/source.js";
import { strip } from "regard/strip.js";
import { tokenLine } from "regard/tokens.js";

export const id = "steps";
export const title = "Steps";
const MOST_TOKENS = 160; // that are shown as buttons; of more, a list is chosen from

export function fits(page) {
  return page.look.stacks.length > 0;
}

// Where one is: what the address says, as far as there is such a thing.
async function place(page) {
  const stacks = page.look.stacks;
  const within = (value, most) => Math.max(0, Math.min(Number.isInteger(value) ? value : 0, most - 1));
  const stack = stacks.find((each) => each.name === page.state.get("stack")) ?? stacks[0];
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

// The answer that is read at a position: of several, the chosen one. −1: none.
function answerAt(page, position) {
  const here = page.look.answers.flatMap((each, index) => (each.position === null || each.position === position ? [index] : []));
  return here.includes(chosenAnswer(page)) ? chosenAnswer(page) : (here[0] ?? -1);
}

export async function show(page) {
  const here = await place(page);
  const open = (changes) => page.state.set({ cell: undefined, window: undefined, ...changes });
  const large = await oneStep(page, here);
  return h(
    "section",
    { class: "steps" },
    h(
      "p",
      { class: "note" },
      "One position on its way through the model. Next and Previous (or the arrow keys) move; ",
      "click any number to see how it was computed.",
    ),
    controls(page, here, open),
    patches(page, here, open),
    writing(page, here, open),
    h("div", { class: "walk" }, overview(here, open), h("div", { class: "one-step" }, large)),
  );
}

// ---------------------------------------------------------------- where one is

function controls(page, here, open) {
  const { stack, layer, position, heads, head } = here;
  const numbered = (count, word) => Array.from({ length: count }, (_, i) => [i, `${word} ${i + 1} of ${count}`]);
  const stacks = page.look.stacks.map((each) => [each.name, each.name]);
  return h(
    "div",
    { class: "controls" },
    stacks.length > 1
      ? choice("stack", stacks, stack.name, (name) => open({ stack: name, layer: 0, position: undefined }))
      : null,
    choice("layer", numbered(here.layers, "layer"), layer, (value) => open({ layer: Number(value) })),
    heads > 1 ? choice("head", numbered(heads, "head"), head, (value) => open({ head: Number(value) })) : null,
    stack.grid || stack.pieces.length > MOST_TOKENS
      ? choice(
          "position",
          stack.pieces.map((_, i) => [i, `${i + 1}: ${named(stack, i)}`]),
          position,
          (value) => open({ position: Number(value) }),
        )
      : h(
          "span",
          { class: "field" },
          h("span", { class: "quiet" }, "position"),
          tokenLine(page, stack, { pick: (value) => open({ position: value }), chosen: position }),
        ),
  );
}

// The picture with the patch outlined; a click chooses another one. (By keyboard there is the list of positions.)
function patches(page, { stack, position }, open) {
  if (!stack.grid || !page.look.picture) return null;
  const [rows, columns] = stack.grid;
  const patch = position - stack.before;
  const at = (index, count) => `${(100 * index) / count}%`;
  const outline = h("div", {
    class: "at-cell kept",
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
  const alt = `the input; the position is ${named(stack, position)}`;
  const image = h("img", { src: page.look.picture, class: "pixels", alt });
  return h("div", { class: "pick-patch", onclick: choose }, image, outline);
}

// Of what writes one word after the other: what stands there, and what comes next.
function writing(page, here, open) {
  const { stack, position, answer, last } = here;
  if (!last) return null;
  const causal = stack.layers.some((layer) => layer.parts.some((part) => part.causal));
  const said = page.look.answers[answer];
  if (!said) {
    const places = page.look.answers.map((each) => each.position).filter((each) => each !== null);
    const there = (each) =>
      h("button", { type: "button", onclick: () => open({ position: each }) }, `${each + 1}: ${named(stack, each)}`);
    const text = "No answer is read at this position. Answers are read at ";
    return h("p", { class: "writing" }, text, [...new Set(places)].slice(0, 8).map(there));
  }
  const answered = h("span", {}, h("strong", {}, visible(said.label)), ` (${percent(said.probability)})`);
  if (!causal || page.look.answers.length < 2) {
    return h("p", { class: "writing" }, "read at the end: ", answered, " ", others(page, here, open));
  }
  const next = page.look.answers.some((each) => each.position === position + 1);
  return h(
    "p",
    { class: "writing" },
    h("span", { class: "quiet" }, "so far: "),
    stack.pieces.slice(Math.max(0, position - 12), position + 1).map((piece) => h("span", { class: "token" }, visible(piece))),
    h("span", { class: "quiet" }, " → next: "),
    answered,
    " ",
    next ? h("button", { type: "button", onclick: () => open({ position: position + 1 }) }, "Next position") : null,
  );
}

// Where several answers are read at one position, such as the beginning and the end of a span, the others.
function others(page, { position, answer }, open) {
  return page.look.answers.flatMap((each, index) =>
    each.position !== position || index === answer
      ? []
      : [h("button", { type: "button", onclick: () => open({ answer: index }) }, visible(each.label))],
  );
}

function overview(here, open) {
  let group = null;
  const lines = here.steps.flatMap((step, index) => {
    const titled = step.group !== group ? h("li", { class: "group" }, groupName(here, step)) : null;
    group = step.group;
    const button = h(
      "button",
      { type: "button", "aria-current": index === here.number ? "step" : null, onclick: () => open({ step: step.id }) },
      formula(step.title),
    );
    return [titled, h("li", {}, button)].filter(Boolean);
  });
  return h("nav", { class: "overview", "aria-label": "All steps" }, h("ol", {}, lines));
}

function groupName(here, step) {
  if (["Input", "Output", "Next layer"].includes(step.group)) return step.group;
  return `Layer ${here.layer + 1}: ${step.group}`;
}

// ---------------------------------------------------------------- from step to step

// What the step before or after this one is; it may lie in another layer or stack.
function neighbour(page, here, by) {
  const { steps, number, layer, layers, stack, step } = here;
  const stacks = page.look.stacks;
  const inLayer = (each) => !["Input", "Output", "Next layer"].includes(each.group);
  const firstOfLayer = steps.find(inLayer);
  const lastOfLayer = steps.filter(inLayer).at(-1);
  if (by > 0) {
    if (step.id === "next") return { layer: layer + 1, step: firstOfLayer.id };
    if (number + 1 < steps.length) return { step: steps[number + 1].id };
    const following = stacks[stacks.indexOf(stack) + 1];
    return following ? { stack: following.name, layer: 0, position: undefined, step: "token" } : null;
  }
  if (step === firstOfLayer && layer > 0) return { layer: layer - 1, step: "next" };
  if (step.group === "Output" && steps[number - 1]?.id === "next") return { layer: layers - 1, step: lastOfLayer.id };
  if (number > 0) return { step: steps[number - 1].id };
  const earlier = stacks[stacks.indexOf(stack) - 1];
  return earlier ? { stack: earlier.name, layer: earlier.layers.length - 1, position: undefined, step: "handed" } : null;
}

let refocus = null; // the button that was used: the view is drawn anew, and it should stay under the finger

function moving(page, here, by, text) {
  const to = neighbour(page, here, by);
  const name = by > 0 ? "next-step" : "previous-step";
  return h(
    "button",
    {
      type: "button",
      id: name,
      disabled: to === null,
      onclick: () => {
        refocus = name;
        page.state.set({ cell: undefined, window: undefined, ...to });
      },
    },
    text,
  );
}

// Arrow keys move unless what has the focus needs them itself.
document.addEventListener("keydown", (event) => {
  const name = { ArrowRight: "next-step", ArrowLeft: "previous-step" }[event.key];
  const busy = event.target.closest?.("input, select, textarea, [role=tab], [role=application], .scroll, .line");
  if (!name || busy || event.ctrlKey || event.altKey || event.metaKey || event.shiftKey) return;
  if (document.querySelector("#panel[data-view=steps]")) document.getElementById(name)?.click();
});

// ---------------------------------------------------------------- one step, large

async function oneStep(page, here) {
  const { step, number, steps } = here;
  const panel = arithmeticPanel(page, {
    described: (cell) => described(page, cell),
    opened: (cell) => page.state.set({ cell }, { quietly: true }),
  });
  const drawn = []; // every strip, so that only one of them has a chosen cell
  const open = (figure, cell) => {
    for (const each of drawn) if (each !== figure) each.keep?.(null);
    page.state.set({ cell }, { quietly: true });
    return panel.start(cell);
  };
  const wanted = page.state.get("cell");
  const shows = await Promise.all(step.shows.map((show) => read(page, here, show)));
  const cell = Array.isArray(wanted) && wanted.length === 4 ? wanted : firstCell(here, shows);
  shareScales(shows);
  const pictures = shows.map((shown) => {
    const figure = picture(page, here, shown, cell, (found) => open(figure, found));
    drawn.push(figure);
    const sign = shown.show.sign ? h("span", { class: "sign", "aria-hidden": "true" }, shown.show.sign) : null;
    const heading = h("h3", {}, sign, `${shown.show.label}${ofHead(here, shown.show)}`);
    return h("div", { class: `shown ${shown.show.draw}` }, heading, figure);
  });
  if (cell) await panel.start(cell);
  if (refocus) {
    const name = refocus;
    refocus = null;
    setTimeout(() => document.getElementById(name)?.focus());
  }
  page.say(`Step ${number + 1} of ${steps.length}: ${step.title}`);
  return [
    h(
      "div",
      { class: "moves" },
      moving(page, here, -1, "← Previous"),
      h("span", { class: "quiet" }, `step ${number + 1} of ${steps.length}`),
      moving(page, here, 1, "Next →"),
    ),
    h("h2", {}, formula(step.title), where(here)),
    h("p", { class: "sentence" }, formula(step.sentence)),
    h("p", { class: "formula large-formula" }, formula(step.formula)),
    page.state.get("window")
      ? h("button", { type: "button", onclick: () => page.state.set({ window: undefined }) }, "Show the full map")
      : null,
    h("div", { class: "step-body" }, h("div", { class: "pictures" }, pictures), cell ? panel : null),
  ];
}

function where(here) {
  const at = `position ${here.position + 1} “${named(here.stack, here.position)}”`;
  return ["Input", "Output"].includes(here.step.group) ? `, ${at}` : `, layer ${here.layer + 1}, ${at}`;
}

// What stands at a position: the space in the name of a patch is no token.
function named(stack, position) {
  const piece = stack?.pieces[position] ?? "";
  return stack?.grid ? piece : visible(piece);
}

function labels(stack) {
  return stack.grid ? stack.pieces.map((piece) => piece.replaceAll(" ", "\u00a0")) : stack.pieces;
}

function ofHead(here, show) {
  return show.heads && here.heads > 1 ? `, head ${here.head + 1}` : "";
}

// The numbers of one thing that is shown; an error stands in its place.
async function read(page, here, show) {
  const heads = show.heads ? here.head : null;
  const window = page.state.get("window");
  try {
    if (!show.rows && here.answer < 0) {
      throw new Problem({ what: "No answer is read at this position.", why: "The model predicts nothing here.", fix: "Choose another." });
    }
    if (show.draw === "bars") return { show, heads, likeliest: await page.ask("likeliest", { answer: here.answer }) };
    const row = show.rows ? here.position : here.answer;
    const options = heads === null ? {} : { head: heads };
    if (show.draw === "map") {
      const part = show.columns ? (window ?? {}) : window ? { rows: window.columns ?? window.rows } : {};
      return { show, heads, row, matrix: await page.matrix(show.matrix, { ...options, ...part }) };
    }
    const columns = show.draw === "row" && window?.columns ? { columns: window.columns } : {};
    const asked = page.live ? { ...options, rows: [row, row + 1], ...columns } : options;
    return { show, heads, row, matrix: onlyRow(await page.matrix(show.matrix, asked), row) };
  } catch (error) {
    if (!error.what) console.error(error);
    return { show, heads, error };
  }
}

// In a file the whole matrix is recorded: its one row.
function onlyRow(matrix, row) {
  const [count, columns] = matrix.head.shape;
  if (count === 1) return matrix;
  const index = Math.min(count - 1, Math.floor(row / (matrix.head.step?.[0] ?? 1)));
  const values = rowOf(matrix, index);
  return { head: { ...matrix.head, shape: [1, columns], from: [row, matrix.head.from?.[1] ?? 0] }, values };
}

// The last thing that is shown is what the step is about: its first number, or where it looks most.
function firstCell(here, shows) {
  const shown = shows.filter((each) => !each.error && each.show.draw !== "map").at(-1);
  if (!shown) return null;
  const { show, heads, row, matrix } = shown;
  if (show.draw === "bars") return [show.matrix, null, here.answer, shown.likeliest.tokens[0]];
  if (show.draw === "strip") return [show.matrix, heads, row, 0];
  let best = 0;
  matrix.values.forEach((value, i) => value > matrix.values[best] && (best = i));
  return [show.matrix, heads, row, (matrix.head.from?.[1] ?? 0) + best * (matrix.head.step?.[1] ?? 1)];
}

// What is added has one scale with its sum; so colours can be compared.
function shareScales(shows) {
  const sum = shows.findIndex((each) => each.show.sign === "=");
  if (sum < 0) return;
  const together = shows.slice(0, sum + 1).filter((each) => each.matrix);
  const most = Math.max(...together.map((each) => largest(each.matrix.values)));
  for (const each of together) each.most = most;
}

function picture(page, here, shown, cell, open) {
  const { show, heads, row, matrix, error } = shown;
  if (error) return problem(error);
  const label = `${show.label}${ofHead(here, show)}`;
  const stack = show.rows && page.stack(show.rows);
  if (show.draw === "bars") return likely(page, here, shown, open);
  if (show.draw === "strip") {
    const chosen = cell && cell[0] === show.matrix && cell[1] === heads && cell[2] === row ? cell[3] : null;
    const joined = show.matrix.endsWith(".joined");
    const options = joined ? { part: here.head, parts: here.heads } : {};
    return strip(page, {
      values: matrix.values, label, most: shown.most ?? null, chosen, ...options,
      open: (column) => open([show.matrix, heads, row, column]),
    });
  }
  const width = matrix.head.shape[1];
  const columns = show.columns
    ? { labels: labels(page.stack(show.columns)), stack: show.columns, axis: "key" }
    : { labels: Array.from({ length: width }, (_, i) => String(i + 1)), axis: "number" };
  const one = show.draw === "row";
  const from = matrix.head.from?.[0] ?? 0;
  return heatmap(page, {
    matrix,
    label,
    scale: show.matrix.endsWith(".weights") ? "unit" : "signed",
    rows: { labels: labels(stack), stack: stack.name, axis: show.columns ? "query" : "position" },
    columns,
    cell: one ? null : Math.max(3, Math.min(16, Math.floor(480 / Math.max(...matrix.head.shape)))),
    chosen: !one && stack === here.stack ? Math.floor((here.position - from) / (matrix.head.step?.[0] ?? 1)) : null,
    kept: cell && one && cell[0] === show.matrix && cell[1] === heads && cell[2] === row ? [row, cell[3]] : null,
    open: (down, across) => open([show.matrix, heads, down, across]),
    zoom: (window) => page.state.set({ window: one ? { columns: window.columns } : window }),
  });
}

function likely(page, here, { show, likeliest }, open) {
  const logits = show.matrix === "logits";
  return bars(page, {
    label: show.label,
    names: likeliest.names.map((name, i) => `${visible(name)}${likeliest.tokens[i] === likeliest.output ? "\u00a0✓" : ""}`),
    values: logits ? likeliest.logits : likeliest.probabilities,
    pick: (index) => open([show.matrix, null, here.answer, likeliest.tokens[index]]),
    ...(logits ? {} : { format: percent, most: 1 }),
  });
}

// ---------------------------------------------------------------- a cell in words

const WORDS = {
  token: "vector of the token", place: "position", summed: "token + position", embedded: "what the first layer reads",
  before: "x", read: "what is read", sum: "x + written", after: "x afterwards", wrote: "what is written", inner: "inner number",
  queries: "query", keys: "key", values: "value", scores: "score", weights: "weight", heads: "weighted values",
  joined: "heads, concatenated", out: "after the last layer", hidden: "what the answer is read from",
  projected: "streams before the short convolution", streams: "streams", states: "state", memories: "memory c",
  pairs: "pairs", mixed: "what W_out reads",
};

// "gated2": of Hyena, with the number of the gate or convolution.
function wordsOf(what) {
  const [, stage, number] = /^(gated|convolved)(\d)$/.exec(what) ?? [];
  return WORDS[what] ?? (stage ? `${stage === "gated" ? "after gate" : "after long convolution"} ${number}` : what);
}

function described(page, [name, head, row, column]) {
  const dot = name.lastIndexOf(".");
  const [of, what] = [name.slice(0, dot), name.slice(dot + 1)];
  if (dot < 0 || what === "hidden") {
    if (what === "hidden") return `${WORDS.hidden}, number ${column + 1}`;
    return name === "logits" ? "logit" : "probability";
  }
  const part = page.parts().find((each) => each.name === of);
  const stack = part?.stack ?? page.stack(of);
  const ofKeys = part && ["keys", "values"].includes(what) ? part.keys : stack;
  const at = `“${named(ofKeys, row)}” (${row + 1})`;
  const pair = ["scores", "weights"].includes(what);
  const to = pair ? ` → “${named(part?.keys, column)}” (${column + 1})` : `, number ${column + 1}`;
  const layer = part ? `layer ${part.layer + 1}, ` : "";
  const whose = tokensName(stack?.name ?? of) === "tokens" ? "" : `${stack?.name ?? of}, `; // of one alone, nothing is said
  return `${whose}${layer}${wordsOf(what)}${head === null ? "" : ` of head ${head + 1}`}, ${at}${to}`;
}
