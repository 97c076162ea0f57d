// Where answers come from: the server behind the page, or what was recorded in it. Views do not know which.

import { inflate, unpack } from "regard/arrays.js";

const PROBLEM = "application/problem+json"; // what a browser's console need not hear of has the status 200
const MOST_IMAGE = 64 * 2 ** 20; // bytes, as in session.py

const HALF_A_CHARACTER = /(?<!\\)(?:\\\\)*\\ud[89a-f]/; // JSON escapes no other letters so

export class Problem extends Error {
  constructor({ what, why, fix }) {
    super(`${what} ${why}`);
    Object.assign(this, { what, why, fix });
  }
}

// The same text for the same content, as the recording has it.
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

  // An answer to a question about an input of a run.
  ask(run, input, what, options = {}) {
    return this.once({ run, input, what, options }, (request) => this.answered(request));
  }

  // A matrix: {head, values}, of one head or layer or of all; `rows` and `columns`: a window of it.
  matrix(run, input, name, options = {}) {
    return this.once({ run, input, name, ...options }, (request) => this.matrixOf(request));
  }

  once(request, get) {
    const key = canonical(request);
    if (!this.answers.has(key)) {
      const answer = get(request);
      this.answers.set(key, answer);
      answer.catch(() => this.answers.delete(key)); // may be asked again
      if (this.answers.size > 400) this.answers.delete(this.answers.keys().next().value);
    }
    return this.answers.get(key);
  }
}

export class Served extends Cached {
  live = true;

  async runs() {
    return (await this.fetched("./api/runs")).json();
  }

  async answered(request) {
    return (await this.fetched("./api/ask", request)).json();
  }

  async matrixOf(request) {
    const response = await this.fetched("./api/matrix", request);
    const message = await response.arrayBuffer();
    const length = new DataView(message).getUint32(0, true);
    const head = JSON.parse(new TextDecoder().decode(new Uint8Array(message, 4, length)));
    return unpack(head, new Uint8Array(message, 4 + length));
  }

  // An image file; gives what it is called in an input from now on.
  async upload(file) {
    if (file.size > MOST_IMAGE) {
      const why = `It has over ${MOST_IMAGE.toLocaleString("en")} bytes.`;
      throw new Problem({ what: `The image '${file.name}' is too large.`, why, fix: "Make it smaller." });
    }
    const address = `./api/upload?name=${encodeURIComponent(file.name)}`;
    const response = await this.answer(address, { method: "POST", body: file, headers: { "Content-Type": "application/octet-stream" } });
    return (await response.json()).image;
  }

  fetched(address, request) {
    const json = { "Content-Type": "application/json" };
    const body = request && JSON.stringify(request);
    if (HALF_A_CHARACTER.test(body ?? "")) {
      throw new Problem({ what: "The text is not Unicode.", why: "It contains an unpaired surrogate.", fix: "Type it again." });
    }
    return this.answer(address, request && { method: "POST", body, headers: json });
  }

  async answer(address, options) {
    let response;
    try {
      response = await fetch(address, options);
    } catch {
      throw new Problem({
        what: "The server is not responding.",
        why: "The command that started it may have ended.",
        fix: "Start `regard explore` again.",
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

  async answered(request) {
    this.known ??= inflate(bytes(this.content.answers)).then((raw) => JSON.parse(new TextDecoder().decode(raw)));
    const answer = (await this.known)[canonical(request)];
    if (answer === undefined) throw this.missing();
    if (answer.error) throw new Problem(answer.error);
    return answer.value;
  }

  async matrixOf(request) {
    const { head, rows, columns, most, ...whole } = request;
    const found = this.content.matrices[canonical(whole)];
    if (found === undefined) throw this.missing();
    const all = await this.once(whole, () => unpack(found.head, bytes(found.data)));
    const one = head === undefined ? all : layer(all, head);
    return rows || columns ? this.cut(one, rows, columns) : one;
  }

  // A window of a matrix that is here in full.
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

// One head or layer of a matrix that has several.
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
