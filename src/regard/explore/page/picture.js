// A picture with its grid of patches or pixels, and numbers over it: one tab stop, arrow keys over its cells.

import { largest } from "regard/arrays.js";
import { h, lazyDetails, number, svg, table } from "regard/dom.js";
import { legend, paint } from "regard/heatmap.js";

const STRONGEST = 20; // rows of the table
const MOST_LINES = 64; // rows or columns with lines between them

/* `stack`: whose grid it is. `values`: a number for each cell, or null. `lines`: where windows are cut, as {down, across}.
   `boxes`: left, top, right, bottom of all of them as fractions of the picture, and which is chosen. `pick`: called with a cell on Enter or click. `chosen`: the
   framed cell. `covered`: a second picture over the first. `until`: rows from here on are empty. `follow`: computes
   {values, text} for the cell under the pointer, shown in place of `values`. */
export function picture(page, options) {
  const { address, stack, label, values = null, scale = "unit", most = null, lines = null, boxes = null } = options;
  const { pick = null, chosen = null, size = 320, caption = null, covered = null, until = null, follow = null } = options;
  const [rows, columns] = stack.grid;
  const last = most ?? (values ? largest(values) || 1 : 1);
  const reading = h("div", { class: "reading" }, caption ?? label);
  const over = values || follow ? overlay(values ?? new Float32Array(rows * columns), rows, columns, scale, last) : null;
  if (!values) over?.setAttribute("hidden", "");
  const pointer = svg("rect", { class: "picture-mark", width: 1, height: 1, visibility: "hidden" });
  const field = h(
    "div",
    {
      class: "picture-field",
      tabindex: 0,
      role: "application",
      "aria-roledescription": "picture",
      "aria-label": `${label}: ${rows} rows, ${columns} columns. Arrow keys move${pick ? ", Enter chooses" : ""}.`,
      style: { "aspect-ratio": `${columns} / ${rows}` },
    },
    h("img", { src: address, alt: "", class: "pixels picture-image" }),
    covered ? h("img", { src: covered, alt: "", class: "pixels picture-over" }) : null,
    over,
    svg(
      "svg",
      { viewBox: `0 0 ${columns} ${rows}`, class: "picture-lines", preserveAspectRatio: "none", "aria-hidden": "true" },
      ruled(rows, columns, lines),
      until === null ? null : svg("rect", { x: 0, y: until, width: columns, height: rows - until, class: "picture-empty" }),
      boxes ? frames(boxes, rows, columns) : null,
      chosen === null ? null : svg("rect", { ...corner(chosen), class: "picture-chosen", width: 1, height: 1 }),
      pointer,
    ),
  );
  let at = null;

  function corner(cell) {
    return { x: cell % columns, y: Math.floor(cell / columns) };
  }

  const describe = (cell) => `${cellName(stack, cell)}${values ? `: ${number(values[cell], 4)}` : ""}`;

  function point(cell, spoken = false) {
    if (follow && cell !== at) showFollowed(cell, spoken);
    at = cell;
    if (!follow) reading.textContent = describe(cell);
    if (!follow && spoken) page.say(reading.textContent);
    page.highlight.set([{ stack: stack.name, position: stack.before + cell }]);
    mark(cell);
  }

  async function showFollowed(cell, spoken) {
    const { values: followed, text } = await follow(cell);
    if (cell !== at) return;
    paint(over, followed, scale, last);
    over.removeAttribute("hidden");
    reading.textContent = `${cellName(stack, cell)}: ${text}`;
    if (spoken) page.say(reading.textContent);
  }

  function mark(cell) {
    if (cell !== null) for (const [name, value] of Object.entries(corner(cell))) pointer.setAttribute(name, value);
    pointer.setAttribute("visibility", cell === null ? "hidden" : "visible");
  }

  function cellOf(event) {
    const area = field.getBoundingClientRect();
    const index = (pixel, start, length, count) =>
      Math.min(count - 1, Math.max(0, Math.floor(((pixel - start) / length) * count)));
    return index(event.clientY, area.top, area.height, rows) * columns + index(event.clientX, area.left, area.width, columns);
  }

  field.addEventListener("pointermove", (event) => point(cellOf(event)));
  field.addEventListener("pointerleave", () => page.highlight.clear());
  field.addEventListener("click", (event) => {
    point(cellOf(event));
    pick?.(at);
  });
  field.addEventListener("keydown", (event) => {
    const moves = { ArrowUp: -columns, ArrowDown: columns, ArrowLeft: -1, ArrowRight: 1 };
    if (event.key === "Enter" || event.key === " ") {
      if (at !== null) pick?.(at);
    } else if (event.key in moves) {
      const next = at === null ? (chosen ?? 0) : at + moves[event.key];
      const wraps = at !== null && /Left|Right/.test(event.key) && Math.floor(next / columns) !== Math.floor(at / columns);
      point(next < 0 || next >= rows * columns || wraps ? at : next, true);
    } else return;
    event.preventDefault();
  });
  page.highlight.listen(field, (marks) => {
    const marked = marks.find((mark) => mark.stack === stack.name && mark.position >= stack.before);
    const cell = marked && marked.position - stack.before;
    mark(marked && cell < rows * columns ? cell : null);
  });
  return h(
    "figure",
    { class: "picture", dataset: { label }, style: { width: `${Math.round(size * Math.min(1, columns / rows))}px` } },
    field,
    h("figcaption", {}, reading, over ? legend(scale, last) : null),
    values ? lazyDetails(`Numbers: ${label}`, () => strongest(stack, values, label)) : null,
  );
}

