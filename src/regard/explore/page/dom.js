// Elements from plain calls: h("p", {class: "note"}, "text", element).

export function h(tag, attributes = {}, ...children) {
  return assemble(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return assemble(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function assemble(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "dataset") Object.assign(element.dataset, value);
    else if (name === "value" || name === "checked") element[name] = value;
    else if (name === "style") for (const [property, setting] of Object.entries(value)) element.style.setProperty(property, setting);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// A piece of a text with invisible characters made visible. The space before a word is left out, one between words stays.
export function visible(piece) {
  const shown = piece.replace(/^ +(?=.)/, "").replace(/(?<!\S) | (?!\S)/g, "␣").replace(/\n/g, "⏎").replace(/\t/g, "⇥");
  return shown === "" ? "␣" : shown.replace(/[\u0000-\u001f\u007f\u200b-\u200f\u2028-\u202f\u2066-\u2069\ufeff]/g, "�");
}

// Visible pieces. Where only the space before them distinguishes two, it is shown.
export function visiblePieces(pieces) {
  const shown = pieces.map(visible);
  const alike = (i) => shown.indexOf(shown[i]) !== shown.lastIndexOf(shown[i]);
  return shown.map((word, i) => (alike(i) && pieces[i].startsWith(" ") ? `␣${word}` : word));
}

// A number as text: three decimals, or scientific notation.
export function number(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value === Infinity) return "∞";
  if (value === -Infinity) return "−∞";
  const size = Math.abs(value);
  if (size !== 0 && (size < 0.5 * 10 ** -digits || size >= 1e5)) return value.toExponential(1).replaceAll("-", "−");
  return value.toFixed(digits).replace("-", "−");
}

export function percent(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(100 * value);
  if (size > 0 && size < 0.0005) return "< 0.001 %";
  return `${(100 * value).toFixed(size > 0 && size < 1 ? (size < 0.1 ? 3 : 2) : 1).replace("-", "−")} %`;
}

export function button(text, onclick, attributes = {}) {
  return h("button", { type: "button", onclick, ...attributes }, text);
}

// Enter submits the form; Shift + Enter begins a new line.
export function submitOnEnter(textarea) {
  textarea.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || textarea.tagName !== "TEXTAREA") return;
    event.preventDefault();
    textarea.form.requestSubmit();
  });
}

export function note(...text) {
  return h("p", { class: "note" }, ...text);
}

export function choice(label, options, value, onchange) {
  const id = `choice-${(choice.count = (choice.count ?? 0) + 1)}`;
  return h(
    "span",
    { class: "field" },
    h("label", { for: id }, label),
    h(
      "select",
      { id, onchange: (event) => onchange(event.target.value) },
      options.map(([option, text]) => h("option", { value: option, selected: String(option) === String(value) }, text)),
    ),
  );
}

export function slider(label, least, most, step, value, onchange, format = String) {
  const id = `slider-${(slider.count = (slider.count ?? 0) + 1)}`;
  const output = h("output", { for: id }, format(value));
  const input = h("input", { id, type: "range", min: least, max: most, step, value });
  input.value = value;
  input.addEventListener("input", () => {
    output.textContent = format(Number(input.value));
    onchange(Number(input.value));
  });
  return h("span", { class: "field" }, h("label", { for: id }, label), input, output);
}

export function table(caption, heads, rows, { first = true } = {}) {
  const cell = (value, at) =>
    at === 0 && first
      ? h("th", { scope: "row" }, value)
      : h("td", { class: typeof value === "number" ? "number" : null }, typeof value === "number" ? number(value) : value);
  return h(
    "div",
    { class: "scroll", tabindex: 0, role: "group", "aria-label": caption },
    h(
      "table",
      {},
      h("caption", {}, caption),
      h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map(cell)))),
    ),
  );
}

// The numbers behind a picture, collapsed: screen readers read them instead.
export function numbersBelow(caption, heads, rows) {
  return h("details", { class: "numbers" }, h("summary", {}, caption), table(caption, heads, rows()));
}

// Details whose content is computed when they are first opened.
export function lazyDetails(summary, content) {
  const details = h("details", { class: "numbers" }, h("summary", {}, summary));
  details.addEventListener("toggle", () => {
    if (details.open && details.childElementCount === 1) details.append(content());
  });
  return details;
}

// Where there is more to scroll to, that edge fades. (A shadow in the background would be covered by a canvas.)
export function fading(element) {
  const look = () => {
    element.classList.toggle("more-left", element.scrollLeft > 1);
    element.classList.toggle("more-right", element.scrollWidth - element.clientWidth - element.scrollLeft > 1);
  };
  element.addEventListener("scroll", look);
  new ResizeObserver(look).observe(element);
  return element;
}

export function problem(error) {
  return h(
    "div",
    { class: error.unreachable ? "problem unreachable" : "problem", role: "alert" },
    h("strong", {}, error.what ?? "This cannot be shown."),
    " ",
    error.why ?? error.message,
    " ",
    error.fix ?? "",
  );
}

// Something that this kind of model does not have: a fact, not a mistake of the user.
export function missing(error) {
  if (!error.what) return problem(error);
  return h("p", { class: "missing" }, h("strong", {}, error.what), " ", error.why);
}

// An error in one section does not take the rest of the view away.
export async function orProblem(section) {
  try {
    return await section;
  } catch (error) {
    if (!error.what) throw error;
    return problem(error);
  }
}

const lost = new WeakMap(); // by element: what had the focus in it, until this is there again

// Redraw an element and keep the keyboard focus where it was.
export function keepFocus(element, draw) {
  const name = (node) =>
    `${node.tagName} ${node.getAttribute("aria-label") ?? node.labels?.[0]?.textContent ?? node.textContent}`;
  const { activeElement } = document;
  const inside = activeElement !== element && element.contains(activeElement);
  const focused = inside ? name(activeElement) : activeElement === element ? lost.get(element) : undefined;
  lost.delete(element);
  draw();
  if (focused === undefined) return;
  const focusable = [...element.querySelectorAll("button, select, input, textarea, [tabindex]")];
  const successor = focusable.find((node) => name(node) === focused);
  if (!successor) lost.set(element, focused);
  (successor ?? element).focus({ preventScroll: true });
}
