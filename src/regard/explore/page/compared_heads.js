// What every head of two sides does, in one number: on one scale of colours, with the difference.

import { largest } from "regard/arrays.js";
import { choice, h, note, problem } from "regard/dom.js";
import { heatmap } from "regard/heatmap.js";
import { nameOf } from "regard/names.js";
import { SCORES } from "regard/views/heads.js";

// Computed when it is opened. `pairs`: a part of each side, for each that both have.
export function comparedScores(page, sides, pairs) {
  const details = h("details", { class: "numbers" }, h("summary", {}, "Scores of all heads, on both sides"));
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
  details.addEventListener("toggle", () => {
    if (!details.open || details.childElementCount > 1) return;
    const chosen = Object.hasOwn(SCORES, page.state.get("score") ?? "") ? page.state.get("score") : "entropy";
    const named = Object.entries(SCORES).map(([name, [title]]) => [name, title]);
    details.append(h("div", { class: "controls" }, choice("score", named, chosen, draw)), room);
    draw(chosen);
  });
  return details;
}

async function maps(page, sides, pairs, score) {
  // A file has all scores together.
  const options = page.live ? { scores: [score] } : {};
  const found = (await Promise.all(sides.map(({ run, input }) => page.source.ask(run, input, "heads", options)))).map((all) => all[score]);
  const parts = pairs.map(([part]) => part);
  const heads = Math.max(...pairs.flat().map((part) => part.heads));
  const values = found.map((named, side) =>
    Float32Array.from(
      pairs.flatMap((pair) => {
        const row = named.values[named.labels[0].indexOf(pair[side].name)];
        return Array.from({ length: heads }, (_, head) => row?.[head] ?? NaN);
      }),
    ),
  );
  const difference = values[0].map((value, i) => values[1][i] - value);
  if (values.some((each) => each.every(Number.isNaN))) return [note("This score is not defined for one of the two.")];
  const most = Math.max(...[...values, difference].map(largest)) || 1;
  const scale = values.some((each) => each.some((value) => value < 0)) ? "signed" : "positive";
  const map = (title, label, each, its) =>
    h(
      "div",
      {},
      h("h3", {}, title),
      heatmap(page, {
        matrix: { head: { shape: [parts.length, heads] }, values: each },
        label,
        rows: { labels: parts.map(nameOf), axis: "layer", plain: true },
        columns: { labels: Array.from({ length: heads }, (_, head) => String(head + 1)), axis: "head", plain: true },
        scale: its,
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
