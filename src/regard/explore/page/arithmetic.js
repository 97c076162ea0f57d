// How a number was computed, line by line: from the model behind the page or, in a file, from the recorded matrices.

import { row as rowOf } from "regard/arrays.js";
import { button, h, number, problem, visible } from "regard/dom.js";
import { pieceAt, whole } from "regard/names.js";
import { swatch } from "regard/tokens.js";

const MOST = 10; // terms of a sum, the default of the question

/* A panel that is filled by `start(cell)`; a cell is [name, head, row, column]. `describe`: a cell in words. `onopen`:
   called with a cell that is opened in the panel. */
export function arithmeticPanel(page, { describe, onopen }) {
  const body = h("div", {});
  const panel = h("section", { class: "arithmetic", "aria-label": "How the number was computed" }, body);
  let turn = 0;
  const path = []; // the cells opened before this one

  async function show(cell, most = null) {
    const mine = ++turn;
    let content;
    try {
      const arithmetic = await arithmeticOf(page, cell, most);
      const title = describe(cell);
      content = [...sections(page, arithmetic, title, { open: follow, showAll: () => show(cell, 100000) })];
      page.say(`${title}: ${exact(arithmetic.cell, 4)}`);
    } catch (error) {
      content = [h("h3", {}, describe(cell)), problem(error)];
      if (!error.what) console.error(error);
    }
    if (mine !== turn) return;
    if (path.length) content.push(button("Back", () => follow(path.pop(), true)));
    body.replaceChildren(...content);
    panel.dataset.cell = JSON.stringify(cell);
  }

  let current = null;
  function follow(cell, back = false) {
    if (!back && current) path.push(current);
    current = cell;
    onopen(cell);
    return show(cell);
  }

  panel.start = (cell) => {
    path.length = 0;
    current = cell;
    return show(cell);
  };
  return panel;
}

export async function arithmeticOf(page, [name, head, row, column], most = null) {
  const options = { name, row, column, ...(head === null ? {} : { head }), ...(most ? { most } : {}) };
  if (page.live) return page.ask("arithmetic", options);
  try {
    return await page.ask("arithmetic", options);
  } catch (missing) {
    const arithmetic = await fromRecording(page, name, head, row, column, most ?? MOST);
    if (arithmetic) return arithmetic;
    throw Object.assign(missing, { why: "Its terms are weights of the model, which the file does not include." });
  }
}

function* sections(page, { cell, word, lines, note }, title, { open, showAll }) {
  yield h("h3", {}, title, word ? `: “${visible(word)}”` : "");
  yield h("p", { class: "cell-value" }, "= ", h("strong", { class: "the-number" }, exact(cell ?? -Infinity, 5)));
  // Sums are more exact here than in the model: a value that differs by rounding only is shown with the model's digits.
  const rounding = 2e-5 * Math.max(1, Math.abs(cell));
  const isCell = (value) => cell !== null && value !== null && Math.abs(value - cell) < rounding;
  const asCell = (value) => (isCell(value) ? cell : value);
  let hidden = false;
  for (const line of lines) {
    if (line.terms.length < line.count) hidden = true;
    const where = line.where ? h("span", { class: "where" }, formula(line.where)) : null;
    yield h("p", { class: "formula" }, line.symbol, ` ${line.sign} `, formula(line.formula), where);
    if (line.count) yield termsOf({ ...line, sum: asCell(line.sum) }, open);
    if (line.numbers || !line.count) {
      const numbers = line.numbers ? `${line.numbers} = ` : "";
      yield h("p", { class: "with-numbers" }, line.symbol, " = ", numbers, result(asCell(line.value)));
    }
  }
  if (note) yield h("p", { class: "note" }, note);
  if (hidden && page.live) yield button("All terms", showAll);
}

function result(value) {
  return h("strong", {}, exact(value ?? -Infinity, 5));
}

// A number with thousands separators.
function exact(value, digits) {
  return number(value, digits).replace(/\d{4,}(?=\.)/, (whole) => Number(whole).toLocaleString("en"));
}

