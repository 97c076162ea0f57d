// Heads: what every head of every layer attends to: all of them small, sorted by a score, and one of them large.

import { largest } from "regard/arrays.js";
import { choice, fading, h, note, number, problem, table } from "regard/dom.js";
import { heatmap, thumbnail } from "regard/heatmap.js";
import { nameOf, partName, sidesOf } from "regard/names.js";
import { layer } from "regard/source.js";

export const id = "heads";
export const title = "Heads";

const MANY = 48; // key positions

// The title of each score, and how it is measured.
export const SCORES = {
  importance: ["importance", "how much less likely the answers are without the head: mean of ln p(answer) − ln p(answer | head off)"],
  entropy: ["entropy", "−Σ a ln a over the keys, divided by ln of their number (0: attends to one key; 1: attends uniformly)"],
  previous: ["previous token", "mean weight from a position to the one before it"],
  induction: ["induction", "random tokens, repeated once: mean weight to the token that followed the first occurrence of the same token"],
  copying: ["copying", "share of tokens whose own logit the head raises most when it attends to them"],
  first: ["first token", "mean weight to the first position"],
  self: ["itself", "mean weight from a position to itself"],
};

export function fits(page) {
  return page.overview.can.attention;
}

export async function show(page) {
  const parts = page.parts().filter((part) => part.attends);
  const kinds = [...new Map(parts.map((part) => [kindOf(part), part])).keys()];
  const kind = kinds.includes(page.state.get("kind")) ? page.state.get("kind") : kinds.at(-1);
  const ofKind = parts.filter((part) => kindOf(part) === kind);
  const chosen = ofKind.find((part) => part.name === page.state.get("part")) ?? ofKind.at(-1);
  const head = Math.min(page.state.get("head") ?? 0, chosen.heads - 1);
  const defined = Object.keys(SCORES).filter((name) => ofKind.some((part) => part.scores.includes(name)));
  const sort = defined.includes(page.state.get("sort")) ? page.state.get("sort") : null;
  const scale = scaleOf(page, chosen);
  const [grid, large] = await Promise.all([
    thumbnails(page, ofKind, chosen, head, sort, scale).catch((error) => problem(error)),
    oneHead(page, chosen, head, scale),
  ]);
  return h(
    "section",
    { class: "heads" },
    note("Each row is a query position; a bright cell is a key it attends to. Rows sum to 1."),
    h(
      "div",
      { class: "controls" },
      kinds.length > 1
        ? choice("attention", kinds.map((name) => [name, name]), kind, (value) => page.state.set({ kind: value, part: null, head: 0 }))
        : null,
      choice("sort by", [["", "layer"], ...defined.map((name) => [name, SCORES[name][0]])], sort ?? "", (value) =>
        page.state.set({ sort: value || undefined }),
      ),
      choice("colours up to", [["unit", "1"], ["positive", "the maximum of each head"], ["root", "its maximum, by square root"]], scale, (value) => page.state.set({ colours: value })),
    ),
    sort ? note(`${SCORES[sort][0]}: ${SCORES[sort][1]}.`) : null,
    h("div", { class: "beside-thumbnails", style: sizes(ofKind) }, grid, large),
    allScores(page),
  );
}

// Over many keys every weight is small: on a scale up to 1, or up to one large weight, nothing would be visible.
function scaleOf(page, part) {
  const chosen = page.state.get("colours");
  if (["unit", "positive", "root"].includes(chosen)) return chosen;
  return part.keys.pieces.length > MANY ? "root" : "unit";
}

// How many thumbnails are in a row, and how large they are at most, in pixels: the more there are, the smaller.
function sizes(parts) {
  const count = parts.reduce((sum, part) => sum + part.heads, 0);
  return {
    "--across": Math.max(...parts.map((part) => part.heads)),
    "--by-layer": `${Math.min(96, Math.max(64, Math.round(640 / parts.length)))}px`,
    "--by-score": `${count <= 24 ? 96 : count <= 48 ? 64 : 48}px`,
  };
}

function kindOf(part) {
  return part.cross ? `${part.stack.name} → ${part.keys.name}` : part.stack.name;
}

