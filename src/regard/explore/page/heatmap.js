// A matrix as a heat map: one canvas, one tab stop, arrow keys over its cells, and a table of its numbers: of all,
// or of a large one the largest.

import { largest } from "regard/arrays.js";
import { colour } from "regard/colours.js";
import { fading, h, lazyDetails, number, table, visible } from "regard/dom.js";

const MOST_LABELS = 72;
const MOST_CELL = 28; // pixels
const FEW_ROWS = 40;
const MOST_CELLS = 400; // of a matrix whose values are all in the table
const STRONGEST = 20; // rows of the table of a larger one

/* `matrix`: {head: {shape: [R, C], step?, from?}, values}. `rows`, `columns`: the edges as {labels, stack?, axis, plain?}:
   the tokens of `stack` are highlighted; `plain` labels are words of ours, not pieces of a text. `scale`: unit, positive,
   root, signed. `most`: the value of the last colour. `open`: called with (row, column) on Enter or click. `zoom`: called
   with the window of a cell that stands for a block. `markedRow`: a row that stays marked; `markedCell`: a cell that stays
   marked until another is opened. */
export function heatmap(page, { matrix, rows, columns, label, scale = "unit", most = null, open = null, zoom = null, cell = null, markedRow = null, markedCell = null }) {
  const [height, width] = matrix.head.shape;
  const [stepDown, stepAcross] = matrix.head.step ?? [1, 1];
  const [fromDown, fromAcross] = matrix.head.from ?? [0, 0];
  const last = most ?? (scale === "unit" ? 1 : largest(matrix.values) || 1);
  const { wide, high } = sized(width, height, rows, cell);
  const canvas = h("canvas", { width, height, class: "pixels", "aria-hidden": "true" });
  canvas.style.width = `${width * wide}px`;
  canvas.style.height = `${height * high}px`;
  paint(canvas, matrix.values, scale, last);

  const across = h("div", { class: "cross across", hidden: true });
  const down = h("div", { class: "cross down", hidden: true });
  const cellMark = h("div", { class: "at-cell outlined", hidden: true });
  const reading = h("div", { class: "reading" }, label);
  const field = h(
    "div",
    {
      class: "field-of-cells",
      tabindex: 0,
      role: "application",
      "aria-roledescription": "heat map",
      "aria-label": `${label}: ${height} rows, ${width} columns. Arrow keys move, Enter opens a cell.`,
    },
    canvas,
    markedRow === null || markedRow < 0 || markedRow >= height ? null : rowMark(markedRow),
    cellMark,
    across,
    down,
  );
  let at = null;

  function rowMark(row) {
    return h("div", { class: "cross across outlined", style: { top: `${row * high}px`, height: `${high}px` } });
  }

  const nameOf = (side, index, from, step) => {
    const first = from + index * step;
    if (step === 1) return labelOf(side, first);
    return `${first + 1}–${Math.min(first + step, side.labels.length)}`;
  };
  const describe = (row, column) =>
    `${nameOf(rows, row, fromDown, stepDown)} → ${nameOf(columns, column, fromAcross, stepAcross)}: ` +
    `${number(matrix.values[row * width + column], 4)}${stepDown * stepAcross > 1 ? ", the maximum of this block" : ""}`;

  function point(row, column, spoken = false) {
    at = [row, column];
    reading.textContent = describe(row, column);
    if (spoken) page.say(reading.textContent);
    const marks = [];
    if (rows.stack && stepDown === 1) marks.push({ stack: rows.stack, position: fromDown + row });
    if (columns.stack && stepAcross === 1) marks.push({ stack: columns.stack, position: fromAcross + column });
    page.highlight.set(marks);
    mark(row, column);
  }

  function mark(row, column) {
    across.hidden = row === null;
    down.hidden = column === null;
    if (row !== null) Object.assign(across.style, { top: `${row * high}px`, height: `${high}px` });
    if (column !== null) Object.assign(down.style, { left: `${column * wide}px`, width: `${wide}px` });
  }

  function openCell() {
    if (at === null) return;
    const [row, column] = at;
    if (stepDown * stepAcross > 1 && zoom) zoom(windowOf(row, column));
    else if (open) {
      keep([row, column]);
      open(fromDown + row, fromAcross + column);
    }
  }

  function keep(cell) {
    cellMark.hidden = cell === null;
    if (cell === null) return;
    const [row, column] = cell;
    Object.assign(cellMark.style, { top: `${row * high}px`, left: `${column * wide}px`, width: `${wide}px`, height: `${high}px` });
  }

  // A window around a cell that stands for a block, small enough to be shown exactly.
  function windowOf(row, column) {
    const part = (index, from, step, size) => {
      const span = Math.min(128, size);
      const middle = from + index * step;
      const start = Math.max(0, Math.min(middle - span / 2, size - span));
      return [Math.floor(start), Math.floor(start) + span];
    };
    return {
      rows: part(row, fromDown, stepDown, rows.labels.length),
      columns: part(column, fromAcross, stepAcross, columns.labels.length),
    };
  }

  function cellOf(event) {
    const box = canvas.getBoundingClientRect();
    return [
      Math.min(height - 1, Math.max(0, Math.floor(((event.clientY - box.top) / box.height) * height))),
      Math.min(width - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * width))),
    ];
  }

  field.addEventListener("pointermove", (event) => point(...cellOf(event)));
  field.addEventListener("pointerleave", () => {
    mark(null, null);
    page.highlight.clear();
  });
  field.addEventListener("click", (event) => {
    point(...cellOf(event));
    openCell();
  });
  field.addEventListener("keydown", (event) => {
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (event.key === "Enter" || event.key === " ") openCell();
    else if (event.key === "Home") point(at?.[0] ?? 0, 0, true);
    else if (event.key === "End") point(at?.[0] ?? 0, width - 1, true);
    else if (event.key in moves) {
      const [row, column] = at ?? [0, 0];
      const [y, x] = at ? moves[event.key] : [0, 0];
      point(Math.min(height - 1, Math.max(0, row + y)), Math.min(width - 1, Math.max(0, column + x)), true);
    } else return;
    event.preventDefault();
  });
  page.highlight.listen(field, (marks) => {
    const row = marks.find(({ stack, position }) => stack === rows.stack && inside(position, fromDown, stepDown, height));
    const column = marks.findLast(
      ({ stack, position }) => stack === columns.stack && inside(position, fromAcross, stepAcross, width),
    );
    const sameMark = rows.stack === columns.stack && marks.length === 1;
    mark(
      row ? Math.floor((row.position - fromDown) / stepDown) : null,
      column && !sameMark ? Math.floor((column.position - fromAcross) / stepAcross) : null,
    );
  });

  const labelled = (side, count, from, step, size) =>
    count <= MOST_LABELS && size >= 9 && step === 1
      ? Array.from({ length: count }, (_, i) => {
          const text = labelOf(side, from + i);
          const element = h("span", { class: text.length === 1 ? "letter" : null, style: { "--cell": `${size}px` } }, text);
          return side.stack ? page.highlight.register(element, side.stack, from + i) : element;
        })
      : [];
  const figure = h(
    "figure",
    { class: "heatmap", dataset: { label } },
    fading(
      h(
        "div",
        { class: "heatmap-grid" },
        h("div", { class: "labels-down", "aria-hidden": "true" }, labelled(rows, height, fromDown, stepDown, high)),
        h(
          "div",
          {},
          field,
          h("div", { class: "labels-across", "aria-hidden": "true" }, labelled(columns, width, fromAcross, stepAcross, wide)),
        ),
      ),
    ),
    h("figcaption", {}, reading, legend(scale, last), axes(rows, columns)),
    numbers(),
  );
  if (markedCell) keep([(markedCell[0] - fromDown) / stepDown, (markedCell[1] - fromAcross) / stepAcross].map(Math.floor));
  figure.keep = keep;
  return figure;

  function numbers() {
    return height * width <= MOST_CELLS
      ? lazyDetails(`All values: ${label}`, allValues)
      : lazyDetails(`The ${STRONGEST} largest values: ${label}`, largestValues);
  }

  function allValues() {
    const down = (row) => nameOf(rows, row, fromDown, stepDown);
    const across = (column) => nameOf(columns, column, fromAcross, stepAcross);
    const values = (row) => Array.from({ length: width }, (_, column) => number(matrix.values[row * width + column], 4));
    return table(
      label,
      [rows.axis ?? "row", ...Array.from({ length: width }, (_, column) => across(column))],
      Array.from({ length: height }, (_, row) => [down(row), ...values(row)]),
    );
  }

  function largestValues() {
    const order = [...matrix.values.keys()].filter((i) => Number.isFinite(matrix.values[i]));
    order.sort((a, b) => Math.abs(matrix.values[b]) - Math.abs(matrix.values[a]));
    const lines = order.slice(0, STRONGEST).map((i) => [
      nameOf(rows, Math.floor(i / width), fromDown, stepDown),
      nameOf(columns, i % width, fromAcross, stepAcross),
      number(matrix.values[i], 4),
    ]);
    return table(label, [rows.axis ?? "row", columns.axis ?? "column", "value"], lines);
  }
}