function termsOf(line, open) {
  const cell = (value, at = null) => h("td", { class: "number" }, at ? link(value, at) : exact(value, 4));
  const link = (value, at) => button(exact(value, 4), () => open(at), { class: "term", title: "How this was computed" });
  const products = line.terms.some((term) => term.right !== null); // else the terms are single numbers,
  const functions = line.terms.some((term) => term.of !== null); // or functions of single numbers
  const rows = line.terms.map((term) => {
    const name = h("th", { scope: "row" }, swatch(term.name), visible(term.name));
    if (functions) return h("tr", {}, name, cell(term.of, term.at), cell(term.left));
    const right = products && [h("td", {}, "·"), cell(term.right, term.right_at), h("td", {}, "="), cell(term.product)];
    return h("tr", {}, name, cell(term.left, term.at), right || null);
  });
  const total = (name, value, strong = false) =>
    h(
      "tr",
      { class: strong ? "total" : null },
      h("th", { scope: "row", colspan: products ? 5 : functions ? 2 : 1 }, formula(name)),
      h("td", { class: "number" }, strong ? h("strong", {}, exact(value, 5)) : exact(value, 4)),
    );
  const [names, ...columns] = line.heads.map((name, i) => h("th", { scope: "col", class: i ? "number" : null }, formula(name)));
  const sign = () => h("td", {});
  const heads = products ? [names, columns[0], sign(), columns[1], sign(), columns[2]] : [names, columns];
  const rest = line.count - line.terms.length;
  return h(
    "div",
    { class: "scroll", tabindex: 0, role: "group", "aria-label": `terms of ${line.symbol}` },
    h(
      "table",
      { class: "terms" },
      h("caption", {}, `${whole(line.count)} ${line.count === 1 ? "term" : "terms"}${line.count > 1 ? ", the largest first" : ""}`),
      h("thead", {}, h("tr", {}, heads)),
      h(
        "tbody",
        {},
        rows,
        rest ? total(`${whole(rest)} more`, line.rest) : null,
        line.added.map(({ name, value }) => total(`+ ${name}`, value)),
        total("sum", line.sum, true),
      ),
    ),
  );
}

// A formula with subscripts: of "x_i", i; of "W_Q,i", both; of "h_t−1", "c_t+s" and "s_t−1,i", the whole difference.
export function formula(text) {
  const pieces = text.split(/(_[A-Za-z0-9]+(?:,[A-Za-z0-9]+)*(?:[−+](?:1|s)(?![A-Za-z0-9])(?:,i)?)?)/);
  return pieces.map((piece, i) => (i % 2 ? h("sub", {}, piece.slice(1)) : piece));
}

// ---------------------------------------------------------------- in a file: what recorded matrices suffice for