async function thumbnails(page, parts, chosen, head, sort, scale) {
  const scores = sort ? (await page.ask("heads"))[sort] : null;
  const heads = (
    await Promise.all(
      parts.map(async (part) => {
        const all = await page.matrix(`${part.name}.weights`, { most: 64 });
        return Array.from({ length: part.heads }, (_, index) => {
          const score = scores?.values[scores.labels[0].indexOf(part.name)]?.[index] ?? null;
          const element = headButton(page, part, index, thumbnailOf(layer(all, index), scale), part === chosen && index === head, sort, score);
          return { part, score, element };
        });
      }),
    )
  ).flat();
  if (!sort) {
    const rows = parts.map((part) =>
      h(
        "div",
        { class: "head-row" },
        h("span", { class: "row-name" }, `layer ${part.layer + 1}`),
        heads.filter((head) => head.part === part).map(({ element }) => element),
      ),
    );
    return fading(h("div", { class: "thumbnails", role: "group", "aria-label": "All heads; a row for each layer" }, rows));
  }
  if (heads.every(({ score }) => score === null)) return note("This input is too short for this score.");
  heads.sort((a, b) => (b.score ?? -Infinity) - (a.score ?? -Infinity));
  const label = `All heads by ${SCORES[sort][0]}, the highest first`;
  return h("div", { class: "sorted", role: "group", "aria-label": label }, heads.map(({ element }) => element));
}

function thumbnailOf(matrix, scale) {
  return thumbnail(matrix, { most: scale === "unit" ? 1 : largest(matrix.values) || 1, scale });
}

function headButton(page, part, index, picture, pressed, sort, score) {
  const name = `layer ${part.layer + 1}, head ${index + 1}`;
  const about = sort ? `${name}, ${SCORES[sort][0]} ${number(score)}` : name;
  return h(
    "button",
    {
      type: "button",
      class: "head-button",
      "aria-pressed": String(pressed),
      "aria-label": about,
      title: about,
      onclick: () => page.state.set({ part: part.name, head: index }),
    },
    picture,
    sort ? h("span", { class: "score" }, `L${part.layer + 1} H${index + 1}`, h("br"), h("strong", {}, number(score, 2))) : null,
  );
}

// Every score of every head, computed when opened: importance needs one forward pass per head.
function allScores(page) {
  const details = h("details", { class: "numbers" }, h("summary", {}, "Scores of all heads"));
  details.addEventListener("toggle", async () => {
    if (!details.open || details.childElementCount > 1) return;
    try {
      const scores = await page.ask("heads");
      const [parts, heads] = Object.values(scores)[0].labels;
      const rows = parts.flatMap((part, p) =>
        heads.map((_, i) => [partName(page, `${part}.${i}`), ...Object.values(scores).map((score) => number(score.values[p][i]))]),
      );
      const defined = rows.filter((row) => row.slice(1).some((cell) => cell !== "–"));
      details.append(table("Scores of all heads", ["head", ...Object.keys(scores).map((name) => SCORES[name][0])], defined));
    } catch (error) {
      details.append(problem(error));
    }
  });
  return details;
}

async function oneHead(page, part, head, scale) {
  const window = windowIn(part, page.state.get("window"));
  const label = `${nameOf(part)}, head ${head + 1}`;
  return h(
    "div",
    { class: "large" },
    h("h2", {}, label),
    window ? h("button", { type: "button", onclick: () => page.state.set({ window: undefined }) }, "Show the full map") : null,
    await map(page, part, head, window, label, scale),
  );
}

async function map(page, part, head, window, label, scale) {
  try {
    const matrix = await page.matrix(`${part.name}.weights`, { head, ...(window ?? {}) });
    return heatmap(page, {
      matrix,
      scale,
      label: `Attention of ${label}`,
      ...sidesOf(part),
      zoom: (window) => page.state.set({ window }),
    });
  } catch (error) {
    if (!error.what) throw error;
    return problem(error);
  }
}

// The zoomed window, unless this input or part is too short for it.
function windowIn(part, window) {
  const fits = window && window.rows[1] <= part.stack.pieces.length && window.columns[1] <= part.keys.pieces.length;
  return fits ? window : null;
}
