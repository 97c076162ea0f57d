// A vector as a strip of cells: one canvas, one tab stop, arrow keys over its cells, and a table of its numbers.

import { largest } from "regard/arrays.js";
import { h, lazyDetails, number, table } from "regard/dom.js";
import { legend, paint } from "regard/heatmap.js";
import { whole } from "regard/names.js";

const BESIDE = 724; // pixels taken by the list of steps and the arithmetic on a wide screen

/* `values`: the numbers. `most`: the magnitude of the last colour. `chosen`: the outlined cell. `parts`: of how many equal
   parts the vector consists; number `part` is marked. `open`: called with a cell on Enter or click. */
export function strip(page, { values, label, most = null, chosen = null, part = null, parts = 1, open = null }) {
  const last = most ?? (largest(values) || 1);
  const { across, size } = shape(values.length);
  const lines = Math.ceil(values.length / across);
  const canvas = h("canvas", { width: across, height: lines, class: "pixels", "aria-hidden": "true" });
  Object.assign(canvas.style, { width: `${across * size}px`, height: `${lines * size}px` });
  const padded = new Float32Array(across * lines).fill(NaN);
  padded.set(values);
  paint(canvas, padded, "signed", last);
  clear(canvas, values.length, across);

  const pointer = h("div", { class: "at-cell", hidden: true });
  const outline = h("div", { class: "at-cell outlined", hidden: true });
  const reading = h("span", { class: "reading" });
  const field = h(
    "div",
    {
      class: "field-of-cells strip",
      tabindex: 0,
      role: "application",
      "aria-roledescription": "vector",
      "aria-label": `${label}: ${whole(values.length)} components. Arrow keys move, Enter opens the arithmetic of a component.`,
    },
    canvas,
    marks(),
    outline,
    pointer,
  );
  let at = null;

  function textOf(index) {
    return `component ${whole(index + 1)}: ${number(values[index], 4)}`;
  }

  function marks() {
    if (part === null || parts < 2) return null;
    const width = values.length / parts;
    return Array.from({ length: lines }, (_, line) => {
      const from = Math.max(part * width, line * across);
      const to = Math.min((part + 1) * width, (line + 1) * across);
      if (to <= from) return null;
      const box = { left: from - line * across, top: line, width: to - from, height: 1 };
      const style = Object.fromEntries(Object.entries(box).map(([side, cells]) => [side, `${cells * size}px`]));
      return h("div", { class: "of-part", style });
    });
  }

  function put(element, index) {
    element.hidden = index === null;
    if (index === null) return;
    const [x, y] = [index % across, Math.floor(index / across)];
    Object.assign(element.style, { left: `${x * size}px`, top: `${y * size}px`, width: `${size}px`, height: `${size}px` });
  }

  function point(index, spoken = false) {
    at = Math.min(values.length - 1, Math.max(0, index));
    reading.textContent = textOf(at);
    if (spoken) page.say(`${label}, ${reading.textContent}`);
    put(pointer, at);
  }

  function cellOf(event) {
    const box = canvas.getBoundingClientRect();
    const x = Math.floor(((event.clientX - box.left) / box.width) * across);
    const y = Math.floor(((event.clientY - box.top) / box.height) * lines);
    return Math.min(Math.max(y, 0), lines - 1) * across + Math.min(Math.max(x, 0), across - 1);
  }

  function openCell() {
    if (at === null || !open) return;
    put(outline, at);
    open(at);
  }

  field.addEventListener("pointermove", (event) => point(cellOf(event)));
  field.addEventListener("pointerleave", () => put(pointer, null));
  field.addEventListener("click", (event) => {
    point(cellOf(event));
    openCell();
  });
  field.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -across, ArrowDown: across };
    if (event.key === "Enter" || event.key === " ") openCell();
    else if (event.key === "Home") point(0, true);
    else if (event.key === "End") point(values.length - 1, true);
    else if (event.key in moves) point(at === null ? (chosen ?? 0) : at + moves[event.key], true);
    else return;
    event.preventDefault();
  });
  put(outline, chosen);
  reading.textContent = chosen === null ? `${whole(values.length)} components` : textOf(chosen);

  const figure = h(
    "figure",
    { class: "vector", dataset: { label } },
    h("div", { class: "vector-room" }, field),
    h("figcaption", {}, reading, legend("signed", last)),
    lazyDetails(`All components: ${label}`, () =>
      table(label, ["component", "value"], Array.from(values, (value, i) => [whole(i + 1), number(value, 4)])),
    ),
  );
  figure.keep = (index) => put(outline, index); // null when a cell of another figure is opened
  return figure;
}

// Cells per line: the line must fit, and a cell must be large enough to point at.
function shape(count) {
  const room = document.getElementById("panel").clientWidth || 400;
  const wide = room > 1160 ? Math.min(704, room - BESIDE) : room > 900 ? room - 260 : room - 24;
  const across = Math.min(count, wide >= 640 ? 64 : wide >= 320 ? 32 : 16);
  return { across, size: Math.max(6, Math.min(22, Math.floor(wide / across))) };
}

// Behind the last number there are no cells.
function clear(canvas, count, across) {
  const rest = count % across;
  if (rest) canvas.getContext("2d").clearRect(rest, canvas.height - 1, across - rest, 1);
}
