// The top of the page: which run, its input as a form, what it said, and how exact the numbers are.

import { choice, h, percent, problem, submittedByEnter, visible } from "regard/dom.js";

const NAMES = { text: "Text", question: "Question", image: "Image", moves: "Moves", target: "Forced output", context: "Context", wish: "Wish" };

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
        ? choice("run", page.runs.map((each, i) => [i, each.name]), page.run, (value) => changeRun(page, Number(value)))
        : null,
    ),
    inputForm(page, { label: "Input", button: "Look", input: page.input, submit: (input) => page.state.set({ input }) }),
    page.look ? output(page) : null,
    page.look ? otherTokens(page) : null,
    ...page.state.unread.map((name) => warning(`The “${name}” in this address cannot be read and was ignored.`)),
    ...(page.look?.warnings ?? []).map(warning),
  ].filter(Boolean);
}

// Where the model was given other tokens than those of the text in the form.
function otherTokens(page) {
  const { tokens, written, forced, ...plain } = page.input;
  if (!tokens && !forced) return null;
  const word = forced ? visible(page.look.answers[forced.length - 1]?.label ?? "") : "";
  const text = forced ? `“${word}” was forced at place ${forced.length}. ` : "A token was forced or changed: the tokens differ from the text above. ";
  const back = page.live ? h("button", { type: "button", onclick: () => page.state.set({ input: plain, own: undefined, forced: undefined }) }, "Undo") : null;
  return h("p", { class: "warning", role: "status" }, h("strong", {}, "Note: "), text, back);
}

// What a person should know before reading on: that the input was cut, for one.
function warning(text) {
  return h("p", { class: "warning", role: "status" }, h("strong", {}, "Note: "), text);
}

function changeRun(page, run) {
  const { tokens, written, forced, ...input } = page.state.get("input"); // ids of the other run
  page.state.set({ run, input });
}

const FAILED = Symbol("an image that could not be sent");

// An input of the run as a form. `submit`: called with what was filled in; an image, as soon as it is chosen.
// `without`: fields that it leaves out.
export function inputForm(page, { label, button, input, submit, without = [] }) {
  const prefix = label.toLowerCase().replace(/\W+/g, "-");
  const fields = page.runs[page.run].fields.filter((name) => !without.includes(name)).map((name) => [
    name,
    name === "image" ? imageField(page, String(input.image ?? "")) : textField(page, `${prefix}-${name}`, name, input[name] ?? ""),
  ]);
  let turn = 0; // what was chosen last counts, though a file that was chosen before it may arrive later
  return h(
    "form",
    {
      class: "input",
      "aria-label": label,
      onsubmit: async (event) => {
        event.preventDefault();
        const mine = ++turn;
        const filled = {};
        for (const [name, field] of fields) {
          const value = await field.read(); // an image may be on its way
          if (value === FAILED || mine !== turn) return; // the field says why
          if (value) filled[name] = value;
        }
        submit(filled);
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
  submittedByEnter(input);
  const element = h("span", { class: long ? "field wide" : "field" }, h("label", { for: id }, NAMES[name] ?? name), input);
  return { element, read: () => input.value };
}

// `read` gives the image that was chosen last; of a file, when the server has it.
function imageField(page, chosen) {
  const names = page.runs[page.run].examples.map((example) => example.image).filter(Boolean);
  const options = names.map((name) => [name, name]);
  if (!names.includes(chosen)) options.unshift([chosen, shownAs(chosen)]);
  let current = chosen;
  const wrong = h("span", {});
  const look = (image) => {
    current = image;
    wrong.replaceChildren();
    element.closest("form").requestSubmit();
  };
  const sent = (file) =>
    page.source.upload(file).catch((error) => {
      wrong.replaceChildren(problem(error));
      return FAILED;
    });
  const select = choice("Image", options, chosen, look);
  if (!page.live) select.querySelector("select").disabled = true;
  const file = h("input", {
    type: "file",
    accept: "image/*",
    "aria-label": "Open an image of your own",
    onchange: () => file.files.length && look(sent(file.files[0])),
  });
  const element = h("span", { class: "field" }, select, page.live ? file : null, wrong);
  return { element, read: () => current };
}

function shownAs(image) {
  if (image.startsWith("data:")) return "in the address";
  return image.replace(/^sent\/[0-9a-f]+-/, "") || "choose one";
}

// The model's answer in a line: its output, the words that it finds, or the next one.
function answerOf({ output_text, speaks, answers }) {
  if (speaks === "output") return output_text;
  const shown = speaks === "next" ? answers.slice(-1) : answers;
  return `${speaks}: ${shown.map(({ label, probability }) => `‘${visible(label)}’ (${percent(probability)})`).join(", ")}`;
}

// An output that stands in the form, or belongs to other tokens, is not the model's own.
function whose({ look: { answers, speaks, stacks } }) {
  const given = speaks === "output" && stacks.length > 1 && answers.every((answer) => answer.given);
  return given ? h("span", { class: "quiet" }, "given output: ") : null;
}

// Of a class, how probable it is.
function sureness({ answers, can, output_text }) {
  const [only] = answers;
  return can.classes && answers.length === 1 && output_text === only.label ? ` (${percent(only.probability)})` : "";
}

function output(page) {
  const { look } = page;
  const answered = answerOf(look);
  const exact = look.difference.toExponential(1).replace("-", "−");
  return h(
    "p",
    { class: "model-output" },
    answered ? [whose(page), h("strong", {}, answered), sureness(look), " "] : null,
    h(
      "span",
      { class: "exact", title: "The model ran a second time, with every mixer written out step by step by its formula." },
      `These are the model's own numbers: logits recomputed from the formulas differ by at most ${exact}.`,
    ),
  );
}
