// Two images side by side, and over each what one head sees in it, on one scale of colours.

import { largest } from "regard/arrays.js";
import { h, note } from "regard/dom.js";
import { nameOf } from "regard/names.js";
import { onGrid, picture } from "regard/picture.js";

// `parts`: the same part of each side; `places`: the answer of each, from which the head looks.
export async function comparedImages(page, sides, places, parts, head) {
  const seen = await Promise.all(
    sides.map(({ run, input }, i) => page.source.ask(run, input, "seen", { part: parts[i].name, answer: places[i] })),
  );
  const values = seen.map((each, i) => onGrid(parts[i].keys, each.values[head]));
  const same = sides[0].look.picture === sides[1].look.picture && values[0].length === values[1].length;
  const difference = same ? values[0].map((value, i) => values[1][i] - value) : null;
  const most = Math.max(...[...values, difference ?? []].map(largest)) || 1;
  const column = (title, side, its, label, scale) =>
    h(
      "div",
      { class: "picture-column" },
      h("h3", {}, title),
      picture(page, { address: side.look.picture, stack: its.part.keys, values: its.values, label, scale, most, caption: `readout: ${its.from}` }),
    );
  const its = (i) => ({ part: parts[i], values: values[i], from: seen[i].read_from });
  const of = `${nameOf(parts[0])}, head ${head + 1}`;
  return h(
    "div",
    { class: "compared-images" },
    note(`Attention of ${of} over both images.`),
    h(
      "div",
      { class: "side-by-side" },
      sides.map((side, i) => column(side.title, side, its(i), `${of}, over the image of ${side.letter}`, "positive")),
      difference
        ? column("Difference: B − A", sides[0], { ...its(0), values: difference }, `${of}, over the image, B − A`, "signed")
        : note("No difference is shown: the images differ, so the same patch holds different content."),
    ),
  );
}
