// The beam tree: every hypothesis that the search considered, step by step from left to right.

import { h, number, numbersBelow, svg, table, visible } from "regard/dom.js";

const ROW = 20;
const GAP = 31; // between the columns, for the branches
const PRUNED = 2; // pruned hypotheses drawn at each step, the best, unless all are

const COLUMNS = ["step", "text", "ln p of its last token", "ln p", "score", "fate"];
const FATES = { kept: "kept", pruned: "pruned", ended: "ended", winner: "won" };

// `tree`: the answer to the question `beams`. `all`: whether every pruned hypothesis is drawn.
export function beamTree(page, tree, all) {
  const nodes = tree.nodes.map((node) => ({ ...node, children: [], currentScore: scoreOf(tree, node) }));
  for (const node of nodes) {
    node.text = node.parent === null ? "" : nodes[node.parent].text + node.word;
    if (node.parent !== null) nodes[node.parent].children.push(node);
  }
  const shown = all ? new Set(nodes) : withoutMostPruned(nodes);
  const reading = h("p", { class: "reading", role: "status" }, "Hover over a hypothesis to read it in full.");
  return [
    h(
      "div",
      { class: "tree-box scroll", tabindex: 0, role: "group", "aria-label": "Beam tree, with its numbers in tables below" },
      drawing(nodes, shown, reading),
    ),
    h(
      "p",
      { class: "tree-key" },
      h("span", { class: "tree-sign won" }, "won"),
      h("span", { class: "tree-sign ended" }, "■ ended"),
      h("span", { class: "tree-sign kept" }, "kept"),
      h("span", { class: "tree-sign pruned" }, "pruned"),
      h("span", { class: "quiet" }, "beside each token: its ln p · the score so far"),
    ),
    reading,
    finished(nodes),
    numbersBelow(`All ${nodes.length - 1} hypotheses`, COLUMNS, () => nodes.slice(1).map(numbersOf)),
  ];
}

// The score of a hypothesis as if it ended here: log p / ((5 + |y|) / 6)^α.
function scoreOf(tree, node) {
  return node.score ?? node.total / ((5 + node.step) / 6) ** tree.length_penalty;
}

function numbersOf(node) {
  return [String(node.step), visibleText(node), node.log_p, node.total, node.currentScore, FATES[node.fate]];
}

function visibleText(node) {
  return node.text.trim() || visible(node.word);
}

function withoutMostPruned(nodes) {
  const shown = new Set(nodes.filter((node) => node.fate !== "pruned"));
  const pruned = nodes.filter((node) => node.fate === "pruned").sort((a, b) => b.total - a.total);
  const counts = new Map();
  for (const node of pruned) {
    const count = counts.get(node.step) ?? 0;
    if (count < PRUNED) shown.add(node);
    counts.set(node.step, count + 1);
  }
  return shown;
}

function drawing(nodes, shown, reading) {
  const steps = Math.max(...nodes.map((node) => node.step));
  const label = (node) => `${node.fate === "ended" || node.fate === "winner" ? "■ " : ""}${visible(node.word)}`;
  const numbers = (node) => ` ${number(node.log_p, 2)} · ${number(node.currentScore, 2)}`;
  const ofWords = measure("700 13px");
  const ofNumbers = measure("10px");
  const wide = (node) => ofWords(label(node)) + (node.step ? ofNumbers(numbers(node)) : 0) + 4;
  const widest = new Array(steps + 1).fill(0);
  for (const node of shown) widest[node.step] = Math.max(widest[node.step], wide(node));
  const left = [6];
  for (const width of widest) left.push(left.at(-1) + width + GAP);

  // The first free row of each step.
  const free = new Array(steps + 1).fill(0);
  place(nodes[0], 0);
  function place(node, least) {
    const line = [];
    for (let next = node; next; next = shownChildren(next)[0]) line.push(free[next.step]); // drawn as one straight line
    node.row = Math.max(least, ...line);
    free[node.step] = node.row + 1;
    for (const child of shownChildren(node)) place(child, node.row);
  }
  // The winning hypothesis comes first, then the others, the best first.
  function shownChildren(node) {
    const children = node.children.filter((child) => shown.has(child));
    return children.sort((a, b) => b.on_path - a.on_path || b.total - a.total);
  }

  const middle = (node) => 16 + node.row * ROW;
  const lines = [];
  const texts = [];
  // The winning path is drawn last, on top of the others.
  for (const node of [...shown].sort((a, b) => a.on_path - b.on_path)) {
    const kind = node.on_path ? "won" : FATES[node.fate];
    const x = left[node.step];
    const y = middle(node);
    if (node.parent !== null) {
      const parent = nodes[node.parent];
      const from = left[parent.step] + wide(parent);
      const to = x - 5;
      const bend = left[node.step] - 22;
      const curve = `C${bend + 4} ${middle(parent)} ${bend - 4} ${y} ${bend + 8} ${y}`;
      const d = `M${from} ${middle(parent)} H${bend - 8} ${curve} H${to}`;
      lines.push(svg("path", { class: `branch ${kind}`, d }));
    }
    const text = `${visibleText(node)}: ln p ${number(node.total)}, score ${number(node.currentScore)}, ${FATES[node.fate]}`;
    texts.push(
      svg(
        "g",
        { class: `hypothesis ${kind}`, dataset: { node: node.id }, onpointerenter: () => (reading.textContent = text) },
        svg("title", {}, text),
        svg("text", { x, y: y + 4 }, label(node), node.step ? svg("tspan", { class: "figures" }, numbers(node)) : null),
      ),
    );
  }
  const width = left.at(-1) - GAP + 8;
  const height = Math.max(...free) * ROW + 16;
  const size = { width, height, viewBox: `0 0 ${width} ${height}` };
  return svg("svg", { class: "beam-tree", ...size, role: "img", "aria-label": "Beam tree" }, lines, texts);
}

// A function that measures the width of a text in this font.
function measure(font) {
  const context = document.createElement("canvas").getContext("2d");
  context.font = `${font} ${getComputedStyle(document.body).fontFamily}`;
  return (text) => context.measureText(text).width;
}

function finished(nodes) {
  const ended = nodes.filter((node) => node.score !== null).sort((a, b) => b.score - a.score);
  return table(
    "Finished hypotheses by score",
    ["text", "tokens", "ln p", "score", "fate"],
    ended.map((node) => [
      node.text.replace(/<end>$/, "").trim() || "(empty)",
      String(node.step),
      node.total,
      node.score,
      node.fate === "winner" ? "won: the output" : "ended",
    ]),
  );
}
