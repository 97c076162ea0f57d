// Two images side by side, overlaid with the attention of one head, on one colour scale.

import { largest } from "regard/arrays.js";
import { h, note } from "regard/dom.js";
import { nameOf } from "regard/names.js";
import { onGrid, picture } from "regard/picture.js";

// `answers`: of each side, whose readout the attention starts from. `parts`: the corresponding part of each side.
export async function comparedImages(page, sides, answers, parts, head) {
  const attention = await Promise.all(
    sides.map(({ run, input }, i) => page.source.ask(run, input, "readout_attention", { part: parts[i].name, answer: answers[i] })),
  );
  const values = attention.map((named, i) => onGrid(parts[i].keys, named.values[head]));
  const same = sides[0].overview.picture === sides[1].overview.picture && values[0].length === values[1].length;
  const difference = same ? values[0].map((value, i) => values[1][i] - value) : null;
  const most = Math.max(...[...values, difference ?? []].map(largest)) || 1;
  const column = (title, side, i, values, label, scale) =>
    h(
      "div",
      { class: "picture-column" },
      h("h3", {}, title),
      picture(page, { address: side.overview.picture, stack: parts[i].keys, values, label, scale, most, caption: `readout: ${attention[i].read_from}` }),
    );
  const name = `${nameOf(parts[0])}, head ${head + 1}`;
  return h(
    "div",
    { class: "compared-images" },
    note(`Attention of ${name} over both images.`),
    h(
      "div",
      { class: "side-by-side" },
      sides.map((side, i) => column(side.title, side, i, values[i], `${name}, over the image of ${side.letter}`, "positive")),
      difference
        ? column("Difference: B − A", sides[0], 0, difference, `${name}, over the image, B − A`, "signed")
        : note("No difference is shown: the images differ, so the same patch holds different content."),
    ),
  );
}
