// Two texts, one above the other, with the differences marked.

import { h, note, visible } from "regard/dom.js";

// The longest common subsequence: the indices of its words in each text.
export function common(before, after) {
  const length = Array.from({ length: before.length + 1 }, () => new Uint16Array(after.length + 1));
  for (let i = before.length - 1; i >= 0; i--) {
    for (let j = after.length - 1; j >= 0; j--) {
      length[i][j] = before[i] === after[j] ? length[i + 1][j + 1] + 1 : Math.max(length[i + 1][j], length[i][j + 1]);
    }
  }
  const indices = [new Set(), new Set()];
  for (let i = 0, j = 0; i < before.length && j < after.length; ) {
    if (before[i] === after[j]) {
      indices[0].add(i++);
      indices[1].add(j++);
    } else if (length[i + 1][j] >= length[i][j + 1]) i++;
    else j++;
  }
  return indices;
}

function sameBeginning(before, after) {
  const first = before.findIndex((word, i) => word !== after[i]);
  const indices = [...before.keys()].slice(0, first < 0 ? before.length : first);
  return [new Set(indices), new Set(indices)];
}

// `names`: of the two lines. `onward`: from the first difference on, everything counts as changed. `marked`: the index of
// the forced word in the second text.
export function textsBeside(names, before, after, { onward = false, marked = null } = {}) {
  const same = onward ? sameBeginning(before, after) : common(before, after);
  const changes = after.length - same[1].size + before.length - same[0].size;
  const line = (words, side) =>
    h(
      "div",
      { class: "named-line" },
      h("span", { class: "line-name" }, names[side]),
      h(
        "div",
        { class: "line" },
        words.map((word, i) => {
          const forced = side === 1 && i === marked;
          const tag = same[side].has(i) ? "span" : side ? "ins" : "del";
          const kinds = ["token", same[side].has(i) ? "" : "changed", forced ? "forced-token" : ""];
          const token = h(tag, { class: kinds.filter(Boolean).join(" "), title: forced ? "forced" : null }, visible(word));
          return forced ? [h("span", { class: "forced-mark" }, "forced ▸"), token] : token;
        }),
        words.length ? null : h("span", { class: "quiet" }, "(empty)"),
      ),
    );
  return h("div", { class: "texts-beside", dataset: { changes } }, line(before, 0), line(after, 1));
}

// The output regenerated token by token, with the change and without.
export async function regenerated(page, options) {
  const onward = page.overview.can.continue;
  const most = onward ? 24 : 64;
  const { before, after } = await page.ask("regenerate", { ...options, most });
  return h(
    "div",
    {},
    h("h2", {}, "Regenerated"),
    textsBeside(["original", "changed"], before.words, after.words, { onward }),
    note(`The likeliest token at every step, at most ${most}.`),
  );
}
