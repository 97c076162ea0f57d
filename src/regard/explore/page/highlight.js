// A position highlighted everywhere: its elements carry data-stack and data-position, or have a listener.

export class Highlight {
  constructor() {
    this.marks = [];
    this.listeners = new Map(); // element -> function
  }

  // The highlighted positions: [{stack, position}, …]
  set(marks) {
    this.marks = marks;
    for (const element of document.querySelectorAll(".lit")) element.classList.remove("lit");
    for (const { stack, position } of marks) {
      const selector = `[data-stack="${CSS.escape(stack)}"][data-position="${position}"]`;
      for (const element of document.querySelectorAll(selector)) element.classList.add("lit");
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

  // Make an element stand for a position: it highlights all others of the position, and they highlight it.
  register(element, stack, position) {
    element.dataset.stack = stack;
    element.dataset.position = position;
    element.addEventListener("pointerenter", () => this.set([{ stack, position }]));
    element.addEventListener("pointerleave", () => this.clear());
    element.addEventListener("focus", () => this.set([{ stack, position }]));
    return element;
  }
}
