// Image: what the answer depends on in a picture: rollout, occlusion, every head; a Swin's windows; how pixels continue.

import { chosenAnswer } from "regard/answers.js";
import { largest } from "regard/arrays.js";
import { choice, h, number, percent, problem, slider, visible } from "regard/dom.js";
import { faithful } from "regard/faithful.js";
import { nameOf } from "regard/names.js";
import { onGrid, picture, cellName, smallPicture } from "regard/picture.js";
import { positions } from "regard/positions.js";
import { layer } from "regard/source.js";
import { tokenLine } from "regard/tokens.js";
import { windowBias } from "regard/window_bias.js";

export const id = "image";
export const title = "Image";

const QUICK = 300; // positions up to which occlusion runs without being asked

export function fits(page) {
  return page.overview.picture !== null && page.overview.stacks.some((stack) => stack.grid);
}

export async function show(page) {
  const about = await page.ask("image");
  const answers = page.overview.answers;
  const answer = chosenAnswer(page);
  const parts = page.parts().filter((part) => part.attends && part.keys.grid);
  const part = parts.find(({ name }) => name === page.state.get("part")) ?? parts.at(-1);
  const [rolled, occluded] = await Promise.all([rollout(page, answer), occlusion(page, answer)]);
  const section = h(
    "section",
    { class: "image" },
    h(
      "p",
      { class: "note" },
      "Which parts of the image the answer depends on. Hover over a cell of the grid, or use the arrow keys, to read its number.",
    ),
    h("div", { class: "controls" }, opacity(page, () => section)),
    answers.length > 1 ? answerPicker(page, answers, answer) : null,
    about.completes ? await completion(page, parts) : null,
    h("h2", {}, "The whole model"),
    h("div", { class: "side-by-side" }, original(page, about, part, answer), rolled.figure, occluded),
    part ? await heads(page, about, parts, part, answer) : null,
    part && about.windows[part.name] ? await windowBias(page, part, headOf(page, part)) : null,
    rolled.faithful,
    showsPositions(page) ? await positions(page).catch((error) => problem(error)) : null,
  );
  setOpacity(section, page.state.get("opacity") ?? 0.6);
  return section;
}

// Positional encodings are shown here only if there is no Words view to show them.
function showsPositions(page) {
  const { stacks } = page.overview;
  return !stacks.some((stack) => stack.tokens) && !["", "none"].includes(page.runs[page.run].positions);
}

function setOpacity(section, value) {
  section.style.setProperty("--opacity", value);
}

function opacity(page, section) {
  return slider("overlay", 0, 1, 0.05, page.state.get("opacity") ?? 0.6, (value) => {
    setOpacity(section(), value);
    page.state.set({ opacity: value }, { quietly: true });
  }, (value) => `${Math.round(100 * value)} %`);
}

// Whether a model generates pixel by pixel: its tokens are then on the grid.
function isPixels(stack) {
  return stack.grid !== null && stack.tokens !== null;
}

// Whether the cells of a picture are those of the answers, one for each: pixels, or the patches of a segmenter.
function hasAnswers(page, stack) {
  const [rows, columns] = stack.grid;
  return page.overview.cells && rows * columns === page.overview.answers.length;
}

// How the explained cell of a picture is framed, and another one chosen.
function choosing(page, stack, answer) {
  if (!hasAnswers(page, stack)) return {};
  return { chosen: answer, pick: (cell) => page.state.set({ answer: cell, token: undefined }) };
}

// Which of several answers is explained: a word of a caption, a pixel, or a patch.
function answerPicker(page, answers, answer) {
  const stack = page.overview.stacks.find(({ grid }) => grid);
  if (page.overview.cells) {
    const { label, probability } = answers[answer];
    const cell = `${isPixels(stack) ? "pixel at" : "patch in"} ${cellName(stack, answer)}`;
    return h("p", {}, `Explained: the ${cell}, which is ${label} (p = ${number(probability)}). Click another in a picture.`);
  }
  const words = { name: "answers", pieces: answers.map(({ label }) => label) };
  return h(
    "div",
    { class: "named-line" },
    h("span", { class: "line-name" }, "word"),
    tokenLine(page, words, { pick: (position) => page.state.set({ answer: position }), chosen: answer }),
  );
}

