// A token or class that is searched for by its letters: a field, and buttons for what is found.

import { h, problem, visible } from "regard/dom.js";

// `options`: of the question, such as the stack whose tokens are meant; else it is another answer. `pick`: called with
// the token that is chosen.
export function wordSearch(page, options, pick) {
  const kind = page.look.can.classes && !options.stack ? "class" : "token";
  const label = `Another ${kind}${options.stack ? "" : " instead"}`;
  const found = h("span", { class: "line", role: "group", "aria-label": "Found" });
  const input = h("input", { type: "text", size: 12, "aria-label": label, placeholder: `another ${kind}`, spellcheck: "false" });
  input.addEventListener("change", async () => {
    if (!input.value.trim()) return found.replaceChildren();
    try {
      const { tokens, words } = await page.ask("words_like", { text: input.value, ...options });
      const buttons = tokens.map((token, i) => h("button", { type: "button", class: "token", onclick: () => pick(token) }, visible(words[i])));
      found.replaceChildren(...(buttons.length ? buttons : [`no such ${kind}`]));
    } catch (error) {
      found.replaceChildren(problem(error));
    }
  });
  return h("span", { class: "field" }, input, found);
}
