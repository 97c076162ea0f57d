// A walk through the steps of a model: where a step is, and which comes before and after it.

/* `here`: the current step of Steps: {stack, layer, layers, steps, number, step}. */

const inLayer = ({ group }) => !["Input", "Output", "Next layer"].includes(group);

// Where a step is: "layer 1 of 2, step 3 of 12". Steps are counted within the input, a layer and the output.
export function place(page, { stack, layer, layers, steps, step }) {
  const of = page.overview.stacks.length > 1 ? `${stack.name}, ` : "";
  const layerOf = `layer ${layer + 1} of ${layers}`;
  if (step.group === "Next layer") return `${of}after ${layerOf}`;
  const alike = steps.filter((other) => (inLayer(step) ? inLayer(other) : other.group === step.group));
  const name = inLayer(step) ? layerOf : step.group.toLowerCase();
  return `${of}${name}, step ${alike.indexOf(step) + 1} of ${alike.length}`;
}

// The previous or the next step, which may be in another layer or stack.
export function neighbour(page, here, by) {
  const { steps, number, layer, layers, stack, step } = here;
  const stacks = page.overview.stacks;
  const firstOfLayer = steps.find(inLayer);
  const lastOfLayer = steps.filter(inLayer).at(-1);
  if (by > 0) {
    if (step.id === "next-layer") return { layer: layer + 1, step: firstOfLayer.id };
    if (number + 1 < steps.length) return { step: steps[number + 1].id };
    const following = stacks[stacks.indexOf(stack) + 1];
    return following ? { stack: following.name, layer: 0, position: undefined, step: "token" } : null;
  }
  if (step === firstOfLayer && layer > 0) return { layer: layer - 1, step: "next-layer" };
  if (step.group === "Output" && steps[number - 1]?.id === "next-layer") return { layer: layers - 1, step: lastOfLayer.id };
  if (number > 0) return { step: steps[number - 1].id };
  const earlier = stacks[stacks.indexOf(stack) - 1];
  return earlier ? { stack: earlier.name, layer: earlier.layers.length - 1, position: undefined, step: "next-stack" } : null;
}
