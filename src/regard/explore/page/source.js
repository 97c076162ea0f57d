// The source of answers: the server behind the page, or the recording inside it. Views do not know which.

import { inflate, unpack } from "regard/arrays.js";

const PROBLEM = "application/problem+json"; // errors of the user have the status 200, so that the browser's console stays silent
const AT_ONCE = 2; // questions sent to the server: one is computed while another travels
const MOST_IMAGE = 64 * 2 ** 20; // bytes, as in session.py

const LONE_SURROGATE = /(?<!\\)(?:\\\\)*\\ud[89a-f]/; // in JSON, which escapes nothing else in this way

export class Problem extends Error {
  constructor({ what, why, fix, unreachable = false }) {
    super(`${what} ${why}`);
    Object.assign(this, { what, why, fix, unreachable });
  }
}

// The same text for the same content; session.py writes it in the same way.
export function canonical(content) {
  if (Array.isArray(content)) return `[${content.map(canonical).join(",")}]`;
  if (content === null || typeof content !== "object") return JSON.stringify(content);
  const keys = Object.keys(content).filter((key) => content[key] !== undefined);
  return `{${keys.sort().map((key) => `${JSON.stringify(key)}:${canonical(content[key])}`).join(",")}}`;
}

class Cached {
  constructor() {
    this.answers = new Map();
  }

  // The answer to a question about an input of a run.
  ask(run, input, what, options = {}) {
    return this.cached({ run, input, what, options }, (request) => this.fetchAnswer(request));
  }

  // A matrix as {head, values}: of one head or layer, or of all. `rows`, `columns`: a window of it.
  matrix(run, input, name, options = {}) {
    return this.cached({ run, input, name, ...options }, (request) => this.fetchMatrix(request));
  }

  cached(request, get) {
    const key = canonical(request);
    if (!this.answers.has(key)) {
      const answer = get(request);
      this.answers.set(key, answer);
      answer.catch(() => this.answers.delete(key)); // so that it can be asked again
      if (this.answers.size > 400) this.answers.delete(this.answers.keys().next().value);
    }
    return this.answers.get(key);
  }
}

// Questions to the server, which answers one at a time. Those of the latest turn are of the view that is open and go first;
// those of views left behind wait until nothing else is asked.
class Queue {
  waiting = [];
  sent = 0;

  // The answer that `get` gives when it is called in turn.
  answer(key, turn, get) {
    return new Promise((resolve, reject) => {
      this.waiting.push({ key, turn, send: () => get().then(resolve, reject) });
      this.sendNext();
    });
  }

  // A later turn asks the same.
  renew(key, turn) {
    for (const question of this.waiting) if (question.key === key) question.turn = turn;
  }

  sendNext() {
    if (this.sent === AT_ONCE || !this.waiting.length) return;
    const next = this.waiting.reduce((first, other) => (other.turn > first.turn ? other : first));
    this.waiting.splice(this.waiting.indexOf(next), 1);
    this.sent++;
    next.send().finally(() => {
      this.sent--;
      this.sendNext();
    });
  }
}

export class Served extends Cached {
  live = true;
  turn = 0; // of whoever asks
  queue = new Queue();

  cached(request, get) {
    const key = canonical(request);
    this.queue.renew(key, this.turn);
    return super.cached(request, () => this.queue.answer(key, this.turn, () => get(request)));
  }

  async runs() {
    return (await this.fetchJson("./api/runs")).json();
  }

  async fetchAnswer(request) {
    return (await this.fetchJson("./api/ask", request)).json();
  }

  async fetchMatrix(request) {
    const response = await this.fetchJson("./api/matrix", request);
    const message = await response.arrayBuffer();
    const length = new DataView(message).getUint32(0, true);
    const head = JSON.parse(new TextDecoder().decode(new Uint8Array(message, 4, length)));
    return unpack(head, new Uint8Array(message, 4 + length));
  }

