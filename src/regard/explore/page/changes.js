// How the answers changed: at each position, the token of the output and the likeliest token now, with bars.

import { h, number, percent, visible } from "regard/dom.js";

const MOST_ROWS = 100; // of more, the largest changes
const COLUMNS = ["position", "output", "p", "p now", "likeliest now", "its p", "change of ln p", "nats"];

// `result`: the answer to `ablate` or `change`.
export function changes(page, result) {
  const { before, after, p_output: p, change } = result;
  const answers = page.overview.answers;
  const differ = answers.map((_, i) => before.tokens[i] !== after.tokens[i]);
  const count = differ.filter(Boolean).length;
  const summary =
    answers.length === 1
      ? `The answer ${count ? "changes" : "does not change"}.`
      : `The likeliest token changes at ${count} of ${answers.length} positions.`;
  const total = change.values.reduce((sum, value) => sum + value, 0);
  let order = answers.map((_, i) => i);
  if (order.length > MOST_ROWS) {
    order = order.sort((a, b) => Math.abs(change.values[b]) - Math.abs(change.values[a])).slice(0, MOST_ROWS);
  }
  const most = Math.max(0.01, ...change.values.map(Math.abs));
  page.say(summary);
  return h(
    "div",
    { class: "changes" },
    h(
      "p",
      { class: "summary" },
      h("strong", {}, summary),
      ` ln p of the original output changes by ${number(total)} in all.`,
      order.length < answers.length ? ` The ${MOST_ROWS} largest changes:` : "",
    ),
    h(
      "div",
      { class: "scroll tall", tabindex: 0, role: "group", "aria-label": "Change of each answer" },
      h(
        "table",
        { class: "changes-table" },
        h("thead", {}, h("tr", {}, COLUMNS.map((name) => h("th", { scope: "col" }, name)))),
        h("tbody", {}, order.map(row)),
      ),
    ),
  );

  function row(i) {
    const answer = answers[i];
    const line = h(
      "tr",
      { class: differ[i] ? "differs" : null, dataset: { answer: i } },
      h("th", { scope: "row" }, String(i + 1)),
      h("td", {}, visible(answer.label), answer.given ? h("span", { class: "quiet" }, " (given)") : null),
      h("td", { class: "number" }, percent(answer.probability)),
      h("td", { class: "number" }, percent(p[i])),
      h("td", {}, differ[i] ? `${visible(before.words[i])} → ${visible(after.words[i])}` : visible(after.words[i])),
      h("td", { class: "number" }, percent(after.probabilities[i])),
      h("td", { class: "change-room" }, bar(change.values[i], most)),
      h("td", { class: "number" }, number(change.values[i])),
    );
    return answer.position === null ? line : page.highlight.register(line, page.overview.stacks.at(-1).name, answer.position);
  }
}

function bar(value, most) {
  const width = `${(50 * Math.abs(value)) / most}%`;
  const side = value < 0 ? { right: "50%" } : { left: "50%" };
  const drawn = h("span", { class: value < 0 ? "bar negative" : "bar", style: { width, ...side } });
  return h("span", { class: "bar-room" }, drawn);
}