// ---------------------------------------------------------------- the picture as a whole

function original(page, about, part, answer) {
  const stack = part?.keys ?? page.overview.stacks.find(({ grid }) => grid);
  const size = `${stack.grid[0]} × ${stack.grid[1]} ${isPixels(stack) ? "pixels" : "patches"}`;
  const cut = part && about.windows[part.name];
  const windows = cut ? `, windows of ${cut.window.join(" × ")}${isShifted(cut) ? ", shifted by half" : ""}` : "";
  return h(
    "div",
    { class: "picture-column" },
    h("h3", {}, `${page.overview.input_text}: ${size}`),
    picture(page, {
      address: page.overview.picture,
      stack,
      label: `${page.overview.input_text}, ${size}${windows}`,
      caption: `${cut ? `${part.stack.name}, layer ${part.layer + 1}${windows}` : size}`,
      lines: cut ? cuts(cut, stack.grid) : null,
      boxes: about.boxes,
      covered: about.mask?.picture,
      ...choosing(page, stack, answer),
    }),
    about.boxes ? h("p", { class: "quiet" }, `Box: ${page.overview.output_text}.${about.boxes.all.length > 1 ? " The others have thin lines." : ""}`) : null,
    about.mask ? classes(about.mask.classes) : null,
  );
}

function classes(classes) {
  return h(
    "ul",
    { class: "classes" },
    classes.map(({ label, colour, share }) =>
      h("li", {}, h("span", { class: "swatch", style: { background: colour ? `rgb(${colour})` : "transparent" } }), `${label}: ${percent(share)}`),
    ),
  );
}

// Between which rows and columns of the grid a layer's windows are cut.
function cuts({ window, shift }, grid) {
  const [down, across] = [0, 1].map((side) => {
    const lines = [];
    for (let at = shift[side] || window[side]; at < grid[side]; at += window[side]) lines.push(at);
    return lines;
  });
  return { down, across };
}

function isShifted({ shift }) {
  return shift.some((by) => by > 0);
}

async function rollout(page, answer) {
  try {
    const attribution = await page.ask("attribution", { method: "rollout", answer });
    const [name, { values }] = Object.entries(attribution.stacks)[0];
    const stack = page.stack(name);
    if (!stack.grid) return {}; // it covers a single stack: for a caption, its words and not the picture
    const figure = overlaid(page, stack, answer, values, "Attention rollout", "unit", `Readout: ${attribution.read_from}; left out: ${attribution.left_out}.`);
    return { figure, faithful: faithful(attribution, "Is the rollout faithful?") };
  } catch (error) {
    return { figure: problem(error) };
  }
}

async function occlusion(page, answer) {
  const stack = page.overview.stacks.find(({ grid }) => grid);
  if (page.live && stack.pieces.length > QUICK && !page.state.get("occlusion")) {
    return h("button", { type: "button", onclick: () => page.state.set({ occlusion: true }) }, `Compute occlusion (${stack.pieces.length} forward passes)`);
  }
  try {
    const { values } = (await page.ask("attribution", { method: "occlusion", answer })).stacks[stack.name];
    return overlaid(page, stack, answer, values, "Occlusion", "signed", "Drop in ln p of the answer when this cell alone is emptied (nats).");
  } catch (error) {
    return problem(error);
  }
}

function overlaid(page, stack, answer, values, label, scale, note) {
  const cells = onGrid(stack, values);
  return h(
    "div",
    { class: "picture-column" },
    h("h3", {}, label),
    picture(page, {
      address: page.overview.picture, stack, label, scale, values: cells, ...choosing(page, stack, answer),
    }),
    outsideGrid(stack, values),
    h("p", { class: "quiet" }, note),
  );
}

