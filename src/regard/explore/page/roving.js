// Roving tabindex: many buttons, one tab stop. Arrow keys move along a row, or to the nearest button in another.

export function roving(element) {
  const buttons = () => [...element.querySelectorAll("button:not([disabled])")];
  const stop = (chosen) => {
    for (const button of buttons()) button.tabIndex = button === chosen ? 0 : -1;
  };
  stop(buttons().find((button) => button.getAttribute("aria-pressed") === "true") ?? buttons()[0]);
  element.addEventListener("focusin", (event) => event.target.matches("button") && stop(event.target));
  element.addEventListener("keydown", (event) => {
    const all = buttons();
    const at = all.indexOf(event.target);
    if (at < 0) return;
    const next = {
      ArrowRight: () => all[at + 1],
      ArrowLeft: () => all[at - 1],
      Home: () => all[0],
      End: () => all.at(-1),
      ArrowDown: () => nearest(all, all[at], 1),
      ArrowUp: () => nearest(all, all[at], -1),
    }[event.key]?.();
    if (!next) return;
    event.preventDefault();
    next.focus();
  });
  return element;
}

function nearest(buttons, from, direction) {
  const middle = (button) => {
    const box = button.getBoundingClientRect();
    return [box.left + box.width / 2, box.top + box.height / 2];
  };
  const [x, y] = middle(from);
  let closest = null;
  let least = Infinity;
  for (const button of buttons) {
    const [left, top] = middle(button);
    const rows = direction * (top - y);
    if (rows < 4) continue;
    const distance = 1000 * Math.round(rows / 4) + Math.abs(left - x);
    if (distance < least) [closest, least] = [button, distance];
  }
  return closest;
}
