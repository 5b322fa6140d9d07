// list.js: a listbox of any length. Only the rows in sight exist as elements.

class VirtualList {
  /**
   * `box` is an empty element with a height of its own. `fill(row, element)` puts the content of a row into its element;
   * `onOpen(row, target)` is called by a click, with the element that was clicked, and by Enter; `onMove()` when a key has selected another
   * row. Rows are what `show` gets; each is `rowHeight` pixels high.
   */
  constructor(box, { fill, onOpen, onMove, label, rowHeight = 48 }) {
    Object.assign(this, { box, fill, onOpen, onMove, rowHeight, rows: [], selected: -1, frame: 0 });
    this.space = make("div", { class: "list-space", role: "presentation" });
    box.append(this.space);
    for (const [name, value] of Object.entries({ role: "listbox", tabindex: "0", "aria-label": label })) box.setAttribute(name, value);
    box.addEventListener("scroll", () => this.later());
    box.addEventListener("keydown", (event) => this.key(event));
    box.addEventListener("click", (event) => {
      const option = event.target.closest('[role="option"]');
      if (option) this.open(Number(option.dataset.place), event.target);
    });
    new ResizeObserver(() => this.later()).observe(box);
  }

  /** Show these rows from the top. The selected row stays selected when it is among them. */
  show(rows) {
    const row = this.rows[this.selected];
    this.rows = rows;
    this.selected = row === undefined ? -1 : rows.indexOf(row);
    this.space.style.height = `${rows.length * this.rowHeight}px`;
    this.box.scrollTop = 0;
    if (this.selected >= 0) this.reveal();
    this.draw();
  }

  /** Select a row by its place; it is scrolled into sight. */
  select(place) {
    if (!this.rows.length) return;
    this.selected = Math.max(0, Math.min(this.rows.length - 1, place));
    this.reveal();
    this.draw();
  }

  move(step) {
    this.select(this.selected < 0 ? (step > 0 ? 0 : this.rows.length - 1) : this.selected + step);
  }

  open(place, target) {
    this.select(place);
    if (this.selected >= 0) this.onOpen(this.rows[this.selected], target);
  }

  /** Scroll as little as needed to the selected row; one that is far away comes to the middle. */
  reveal() {
    const { box, rowHeight } = this;
    const top = this.selected * rowHeight;
    const bottom = top + rowHeight - box.clientHeight;
    const beyond = Math.max(box.scrollTop - top, bottom - box.scrollTop);
    if (beyond > 2 * rowHeight) box.scrollTop = (top + bottom) / 2;
    else if (box.scrollTop > top) box.scrollTop = top;
    else if (box.scrollTop < bottom) box.scrollTop = bottom;
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(this.box.clientHeight / this.rowHeight) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page };
    if (event.key in steps) this.move(steps[event.key]);
    else if (event.key === "Home") this.select(0);
    else if (event.key === "End") this.select(this.rows.length - 1);
    else if (event.key === "Enter") this.open(Math.max(0, this.selected));
    else return;
    if (event.key !== "Enter") this.onMove();
    event.preventDefault();
    event.stopPropagation();
  }

  later() {
    this.frame ||= requestAnimationFrame(() => this.draw());
  }

  draw() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    const first = Math.max(0, Math.floor(this.box.scrollTop / this.rowHeight) - 4);
    const last = Math.min(this.rows.length, Math.ceil((this.box.scrollTop + this.box.clientHeight) / this.rowHeight) + 4);
    const options = [];
    for (let place = first; place < last; place++) options.push(this.option(place));
    this.space.replaceChildren(...options);
    const active = this.selected >= first && this.selected < last ? `option-${this.selected}` : null;
    if (active) this.box.setAttribute("aria-activedescendant", active);
    else this.box.removeAttribute("aria-activedescendant");
  }

  option(place) {
    const option = make("div", {
      role: "option", id: `option-${place}`, "data-place": place, "aria-selected": String(place === this.selected),
      "aria-posinset": place + 1, "aria-setsize": this.rows.length,
    });
    option.style.top = `${place * this.rowHeight}px`;
    option.style.height = `${this.rowHeight}px`;
    this.fill(this.rows[place], option);
    return option;
  }
}
