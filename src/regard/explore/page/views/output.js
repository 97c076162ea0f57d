// Output: the candidates at each place, how they would be drawn, a word forced, and the search that found the words.

import { chosenAnswer } from "regard/answers.js";
import { row } from "regard/arrays.js";
import { beamTree } from "regard/beams.js";
import { textsBeside } from "regard/beside.js";
import { bars } from "regard/charts.js";
import { colour, css, ink } from "regard/colours.js";
import { button, choice, h, note, number, numbersBelow, percent, problem, slider, spelled, visible } from "regard/dom.js";
import { roving } from "regard/roving.js";
import { entropy, ordered, truncated } from "regard/sampling.js";
import { swatch } from "regard/tokens.js";

export const id = "output";
export const title = "Output";

const MOST_PLACES = 600; // as buttons
const CONTINUE = ["language", "pixels", "chat", "play"]; // tasks whose models read a text that was given, and go on

export function fits() {
  return true;
}

export async function show(page) {
  const { answers, can } = page.look;
  const answer = chosenAnswer(page);
  const [forced, place, next, tree] = await Promise.all([
    besideItsOwn(page),
    candidatesAt(page, answer),
    can.continue ? tried(() => continuation(page)) : null,
    can.beams ? tried(() => search(page)) : null,
  ]);
  return h("section", { class: "output" }, forced, answers.length > 1 ? places(page, answer) : null, place, next, tree);
}

async function tried(draw) {
  try {
    return await draw();
  } catch (error) {
    if (!error.what) throw error;
    return problem(error);
  }
}

// ------------------------------------------------------------------ which place

// Whether what stands at a place was given; else the model said it.
function wasGiven(page, answer) {
  const { answers, can } = page.look;
  if (answers[answer].given !== undefined) return answers[answer].given;
  if (page.input.target) return true;
  const goesOn = can.continue || CONTINUE.includes(page.runs[page.run].task);
  return goesOn && answers.length > 1 && answer < answers.length - 1;
}

function places(page, chosen) {
  const { answers, stacks } = page.look;
  const pick = (answer) => page.state.set({ answer });
  if (stacks.at(-1).grid || answers.length > MOST_PLACES) {
    const shown = (value) => `${value + 1} of ${answers.length}: ${visible(answers[value].label)}`;
    const field = slider("place", 0, answers.length - 1, 1, chosen, () => {}, shown);
    field.querySelector("input").addEventListener("change", (event) => pick(Number(event.target.value)));
    return h("div", { class: "controls" }, field);
  }
  const forced = forcedPlace(page);
  const buttons = answers.map((answer, i) => {
    const ground = colour(answer.probability);
    const element = button([swatch(answer.label), visible(answer.label)], () => pick(i), {
      class: i === forced ? "token forced-token" : "token",
      "aria-pressed": String(i === chosen),
      title: `place ${i + 1}: ${percent(answer.probability)}${i === forced ? ", forced" : ""}`,
      style: { background: css(ground), color: ink(ground) },
    });
    return answer.position === null ? element : page.highlight.stands(element, stacks.at(-1).name, answer.position);
  });
  return h(
    "div",
    {},
    note(
      answers.some((_, i) => wasGiven(page, i))
        ? "The tokens of the input; brighter means more probable. "
        : "The tokens of the output; brighter means more probable. ",
      "Choose one to see its candidates.",
    ),
    roving(h("div", { class: "line places", role: "group", "aria-label": "Places of the output" }, buttons)),
  );
}

// ------------------------------------------------------------------ candidates