// The values of positions outside the picture, such as a class token.
function outsideGrid(stack, values) {
  const others = stack.pieces.slice(0, stack.before).map((piece, i) => `${visible(piece)}: ${number(values[i], 4)}`);
  return others.length ? h("p", { class: "quiet" }, `Not in the picture: ${others.join(" · ")}`) : null;
}

// ---------------------------------------------------------------- heads of a layer

function headOf(page, part) {
  return Math.min(page.state.get("head") ?? 0, part.heads - 1);
}

async function heads(page, about, parts, part, answer) {
  const head = headOf(page, part);
  const controls = h(
    "div",
    { class: "controls" },
    choice("layer", parts.map((part) => [part.name, nameOf(part)]), part.name, (value) => page.state.set({ part: value, position: null })),
  );
  let attention;
  try {
    attention = await attentionFrom(page, part, answer);
  } catch (error) {
    return h("section", {}, h("h2", {}, "Heads"), controls, problem(error));
  }
  const stack = part.keys;
  const maps = attention.rows.map((row) => onGrid(stack, row));
  const most = Math.max(...maps.map(largest)) || 1;
  const address = page.overview.picture;
  const small = maps.map((values, index) =>
    h(
      "button",
      {
        type: "button",
        class: "head-button",
        "aria-pressed": String(index === head),
        "aria-label": `head ${index + 1}`,
        title: `head ${index + 1}, at most ${number(largest(values))}`,
        onclick: () => page.state.set({ head: index }),
      },
      smallPicture({ address, stack, values, most }),
      h("span", { class: "under" }, String(index + 1)),
    ),
  );
  const cut = about.windows[part.name];
  const label = `${nameOf(part)}, head ${head + 1}`;
  return h(
    "section",
    {},
    h("h2", {}, `Heads of ${nameOf(part)}`),
    controls,
    h(
      "p",
      {},
      `Attention from ${attention.from}. `,
      attention.fixed ? null : `Click a ${isPixels(stack) ? "pixel" : "patch"} to ${hasAnswers(page, stack) ? "explain it" : "show attention from there"}. `,
      attention.back ? h("button", { type: "button", onclick: () => page.state.set({ position: null }) }, "Show from the readout position") : null,
    ),
    h(
      "div",
      { class: "side-by-side" },
      h("div", { class: "small-pictures", role: "group", "aria-label": "All heads" }, small),
      h(
        "div",
        { class: "large" },
        h("h3", {}, label),
        picture(page, {
          address, stack, label: `Attention of ${label}`, values: maps[head], most, size: 480,
          chosen: attention.cell, lines: cut ? cuts(cut, stack.grid) : null, pick: attention.fixed ? null : (cell) => attendFrom(page, stack, cell),
        }),
        outsideGrid(stack, attention.rows[head]),
      ),
    ),
  );
}

function attendFrom(page, stack, cell) {
  if (hasAnswers(page, stack)) page.state.set({ answer: cell, token: undefined });
  else page.state.set({ position: page.state.get("position") === stack.before + cell ? null : stack.before + cell });
}

// The attention of every head, from a word, a pixel, a clicked patch, or where the answer is read.
async function attentionFrom(page, part, answer) {
  const word = page.overview.answers[answer];
  if (part.cross) return { ...(await rowOf(page, part, word.position)), from: `where “${visible(word.label)}” is predicted`, fixed: true };
  if (isPixels(part.keys)) {
    return { ...(await rowOf(page, part, word.position)), from: `where the pixel at ${cellName(part.keys, answer)} is predicted`, cell: answer };
  }
  if (hasAnswers(page, part.keys)) {
    // The class of a patch is read from the patch itself, in a Swin in the first stage.
    const cell = `the patch in ${cellName(part.keys, answer)}`;
    return { ...(await rowOf(page, part, part.keys.before + answer)), from: `${cell}, the explained one`, cell: answer };
  }
  const position = page.state.get("position");
  if (position !== null && position !== undefined && position >= part.keys.before && position < part.keys.pieces.length) {
    const cell = position - part.keys.before;
    return { ...(await rowOf(page, part, position)), from: `the patch in ${cellName(part.keys, cell)}`, cell, back: true };
  }
  const { values, read_from: from } = await page.ask("readout_attention", { part: part.name, answer });
  return { rows: values, from, cell: null };
}

