// Mixers: how positions influence each other, whatever the mixer is; Hyena's filters and operator; additive alignment.

import { formula } from "regard/arithmetic.js";
import { matrixOf } from "regard/arrays.js";
import { lines } from "regard/charts.js";
import { choice, h, problem } from "regard/dom.js";
import { heatmap } from "regard/heatmap.js";
import { edgeOf, partName, sidesOf, stackName } from "regard/names.js";

export const id = "mixers";
export const title = "Mixers";

const QUICK = 40; // positions up to which influence is computed without being asked (QUICK_INFLUENCE in recording.py)
const ADDITIVE = ["AdditiveAttention", "RecurrentSearch"];

export function fits(page) {
  return page.parts().some((part) => part.mixes);
}

export async function show(page) {
  const sections = [influence];
  if (page.parts().some((part) => part.convolves)) sections.push(convolutions);
  if (page.parts().some(isAdditive)) sections.push(alignment);
  const drawn = await Promise.all(sections.map((section) => section(page).catch((error) => problem(error))));
  return h("section", { class: "mixers" }, drawn);
}

function isAdditive(part) {
  return part.attends && ADDITIVE.includes(part.kind);
}

function positions(page, stack) {
  return edgeOf(page.stack(stack), "position");
}

// The menus; a file has at most what it shows.
function controls(page, chosen, choices, recorded) {
  if (page.live) return h("div", { class: "controls" }, choices);
  return recorded ? h("p", { class: "quiet" }, `Shown: ${chosen}. The live page has the others.`) : null;
}

// ---------------------------------------------------------------- influence

// What influence can be computed for: every stack, the last stack by the input of the first, and every mixer.
function scopes(page) {
  const { stacks } = page.overview;
  const last = stacks.at(-1);
  const whole = stacks.map((stack) => ({
    key: stack.name,
    name: stackName(stack.name),
    options: stack === last ? {} : { stack: stack.name },
  }));
  const across = page.parts().some((part) => part.cross)
    ? [{ key: `${last.name} of ${stacks[0].name}`, name: `${last.name}, all layers, of ${stacks[0].name}`, options: { source: stacks[0].name } }]
    : [];
  const parts = page.parts().filter((part) => part.mixes);
  return [...whole, ...across, ...parts.map((part) => ({ key: part.name, name: partName(page, part.name), options: { part: part.name } }))];
}

async function influence(page) {
  const all = scopes(page);
  const scope = all.find(({ key }) => key === page.state.get("scope")) ?? all.find(({ options }) => !Object.keys(options).length);
  const result = h("div", {});
  const longest = Math.max(...page.overview.stacks.map((stack) => stack.pieces.length));
  const compute = async (options = {}) => {
    try {
      result.replaceChildren(...influenceMap(page, scope, await page.ask("influence", { ...scope.options, ...options }), compute));
    } catch (error) {
      result.replaceChildren(problem(error));
    }
  };
  if (longest > QUICK && page.live) {
    const start = async (event) => {
      event.target.disabled = true;
      event.target.textContent = "Computing …";
      await compute();
    };
    const why = `This needs one backward pass per position; above ${QUICK} positions it runs on request.`;
    result.append(h("p", { class: "note" }, why), h("button", { type: "button", onclick: start }, `Compute it for ${longest} positions`));
  } else await compute();
  const menu = choice("of", all.map(({ key, name }) => [key, name]), scope.key, (value) => page.state.set({ scope: value }));
  return h(
    "div",
    { class: "influence" },
    h("h2", {}, "Influence"),
    h(
      "p",
      { class: "note" },
      formula("‖∂y_t/∂x_s‖"),
      ": how strongly the output at one position depends on the input at another. It is defined for every mixer; for attention it also covers what the weights leave out.",
    ),
    controls(page, scope.name, [menu], !result.querySelector(".problem")),
    result,
  );
}

function influenceMap(page, scope, influence, compute) {
  const stack = influence.of.split(".")[0];
  return [
    heatmap(page, {
      matrix: matrixOf(influence),
      label: `Influence, ${scope.name}`,
      rows: { ...positions(page, stack), axis: "output position" },
      columns: { ...positions(page, influence.from), axis: "input position" },
      scale: "positive",
    }),
    h(
      "p",
      { class: "quiet" },
      influence.exact ? "Exact: all gradients were computed." : `Estimated from ${influence.probes} random directions of the output. `,
      influence.exact || !page.live ? null : h("button", { type: "button", onclick: () => compute({ exact: true }) }, "Compute it exactly"),
    ),
  ];
}