async function candidatesAt(page, answer) {
  const found = await page.ask("candidates", { answer });
  const chosen = page.look.answers[answer];
  const canForce = page.live && page.look.can.force;
  const stands = answer === forcedPlace(page) ? "forced" : wasGiven(page, answer) ? "given" : "output";
  const mark = (token) => (token === chosen.token ? `\u00a0◂\u00a0${stands}` : "");
  const names = spelled(found.words).map((word, i) => word + mark(found.tokens[i]));
  const room = h("div", { class: "candidates" });
  const said = h("p", { class: "summary", role: "status" });
  const { draws } = page.look;
  const { classes } = page.look.can;
  const heading = classes ? "Classes" : `Candidates${page.look.answers.length > 1 ? ` at place ${answer + 1}` : ""}`;
  let logits = null;
  let missing = null;
  try {
    logits = await logitsAt(page, answer, found);
  } catch (error) {
    if (!error.what) throw error;
    missing = note("The logits of all candidates did not fit into this file, so temperature, top-k and top-p are fixed.");
  }
  const { independent } = page.look; // then nothing is drawn: each class is there or not
  const order = logits && !independent && ordered(logits);
  const { state } = page;
  const settings = {
    temperature: state.get("temperature") ?? 1,
    topK: state.get("topk") ?? 0,
    topP: state.get("topp") ?? 1,
  };

  function draw() {
    const all = order ? truncated(logits, order, settings) : found.probabilities;
    const probabilities = found.words.map((_, i) => all[i]);
    room.replaceChildren(
      bars(page, {
        label: heading,
        names,
        values: probabilities,
        format: (p) => (p === 0 && draws ? "cut off" : percent(p)),
        most: 1,
        pick: canForce ? (i) => force(page, answer, found.tokens[i], room) : null,
      }),
      numbersBelow(`Numbers: ${heading}`, ["rank", "candidate", "logit", "probability"], () =>
        found.words.map((word, i) => [String(i + 1), visible(word), found.logits[i], number(probabilities[i], 4)]),
      ),
    );
    if (independent) said.textContent = "Each class has its own sigmoid, so they need not sum to 100 %.";
    if (order) {
      let count = 0;
      for (const p of all) if (p > 0) count++;
      const kinds = page.look.words.toLocaleString("en");
      const drawn = !draws ? "" : `${count.toLocaleString("en")} of ${kinds} can be drawn · `;
      said.textContent = `${drawn}entropy ${number(entropy(all))} nats · the ${stands}${stands === "output" ? "" : " token"} is ranked ${found.rank}`;
    }
  }

  const moved = (name, key) => (value) => {
    settings[name] = value;
    page.state.set({ [key]: value }, { quietly: true });
    draw();
  };
  const most = Math.min(page.look.words, 101); // there, nothing is cut off
  const movedTopK = (value) => moved("topK", "topk")(value === most ? 0 : value);
  const digits = (value) => value.toFixed(2);
  draw();
  return h(
    "div",
    { class: "place" },
    h("h2", {}, heading),
    missing,
    missing || !draws
      ? null
      : h(
          "div",
          { class: "controls" },
          slider("temperature", 0, 2, 0.05, settings.temperature, moved("temperature", "temperature"), digits),
          slider("top-k", 1, most, 1, settings.topK || most, movedTopK, (value) => (value === most ? "all" : value)),
          slider("top-p", 0.05, 1, 0.05, settings.topP, moved("topP", "topp"), digits),
        ),
    said,
    canForce ? note("Choose a candidate to force it: the model then regenerates the rest.") : null,
    draws && !page.look.can.force ? note("In this kind of run, no candidate can be forced.") : null,
    page.look.can.force && !page.live ? note("To force a candidate, open the live page with regard explore.") : null,
    room,
  );
}

// All logits of a place. Matrices are rounded on their way; of those that are named, the exact ones are known.
async function logitsAt(page, answer, found) {
  const matrix = await page.matrix("logits", { rows: [answer, answer + 1] });
  const logits = Float64Array.from(row(matrix, answer - matrix.head.from[0]));
  for (const token of found.never) logits[token] = -Infinity;
  found.tokens.forEach((token, i) => (logits[token] = found.logits[i]));
  return logits;
}

// ------------------------------------------------------------------ forcing

