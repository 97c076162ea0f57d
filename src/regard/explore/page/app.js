// The frame of the page: the input, its tokens, the tabs, and one view at a time.

import { h, keepFocus, problem } from "regard/dom.js";
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

// In the order of their tabs. Each has an id, a title, fits(page), and show(page), which returns an element.
const VIEWS = [steps, heads, output, layers, attribution, whatIf, image, mixers, words, training, compare];

const MOMENT = 150; // milliseconds for which an old view may stay visible while a new one is computed

class Page {
  constructor(source, runs, first) {
    this.source = source;
    this.runs = runs;
    this.highlight = new Highlight();
    this.state = new State({ view: null, run: 0, input: first, beside: null }, { run: (value) => value in runs });
    this.overview = null;
    this.views = []; // those that fit the model
    this.shown = null; // which view of which input the panel shows
  }

  // The page as one view sees it: with the overview for which it is drawn, and with its questions marked as its own.
  during(turn) {
    const source = Object.assign(Object.create(this.source), { turn });
    return Object.assign(Object.create(this), { source, overview: this.overview });
  }

  get run() {
    return this.state.get("run");
  }

  get input() {
    return this.inputFor(this.run);
  }

  // The input as a run reads it. A field of no run at all holds token ids, which are valid for the current run only.
  inputFor(run) {
    const fields = this.runs[run].fields;
    const isIds = (name) => run === this.run && !this.runs.some((other) => other.fields.includes(name));
    const input = Object.entries(this.state.get("input"));
    return Object.fromEntries(input.filter(([name]) => fields.includes(name) || isIds(name)));
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

  stack(name, overview = this.overview) {
    return overview.stacks.find((stack) => stack.name === name);
  }

  // Every part of every stack, in order, with its stack, the stack of its keys, and the answers if it is cross-attention.
  parts(overview = this.overview) {
    return overview.stacks.flatMap((stack, index) =>
      stack.layers.flatMap((layer, number) =>
        layer.parts.map((part) => ({
          ...part,
          stack,
          layer: number,
          part: part.name.split(".").at(-1),
          keys: part.cross ? overview.stacks[index - 1] : stack,
          answers: part.cross ? overview.answers : [],
        })),
      ),
    );
  }

  // Announce a text to screen readers.
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
  showInput(page); // the frame is there before the first answer
  page.state.listeners.push((now, before) => {
    const changed = now.run !== before.run || JSON.stringify(now.input) !== JSON.stringify(before.input);
    (changed || !page.overview || page.state.unread.length || page.warned ? refresh : showView)(page);
  });
  await refresh(page);
}

let turn = 0;

async function refresh(page) {
  const mine = ++turn;
  const since = performance.now();
  page.overview = null; // nothing of the previous input may be mistaken for this one's
  const view = showTabs(page);
  document.body.classList.add("busy");
  const late = setTimeout(() => {
    if (mine !== turn) return;
    showInput(page);
    showWaiting(page, view);
  }, MOMENT);
  try {
    const overview = await page.during(mine).ask("overview");
    if (mine !== turn) return;
    page.overview = overview;
    showInput(page);
    await showView(page, since);
  } catch (error) {
    if (mine !== turn) return;
    Object.assign(page, { overview: null, views: [] });
    showInput(page);
    showTabs(page);
    draw(page, problem(error), null);
    page.say(`${error.what ?? error.message}`);
    if (!error.what) throw error;
  } finally {
    clearTimeout(late);
    if (mine === turn) document.body.classList.remove("busy");
  }
}

function showInput(page) {
  document.title = `${page.runs[page.run].name} – Regard`;
  const head = document.getElementById("head");
  page.warned = page.state.unread.length > 0; // the warning must go when the address changes
  keepFocus(head, () => head.replaceChildren(...header(page)));
  const stacks = page.overview?.stacks.filter((stack) => !stack.grid) ?? [];
  document.getElementById("tokens").replaceChildren(...stacks.map((stack) => namedLine(page, stack)));
}

function namedLine(page, stack) {
  return h("div", { class: "named-line" }, h("span", { class: "line-name" }, tokensName(stack.name)), tokenLine(page, stack));
}

// `since`: when the wait for it began.
async function showView(page, since = performance.now()) {
  const mine = ++turn;
  const view = showTabs(page);
  const shown = JSON.stringify([view.id, page.run, page.input]);
  document.body.classList.add("busy");
  // Within a view, the old content stays until the new is there, so that nothing jumps.
  const wait = () => mine === turn && shown !== page.shown && showWaiting(page, view);
  const late = setTimeout(wait, MOMENT - (performance.now() - since));
  let content;
  try {
    content = await view.show(page.during(mine));
  } catch (error) {
    content = problem(error);
    if (!error.what) console.error(error);
  }
  clearTimeout(late);
  if (mine !== turn) return;
  draw(page, content.querySelector(".unreachable") ?? content, view); // without the server, one sentence is enough
  page.shown = shown;
  document.body.classList.remove("busy");
}

// Fill the panel with a view, or with an error if there is none.
function draw(page, content, view) {
  const panel = document.getElementById("panel");
  page.shown = null;
  keepFocus(panel, () => panel.replaceChildren(content));
  panel.dataset.view = view?.id ?? "";
  panel.dataset.ready = String(turn); // only for tests
}

// In place of what another view, or another input, has left in the panel.
function showWaiting(page, view) {
  draw(page, h("section", { class: "waiting" }, view ? h("h2", {}, view.title) : null, h("p", {}, "Computing …")), null);
  delete document.getElementById("panel").dataset.ready;
}

// The tabs of the views that fit; while that is not known, those of the last input. Returns the view that is chosen.
function showTabs(page) {
  if (page.overview) page.views = VIEWS.filter((view) => view.fits(page));
  const view = page.views.find(({ id }) => id === page.state.get("view")) ?? page.views[0];
  const nav = document.getElementById("tabs");
  keepFocus(nav, () => nav.replaceChildren(...(view ? [tabs(page, page.views, view)] : [])));
  if (view) document.getElementById("panel").setAttribute("aria-labelledby", `tab-${view.id}`);
  else document.getElementById("panel").removeAttribute("aria-labelledby");
  return view;
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
          const target = { ArrowRight: index + 1, ArrowLeft: index - 1, Home: 0, End: -1 }[event.key];
          if (target === undefined) return;
          event.preventDefault(); // Home and End would scroll the page
          const next = views.at(target % views.length);
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
