// One token lit everywhere: whatever is shown of a position carries data-stack and data-position, or listens.

export class Highlight {
  constructor() {
    this.marks = [];
    this.listeners = new Map(); // element -> function
  }

  // Positions that are pointed at: [{stack, position}, …]
  set(marks) {
    this.marks = marks;
    for (const element of document.querySelectorAll(".lit")) element.classList.remove("lit");
    for (const { stack, position } of marks) {
      const where = `[data-stack="${CSS.escape(stack)}"][data-position="${position}"]`;
      for (const element of document.querySelectorAll(where)) element.classList.add("lit");
    }
    for (const [element, draw] of this.listeners) {
      if (element.isConnected) draw(marks);
      else this.listeners.delete(element);
    }
  }

  clear() {
    this.set([]);
  }

  listen(element, draw) {
    this.listeners.set(element, draw);
  }

  // An element that stands for a position: it lights all others, and is lit by them.
  stands(element, stack, position) {
    element.dataset.stack = stack;
    element.dataset.position = position;
    element.addEventListener("pointerenter", () => this.set([{ stack, position }]));
    element.addEventListener("pointerleave", () => this.clear());
    element.addEventListener("focus", () => this.set([{ stack, position }]));
    return element;
  }
}
