// What if: parts switched off, tokens changed, activations of another input; the new output beside the old one.

import { regenerated } from "regard/beside.js";
import { changes } from "regard/changes.js";
import { changing } from "regard/changing.js";
import { button, choice, h, note, problem } from "regard/dom.js";
import { patching } from "regard/patching.js";
import { countOff, nothingOff, optionsOf, switches } from "regard/switches.js";

export const id = "what-if";
export const title = "What if";

export function fits() {
  return true;
}

const KINDS = [["off", "Switch off"], ["token", "Change a token"], ["patch", "Patch"]];

export async function show(page) {
  const words = page.overview.can.change && !page.overview.stacks.some((stack) => stack.grid);
  const kinds = KINDS.filter(([name]) => name !== "token" || words);
  const kind = kinds.some(([name]) => name === page.state.get("change")) ? page.state.get("change") : "off";
  const buttons = kinds.map(([name, text]) =>
    button(text, () => page.state.set({ change: name }), { "aria-pressed": String(name === kind) }),
  );
  const draw = { off: switchingOff, token: changing, patch: patching }[kind];
  const choices = h("div", { class: "controls", role: "group", "aria-label": "Kinds of change" }, buttons);
  return h("section", { class: "what-if" }, choices, await draw(page));
}

async function switchingOff(page) {
  let off = { ...nothingOff(), ...page.state.get("off") };
  const by = page.state.get("by") ?? "zero";
  const result = h("div", { class: "result" });
  const checked = Boolean(page.state.get("regenerate"));
  const regenerate = h("input", { type: "checkbox", id: "regenerate", checked, onchange: () => update({}) });
  let turn = 0;

  async function update(change) {
    const mine = ++turn;
    off = { ...off, ...change };
    const some = countOff(off) > 0;
    page.state.set({ off: some ? optionsOf(off) : undefined, regenerate: regenerate.checked || undefined }, { quietly: true });
    const drawn = some ? await outcome(page, off, by, regenerate.checked) : [note("Everything is on. Switch something off to see its effect.")];
    if (mine === turn) result.replaceChildren(...drawn);
  }

  const setBy = (value) => page.state.set({ by: value === "zero" ? undefined : value });
  await update({});
  return h(
    "div",
    {},
    note(
      "Click a head, part, layer or position to switch it off. Its output is replaced with zero, or with its mean over positions; ",
      "a position is emptied. Bars: change of the log-probability (ln p) of the original output.",
    ),
    h(
      "div",
      { class: "controls" },
      page.live ? choice("replace with", [["zero", "zero"], ["mean", "mean"]], by, setBy) : null,
      page.live && page.overview.can.write
        ? h("span", { class: "field" }, regenerate, h("label", { for: "regenerate" }, "also regenerate the output"))
        : null,
      button("Everything on", () => page.state.set({ off: undefined })),
      page.live ? null : h("span", { class: "quiet" }, "This file holds each ablation by itself, replaced with zero."),
    ),
    h("div", { class: "side-by-side what-if-sides" }, switches(page, off, update), result),
  );
}

async function outcome(page, off, by, regenerate) {
  const options = { ...optionsOf(off), ...(by === "zero" ? {} : { by }) };
  try {
    if (!page.live && countOff(off) > 1) {
      throw Object.assign(new Error(), {
        what: "This combination is not in the file.",
        why: "It holds each head, part, layer and position switched off by itself.",
        fix: "Switch one off at a time, or open the live page.",
      });
    }
    const drawn = [changes(page, await page.ask("ablate", options))];
    if (regenerate && page.live) drawn.push(await regenerated(page, options));
    return drawn;
  } catch (error) {
    if (!error.what) throw error;
    return [problem(error)];
  }
}