async function rowOf(page, part, position, input = page.input) {
  const weights = await page.source.matrix(page.run, input, `${part.name}.weights`, { rows: [position, position + 1] });
  return { rows: Array.from({ length: part.heads }, (_, head) => layer(weights, head).values) };
}

// ---------------------------------------------------------------- completion

async function completion(page, parts) {
  const options = {};
  const settings = { keep: 0.5, temperature: 0, seed: 1 };
  for (const [name, initial] of Object.entries(settings)) {
    settings[name] = page.state.get(name) ?? initial;
    if (settings[name] !== initial) options[name] = settings[name];
  }
  const set = (name) => (value) => page.state.set({ [name]: Number(value) });
  const controls = page.live
    ? h(
        "div",
        { class: "controls" },
        choice("given", [[0.25, "a quarter"], [0.5, "half"], [0.75, "three quarters"]], settings.keep, set("keep")),
        choice("sampling", [[0, "the likeliest"], [0.5, "temperature 0.5"], [1, "temperature 1"]], settings.temperature, set("temperature")),
        settings.temperature ? h("button", { type: "button", onclick: () => set("seed")(settings.seed + 1) }, `Sample again (seed ${settings.seed})`) : null,
      )
    : null;
  let content;
  try {
    content = await continuation(page, parts, await page.ask("complete", options));
  } catch (error) {
    content = problem(error);
  }
  return h("section", {}, h("h2", {}, "Completion"), controls, content);
}

async function continuation(page, parts, { picture: address, rows }) {
  const input = { image: address };
  const stack = page.overview.stacks.find(({ grid }) => grid);
  const [height, width] = stack.grid;
  const { answers } = await page.source.ask(page.run, input, "overview");
  const part = parts.find(({ name }) => name === page.state.get("part")) ?? parts.at(-1);
  const head = Math.min(page.state.get("head") ?? 0, (part?.heads ?? 1) - 1);
  // A pixel is predicted one position before its own: the weights of that position cover the pixels before it.
  const follow = async (cell) => {
    const probability = `p = ${number(answers[cell].probability)}`;
    if (!part) return { values: new Float32Array(height * width), text: probability };
    const { rows: heads } = await rowOf(page, part, cell, input);
    const values = onGrid(stack, heads[head]).map((value, at) => (at < cell ? value : NaN));
    const best = values.reduce((most, value, at) => (value > (values[most] ?? -1) ? at : most), 0);
    const highest = cell ? `, highest weight at ${cellName(stack, best)}: ${number(values[best])}` : "";
    return { values, text: `${probability}${highest}` };
  };
  const log = answers.slice(rows * width).reduce((sum, { probability }) => sum + Math.log(probability), 0);
  return h(
    "div",
    {},
    h(
      "p",
      { class: "note" },
      `The upper ${rows} of ${height} rows are given; the rest is generated pixel by pixel (ln p = ${number(log, 1)} in all). ${part ? `Hover over a pixel to see the attention of head ${head + 1}, ${nameOf(part)}, when it was predicted.` : ""}`,
    ),
    h(
      "div",
      { class: "side-by-side" },
      h("div", {}, h("h3", {}, "Given"), picture(page, { address: page.overview.picture, stack, label: "The rows that are given", until: rows })),
      h("div", {}, h("h3", {}, "Continued"), picture(page, {
        address, stack, label: "The completed image", most: 1, lines: { down: [rows], across: [] }, follow,
      })),
    ),
  );
}
