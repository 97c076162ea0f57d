// Words: neighbours and a projection of the embeddings, how the input became tokens, and positional encodings.

import { bars } from "regard/charts.js";
import { choice, h, number, numbersBelow, problem, svg, visible } from "regard/dom.js";
import { tokensName } from "regard/names.js";
import { positions } from "regard/positions.js";
import { wordSearch } from "regard/search.js";
import { tokenLine } from "regard/tokens.js";

export const id = "words";
export const title = "Words";

const WIDTH = 640;
const HEIGHT = 460;
const MERGES =
  "Byte-pair encoding: every word starts as its bytes; of all pairs that can be merged, the one learned first is merged, until " +
  "none is left. #1 is the merge that was learned first.";
const MOST_CARDS = 40; // words with their merges

export function fits(page) {
  return page.overview.stacks.some((stack) => stack.tokens);
}

export async function show(page) {
  const sections = await Promise.all([vectors, merges, positions].map((section) => section(page).catch((error) => problem(error))));
  return h("section", { class: "words" }, sections);
}

// ---------------------------------------------------------------- vectors

async function vectors(page) {
  const stacks = page.overview.stacks.filter((stack) => stack.tokens);
  const stack = stacks.find(({ name }) => name === page.state.get("stack")) ?? stacks[0];
  const first = Math.min(page.state.get("position") ?? firstWord(stack), stack.tokens.length - 1);
  const token = page.state.get("word") ?? stack.tokens[first];
  const [nearest, plane] = await Promise.allSettled([
    page.ask("neighbours", { stack: stack.name, token }),
    page.ask("projection", { stack: stack.name }),
  ]);
  return h(
    "div",
    { class: "vectors" },
    h("h2", {}, "Word vectors"),
    h("p", { class: "note" }, "Rows of the embedding matrix, without positions. Choose a token to see its nearest neighbours by cosine; single bytes are left out."),
    stacks.length > 1
      ? h("div", { class: "controls" }, choice("stack", stacks.map(({ name }) => [name, name]), stack.name, (value) => page.state.set({ stack: value, position: undefined, word: undefined })))
      : null,
    h("div", { class: "controls" }, tokenLine(page, stack, { pick: (position) => page.state.set({ position, word: undefined }), chosen: token === stack.tokens[first] ? first : -1 }), page.live ? wordSearch(page, { stack: stack.name }, (word) => page.state.set({ word })) : null),
    h("div", { class: "side-by-side" }, nearest.value ? neighbours(page, nearest.value) : problem(nearest.reason), plane.value ? projection(plane.value, token) : problem(plane.reason)),
  );
}

// The first token that is a word, unlike <start>.
function firstWord(stack) {
  const index = stack.pieces.findIndex((piece) => /\p{L}{2}/u.test(piece) && !/^<.*>$/.test(piece));
  return Math.max(0, index);
}

function neighbours(page, { of, tokens, labels, values }) {
  const pick = page.live ? (i) => page.state.set({ word: tokens[i] }) : null;
  return h(
    "div",
    { class: "neighbours" },
    h("h3", {}, `Nearest to ${visible(of)} (cosine)`),
    bars(page, { label: `Cosine with ${visible(of)}`, names: labels[0], values, most: 1, pick }),
  );
}

