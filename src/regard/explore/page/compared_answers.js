// The chosen answer on two sides: its likeliest candidates, and what each part added to its logit.

import { partName } from "regard/names.js";
import { h, missing, note, number, percent, visible, visiblePieces } from "regard/dom.js";
import { paired } from "regard/paired.js";
import { grouped } from "regard/views/layers.js";

const LIKELIEST = 8; // of each side

// The answer of B beside one of A: in the same place; beside the last one, the last (as in recording.py).
export function answerBeside(answer, a, b) {
  const last = b.overview.answers.length - 1;
  return answer === a.overview.answers.length - 1 ? last : Math.min(answer, last);
}

// `answers`: the number of the answer on each side.
export async function candidates(page, sides, answers) {
  const likeliest = await Promise.all(sides.map(({ run, input }, i) => page.source.ask(run, input, "candidates", { answer: answers[i] })));
  const words = [...new Set(likeliest.flatMap((side) => side.words.slice(0, LIKELIEST)))];
  const p = likeliest.map((side) => words.map((word) => side.probabilities[side.words.indexOf(word)] ?? null));
  const least = Math.min(...likeliest.map((side) => side.words.length));
  const all = likeliest.every((side) => words.every((word) => side.words.includes(word)));
  return h(
    "div",
    { class: "compared-candidates" },
    note(
      `The ${LIKELIEST} likeliest of each side, with their probabilities on one scale.`,
      all ? "" : ` “–”: not among the ${least} likeliest of that side.`,
    ),
    paired(page, {
      label: "Candidates",
      what: "word",
      names: visiblePieces(words),
      first: p[0],
      second: p[1],
      titles: sides.map((side, i) => `${side.letter}: ${visible(side.overview.answers[answers[i]].label)}`),
      format: percent,
      formatDifference: (value) => percent(value).replace("%", "points"), // percentage points
      most: 1,
      plain: true,
    }),
  );
}

export async function contributions(page, sides, answers) {
  const without = sides.find((side) => !side.overview.can.lens);
  if (without) {
    return missing({ what: `Not available for ${without.letter}.`, why: "Its answer is not a linear map of the last layer's output." });
  }
  const [a, b] = sides;
  const words = sides.map((side, i) => side.overview.answers[answers[i]].label);
  const ask = (side, answer, more = {}) => page.source.ask(side.run, side.input, "contributions", { answer, ...more });
  const first = await ask(a, answers[0]);
  let second;
  let why = "";
  try {
    second = await ask(b, answers[1], words[0] === words[1] ? {} : { token: words[0] });
  } catch (error) {
    if (!error.what) throw error;
    second = await ask(b, answers[1]);
    why = `No difference is shown: these are logits of two different words. B has no logit for “${visible(words[0])}”: ${error.what} ${error.why}`;
  }
  const sums = [first, second].map((side) => grouped(side.labels[0], side.values, "parts"));
  const names = [...new Set(sums.flatMap((side) => [...side.keys()]))];
  const alike = sums.every((side) => side.size === names.length);
  const total = (side) => number(side.values.reduce((sum, value) => sum + value, 0));
  return h(
    "div",
    { class: "compared-contributions" },
    note(
      "What each part added to the logit of one word, on one scale. ",
      words[0] === words[1] || why ? "" : `B's own answer is “${visible(words[1])}”; shown are the contributions to “${visible(words[0])}”. `,
      alike ? "" : "“–”: that side has no such part.",
    ),
    paired(page, {
      label: "Contributions",
      what: "part",
      names: names.map((name) => nameOnBoth(sides.filter((_, i) => sums[i].has(name)), page, name)),
      first: names.map((name) => sums[0].get(name) ?? null),
      second: names.map((name) => sums[1].get(name) ?? null),
      titles: [`A: ${visible(first.token)}, ${total(first)}`, `B: ${visible(second.token)}, ${total(second)}`],
      why,
      unit: "logit",
      plain: true,
    }),
  );
}

// A part by its title on each side that has it: "layer 1, self-attention / GRU".
function nameOnBoth(sides, page, name) {
  const names = sides.map((side) => partName({ parts: () => page.parts(side.overview) }, name, { stack: /^stage /.test(name) }));
  const [first, ...others] = [...new Set(names)];
  return [first, ...others.map((other) => other.split(", ").at(-1))].join(" / ");
}
