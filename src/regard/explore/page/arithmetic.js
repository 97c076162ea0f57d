// How a number came about: its lines of terms, from the model behind the page; or, in a file, from recorded matrices.

import { h, number, problem, visible } from "regard/dom.js";

const MOST = 10; // terms of a sum, as the question has it by default

/* A panel that is filled by `show(cell)`; a cell is [name, head, row, column]. `described`: a cell in words. `opened`:
   called with a cell that is asked for in the panel. */
export function arithmeticPanel(page, { described, opened }) {
  const body = h("div", {});
  const panel = h("section", { class: "arithmetic", "aria-label": "How the number was computed" }, body);
  let turn = 0;
  const path = []; // the cells before this one

  async function show(cell, most = null) {
    const mine = ++turn;
    let content;
    try {
      const told = await arithmeticOf(page, cell, most);
      content = [...written(page, told, cell, { described, ask: follow, all: () => show(cell, 100000) })];
      page.say(`${described(cell)}: ${number(told.cell, 4)}`);
    } catch (error) {
      content = [h("h3", {}, described(cell)), problem(error)];
      if (!error.what) console.error(error);
    }
    if (mine !== turn) return;
    const before = path.at(-1);
    const button = before
      ? h("button", { type: "button", onclick: () => follow(path.pop(), true) }, "Back")
      : null;
    body.replaceChildren(...content, ...(button ? [button] : []));
    panel.dataset.cell = JSON.stringify(cell);
  }

  let current = null;
  function follow(cell, back = false) {
    if (!back && current) path.push(current);
    current = cell;
    opened(cell);
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
    const told = await computed(page, name, head, row, column, most ?? MOST);
    if (told) return told;
    throw Object.assign(missing, { why: "Its terms are weights of the model, which the file does not include." });
  }
}

function* written(page, told, cell, { described, ask, all }) {
  yield h("h3", {}, described(cell), told.word ? `: “${visible(told.word)}”` : "");
  yield h("p", { class: "cell-value" }, "= ", h("strong", { class: "the-number" }, number(told.cell ?? -Infinity, 5)));
  // Sums are added up more exactly than the model does: what is the same but for that is written with the same digits.
  const rounding = 2e-5 * Math.max(1, Math.abs(told.cell));
  const same = (value) => told.cell !== null && value !== null && Math.abs(value - told.cell) < rounding;
  const asCell = (value) => (same(value) ? told.cell : value);
  let hidden = false;
  for (const line of told.lines) {
    if (line.terms.length < line.count) hidden = true;
    yield h("p", { class: "formula" }, line.symbol, " = ", formula(line.formula));
    if (line.count) yield termsOf({ ...line, sum: asCell(line.sum) }, ask);
    if (line.numbers || !line.count) {
      const said = line.numbers ? `${line.numbers} = ` : "";
      yield h("p", { class: "with-numbers" }, line.symbol, " = ", said, result(asCell(line.value)));
    }
  }
  if (told.note) yield h("p", { class: "note" }, told.note);
  if (hidden && page.live) yield h("button", { type: "button", onclick: all }, "All terms");
}

function result(value) {
  return h("strong", {}, number(value ?? -Infinity, 5));
}

function termsOf(line, ask) {
  const cell = (value, at = null) => h("td", { class: "number" }, at ? asking(value, at) : number(value, 4));
  const asking = (value, at) =>
    h("button", { type: "button", class: "term", title: "How this was computed", onclick: () => ask(at) }, number(value, 4));
  const products = line.terms.some((term) => term.right !== null); // else they are only added up
  const rows = line.terms.map((term) => {
    const name = visible(term.name);
    const right = products && [h("td", {}, "·"), cell(term.right, term.right_at), h("td", {}, "="), cell(term.product)];
    return h("tr", {}, h("th", { scope: "row" }, name), cell(term.left, term.at), right || null);
  });
  const total = (name, value, strong = false) =>
    h(
      "tr",
      { class: strong ? "total" : null },
      h("th", { scope: "row", colspan: products ? 5 : 1 }, name),
      h("td", { class: "number" }, strong ? h("strong", {}, number(value, 5)) : number(value, 4)),
    );
  const rest = line.count - line.terms.length;
  return h(
    "div",
    { class: "scroll", tabindex: 0, role: "group", "aria-label": `terms of ${line.symbol}` },
    h(
      "table",
      { class: "terms" },
      h("caption", {}, `${line.count} ${line.count === 1 ? "term" : "terms"}${line.count > 1 ? ", the largest first" : ""}`),
      h(
        "tbody",
        {},
        rows,
        rest ? total(`${rest} more`, line.rest) : null,
        line.added.map((each) => total(`+ ${each.name}`, each.value)),
        total("sum", line.sum, true),
      ),
    ),
  );
}

// A formula with its subscripts: "x_d" is x with a small d; of "h_t−1" and "h_t−s" the difference is small too.
export function formula(text) {
  const pieces = text.split(/(_[A-Za-z0-9,]+(?:[−+](?:1|s)(?![A-Za-z0-9]))?)/);
  return pieces.map((piece, i) => (i % 2 ? h("sub", {}, piece.slice(1)) : piece));
}

