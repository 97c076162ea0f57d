// The tokens of a stack as a line of words; with numbers, on coloured backgrounds.

import { colour, css, ink } from "regard/colours.js";
import { h, number, visible } from "regard/dom.js";

const COLOUR = /^#[0-9a-f]{6}\b/i; // of a pixel

const MOST = 400; // tokens shown at first

// A swatch of the colour that a piece names, if any.
export function swatch(piece) {
  const [colour] = COLOUR.exec(piece) ?? [];
  return colour ? h("span", { class: "swatch", style: { background: colour }, "aria-hidden": "true" }) : null;
}

// `values`: a number for each position, coloured on `scale`. `pick`: called with a clicked position. `marked`: whether a
// position is underlined.
export function tokenLine(page, stack, options = {}) {
  const { values = null, scale = "signed", most = 1, pick = null, chosen = null, marked = () => false } = options;
  const line = h("div", { class: "line", role: "group", "aria-label": `${stack.name}: ${stack.pieces.length} tokens` });
  const pieces = (from, to) => stack.pieces.slice(from, to).map((piece, i) => token(piece, from + i));
  const rest = stack.pieces.length - MOST;
  line.append(...pieces(0, MOST));
  if (rest > 0) {
    if (chosen >= MOST) line.append("… ", token(stack.pieces[chosen], chosen), " … ");
    line.append(h("button", { type: "button", class: "more", onclick: showAll }, `show ${rest.toLocaleString("en")} more`));
  }
  return line;

  function showAll() {
    line.replaceChildren(...pieces(0, stack.pieces.length));
  }

  function token(piece, position) {
    const background = values && colour(values[position], scale, most);
    const element = h(
      pick ? "button" : "span",
      {
        class: marked(position) ? "token changed" : "token",
        type: pick ? "button" : null,
        "aria-pressed": pick && chosen !== null ? String(position === chosen) : null,
        title: values ? `${piece}: ${number(values[position])}` : `${stack.name}, position ${position + 1}`,
        style: background ? { background: css(background), color: ink(background) } : {},
        onclick: pick ? () => pick(position) : null,
      },
      swatch(piece),
      visible(piece),
    );
    return page.highlight.register(element, stack.name, position);
  }
}
