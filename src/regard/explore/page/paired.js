// Numbers of two sides by name: bars of A, of B and of B − A on one scale, and a table. Bars of B − A start in the middle.
// If nothing in A and B is negative, their bars start at the left and have twice the room.

import { bars } from "regard/charts.js";
import { h, note, number, numbersBelow } from "regard/dom.js";

/* `first`, `second`: the numbers of each side by name, or null. `titles`: of both sides. `why`: a note in place of the
   difference. `most`: the value of a full bar. `formatDifference`: of B − A. `plain`: names are words of ours, not pieces of a text. */
export function paired(page, { label, what, names, first, second, titles, why = "", format = number, formatDifference = format, unit = "", most = null, plain = false }) {
  const differences = names.map((_, i) => (why || first[i] === null || second[i] === null ? null : second[i] - first[i]));
  const known = [...first, ...second, ...differences].filter((value) => value !== null);
  const scale = { most: most ?? Math.max(1e-9, ...known.map(Math.abs)) };
  const signed = [...first, ...second].some((value) => value !== null && value < 0);
  const column = (title, values, signed, form = format) =>
    h("div", { class: "bars-beside" }, h("h3", {}, title), bars(page, { label: `${label}, ${title}`, names, values, unit, format: form, plain, signed, ...scale }));
  return h(
    "div",
    { class: "paired" },
    h(
      "div",
      { class: "side-by-side" },
      column(titles[0], first, signed),
      column(titles[1], second, signed),
      why ? note(why) : column(`Difference: B − A${signed ? "" : ", bars half as long"}`, differences, true, formatDifference),
    ),
    numbersBelow(`Numbers: ${label}`, [what, "A", "B", "B − A"], () =>
      names.map((name, i) => [name, ...[first, second, differences].map((values) => number(values[i], 4))]),
    ),
  );
}
