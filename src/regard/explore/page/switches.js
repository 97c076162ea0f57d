// Everything that can be switched off, as buttons: layers, parts, heads, and positions.

import { h, visible } from "regard/dom.js";
import { tokensName } from "regard/names.js";
import { roving } from "regard/roving.js";

const MOST_POSITIONS = 1200; // shown as buttons
const KINDS = ["heads", "parts", "layers", "positions"];

export function nothingOff() {
  return Object.fromEntries(KINDS.map((kind) => [kind, []]));
}

export function countOff(off) {
  return KINDS.reduce((sum, kind) => sum + off[kind].length, 0);
}

// The options of the question: only kinds with something off, as in a recording.
export function optionsOf(off) {
  return Object.fromEntries(KINDS.filter((kind) => off[kind].length).map((kind) => [kind, off[kind]]));
}

// `off`: {heads, parts, layers, positions}. `onchange`: called with the new `off`.
export function switches(page, off, onchange) {
  const isOff = (kind, name) => off[kind].some((other) => JSON.stringify(other) === JSON.stringify(name));
  const button = (kind, name, text, label, attributes = {}) => {
    const element = h(
      "button",
      {
        type: "button",
        class: "switch",
        "aria-pressed": String(isOff(kind, name)),
        "aria-label": `${label} off`,
        title: label,
        dataset: { off: kind === "positions" ? name.join(" at ") : name },
        onclick: () => {
          const without = off[kind].filter((other) => JSON.stringify(other) !== JSON.stringify(name));
          off = { ...off, [kind]: isOff(kind, name) ? without : [...off[kind], name] };
          element.setAttribute("aria-pressed", String(isOff(kind, name)));
          onchange(off);
        },
        ...attributes,
      },
      text,
    );
    return element;
  };
  return h("div", { class: "switches" }, page.overview.stacks.map((stack) => [parts(stack), positions(stack)]));

  function parts(stack) {
    const names = [...new Set(stack.layers.flatMap((layer) => layer.parts.map((part) => part.name.split(".").at(-1))))];
    const rows = stack.layers.map((layer, number) => {
      const cells = names.map((name) => {
        const part = layer.parts.find((part) => part.name.endsWith(`.${name}`));
        if (!part) return h("td");
        const label = `${stack.name}, layer ${number + 1}, ${part.title}`;
        const heads = Array.from({ length: part.switches }, (_, head) =>
          button("heads", `${part.name}.${head}`, String(head + 1), `${label}, head ${head + 1}`),
        );
        const whole = button("parts", part.name, "all", label, { class: "switch whole" });
        return h("td", {}, h("span", { class: "switch-row" }, whole, heads));
      });
      const text = `layer ${number + 1}`;
      const whole = button("layers", layer.name, text, `${stack.name}, ${text}`, { class: "switch whole" });
      return h("tr", {}, h("th", { scope: "row" }, whole), cells);
    });
    const first = (name) => stack.layers.flatMap((layer) => layer.parts).find((part) => part.name.endsWith(`.${name}`));
    const heads = h("tr", {}, h("td"), names.map((name) => h("th", { scope: "col" }, first(name).title)));
    return roving(
      h(
        "div",
        { class: "scroll", role: "group", "aria-label": `Layers, parts and heads of ${stack.name}` },
        h(
          "table",
          { class: "switch-table" },
          h("caption", {}, tokensName(stack.name) === stack.name ? stack.name : "the model"),
          h("thead", {}, heads),
          h("tbody", {}, rows),
        ),
      ),
    );
  }

  function positions(stack) {
    const name = `Positions of ${stack.name}`;
    if (stack.pieces.length > MOST_POSITIONS) return h("p", { class: "quiet" }, `${name}: too many to show as buttons.`);
    const buttons = stack.pieces.map((piece, position) => {
      const label = `${stack.name}, position ${position + 1}, ${visible(piece)}`;
      const kind = { class: stack.grid ? "switch patch" : "switch token" };
      const element = button("positions", [stack.name, position], stack.grid ? "" : visible(piece), label, kind);
      return page.highlight.register(element, stack.name, position);
    });
    if (!stack.grid) return roving(h("div", { class: "line", role: "group", "aria-label": name }, buttons));
    const before = stack.before ?? 0;
    const picture = page.overview.picture ? `url("${page.overview.picture}")` : "none";
    const cell = `${Math.max(14, Math.min(40, Math.floor(280 / stack.grid[1])))}px`;
    const style = { "--columns": stack.grid[1], "--cell": cell, "background-image": picture };
    const grid = h("div", { class: "patch-grid", style }, buttons.slice(before));
    const others = h("div", { class: "line" }, buttons.slice(0, before));
    return roving(h("div", { class: "scroll", role: "group", "aria-label": name }, others, grid));
  }
}
