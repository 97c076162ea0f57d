// Faithfulness: what happens to the answer when positions are emptied in the order of an attribution.

import { lines } from "regard/charts.js";
import { h, table } from "regard/dom.js";

export function faithful({ faithful: measured }, title = "Is it faithful?") {
  const orders = measured.deletion_curve.orders;
  return h(
    "section",
    { class: "faithful", "aria-label": title },
    h("h2", {}, title),
    h(
      "p",
      { class: "note" },
      `Positions are emptied (deletion) or restored (insertion), the highest score first, beside the mean of ${orders} random orders. `,
      verdict(measured),
    ),
    h(
      "div",
      { class: "side-by-side" },
      curve("Deletion: a low curve is good", "emptied", measured.deletion_curve),
      curve("Insertion: a high curve is good", "present", measured.insertion_curve),
      table(
        "Areas under the curves, and p(x) − p without, or with only, the top 10 … 100 %",
        ["measure", "by score", "at random", "good is"],
        [
          ["deletion", measured.deletion, measured.deletion_random, "low"],
          ["insertion", measured.insertion, measured.insertion_random, "high"],
          ["comprehensiveness", measured.comprehensiveness, measured.comprehensiveness_random, "high"],
          ["sufficiency", measured.sufficiency, measured.sufficiency_random, "low"],
        ],
      ),
    ),
  );
}

// By rank among the random orders: another random order would beat all ten of them one time in eleven.
function verdict({ deletion_beats: deleted, insertion_beats: inserted, positions, deletion_curve: { orders } }) {
  if (positions < 2) return "Only one position can be emptied here, so every order is the same and nothing is measured.";
  const ranks = `better than ${deleted} of ${orders} random orders by deletion, ${inserted} of ${orders} by insertion`;
  if (deleted === orders && inserted === orders) return `The scores are ${ranks}.`;
  if (deleted === orders || inserted === orders) return `The scores beat every random order by one measure only: ${ranks}.`;
  return `The scores are no better than chance (${ranks}): do not rely on them.`;
}

function curve(label, what, { shares, by_score, random, orders }) {
  const chart = lines({
    label,
    x: shares.map((share) => Number.parseFloat(share)),
    series: [
      { name: "by score", values: by_score },
      { name: `mean of ${orders} random orders`, values: random },
    ],
    xLabel: `% ${what}`,
    yLabel: "probability",
    range: [0, Math.max(...by_score, ...random)],
    width: 380,
    height: 210,
  });
  return h("div", { class: "chart-column" }, h("h3", {}, label), chart);
}