// ---------------------------------------------------------------- in a file: what follows from recorded matrices

async function computed(page, name, head, row, column, most) {
  const dot = name.lastIndexOf(".");
  const [of, what] = [name.slice(0, dot), name.slice(dot + 1)];
  const part = page.parts().find((each) => each.name === of);
  const whole = (matrix) => (matrix.head.step ?? [1, 1]).every((step) => step === 1);
  const of_head = async (kind) => {
    const matrix = await page.matrix(`${of}.${kind}`, { head });
    return whole(matrix) ? matrix : null;
  };
  if (what === "scores" && ["Attention", "LocalAttention"].includes(part?.kind)) {
    const [q, k, s] = [await of_head("queries"), await of_head("keys"), await of_head("scores")];
    if (!s) return null;
    const width = q.head.shape.at(-1);
    const score = s.values[row * s.head.shape.at(-1) + column];
    const at = (i) => [`${of}.queries`, head, row, i];
    const keyAt = (i) => [`${of}.keys`, head, column, i];
    const line = sum("s", "Σ_i q_i k_i / √K", rowOf(q, row), rowOf(k, column), most, (i) => String(i + 1), at, keyAt);
    line.value = line.sum / Math.sqrt(width);
    line.numbers = `${number(line.sum, 4)} / √${width}`;
    if (Number.isFinite(score)) return { cell: line.value, lines: [line], note: "" };
    const note = "It is masked: its score is set to −∞, so its weight is 0.";
    return { cell: null, lines: [line, only("s", "−∞", null)], note };
  }
  if (what === "weights" && part) {
    const s = await of_head("scores");
    if (!s) return null;
    const scores = rowOf(s, row);
    const top = scores.reduce((a, b) => Math.max(a, b), -Infinity);
    const seen = [...scores.keys()].filter((i) => Number.isFinite(scores[i]));
    const powers = seen.map((i) => Math.exp(scores[i] - top));
    const at = (i) => [`${of}.scores`, head, row, seen[i]];
    const total = sum("Σ", "Σ_j exp(s_j − max)", powers, null, most, (i) => part.keys.pieces[seen[i]], at);
    const weight = Math.exp(scores[column] - top) / total.sum;
    const numbers = `exp(${number(scores[column], 4)} − ${number(top, 4)}) / ${number(total.sum, 4)}`;
    return { cell: weight, lines: [total, only("a", "exp(s − max) / Σ", weight, numbers)], note: "" };
  }
  if (what === "heads" && part) {
    const [a, v] = [await of_head("weights"), await of_head("values")];
    if (!a) return null;
    const width = v.head.shape.at(-1);
    const values = Array.from(part.keys.pieces, (_, i) => v.values[i * width + column]);
    const at = (i) => [`${of}.weights`, head, row, i];
    const valueAt = (i) => [`${of}.values`, head, i, column];
    const line = sum("z", "Σ_j a_j v_j", rowOf(a, row), values, most, (i) => part.keys.pieces[i], at, valueAt);
    return { cell: line.sum, lines: [line], note: "" };
  }
  if (what === "sum" || (what === "after" && part?.stack.layers[part.layer].pre_norm)) {
    return added(page, [`${of}.before`, `${of}.wrote`], ["x", "written"], row, column);
  }
  if (what === "summed" || (what === "embedded" && !(await page.matrix(`${of}.summed`).catch(() => null)))) {
    return added(page, [`${of}.token`, `${of}.place`], ["token", "position"], row, column);
  }
  return null;
}

async function added(page, names, words, row, column) {
  const matrices = await Promise.all(names.map((name) => page.matrix(name)));
  const values = matrices.map((matrix) => rowOf(matrix, row)[column]);
  const line = sum("x", words.join(" + "), values, null, 2, (i) => words[i], (i) => [names[i], null, row, column]);
  return { cell: line.sum, lines: [line], note: "" };
}

function rowOf(matrix, index) {
  const columns = matrix.head.shape.at(-1);
  return matrix.values.subarray(index * columns, (index + 1) * columns);
}

function sum(symbol, text, left, right, most, named, at, rightAt = null) {
  const products = Array.from(left, (value, i) => (right ? value * right[i] : value));
  const order = [...products.keys()].sort((a, b) => Math.abs(products[b]) - Math.abs(products[a]));
  const terms = order.slice(0, most).map((i) => ({
    name: named(i), left: left[i], right: right ? right[i] : null, product: products[i], at: at(i), right_at: rightAt?.(i),
  }));
  const total = products.reduce((a, b) => a + b, 0);
  const rest = order.slice(most).reduce((all, i) => all + products[i], 0);
  return { symbol, formula: text, terms, count: products.length, rest, sum: total, added: [], numbers: "", value: total };
}

function only(symbol, text, value, numbers = "") {
  return { symbol, formula: text, terms: [], count: 0, rest: 0, sum: null, added: [], numbers, value };
}
