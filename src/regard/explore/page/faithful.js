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
      measured.verdict,
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