  // Send an image file; returns the name that an input may use for it.
  async upload(file) {
    if (file.size > MOST_IMAGE) {
      const why = `It has over ${MOST_IMAGE.toLocaleString("en")} bytes.`;
      throw new Problem({ what: `The image '${file.name}' is too large.`, why, fix: "Make it smaller." });
    }
    const address = `./api/upload?name=${encodeURIComponent(file.name)}`;
    const response = await this.send(address, { method: "POST", body: file, headers: { "Content-Type": "application/octet-stream" } });
    return (await response.json()).image;
  }

  fetchJson(address, request) {
    const json = { "Content-Type": "application/json" };
    const body = request && JSON.stringify(request);
    if (LONE_SURROGATE.test(body ?? "")) {
      throw new Problem({ what: "The text is not Unicode.", why: "It contains an unpaired surrogate.", fix: "Type it again." });
    }
    return this.send(address, request && { method: "POST", body, headers: json });
  }

  async send(address, options) {
    let response;
    try {
      response = await fetch(address, options);
    } catch {
      throw new Problem({
        what: "The server is not responding.",
        why: "The command that started it may have ended.",
        fix: "Start `regard explore` again.",
        unreachable: true,
      });
    }
    if (response.ok && !response.headers.get("content-type")?.startsWith(PROBLEM)) return response;
    let content;
    try {
      content = await response.json();
    } catch {
      content = { what: "The server refused the request.", why: `It answered ${response.status}.`, fix: "Load the page again." };
    }
    throw new Problem(content);
  }
}

export class Recorded extends Cached {
  live = false;

  constructor(content) {
    super();
    this.content = content;
  }

  async runs() {
    return { runs: this.content.runs, first: this.content.first };
  }

  async fetchAnswer(request) {
    const answer = (await this.recorded())[canonical(request)];
    if (answer === undefined) throw this.missing();
    if (answer.error) throw new Problem(answer.error);
    return answer.value;
  }

  // All answers, unpacked once for all views.
  recorded() {
    this.content.unpacked ??= inflate(bytes(this.content.answers)).then((raw) => JSON.parse(new TextDecoder().decode(raw)));
    return this.content.unpacked;
  }

  async fetchMatrix(request) {
    const { head, rows, columns, most, ...whole } = request;
    const entry = this.content.matrices[canonical(whole)];
    if (entry === undefined) throw this.missing();
    const all = await this.cached(whole, () => unpack(entry.head, bytes(entry.data)));
    const matrix = head === undefined ? all : layer(all, head);
    return rows || columns ? this.cut(matrix, rows, columns) : matrix;
  }

  // A window of a matrix, unless the recording has it only reduced.
  cut(matrix, rows, columns) {
    const [height, width] = matrix.head.shape.slice(-2);
    const [down, right] = [rows ?? [0, height], columns ?? [0, width]];
    if (matrix.head.step.some((step) => step > 1)) throw this.missing();
    const shape = [...matrix.head.shape.slice(0, -2), down[1] - down[0], right[1] - right[0]];
    const values = new Float32Array(shape.reduce((a, b) => a * b, 1));
    let to = 0;
    for (let first = 0; first < matrix.values.length; first += height * width) {
      for (let row = down[0]; row < down[1]; row++) {
        values.set(matrix.values.subarray(first + row * width + right[0], first + row * width + right[1]), to);
        to += right[1] - right[0];
      }
    }
    return { head: { ...matrix.head, shape, from: [down[0], right[0]] }, values };
  }

  missing() {
    return new Problem({
      what: "This is not in the file.",
      why: "The file holds the numbers of one input, as many as fit.",
      fix: `Open the live page with the paths of the run folders: regard explore ${this.content.runs.map((run) => `PATH/OF/${run.name}`).join(" --beside ")}`,
    });
  }
}

// One head or layer of a matrix with several.
export function layer(matrix, index) {
  const shape = matrix.head.shape.slice(1);
  const size = shape.reduce((a, b) => a * b, 1);
  return { head: { ...matrix.head, shape }, values: matrix.values.subarray(index * size, (index + 1) * size) };
}

function bytes(base64) {
  const text = atob(base64);
  const raw = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) raw[i] = text.charCodeAt(i);
  return raw;
}
