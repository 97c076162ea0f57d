// The biases that each head of a Swin's layer adds to its scores, by the offset between two patches.

import { largest, matrixOf } from "regard/arrays.js";
import { h, note, problem } from "regard/dom.js";
import { heatmap, paint } from "regard/heatmap.js";
import { nameOf } from "regard/names.js";

export async function windowBias(page, part, head) {
  const title = h("h2", {}, `Relative position biases of ${nameOf(part)}`);
  let bias;
  try {
    bias = await page.ask("bias", { part: part.name });
  } catch (error) {
    if (!error.what) throw error;
    return h("section", {}, title, problem(error));
  }
  const [, down, across] = bias.labels;
  const maps = bias.values.map((rows) => matrixOf({ values: rows }));
  const most = Math.max(...maps.map(({ values }) => largest(values))) || 1;
  const small = maps.map(({ values }, index) => {
    const canvas = h("canvas", { width: across.length, height: down.length, class: "pixels thumbnail", "aria-hidden": "true" });
    paint(canvas, values, "signed", most);
    return h(
      "button",
      {
        type: "button",
        class: "head-button",
        "aria-pressed": String(index === head),
        "aria-label": `biases of head ${index + 1}`,
        onclick: () => page.state.set({ head: index }),
      },
      canvas,
      h("span", { class: "under" }, String(index + 1)),
    );
  });
  return h(
    "section",
    { class: "window-bias" },
    title,
    note(
      "The only positional information of this model: each head adds a learned number to a score, depending on the offset of the query " +
        "from the key in rows and columns of patches. Centre: a patch and itself.",
    ),
    h(
      "div",
      { class: "side-by-side" },
      h("div", { class: "small-pictures", role: "group", "aria-label": "Biases of all heads" }, small),
      heatmap(page, {
        matrix: maps[head],
        label: `Biases of ${nameOf(part)}, head ${head + 1}`,
        rows: { labels: signed(down), axis: "row offset", plain: true },
        columns: { labels: signed(across), axis: "column offset", plain: true },
        scale: "signed",
        most,
      }),
    ),
  );
}

function signed(labels) {
  return labels.map((label) => (label.startsWith("-") ? label.replace("-", "−") : label === "0" ? label : `+${label}`));
}
