// The scores of all heads on two sides, on one colour scale, with the difference.

import { largest } from "regard/arrays.js";
import { choice, h, lazyDetails, note, problem } from "regard/dom.js";
import { heatmap } from "regard/heatmap.js";
import { nameOf } from "regard/names.js";
import { SCORES } from "regard/views/heads.js";

// Computed when opened. `pairs`: the corresponding parts of both sides.
export function comparedScores(page, sides, pairs) {
  const room = h("div", {});
  async function draw(score) {
    page.state.set({ score }, { quietly: true });
    let drawn;
    try {
      drawn = await maps(page, sides, pairs, score);
    } catch (error) {
      if (!error.what) throw error;
      drawn = [problem(error)];
    }
    if (page.state.get("score") === score) room.replaceChildren(...drawn);
  }
  return lazyDetails("Scores of all heads, on both sides", () => {
    const chosen = Object.hasOwn(SCORES, page.state.get("score") ?? "") ? page.state.get("score") : "entropy";
    const options = Object.entries(SCORES).map(([name, [title]]) => [name, title]);
    draw(chosen);
    return h("div", {}, h("div", { class: "controls" }, choice("score", options, chosen, draw)), room);
  });
}

async function maps(page, sides, pairs, score) {
  const options = page.live ? { scores: [score] } : {}; // a file has all scores in one answer
  const answers = await Promise.all(sides.map(({ run, input }) => page.source.ask(run, input, "heads", options)));
  const scores = answers.map((answer) => answer[score]);
  const parts = pairs.map(([part]) => part);
  const heads = Math.max(...pairs.flat().map((part) => part.heads));
  const values = scores.map((named, side) =>
    Float32Array.from(
      pairs.flatMap((pair) => {
        const row = named.values[named.labels[0].indexOf(pair[side].name)];
        return Array.from({ length: heads }, (_, head) => row?.[head] ?? NaN);
      }),
    ),
  );
  const difference = values[0].map((value, i) => values[1][i] - value);
  if (values.some((side) => side.every(Number.isNaN))) return [note("This score is not defined for one of the two.")];
  const most = Math.max(...[...values, difference].map(largest)) || 1;
  const scale = values.some((side) => side.some((value) => value < 0)) ? "signed" : "positive";
  const map = (title, label, values, scale) =>
    h(
      "div",
      {},
      h("h3", {}, title),
      heatmap(page, {
        matrix: { head: { shape: [parts.length, heads] }, values },
        label,
        rows: { labels: parts.map(nameOf), axis: "layer", plain: true },
        columns: { labels: Array.from({ length: heads }, (_, head) => String(head + 1)), axis: "head", plain: true },
        scale,
        most,
      }),
    );
  const [name, about] = SCORES[score];
  return [
    note(`${name}: ${about}.`),
    h(
      "div",
      { class: "side-by-side maps" },
      sides.map((side, i) => map(side.title, `${name} of ${side.letter}`, values[i], scale)),
      map("Difference: B − A", `${name}, B − A`, difference, "signed"),
    ),
  ];
}
