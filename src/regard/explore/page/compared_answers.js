// The chosen answer on two sides: the likeliest candidates for it, and what each part added to its logit.

import { partName } from "regard/names.js";
import { h, missing, note, number, percent, problem, spelled, visible } from "regard/dom.js";
import { paired } from "regard/paired.js";
import { summed } from "regard/views/layers.js";

const LIKELIEST = 8; // of each side

// Where B says what A says at an answer: at the same place, or last, if that is last (recording.py does the same).
export function answerBeside(answer, a, b) {
  const last = b.look.answers.length - 1;
  return answer === a.look.answers.length - 1 ? last : Math.min(answer, last);
}

// `places`: the answer of each side.
export async function candidates(page, sides, places) {
  const found = await Promise.all(sides.map(({ run, input }, i) => page.source.ask(run, input, "candidates", { answer: places[i] })));
  const words = [...new Set(found.flatMap((each) => each.words.slice(0, LIKELIEST)))];
  const p = found.map((each) => words.map((word) => each.probabilities[each.words.indexOf(word)] ?? null));
  const least = Math.min(...found.map((each) => each.words.length));
  const all = found.every((each) => words.every((word) => each.words.includes(word)));
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
      names: spelled(words),
      first: p[0],
      second: p[1],
      titles: sides.map((side, i) => `${side.letter}: ${visible(side.look.answers[places[i]].label)}`),
      format: percent,
      most: 1,
      plain: true,
    }),
  );
}

export async function contributions(page, sides, places) {
  const without = sides.find((side) => !side.look.can.lens);
  if (without) {
    return missing({ what: `Not for ${without.letter}.`, why: "Its answer is not a linear map of the last layer's output." });
  }
  const [a, b] = sides;
  const words = sides.map((side, i) => side.look.answers[places[i]].label);
  const own = (side, answer, more = {}) => page.source.ask(side.run, side.input, "contributions", { answer, ...more });
  const first = await own(a, places[0]);
  let second;
  let why = "";
  try {
    second = await own(b, places[1], words[0] === words[1] ? {} : { token: words[0] });
  } catch (error) {
    if (!error.what) throw error;
    second = await own(b, places[1]);
    why = `No difference is shown: these are logits of two different words. B has no logit for “${visible(words[0])}”: ${error.what} ${error.why}`;
  }
  const sums = [first, second].map((each) => summed(each.labels[0], each.values, "parts"));
  const names = [...new Set(sums.flatMap((each) => [...each.keys()]))];
  const alike = sums.every((each) => each.size === names.length);
  const total = (each) => number(each.values.reduce((sum, value) => sum + value, 0));
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

// A part by what it is on each side that has it: "layer 1, self-attention / GRU".
function nameOnBoth(sides, page, name) {
  const names = sides.map((side) => partName({ parts: () => page.parts(side.look) }, name, { stack: /^stage /.test(name) }));
  const [first, ...others] = [...new Set(names)];
  return [first, ...others.map((other) => other.split(", ").at(-1))].join(" / ");
}

// What cannot be said of one side does not take the rest of the view away.
export async function orProblem(section) {
  try {
    return await section;
  } catch (error) {
    if (!error.what) throw error;
    return problem(error);
  }
}
