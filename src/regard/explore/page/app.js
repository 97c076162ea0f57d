// The frame of the page: what is looked at, the tokens, the tabs, and one view at a time.

import { h, keepingFocus, problem } from "regard/dom.js";
import { header } from "regard/header.js";
import { Highlight } from "regard/highlight.js";
import { tokensName } from "regard/names.js";
import { Recorded, Served } from "regard/source.js";
import { State } from "regard/state.js";
import { tokenLine } from "regard/tokens.js";
import * as attribution from "regard/views/attribution.js";
import * as compare from "regard/views/compare.js";
import * as heads from "regard/views/heads.js";
import * as image from "regard/views/image.js";
import * as layers from "regard/views/layers.js";
import * as mixers from "regard/views/mixers.js";
import * as output from "regard/views/output.js";
import * as steps from "regard/views/steps.js";
import * as training from "regard/views/training.js";
import * as whatIf from "regard/views/what_if.js";
import * as words from "regard/views/words.js";

// In the order of their tabs. Each has: id, title, fits(page) and show(page), which gives an element.
const VIEWS = [steps, heads, output, layers, attribution, whatIf, image, mixers, words, training, compare];

class Page {
  constructor(source, runs, first) {
    this.source = source;
    this.runs = runs;
    this.highlight = new Highlight();
    this.state = new State({ view: null, run: 0, input: first, beside: null }, { run: (value) => value in runs });
    this.look = null;
  }

  get run() {
    return this.state.get("run");
  }

  get input() {
    return this.inputFor(this.run);
  }

  // What is looked at, as far as a run reads it. What is no field of any run are ids of this one's tokens.
  inputFor(run) {
    const fields = this.runs[run].fields;
    const ids = (name) => run === this.run && !this.runs.some((each) => each.fields.includes(name));
    const given = Object.entries(this.state.get("input"));
    return Object.fromEntries(given.filter(([name]) => fields.includes(name) || ids(name)));
  }

  get live() {
    return this.source.live;
  }

  ask(what, options = {}) {
    return this.source.ask(this.run, this.input, what, options);
  }

  matrix(name, options = {}) {
    return this.source.matrix(this.run, this.input, name, options);
  }

  stack(name, look = this.look) {
    return look.stacks.find((stack) => stack.name === name);
  }

  // Every part of every stack, in order, with its stack, the stack that it looks at, and what was written meanwhile.
  parts(look = this.look) {
    return look.stacks.flatMap((stack, index) =>
      stack.layers.flatMap((layer, number) =>
        layer.parts.map((part) => ({
          ...part,
          stack,
          layer: number,
          part: part.name.split(".").at(-1),
          keys: part.cross ? look.stacks[index - 1] : stack,
          answers: part.cross ? look.answers : [],
        })),
      ),
    );
  }

  say(text) {
    document.getElementById("live").textContent = text;
  }
}

export async function start() {
  const recorded = document.getElementById("recorded");
  const source = recorded ? new Recorded(JSON.parse(recorded.textContent)) : new Served();
  let page;
  try {
    const { runs, first } = await source.runs();
    page = new Page(source, runs, first);
  } catch (error) {
    document.getElementById("panel").replaceChildren(problem(error));
    return;
  }
  page.state.listeners.push((now, before) => {
    const other = now.run !== before.run || JSON.stringify(now.input) !== JSON.stringify(before.input);
    (other || !page.look || page.state.unread.length || page.warned ? lookAgain : showView)(page);
  });
  await lookAgain(page);
}

let turn = 0;

async function lookAgain(page) {
  const mine = ++turn;
  document.body.classList.add("busy");
  try {
    const look = await page.ask("look");
    if (mine !== turn) return;
    page.look = look;
    document.title = `${page.runs[page.run].name} – Regard`;
    showInput(page);
    await showView(page);
  } catch (error) {
    if (mine !== turn) return;
    page.look = null; // nothing of the input before may be taken for this one's
    showInput(page);
    document.getElementById("tabs").replaceChildren();
    document.getElementById("panel").replaceChildren(problem(error));
    page.say(`${error.what ?? error.message}`);
    if (!(error.what ?? false)) throw error;
  } finally {
    if (mine === turn) document.body.classList.remove("busy");
  }
}

function showInput(page) {
  const head = document.getElementById("head");
  page.warned = page.state.unread.length > 0; // which must go with the address that it is about
  keepingFocus(head, () => head.replaceChildren(...header(page)));
  const stacks = page.look?.stacks.filter((stack) => !stack.grid) ?? [];
  document.getElementById("tokens").replaceChildren(...stacks.map((stack) => named(page, stack)));
}

function named(page, stack) {
  return h("div", { class: "named-line" }, h("span", { class: "line-name" }, tokensName(stack.name)), tokenLine(page, stack));
}

async function showView(page) {
  const mine = ++turn;
  const views = VIEWS.filter((view) => view.fits(page));
  const view = views.find((each) => each.id === page.state.get("view")) ?? views[0];
  document.getElementById("tabs").replaceChildren(tabs(page, views, view));
  const panel = document.getElementById("panel");
  panel.setAttribute("aria-labelledby", `tab-${view.id}`);
  document.body.classList.add("busy");
  let shown;
  try {
    shown = await view.show(page);
  } catch (error) {
    shown = problem(error);
    if (!error.what) console.error(error);
  }
  if (mine !== turn) return;
  keepingFocus(panel, () => panel.replaceChildren(shown));
  panel.dataset.view = view.id;
  panel.dataset.ready = String(mine); // for tests, and for nobody else
  document.body.classList.remove("busy");
}

function tabs(page, views, chosen) {
  const list = h("div", { role: "tablist", "aria-label": "Views", class: "tabs" });
  views.forEach((view, index) => {
    const tab = h(
      "button",
      {
        role: "tab",
        id: `tab-${view.id}`,
        type: "button",
        "aria-selected": String(view === chosen),
        "aria-controls": "panel",
        tabindex: view === chosen ? 0 : -1,
        onclick: () => page.state.set({ view: view.id }),
        onkeydown: (event) => {
          const to = { ArrowRight: index + 1, ArrowLeft: index - 1, Home: 0, End: -1 }[event.key];
          if (to === undefined) return;
          event.preventDefault(); // Home and End would scroll the page
          const next = views.at(to % views.length);
          page.state.set({ view: next.id });
          document.getElementById(`tab-${next.id}`).focus();
        },
      },
      view.title,
    );
    list.append(tab);
  });
  return list;
}
