// Many buttons, one tab stop: arrow keys go from one to the next, up and down to the nearest in another row.

export function roving(element) {
  const buttons = () => [...element.querySelectorAll("button:not([disabled])")];
  const stop = (chosen) => {
    for (const button of buttons()) button.tabIndex = button === chosen ? 0 : -1;
  };
  const all = buttons();
  stop(all.find((button) => button.getAttribute("aria-pressed") === "true") ?? all[0]);
  element.addEventListener("focusin", (event) => event.target.matches("button") && stop(event.target));
  element.addEventListener("keydown", (event) => {
    const now = buttons();
    const at = now.indexOf(event.target);
    if (at < 0) return;
    const next = {
      ArrowRight: () => now[at + 1],
      ArrowLeft: () => now[at - 1],
      Home: () => now[0],
      End: () => now.at(-1),
      ArrowDown: () => nearest(now, now[at], 1),
      ArrowUp: () => nearest(now, now[at], -1),
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
  let found = null;
  let least = Infinity;
  for (const button of buttons) {
    const [left, top] = middle(button);
    const rows = direction * (top - y);
    if (rows < 4) continue;
    const distance = 1000 * Math.round(rows / 4) + Math.abs(left - x);
    if (distance < least) [found, least] = [button, distance];
  }
  return found;
}
