// What parts are called on the page: counted from 1, in words.

const ALONE = "layers"; // the name of a stack that is the only one

export function stackName(name) {
  return name === ALONE ? "all layers" : `${name}, all layers`;
}

// "decoder.0.cross.3" as "decoder, layer 1, cross, head 4"; what is no part stays as it is.
export function partName(name, { stack = true } = {}) {
  const found = /^(.+?)\.(\d+)(?:\.(\w+))?(?:\.(\d+))?$/.exec(name);
  if (!found) return name;
  const [, of, layer, part, head] = found;
  const words = [stack && of !== ALONE ? of : null, `layer ${Number(layer) + 1}`, part];
  if (head !== undefined) words.push(`head ${Number(head) + 1}`);
  return words.filter(Boolean).join(", ");
}

// Of a part that looks: whose layer it is, and at what it looks.
export function nameOf(part) {
  const layer = `layer ${part.layer + 1}`;
  if (part.across) return `${part.stack.name} → ${part.keys.name}, ${layer}`;
  return part.stack.name === ALONE ? layer : `${part.stack.name}, ${layer}`;
}