function projection(plane, picked) {
  const names = plane.labels[0].map(visible);
  const share = (i) => `${["first", "second"][i]} principal component: ${(100 * plane.shares[i]).toFixed(1)} % of the variance`;
  const [across, up] = [scaleOf(plane, 0), scaleOf(plane, 1)];
  const toPixels = ([x, y]) => [30 + across(x) * (WIDTH - 90), HEIGHT - 34 - up(y) * (HEIGHT - 60)];
  const points = plane.values.map((point, i) => {
    const [x, y] = toPixels(point);
    return { x, y, group: plane.groups[i], name: names[i], token: plane.tokens[i] };
  });
  // In reverse order: the words of the input come first, and are drawn on top.
  const dots = [...points].reverse().map(({ x, y, group, name, token }) =>
    svg("circle", { cx: x, cy: y, r: group === "vocabulary" ? 2 : 4, class: token === picked ? `${group} picked` : group }, svg("title", {}, name)),
  );
  const label = `Coordinates of ${points.length} tokens`;
  return h(
    "figure",
    { class: "chart-figure in-plane" },
    h("h3", {}, "Projection on two principal components"),
    h(
      "div",
      { class: "scroll", tabindex: 0, role: "group", "aria-label": "The plane" },
      svg(
        "svg",
        { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "plane", role: "img", "aria-label": label },
        dots,
        labels(points),
        svg("text", { x: WIDTH / 2, y: HEIGHT - 6, "text-anchor": "middle", class: "axis-name" }, share(0)),
        svg("text", { x: 12, y: HEIGHT / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${HEIGHT / 2})`, class: "axis-name" }, share(1)),
      ),
    ),
    h("figcaption", {}, "Blue: tokens of the input. Orange: their neighbours. Grey: the first tokens of the vocabulary. Labels that would overlap are left out; outliers are drawn at the edge."),
    numbersBelow(label, ["token", "group", "first", "second"], () => points.map((point, i) => [point.name, point.group, number(plane.values[i][0]), number(plane.values[i][1])])),
  );
}

// From a coordinate to 0 … 1. A few outliers would squeeze all others together, so they are drawn at the edge.
function scaleOf(plane, axis) {
  const sorted = plane.values.map((point) => point[axis]).sort((a, b) => a - b);
  const own = plane.values.filter((_, i) => plane.groups[i] === "input").map((point) => point[axis]);
  const low = Math.min(sorted[Math.floor(0.01 * (sorted.length - 1))], ...own);
  const high = Math.max(sorted[Math.ceil(0.99 * (sorted.length - 1))], ...own);
  return (value) => Math.max(0, Math.min(1, (value - low) / (high - low || 1)));
}

// A label beside its point where there is room. Words of the input come first, and may cover other points.
function labels(points) {
  const dots = points.map(({ x, y }) => ({ left: x - 2, top: y - 2, width: 4, height: 4 }));
  const taken = [];
  const drawn = [];
  for (const { x, y, group, name } of points) {
    if (name.includes("�")) continue; // a part of a letter
    const width = 6.4 * [...name].length + 4;
    const sides = [x + 6, x - 6 - width].flatMap((left) => [[left, y - 6], [left, y + 3], [left, y - 14]]);
    const isFree = (others) => (box) => fitsIn(box) && !others.some((other) => overlap(box, other));
    const boxes = sides.map(([left, top]) => ({ left, top, width, height: 11 }));
    const spot = boxes.find(isFree([...taken, ...dots])) ?? (group === "input" ? boxes.find(isFree(taken)) : undefined);
    if (!spot) continue;
    taken.push(spot);
    drawn.push(svg("text", { x: spot.left, y: spot.top + 9, class: group }, name));
  }
  return drawn;
}

function fitsIn({ left, top, width, height }) {
  return left > 22 && top > 2 && left + width < WIDTH - 2 && top + height < HEIGHT - 22;
}

function overlap(a, b) {
  return a.left < b.left + b.width && b.left < a.left + a.width && a.top < b.top + b.height && b.top < a.top + a.height;
}

// ---------------------------------------------------------------- merges

async function merges(page) {
  const heading = h("h2", {}, "From text to tokens");
  let byStack;
  try {
    byStack = await page.ask("merges");
  } catch (error) {
    return h("div", {}, heading, problem(error));
  }
  if (!Object.keys(byStack).length) return h("div", {});
  const merged = Object.values(byStack).some(({ steps }) => steps.length);
  const why = [...new Set(Object.values(byStack).map((text) => text.why))].filter(Boolean);
  const notes = [...(merged ? [MERGES] : []), ...why].map((text) => h("p", { class: "note" }, text));
  return h("div", { class: "merges" }, heading, notes, Object.entries(byStack).map(([stack, text]) => tokenised(stack, text)));
}

function tokenised(stack, { tokens, steps }) {
  const words = [];
  for (const step of steps) {
    if (step.pair === null) words.push([]);
    words.at(-1)?.push(step);
  }
  return h(
    "div",
    {},
    h("h3", {}, tokensName(stack)),
    h("div", { class: "merged" }, words.slice(0, MOST_CARDS).map(mergedWord)),
    words.length > MOST_CARDS ? h("p", { class: "quiet" }, `${MOST_CARDS} of ${words.length} words.`) : null,
    bytesTable(stack, tokens),
  );
}

function mergedWord(steps) {
  return h(
    "ol",
    { "aria-label": visible(steps[0].word) },
    steps.map((step) =>
      h(
        "li",
        {},
        h("span", { class: "rank", title: step.pair ? `merges ${step.pair.map(visible).join(" + ")}` : null }, step.rank === null ? "bytes" : `#${step.rank}`),
        h("span", { class: "line" }, step.pieces.map((piece) => h("span", { class: "token" }, visible(piece)))),
      ),
    ),
  );
}

function bytesTable(stack, tokens) {
  const rows = () => tokens.map((token, i) => [String(i + 1), visible(token.piece), String(token.id), `${token.start}–${token.end}`, token.raw]);
  return numbersBelow(`${tokensName(stack) === stack ? `Tokens of the ${stack}` : "All tokens"}, with their ids and bytes`, ["number", "token", "id", "bytes of the text", "in hex"], rows);
}
