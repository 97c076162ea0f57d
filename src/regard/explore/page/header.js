// The top of the page: the run, its input as a form, its output, and how exact the numbers are.

import { choice, h, percent, problem, submitOnEnter, visible } from "regard/dom.js";

const NAMES = { text: "Text", question: "Question", image: "Image", box: "Box", moves: "Moves", target: "Forced output", context: "Context", wish: "Wish" };

export function header(page) {
  const run = page.runs[page.run];
  const parameters = run.parameters.toLocaleString("en");
  return [
    h(
      "div",
      { class: "title" },
      h("h1", {}, run.name),
      h("span", { class: "about" }, `${run.noun} · ${parameters} parameters${run.mixer ? ` · ${run.mixer}` : ""}`),
      page.runs.length > 1
        ? choice("run", page.runs.map(({ name }, i) => [i, name]), page.run, (value) => changeRun(page, Number(value)))
        : null,
    ),
    currentForm(page),
    page.overview ? output(page) : null,
    page.overview ? changedTokens(page) : null,
    ...page.state.unread.map((name) => warning(`The “${name}” in this address cannot be read and was ignored.`)),
    ...(page.overview?.warnings ?? []).map(warning),
  ].filter(Boolean);
}

// The form of the input: the same one until the input changes, so that what is being typed is not lost when an answer comes.
function currentForm(page) {
  const boxes = page.overview?.boxes ?? 0; // of a detector, known once it has answered
  const of = JSON.stringify([page.run, page.input, boxes]);
  const submit = (input) => page.state.set({ input });
  if (page.form?.of !== of) {
    page.form = { of, element: inputForm(page, { label: "Input", button: "Inspect", input: page.input, boxes, submit }) };
  }
  return page.form.element;
}

// A warning where the model's tokens are not those of the text in the form.
function changedTokens(page) {
  const { tokens, written, forced, ...plain } = page.input;
  if (!tokens && !forced) return null;
  const word = forced ? visible(page.overview.answers[forced.length - 1]?.label ?? "") : "";
  const text = forced ? `“${word}” was forced at position ${forced.length}. ` : "A token was forced or changed: the tokens differ from the text above. ";
  const back = page.live ? h("button", { type: "button", onclick: () => page.state.set({ input: plain, original: undefined, forced: undefined }) }, "Undo") : null;
  return h("p", { class: "warning", role: "status" }, h("strong", {}, "Note: "), text, back);
}

// What the user should know before reading on, such as that the input was cut.
function warning(text) {
  return h("p", { class: "warning", role: "status" }, h("strong", {}, "Note: "), text);
}

function changeRun(page, run) {
  const { tokens, written, forced, ...input } = page.state.get("input"); // ids of the other run
  page.state.set({ run, input });
}

const FAILED = Symbol("failed upload");

// An input of the run as a form. `submit`: called with its fields, and for an image as soon as it is chosen.
// `without`: fields to leave out. `boxes`: how many there are to choose from.
export function inputForm(page, { label, button, input, submit, without = [], boxes = 0 }) {
  const prefix = label.toLowerCase().replace(/\W+/g, "-");
  const field = (name) => {
    if (name === "image") return imageField(page, String(input.image ?? ""));
    if (name === "box") return numberField(page, `${prefix}-${name}`, name, input[name] ?? 1, boxes);
    return textField(page, `${prefix}-${name}`, name, input[name] ?? "");
  };
  const fields = page.runs[page.run].fields.filter((name) => !without.includes(name)).map((name) => [
    name,
    field(name),
  ]);
  let turn = 0; // the last choice counts, even if an upload started earlier finishes later
  return h(
    "form",
    {
      class: "input",
      "aria-label": label,
      onsubmit: async (event) => {
        event.preventDefault();
        const mine = ++turn;
        const read = {};
        for (const [name, field] of fields) {
          const value = await field.read(); // an upload may not have finished
          if (value === FAILED || mine !== turn) return; // the field says why
          if (value) read[name] = value;
        }
        if (read.image !== (input.image ?? "")) delete read.box; // another image has other boxes
        submit(read);
      },
    },
    fields.map(([, field]) => field.element),
    page.live ? h("button", { type: "submit" }, button) : null,
  );
}