// ---------------------------------------------------------------- convolutions

async function convolutions(page) {
  const parts = page.parts().filter((part) => part.convolves);
  const part = parts.find(({ name }) => name === page.state.get("part")) ?? parts[0];
  const channel = page.state.get("channel") ?? null;
  const options = channel === null ? { part: part.name } : { part: part.name, channel };
  const [filters, toeplitz, operator] = await Promise.allSettled([
    page.ask("filters", options),
    page.ask("toeplitz", options),
    page.ask("operator", options),
  ]);
  const channels = filters.value?.channels ?? page.stack(part.stack.name).width;
  return h(
    "div",
    { class: "convolutions" },
    h("h2", {}, "Long convolutions"),
    h(
      "p",
      { class: "note" },
      "Hyena convolves every channel with a filter as long as the text, between gates computed from the text. With the gates fixed, the whole layer is a matrix applied to v, like the weights of attention.",
    ),
    controls(page, partName(page, part.name), [
      choice("part", parts.map(({ name }) => [name, partName(page, name)]), part.name, (value) => page.state.set({ part: value })),
      choice(
        "channel",
        [["", "five channels; mean |operator|"], ...Array.from({ length: channels }, (_, i) => [i, `channel ${i + 1}`])],
        channel ?? "",
        (value) => page.state.set({ channel: value === "" ? undefined : Number(value) }),
      ),
    ], [filters, toeplitz, operator].some(({ value }) => value)),
    filters.value ? filterCurves(filters.value) : problem(filters.reason),
    h(
      "div",
      { class: "side-by-side whole-maps" },
      matrixSection(page, part, toeplitz, `Its first convolution as a matrix, channel ${(channel ?? 0) + 1}`, "signed"),
      matrixSection(
        page,
        part,
        operator,
        channel === null ? "The whole operator: mean |operator| over all channels" : `The whole operator, channel ${channel + 1}`,
        channel === null ? "positive" : "signed",
      ),
    ),
  );
}

function filterCurves({ shown, filters }) {
  return h(
    "div",
    { class: "side-by-side" },
    filters.map(({ convolution, direction, values }) => {
      const title = `Filter ${convolution + 1}, ${direction}`;
      const series = values.map((curve, i) => ({ name: `channel ${shown[i] + 1}`, values: curve }));
      return h("div", {}, h("h3", {}, title), lines({ label: title, x: values[0].map((_, i) => i), series, xLabel: `positions ${direction}`, yLabel: "h", width: 480 }));
    }),
  );
}

function matrixSection(page, part, { value, reason }, name, scale) {
  if (reason) return h("div", {}, h("h3", {}, name), problem(reason));
  const difference = value.difference === undefined ? null : value.difference.toExponential(1).replace("-", "−");
  return h(
    "div",
    {},
    h("h3", {}, name),
    heatmap(page, {
      matrix: matrixOf(value),
      label: name,
      rows: { ...positions(page, part.stack.name), axis: "output position" },
      columns: { ...positions(page, part.stack.name), axis: "input position" },
      scale,
    }),
    difference ? h("p", { class: "quiet exact-operator" }, `Applied to v, it differs from the layer's own output by at most ${difference}.`) : null,
  );
}

// ---------------------------------------------------------------- additive attention

async function alignment(page) {
  const parts = page.parts().filter(isAdditive);
  const part = parts.find(({ name }) => name === page.state.get("part")) ?? parts.at(-1);
  const matrix = await page.matrix(`${part.name}.weights`, { head: 0 });
  return h(
    "div",
    { class: "alignment" },
    h("h2", {}, "Additive attention"),
    h("p", { class: "note" }, "α = softmax over the source of vᵀ tanh(W s + U h): which source words each decoder step attends to (Bahdanau et al., 2015)."),
    parts.length > 1
      ? h("div", { class: "controls" }, choice("part", parts.map(({ name }) => [name, partName(page, name)]), part.name, (value) => page.state.set({ part: value })))
      : null,
    heatmap(page, {
      matrix,
      label: `Alignment, ${partName(page, part.name)}`,
      ...sidesOf(part),
    }),
  );
}
