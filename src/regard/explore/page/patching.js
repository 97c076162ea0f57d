// Patching: which activations of a second input, patched into this one, restore the second's answer.

import { chosenAnswer } from "regard/answers.js";
import { choice, h, note, number, percent, problem, visible } from "regard/dom.js";
import { inputForm } from "regard/header.js";
import { heatmap } from "regard/heatmap.js";
import { partName } from "regard/names.js";

const FIXED = ["target", "wish"]; // the same for both inputs
const WHAT = [
  ["residual", "the residual stream, after each layer"],
  ["parts", "the output of each part"],
  ["heads", "the output of each head"],
];

export async function patching(page) {
  if (!page.live) return note("Patching needs the model: open the live page with regard explore.");
  const second = page.state.get("second");
  const what = page.state.get("patch") ?? "residual";
  const room = h("div", { class: "patched" });
  const view = h(
    "div",
    {},
    note(
      "A second input with the same number of tokens. Each cell is one activation of that input, patched into the forward pass ",
      "on this one: 1 means that it alone restores the second input's answer, 0 that nothing changes. ",
      page.overview.stacks.length > 1 && page.overview.can.change ? "Both inputs use this output." : "",
    ),
    inputForm(page, { label: "Second input", button: "Patch", input: second ?? page.input, without: FIXED, submit: (other) => page.state.set({ second: other }) }),
    h("div", { class: "controls" }, choice("patched", WHAT, what, (value) => page.state.set({ patch: value }))),
    room,
  );
  if (second) {
    try {
      const options = { other: second, ...(what === "residual" ? {} : { what }) };
      // Of a picture the chosen patch is compared, otherwise the first answer that differs.
      const ofPatches = page.overview.cells && !page.overview.stacks.at(-1).tokens;
      if (ofPatches && Number.isInteger(page.state.get("answer"))) options.answer = chosenAnswer(page);
      room.replaceChildren(...maps(page, await page.ask("patch", options), what));
    } catch (error) {
      if (!error.what) throw error;
      room.replaceChildren(problem(error));
    }
  }
  return view;
}

// A heat map per stack; for heads, a single one.
function maps(page, effect, what) {
  const [theirs, ours] = effect.tokens.map(visible);
  const where = page.overview.answers.length > 1 ? ` at position ${effect.answer + 1}` : "";
  const reading = h("p", { class: "opened", role: "status" }, "Click a cell to read what it restores.");
  const rows = effect.labels[0];
  const stacks = what === "heads" ? [null] : page.overview.stacks;
  const drawn = stacks.map((stack) => {
    const chosen = rows.map((_, i) => i).filter((i) => !stack || rows[i].startsWith(`${stack.name}.`));
    const width = stack ? stack.pieces.length : effect.labels[1].length;
    const effects = chosen.flatMap((i) => effect.values[i].slice(0, width));
    const values = Float32Array.from(effects, (value) => value ?? NaN);
    const down = chosen.map((i) => rowName(page, rows[i], !stack));
    const across = stack ? stack.pieces : effect.labels[1].map((_, i) => `head\u00a0${i + 1}`);
    const other = stack && effect.other[stack.name];
    const positionOf = (i) => `${i + 1} (${visible(other[i])} in place of ${visible(stack.pieces[i])})`;
    return heatmap(page, {
      matrix: { head: { shape: [chosen.length, width] }, values },
      label: stack ? `Effect, ${stack.name}` : "Effect of each head",
      rows: { labels: down, axis: what === "residual" ? "after" : "part" },
      columns: { labels: across, stack: stack?.name, axis: stack ? "position" : "head" },
      scale: "signed",
      most: Math.max(1, ...values.filter(Number.isFinite).map(Math.abs)),
      open: (row, column) => {
        const value = values[row * width + column];
        const at = stack ? `${stack.name}, ${down[row]}, at ${positionOf(column)}` : `${down[row]}, head ${column + 1}`;
        reading.textContent = Number.isNaN(value)
          ? `${at}: there is no such activation.`
          : `${at}: restores ${percent(value)} of the difference between ${theirs} and ${ours}.`;
        page.say(reading.textContent);
      },
    });
  });
  const compared = h(
    "p",
    {},
    "Compared",
    `${where}: `,
    h("strong", {}, theirs),
    " (second input) against ",
    h("strong", {}, ours),
    ` (this one). Logit difference: ${number(effect.clean)} on the second input, ${number(effect.corrupted)} on this one.`,
  );
  return [compared, h("div", { class: "side-by-side" }, drawn), reading];
}

// "decoder.0.cross" as "layer 1, cross-attention", without line breaks; with its stack if several share a picture.
function rowName(page, site, several) {
  if (site.endsWith(".embedding")) return "embedding";
  return partName(page, site, { stack: several }).replaceAll(" ", "\u00a0");
}