// A cell in words.
export function cellName(stack, cell) {
  const columns = stack.grid[1];
  return `row ${Math.floor(cell / columns) + 1}, column ${(cell % columns) + 1}`;
}

// A small picture with numbers over it, not interactive.
export function smallPicture({ address, stack, values, most, scale = "unit" }) {
  const [rows, columns] = stack.grid;
  return h(
    "span",
    { class: "picture-small", "aria-hidden": "true", style: { "aspect-ratio": `${columns} / ${rows}` } },
    h("img", { src: address, alt: "", class: "pixels picture-image" }),
    overlay(values, rows, columns, scale, most),
  );
}

// The values of positions by cell of the grid; NaN for a cell without a position.
export function onGrid(stack, values) {
  const cells = stack.grid[0] * stack.grid[1];
  return Float32Array.from({ length: cells }, (_, cell) => values[stack.before + cell] ?? NaN);
}

function overlay(values, rows, columns, scale, most) {
  const canvas = h("canvas", { width: columns, height: rows, class: "pixels picture-over picture-values", "aria-hidden": "true" });
  paint(canvas, values, scale, most);
  return canvas;
}

// Lines around every cell, or around windows of them.
function ruled(rows, columns, lines) {
  const every = (count) => (count <= MOST_LINES ? Array.from({ length: count - 1 }, (_, i) => i + 1) : []);
  const thin = [every(rows), every(columns)];
  const drawn = (down, across, name) => [
    down.map((y) => svg("line", { x1: 0, x2: columns, y1: y, y2: y, class: name })),
    across.map((x) => svg("line", { x1: x, x2: x, y1: 0, y2: rows, class: name })),
  ];
  return [drawn(...thin, "picture-rule"), lines ? drawn(lines.down, lines.across, "picture-window") : null];
}

// All boxes thinly, and over them the chosen one.
function frames({ all, chosen }, rows, columns) {
  const frame = ([left, top, right, bottom], style) => {
    const at = { x: left * columns, y: top * rows, width: (right - left) * columns, height: (bottom - top) * rows };
    return svg("rect", { ...at, class: "picture-box", style });
  };
  const others = all.filter((_, i) => i !== chosen);
  return [others.map((box) => frame(box, { "stroke-width": "1", stroke: "#ffb3a6" })), frame(all[chosen], {})];
}

function strongest(stack, values, label) {
  const order = [...values.keys()].filter((i) => Number.isFinite(values[i]));
  order.sort((a, b) => Math.abs(values[b]) - Math.abs(values[a]));
  const lines = order.slice(0, STRONGEST).map((i) => [cellName(stack, i), number(values[i], 4)]);
  return table(`${label}: the ${lines.length} largest`, ["cell", "value"], lines);
}