// How wide and high a cell is: square, unless a few rows have so many columns that they could not be read.
function sized(columns, count, rows, cell) {
  const most = (room, of) => Math.max(2, Math.min(MOST_CELL, Math.floor(room / Math.max(of, 8))));
  const room = columns > 3 * count ? 0.6 * document.getElementById("panel").clientWidth : 620;
  const wide = cell ?? Math.min(most(room, Math.max(columns, count)), fitting(columns, rows));
  return { wide, high: count <= FEW_ROWS ? Math.max(wide, Math.min(14, most(620, count))) : wide };
}

// Cells so small that all columns fit beside the labels of the rows, unless they could then no longer be pointed at.
function fitting(columns, rows) {
  const room = document.getElementById("panel").clientWidth || 400;
  const longest = Math.max(0, ...rows.labels.slice(0, MOST_LABELS).map((label) => label.length));
  return Math.max(9, Math.floor((room - Math.min(140, 12 + 8 * longest)) / columns));
}

function labelOf(side, index) {
  const label = side.labels[index] ?? String(index + 1);
  return side.plain ? label : visible(label);
}

function inside(position, from, step, count) {
  return position >= from && position < from + step * count;
}

function axes(rows, columns) {
  return rows.axis || columns.axis ? h("span", { class: "axes" }, `rows: ${rows.axis} · columns: ${columns.axis}`) : null;
}

