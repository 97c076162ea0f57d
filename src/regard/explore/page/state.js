// The state of the page, kept in its address: a view can be linked, and Back works.

const isIndex = (value) => Number.isInteger(value) && value >= 0;
const isNumber = (value) => typeof value === "number";
const isObject = (value) => typeof value === "object" && !Array.isArray(value);
const isSpan = (value) => Array.isArray(value) && value.length === 2 && value.every(isIndex) && value[0] < value[1];
const isWindow = (value) => isObject(value) && ["rows", "columns"].every((side) => value[side] === undefined || isSpan(value[side]));
const isName = (value) => typeof value === "string";
const isPosition = (value) => Array.isArray(value) && value.length === 2 && isName(value[0]) && isIndex(value[1]);
const OFF = { heads: isName, parts: isName, layers: isName, positions: isPosition };
const isListOf = (isItem, value) => value === undefined || (Array.isArray(value) && value.every(isItem));
const isOff = (value) => isObject(value) && Object.keys(OFF).every((kind) => isListOf(OFF[kind], value[kind]));

// The types of the values: anyone may have written the address. Null: nothing is chosen.
const KINDS = {
  ...of(isIndex, "run", "answer", "head", "layer", "position", "beam", "topk", "channel", "token", "word", "checkpoint", "seed"),
  ...of(isNumber, "temperature", "topp", "opacity", "keep"),
  ...of(isObject, "input", "other", "original", "second"),
  ...of(isWindow, "window"),
  ...of(isOff, "off"),
};

function of(kind, ...names) {
  return Object.fromEntries(names.map((name) => [name, kind]));
}

const ownOf = (table, name) => (Object.hasOwn(table, name) ? table[name] : undefined); // not "constructor" and the like

export class State {
  // `unread`: names in the address whose values are invalid. `checks`: further conditions on values, by name.
  constructor(defaults, checks = {}) {
    this.defaults = defaults;
    this.checks = checks;
    this.unread = [];
    this.listeners = [];
    this.values = this.read();
    window.addEventListener("hashchange", () => {
      const before = this.values;
      this.values = this.read();
      if (this.unread.length || JSON.stringify(before) !== JSON.stringify(this.values)) this.notify(before);
    });
  }

  read() {
    const values = Object.create(null); // an address may contain any name
    this.unread = [];
    for (const [name, text] of new URLSearchParams(location.hash.slice(1))) {
      const value = parse(text);
      if (this.isValid(name, value)) values[name] = value;
      else this.unread.push(name);
    }
    return { ...this.defaults, ...values };
  }

  isValid(name, value) {
    if (value === null) return (ownOf(this.defaults, name) ?? null) === null;
    return (ownOf(KINDS, name)?.(value) ?? true) && (ownOf(this.checks, name)?.(value) ?? true);
  }

  get(name) {
    return this.values[name];
  }

  // Set several values at once. `quietly`: without notifying listeners, because the view has already drawn the change.
  set(changes, { quietly = false, replace = false } = {}) {
    const before = this.values;
    this.values = { ...before, ...changes };
    this.unread = []; // the address is rewritten
    const search = new URLSearchParams();
    for (const [name, value] of Object.entries(this.values)) {
      if (value === undefined || JSON.stringify(value) === JSON.stringify(this.defaults[name])) continue;
      search.set(name, typeof value === "string" && parse(value) === value ? value : JSON.stringify(value));
    }
    const address = `#${search}`;
    if (address !== location.hash) history[replace || quietly ? "replaceState" : "pushState"](null, "", address);
    if (!quietly) this.notify(before);
  }

  notify(before) {
    for (const listener of this.listeners) listener(this.values, before);
  }
}

// The value of a text in the address: JSON, or else the text itself.
function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
