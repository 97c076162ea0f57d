// A word that is searched for by its letters: a field, and buttons for what is found.

import { h, problem, visible } from "regard/dom.js";

// `options`: of the question, such as the stack whose words are meant. `pick`: called with the token that is chosen.
export function wordSearch(page, label, options, pick) {
  const found = h("span", { class: "line", role: "group", "aria-label": "Words found" });
  const input = h("input", { type: "text", size: 12, "aria-label": label, placeholder: page.look.can.classes ? "another class" : "another word", spellcheck: "false" });
  input.addEventListener("change", async () => {
    if (!input.value.trim()) return found.replaceChildren();
    try {
      const { tokens, words } = await page.ask("words_like", { text: input.value, ...options });
      const buttons = tokens.map((token, i) => h("button", { type: "button", class: "token", onclick: () => pick(token) }, visible(words[i])));
      found.replaceChildren(...(buttons.length ? buttons : [page.look.can.classes ? "no such class" : "no such word"]));
    } catch (error) {
      found.replaceChildren(problem(error));
    }
  });
  return h("span", { class: "field" }, input, found);
}
