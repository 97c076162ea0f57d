// What is chosen, in the address of the page: a view can be linked, and Back goes back.

const isIndex = (value) => Number.isInteger(value) && value >= 0;
const isNumber = (value) => typeof value === "number";
const isObject = (value) => typeof value === "object" && !Array.isArray(value);
const isSpan = (value) => Array.isArray(value) && value.length === 2 && value.every(isIndex) && value[0] < value[1];
const isWindow = (value) => isObject(value) && ["rows", "columns"].every((side) => value[side] === undefined || isSpan(value[side]));
const isName = (value) => typeof value === "string";
const isPlace = (value) => Array.isArray(value) && value.length === 2 && isName(value[0]) && isIndex(value[1]);
const OFF = { heads: isName, parts: isName, layers: isName, positions: isPlace };
const isListOf = (each, value) => value === undefined || (Array.isArray(value) && value.every(each)); // nothing is off there
const isOff = (value) => isObject(value) && Object.keys(OFF).every((kind) => isListOf(OFF[kind], value[kind]));

// What the values of an address must be; anyone may have written it. Null is nothing chosen.
const KINDS = {
  ...of(isIndex, "run", "answer", "head", "layer", "position", "beam", "topk", "channel", "token", "word", "checkpoint", "seed"),
  ...of(isNumber, "temperature", "topp", "opacity", "keep"),
  ...of(isObject, "input", "other", "own", "second"),
  ...of(isWindow, "window"),
  ...of(isOff, "off"),
};

function of(kind, ...names) {
  return Object.fromEntries(names.map((name) => [name, kind]));
}

const ownOf = (table, name) => (Object.hasOwn(table, name) ? table[name] : undefined); // not what every object has

export class State {
  // `unread`: names of what the address has, but not in a form that makes sense. `checks`: more that must hold, by name.
  constructor(defaults, checks = {}) {
    this.defaults = defaults;
    this.checks = checks;
    this.unread = [];
    this.listeners = [];
    this.values = this.read();
    window.addEventListener("hashchange", () => {
      const before = this.values;
      this.values = this.read();
      if (this.unread.length || JSON.stringify(before) !== JSON.stringify(this.values)) this.tell(before);
    });
  }

  read() {
    const found = Object.create(null); // an address may have any name
    this.unread = [];
    for (const [name, text] of new URLSearchParams(location.hash.slice(1))) {
      const value = parsed(text);
      if (this.makesSense(name, value)) found[name] = value;
      else this.unread.push(name);
    }
    return { ...this.defaults, ...found };
  }

  makesSense(name, value) {
    if (value === null) return (ownOf(this.defaults, name) ?? null) === null;
    return (ownOf(KINDS, name)?.(value) ?? true) && (ownOf(this.checks, name)?.(value) ?? true);
  }

  get(name) {
    return this.values[name];
  }

  // Several at once; `quietly`: nobody is told, because the view that sets it has drawn it already.
  set(changes, { quietly = false, replace = false } = {}) {
    const before = this.values;
    this.values = { ...before, ...changes };
    this.unread = []; // the address is written anew
    const search = new URLSearchParams();
    for (const [name, value] of Object.entries(this.values)) {
      if (value === undefined || JSON.stringify(value) === JSON.stringify(this.defaults[name])) continue;
      search.set(name, typeof value === "string" && parsed(value) === value ? value : JSON.stringify(value));
    }
    const address = `#${search}`;
    if (address !== location.hash) history[replace || quietly ? "replaceState" : "pushState"](null, "", address);
    if (!quietly) this.tell(before);
  }

  tell(before) {
    for (const listener of this.listeners) listener(this.values, before);
  }
}

// The value that a text of the address stands for: JSON, or else the text itself.
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