async function force(page, answer, token, room) {
  try {
    const { input } = await page.ask("force", { answer, token });
    const next = page.look.can.continue && answer === page.look.answers.length - 1; // then what follows is of interest
    page.state.set({ input, own: itsOwn(page) ?? page.input, forced: answer, answer: next ? undefined : answer });
  } catch (error) {
    if (!error.what) throw error;
    room.prepend(problem(error));
  }
}

// The input before any word was forced, if it is about the same thing.
function itsOwn(page) {
  const own = page.state.get("own");
  if (!own) return null;
  const plain = ({ tokens, written, forced, target, ...rest }) => JSON.stringify(rest, Object.keys(rest).sort());
  return plain(own) === plain(page.input) && JSON.stringify(own) !== JSON.stringify(page.input) ? own : null;
}

// Which answer was forced, if one was.
function forcedPlace(page) {
  const { forced } = page.input;
  return forced ? forced.length - 1 : itsOwn(page) ? (page.state.get("forced") ?? null) : null;
}

function howTheRest(page) {
  const { beam } = page.runs[page.run];
  const likeliest = "the likeliest token at each step";
  if (page.look.can.continue || !beam) return likeliest;
  return beam === 1 ? `${likeliest} (beam = 1)` : `a beam search with ${beam} beams, as for the original output`;
}

async function besideItsOwn(page) {
  const own = itsOwn(page);
  if (!own || !page.live) return null;
  const before = await page.source.ask(page.run, own, "look");
  const words = (look) => look.answers.map((each) => each.label);
  const marked = forcedPlace(page);
  return h(
    "div",
    { class: "forced" },
    h("h2", {}, marked === null ? "The continuation was appended to the input" : "A token was forced"),
    textsBeside(["original", marked === null ? "with the continuation" : "with the forced token"], words(before), words(page.look), { onward: page.look.can.continue, marked }),
    marked === null ? null : note(`The rest is regenerated: ${howTheRest(page)}.`),
    button("Back to the original output", () => page.state.set({ input: own, own: undefined, forced: undefined })),
  );
}

// ------------------------------------------------------------------ what comes next, and the search

async function continuation(page) {
  const { words, input } = await page.ask("continuation");
  const lookAtIt = () => page.state.set({ input, own: itsOwn(page) ?? page.input, forced: undefined, answer: undefined });
  return h(
    "div",
    { class: "continuation" },
    h("h2", {}, "Continuation"),
    h("div", { class: "line" }, words.map((word) => h("span", { class: "token" }, visible(word)))),
    note(words.length ? "The likeliest token at each step." : "Nothing: the text ends here, or fills the model's context."),
    page.live && words.length ? button("Append it to the input", lookAtIt) : null,
  );
}

async function search(page) {
  const { forced, target, tokens } = page.input;
  if (forced || target || tokens) {
    return note("The beam tree exists only for the model's own output; this one was given or forced.");
  }
  const beam = page.state.get("beam");
  const all = Boolean(page.state.get("pruned"));
  const tree = await page.ask("beams", beam ? { beam } : {});
  const sizes = Array.from({ length: 8 }, (_, i) => [i + 1, String(i + 1)]);
  const kept = tree.beams === 1 ? "likeliest hypothesis is" : `${tree.beams} likeliest hypotheses are`;
  return h(
    "div",
    { class: "search" },
    h("h2", {}, "The beam tree"),
    note(
      `At every step the ${kept} kept. `,
      `Score: ln p / ((5 + tokens) / 6)^${tree.length_penalty}, with <end> counted. `,
      "The best of those that ended is the output.",
    ),
    h(
      "div",
      { class: "controls" },
      page.live
        ? choice("beams", sizes, tree.beams, (value) => page.state.set({ beam: Number(value) }))
        : h("span", { class: "quiet" }, `${tree.beams} beams; other sizes need the live page.`),
      choice("pruned", [["few", "the best of each step"], ["all", "all"]], all ? "all" : "few", (value) =>
        page.state.set({ pruned: value === "all" ? 1 : undefined }),
      ),
    ),
    h("p", {}, "Output: ", h("strong", { class: "winner" }, tree.text)),
    beamTree(page, tree, all),
  );
}
