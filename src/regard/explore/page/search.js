// A search for a token or class by its letters: a field, and a button for each match.

import { button, h, problem, visible } from "regard/dom.js";

// `options`: `stack` searches its tokens, otherwise possible answers are searched. `pick`: called with the chosen token.
export function wordSearch(page, options, pick) {
  const kind = page.overview.can.classes && !options.stack ? "class" : "token";
  const label = `Another ${kind}${options.stack ? "" : " instead"}`;
  const matches = h("span", { class: "line", role: "group", "aria-label": "Matches" });
  const input = h("input", { type: "text", size: 12, "aria-label": label, placeholder: `another ${kind}`, spellcheck: "false" });
  input.addEventListener("change", async () => {
    if (!input.value.trim()) return matches.replaceChildren();
    try {
      const { tokens, words } = await page.ask("words_like", { text: input.value, ...options });
      const buttons = tokens.map((token, i) => button(visible(words[i]), () => pick(token), { class: "token" }));
      matches.replaceChildren(...(buttons.length ? buttons : [`no such ${kind}`]));
    } catch (error) {
      matches.replaceChildren(problem(error));
    }
  });
  return h("span", { class: "field" }, input, matches);
}

// A search for another token or class in place of the answer.
export function otherToken(page) {
  const set = (token) => page.state.set({ token });
  const chosen = page.state.get("token") !== undefined;
  return [wordSearch(page, {}, set), chosen ? button("Back to the answer", () => set(undefined)) : null];
}
