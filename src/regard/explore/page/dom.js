// Elements from plain calls: h("p", {class: "note"}, "text", element).

export function h(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "dataset") Object.assign(element.dataset, value);
    else if (name === "value" || name === "checked") element[name] = value;
    else if (name === "style") for (const [key, each] of Object.entries(value)) element.style.setProperty(key, each);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// A piece of a text, with what cannot be seen made visible; a space between two words can be.
export function visible(piece) {
  const shown = piece.replace(/^ +(?=.)/, "").replace(/(?<!\S) | (?!\S)/g, "␣").replace(/\n/g, "⏎").replace(/\t/g, "⇥");
  return shown === "" ? "␣" : shown.replace(/[\u0000-\u001f\u007f\u200b-\u200f\u2028-\u202f\u2066-\u2069\ufeff]/g, "�");
}

// Pieces as they are shown; where the space before them is all that tells them apart, it can be seen.
export function spelled(pieces) {
  const shown = pieces.map(visible);
  const alike = (i) => shown.indexOf(shown[i]) !== shown.lastIndexOf(shown[i]);
  return shown.map((word, i) => (alike(i) && pieces[i].startsWith(" ") ? `␣${word}` : word));
}

// A number as it is shown: three digits behind the point, or powers of ten.
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

// A text is sent by Enter; with Shift, Enter begins a new line.
export function submittedByEnter(textarea) {
  textarea.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || textarea.tagName !== "TEXTAREA") return;
    event.preventDefault();
    textarea.form.requestSubmit();
  });
}

export function note(...text) {
  return h("p", { class: "note" }, ...text);
}

export function choice(label, options, value, changed) {
  const id = `choice-${(choice.count = (choice.count ?? 0) + 1)}`;
  return h(
    "span",
    { class: "field" },
    h("label", { for: id }, label),
    h(
      "select",
      { id, onchange: (event) => changed(event.target.value) },
      options.map(([each, text]) => h("option", { value: each, selected: String(each) === String(value) }, text)),
    ),
  );
}

export function slider(label, least, most, step, value, changed, shown = String) {
  const id = `slider-${(slider.count = (slider.count ?? 0) + 1)}`;
  const output = h("output", { for: id }, shown(value));
  const input = h("input", { id, type: "range", min: least, max: most, step, value });
  input.value = value;
  input.addEventListener("input", () => {
    output.textContent = shown(Number(input.value));
    changed(Number(input.value));
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

// The numbers of a view, closed until they are asked for: what a screen reader reads instead of a picture.
export function numbersBelow(caption, heads, rows) {
  return h("details", { class: "numbers" }, h("summary", {}, caption), table(caption, heads, rows()));
}

export function problem(error) {
  return h(
    "div",
    { class: "problem", role: "alert" },
    h("strong", {}, error.what ?? "This cannot be shown."),
    " ",
    error.why ?? error.message,
    " ",
    error.fix ?? "",
  );
}

// What this kind of model does not have: a fact about it, and no mistake of the reader's.
export function missing(error) {
  if (!error.what) return problem(error);
  return h("p", { class: "missing" }, h("strong", {}, error.what), " ", error.why);
}

// Whoever uses the keyboard stays where they are when what is in an element is drawn again.
export function keepingFocus(element, draw) {
  const name = (each) =>
    `${each.tagName} ${each.getAttribute("aria-label") ?? each.labels?.[0]?.textContent ?? each.textContent}`;
  const { activeElement } = document;
  const focused = activeElement !== element && element.contains(activeElement) ? name(activeElement) : null;
  draw();
  if (focused === null) return;
  const all = [...element.querySelectorAll("button, select, input, textarea, [tabindex]")];
  const again = all.find((each) => name(each) === focused);
  (again ?? element).focus({ preventScroll: true });
}