export function legend(scale, most) {
  const ends = scale === "signed" ? [-most, most] : [0, most];
  const canvas = h("canvas", { width: 64, height: 1, class: "pixels legend-bar", "aria-hidden": "true" });
  const values = Float32Array.from({ length: 64 }, (_, i) => ends[0] + ((ends[1] - ends[0]) * i) / 63);
  paint(canvas, values, scale, most);
  return h("span", { class: "legend" }, number(ends[0], 2), canvas, number(ends[1], 2));
}

export function paint(canvas, values, scale, most) {
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  for (let i = 0; i < canvas.width * canvas.height; i++) {
    const [r, g, b] = colour(values[i], scale, most);
    image.data.set([r, g, b, 255], 4 * i);
  }
  context.putImageData(image, 0, 0);
}

// A small picture of a matrix, max-pooled: a mean would hide single links. `most`: the value of the last colour.
export function thumbnail(matrix, { side = 64, most = 1, scale = "positive" } = {}) {
  const [height, width] = matrix.head.shape;
  const rows = Math.min(side, height);
  const columns = Math.min(side, width);
  const small = new Float32Array(rows * columns);
  for (let y = 0; y < height; y++) {
    const to = Math.floor((y * rows) / height) * columns;
    for (let x = 0; x < width; x++) {
      const block = to + Math.floor((x * columns) / width);
      small[block] = Math.max(small[block], matrix.values[y * width + x]);
    }
  }
  const canvas = h("canvas", { width: columns, height: rows, class: "pixels thumbnail", "aria-hidden": "true" });
  paint(canvas, small, scale, most);
  return canvas;
}