async function fromRecording(page, name, head, row, column, most) {
  const dot = name.lastIndexOf(".");
  const [owner, quantity] = [name.slice(0, dot), name.slice(dot + 1)];
  const part = page.parts().find(({ name }) => name === owner);
  const isExact = (matrix) => (matrix.head.step ?? [1, 1]).every((step) => step === 1);
  const ofHead = async (kind) => {
    const matrix = await page.matrix(`${owner}.${kind}`, { head });
    return isExact(matrix) ? matrix : null;
  };
  if (quantity === "scores" && ["Attention", "LocalAttention"].includes(part?.kind)) {
    const [q, k, s] = [await ofHead("queries"), await ofHead("keys"), await ofHead("scores")];
    if (!s) return null;
    const width = q.head.shape.at(-1);
    const score = s.values[row * s.head.shape.at(-1) + column];
    const at = (i) => [`${owner}.queries`, head, row, i];
    const keyAt = (i) => [`${owner}.keys`, head, column, i];
    const line = sum("s", "Σ_i q_i k_i / √d_k", rowOf(q, row), rowOf(k, column), most, (i) => whole(i + 1), at, keyAt);
    line.heads = ["i", "q_i", "k_i", "product"];
    line.value = line.sum / Math.sqrt(width);
    line.where = `√d_k = √${whole(width)} = ${number(Math.sqrt(width))}`;
    line.numbers = `${exact(line.sum, 4)} / ${number(Math.sqrt(width))}`;
    if (Number.isFinite(score)) return { cell: line.value, lines: [line], note: "" };
    const note = "It is masked: its score is set to −∞, so its weight is 0.";
    return { cell: null, lines: [line, valueLine("s", "−∞", null)], note };
  }
  if (quantity === "weights" && part) {
    const s = await ofHead("scores");
    if (!s) return null;
    const scores = rowOf(s, row);
    const top = scores.reduce((a, b) => Math.max(a, b), -Infinity);
    const unmasked = [...scores.keys()].filter((i) => Number.isFinite(scores[i]));
    const exponentials = unmasked.map((i) => Math.exp(scores[i] - top));
    const at = (i) => [`${owner}.scores`, head, row, unmasked[i]];
    const total = sum("Σ", "Σ_j exp(s_j − max)", exponentials, null, most, (i) => pieceAt(part.keys, unmasked[i]), at, null, (i) => scores[unmasked[i]]);
    total.heads = ["j", "s_j", "exp(s_j − max)"];
    total.where = `max = ${number(top, 4)}`;
    const weight = Math.exp(scores[column] - top) / total.sum;
    const numbers = `exp(${number(scores[column], 4)} − ${number(top, 4)}) / ${number(total.sum, 4)}`;
    return { cell: weight, lines: [total, valueLine("a", "exp(s − max) / Σ", weight, numbers)], note: "" };
  }
  if (quantity === "heads" && part) {
    const [a, v] = [await ofHead("weights"), await ofHead("values")];
    if (!a) return null;
    const width = v.head.shape.at(-1);
    const values = Array.from(part.keys.pieces, (_, i) => v.values[i * width + column]);
    const at = (i) => [`${owner}.weights`, head, row, i];
    const valueAt = (i) => [`${owner}.values`, head, i, column];
    const line = sum("z", "Σ_j a_j v_j", rowOf(a, row), values, most, (i) => pieceAt(part.keys, i), at, valueAt);
    line.heads = ["j", "a_j", "v_j", "product"];
    return { cell: line.sum, lines: [line], note: "" };
  }
  if (quantity === "sum" || (quantity === "after" && part?.stack.layers[part.layer].pre_norm)) {
    return added(page, [`${owner}.before`, `${owner}.wrote`], ["x", part?.part === "feedforward" ? "f" : "o"], row, column);
  }
  if (quantity === "summed" || (quantity === "embedded" && !(await page.matrix(`${owner}.summed`).catch(() => null)))) {
    return added(page, [`${owner}.token`, `${owner}.place`], ["x", "p"], row, column);
  }
  return null;
}

async function added(page, names, words, row, column) {
  const matrices = await Promise.all(names.map((name) => page.matrix(name)));
  const values = matrices.map((matrix) => rowOf(matrix, row)[column]);
  const line = sum("x", words.join(" + "), values, null, 2, (i) => words[i], (i) => [names[i], null, row, column]);
  return { cell: line.sum, lines: [{ ...line, sign: "←" }], note: "" };
}

// `of`: the number that a term is a function of.
function sum(symbol, text, left, right, most, named, at, rightAt = null, of = null) {
  const products = Array.from(left, (value, i) => (right ? value * right[i] : value));
  const order = [...products.keys()].sort((a, b) => Math.abs(products[b]) - Math.abs(products[a]));
  const terms = order.slice(0, most).map((i) => ({
    name: named(i), of: of ? of(i) : null, left: left[i], right: right ? right[i] : null, product: products[i], at: at(i), right_at: rightAt?.(i),
  }));
  const total = products.reduce((a, b) => a + b, 0);
  const rest = order.slice(most).reduce((all, i) => all + products[i], 0);
  const line = { symbol, sign: "=", formula: text, where: "", heads: ["term", "value"], terms, count: products.length, rest };
  return { ...line, sum: total, added: [], numbers: "", value: total };
}

function valueLine(symbol, text, value, numbers = "") {
  return { symbol, sign: "=", formula: text, where: "", heads: [], terms: [], count: 0, rest: 0, sum: null, added: [], numbers, value };
}
