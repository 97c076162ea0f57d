// Replacing tokens: by typing, by choosing from the vocabulary, or by swapping with a neighbour.

import { regenerated } from "regard/beside.js";
import { changes } from "regard/changes.js";
import { button, h, note, problem, visible } from "regard/dom.js";
import { tokensName } from "regard/names.js";
import { roving } from "regard/roving.js";
import { tokenLine } from "regard/tokens.js";

export async function changing(page) {
  if (!page.live) return note("Other tokens need the model: open the live page with regard explore.");
  const own = page.overview.stacks.map((stack) => stack.tokens);
  const changed = sameShape(page.state.get("changed"), own) ? page.state.get("changed") : null;
  const tokens = changed ?? own;
  const chosen = chosenToken(page);
  const [result, pieces] = await compared(page, changed);
  const lines = page.overview.stacks.map((stack, index) =>
    h(
      "div",
      { class: "named-line" },
      h("span", { class: "line-name" }, tokensName(stack.name)),
      roving(
        tokenLine(page, { ...stack, pieces: pieces[index] }, {
          pick: (position) => page.state.set({ stack: stack.name, position }),
          chosen: chosen?.index === index ? chosen.position : -1,
          marked: (position) => tokens[index][position] !== own[index][position],
        }),
      ),
    ),
  );
  return h(
    "div",
    {},
    note("Choose a token, then type a replacement (Enter accepts it), or swap it with a neighbour. Changed tokens are underlined."),
    lines,
    chosen ? editor(page, tokens, pieces, chosen) : null,
    changed
      ? h(
          "div",
          { class: "controls" },
          button("Reset", () => page.state.set({ changed: undefined })),
          button("Open as new input", async () => {
            const { input } = await page.ask("input_for_tokens", { tokens: changed });
            page.state.set({ input, changed: undefined });
          }),
        )
      : null,
    result,
  );
}

function sameShape(changed, own) {
  const alike = Array.isArray(changed) && changed.length === own.length;
  return alike && changed.every((ids, i) => ids?.length === own[i].length);
}

function chosenToken(page) {
  const index = page.overview.stacks.findIndex((stack) => stack.name === page.state.get("stack"));
  const position = page.state.get("position");
  return index >= 0 && position >= 0 && position < page.overview.stacks[index].pieces.length ? { index, position } : null;
}

async function compared(page, changed) {
  const pieces = page.overview.stacks.map((stack) => stack.pieces);
  if (!changed) return [null, pieces];
  try {
    const result = await page.ask("change", { tokens: changed });
    const drawn = [changes(page, result)];
    if (page.overview.can.write) drawn.push(await regenerated(page, { tokens: changed }));
    return [h("div", { class: "result" }, drawn), result.pieces];
  } catch (error) {
    if (!error.what) throw error;
    return [problem(error), pieces];
  }
}

function editor(page, tokens, pieces, { index, position }) {
  const stack = page.overview.stacks[index];
  const change = (edit) => {
    const changed = tokens.map((ids) => [...ids]);
    edit(changed[index]);
    page.state.set({ changed });
  };
  const swap = (step) => change((ids) => ([ids[position], ids[position + step]] = [ids[position + step], ids[position]]));
  const suggestions = h("div", { class: "line suggestions", role: "group", "aria-label": "Tokens that start with this" });
  const attributes = { type: "text", id: "replacement", spellcheck: "false", autocomplete: "off", size: 16 };
  const field = h("input", { ...attributes, oninput: suggest, onkeydown: accept });
  const label = h("label", { for: "replacement" }, `in place of ${visible(pieces[index][position])}`);
  let turn = 0;

  async function suggest() {
    const mine = ++turn;
    if (!field.value) return suggestions.replaceChildren();
    const { words, tokens: ids } = await page.ask("vocabulary", { prefix: field.value, stack: stack.name });
    if (mine !== turn) return;
    const spaced = stack.pieces.some((piece) => piece.startsWith(" "));
    const buttons = words.map((word, i) => {
      const continuesWord = spaced && !word.startsWith(" ") && !word.startsWith("<");
      const choose = () => change((all) => (all[position] = ids[i]));
      return button(continuesWord ? `…${visible(word)}` : visible(word), choose, { class: "token" });
    });
    const nothing = h("span", { class: "quiet" }, "No token starts with this.");
    suggestions.replaceChildren(...(buttons.length ? buttons : [nothing]));
    if (buttons.length) roving(suggestions);
    page.say(`${buttons.length} tokens start with this.`);
  }

  // Enter accepts the typed token; if there is no such token, it moves to the first suggestion.
  async function accept(event) {
    if (event.key !== "Enter" || !field.value) return;
    event.preventDefault();
    const { words, tokens: ids } = await page.ask("vocabulary", { prefix: field.value, stack: stack.name });
    const spellings = [field.value, ` ${field.value.trim()}`, field.value.trim()];
    const exact = spellings.map((word) => words.indexOf(word)).find((i) => i >= 0);
    if (exact !== undefined) return change((all) => (all[position] = ids[exact]));
    await suggest();
    suggestions.querySelector("button")?.focus();
  }

  return h(
    "div",
    { class: "editor" },
    h(
      "div",
      { class: "controls" },
      h("span", { class: "field" }, label, field),
      button("Swap with the previous", () => swap(-1), { disabled: position === 0 }),
      button("Swap with the next", () => swap(1), { disabled: position === tokens[index].length - 1 }),
    ),
    suggestions,
  );
}