function textField(page, id, name, value) {
  const long = name === "text" || name === "context";
  const input = h(long ? "textarea" : "input", { id, rows: long ? 1 : null, type: long ? null : "text", readonly: !page.live, spellcheck: "false" });
  input.value = value;
  submitOnEnter(input);
  const element = h("span", { class: long ? "field wide" : "field" }, h("label", { for: id }, NAMES[name] ?? name), input);
  return { element, read: () => input.value };
}

// A number from 1, which is left out of the input where it is 1. `most`: how many there are; 0: unknown.
function numberField(page, id, name, value, most) {
  const input = h("input", {
    id, type: "number", min: 1, max: most || null, step: 1, readonly: !page.live, style: { width: "4rem" },
  });
  input.value = value;
  const count = most ? h("span", { class: "quiet" }, `of ${most}`) : null;
  const element = h("span", { class: "field" }, h("label", { for: id }, NAMES[name]), input, count);
  return { element, read: () => (Number(input.value) === 1 ? null : Number(input.value)) };
}

// `read` returns the chosen image; for an upload, a promise of it.
function imageField(page, chosen) {
  const names = page.runs[page.run].examples.map((example) => example.image).filter(Boolean);
  const options = names.map((name) => [name, name]);
  if (!names.includes(chosen)) options.unshift([chosen, displayName(chosen)]);
  let current = chosen;
  const message = h("span", {});
  const select = (image) => {
    current = image;
    message.replaceChildren();
    element.closest("form").requestSubmit();
  };
  const uploaded = (file) =>
    page.source.upload(file).catch((error) => {
      message.replaceChildren(problem(error));
      return FAILED;
    });
  const menu = choice("Image", options, chosen, select);
  if (!page.live) menu.querySelector("select").disabled = true;
  const file = h("input", {
    type: "file",
    accept: "image/*",
    "aria-label": "Open an image of your own",
    onchange: () => file.files.length && select(uploaded(file.files[0])),
  });
  const element = h("span", { class: "field" }, menu, page.live ? file : null, message);
  return { element, read: () => current };
}

function displayName(image) {
  if (image.startsWith("data:")) return "in the address";
  return image.replace(/^sent\/[0-9a-f]+-/, "") || "choose one";
}

// The model's answer in a line: its output, the words at masked positions, or the next word.
function answerText({ output_text, headline, answers }) {
  if (headline === "output") return output_text;
  const shown = headline === "next" ? answers.slice(-1) : answers;
  return `${headline}: ${shown.map(({ label, probability }) => `‘${visible(label)}’ (${percent(probability)})`).join(", ")}`;
}

// Marks an output that the model did not generate itself: one from the form, or one of changed tokens.
function givenMark({ answers, headline, stacks }) {
  const given = headline === "output" && stacks.length > 1 && answers.every((answer) => answer.given);
  return given ? h("span", { class: "quiet" }, "given output: ") : null;
}

// The probability of a class.
function classProbability({ answers, can, output_text }) {
  const [only] = answers;
  return can.classes && answers.length === 1 && output_text === only.label ? ` (${percent(only.probability)})` : "";
}

function output(page) {
  const { overview } = page;
  const answer = answerText(overview);
  const difference = overview.difference.toExponential(1).replace("-", "−");
  return h(
    "div",
    { class: "model-output", tabindex: 0, role: "region", "aria-label": "The model's answer" }, // a long one is scrolled
    answer ? [givenMark(overview), h("strong", {}, answer), classProbability(overview), " "] : null,
    h(
      "span",
      { class: "exact", title: "The model ran a second time, with every mixer computed step by step from its formula." },
      `These are the model's own numbers: logits recomputed from the formulas differ by at most ${difference}.`,
    ),
  );
}
