// The tokens of a stack as a line of words; with numbers, on a ground of colour.

import { colour, css, ink } from "regard/colours.js";
import { h, number, visible } from "regard/dom.js";

const COLOUR = /^#[0-9a-f]{6}\b/i; // a pixel's

const MOST = 400; // tokens of a line, until more are asked for

// The colour itself, beside the name of one.
export function swatch(piece) {
  const [colour] = COLOUR.exec(piece) ?? [];
  return colour ? h("span", { class: "swatch", style: { background: colour }, "aria-hidden": "true" }) : null;
}

// `values`: a number for each position, with its scale; `pick`: called with the position that is clicked;
// `marked`: whether a position is underlined.
export function tokenLine(page, stack, options = {}) {
  const { values = null, scale = "signed", most = 1, pick = null, chosen = null, marked = () => false } = options;
  const line = h("div", { class: "line", role: "group", "aria-label": `${stack.name}: ${stack.pieces.length} tokens` });
  const pieces = (from, to) => stack.pieces.slice(from, to).map((piece, i) => token(piece, from + i));
  const rest = stack.pieces.length - MOST;
  line.append(...pieces(0, MOST));
  if (rest > 0) {
    if (chosen >= MOST) line.append("… ", token(stack.pieces[chosen], chosen), " … ");
    line.append(h("button", { type: "button", class: "more", onclick: all }, `show ${rest.toLocaleString("en")} more`));
  }
  return line;

  function all() {
    line.replaceChildren(...pieces(0, stack.pieces.length));
  }

  function token(piece, position) {
    const ground = values && colour(values[position], scale, most);
    const element = h(
      pick ? "button" : "span",
      {
        class: marked(position) ? "token changed" : "token",
        type: pick ? "button" : null,
        "aria-pressed": pick && chosen !== null ? String(position === chosen) : null,
        title: values ? `${piece}: ${number(values[position])}` : `${stack.name}, position ${position + 1}`,
        style: ground ? { background: css(ground), color: ink(ground) } : {},
        onclick: pick ? () => pick(position) : null,
      },
      swatch(piece),
      visible(piece),
    );
    return page.highlight.stands(element, stack.name, position);
  }
}
