// label.js: the page: one case at a time, one key per grade. It sends nothing; the browser keeps the labels, and no text of a case.

const CANNOT_TELL = "cannot tell";

class LabelPage {
  /** `cases` is all that is shown, by place: each key must find the next case drawn already. */
  constructor(about, cases) {
    Object.assign(this, { about, cases, annotator: null, events: [], saved: 0, keeps: true, place: 0, opened: 0 });
    for (const id of ["save", "load"]) byId(id).hidden = false;
    byId("save").addEventListener("click", () => this.save());
    byId("done-save").addEventListener("click", () => this.save());
    byId("load").addEventListener("click", () => byId("file").click());
    byId("other").addEventListener("click", () => this.leave());
    byId("file").addEventListener("change", (event) => this.load(event.target));
    byId("undo").addEventListener("click", () => this.undo());
    byId("back").addEventListener("click", () => this.move(-1));
    byId("forward").addEventListener("click", () => this.move(1));
    byId("note").addEventListener("change", () => this.keepNote());
    window.addEventListener("storage", (event) => event.key === this.key() && this.follow());
    window.addEventListener("beforeunload", (event) => this.unkept() && event.preventDefault());
    this.makeGrades();
    new Keys(this.bindings(), byId("help"));
    const known = remembered(`ragpipe.label.${about.draw}.who`);
    if (known) this.start(known);
    else this.ask();
  }

  /* who labels */

  ask() {
    const names = this.about.annotators;
    const field = names.length
      ? make("select", { id: "name", "aria-label": "your name" }, names.map((name) => make("option", { value: name, text: name })))
      : make("input", { id: "name", "aria-label": "your name", placeholder: "your name", required: true, maxlength: 60, autocomplete: "off" });
    byId("who-field").replaceChildren(field);
    byId("who").hidden = false;
    byId("who-form").addEventListener("submit", (event) => {
      event.preventDefault();
      if (field.value.trim()) this.start(field.value.trim());
    });
    field.focus();
  }

  start(annotator) {
    this.annotator = annotator;
    remember(`ragpipe.label.${this.about.draw}.who`, annotator);
    this.queue = queueOf(this.about, annotator);
    this.reread();
    // a hidden field keeps the focus until the page is drawn again, and would swallow the first key
    document.activeElement?.blur();
    byId("who").hidden = true;
    byId("foot").hidden = false;
    byId("other").hidden = false;
    this.place = Math.max(0, this.nextOpen(0));
    this.show();
  }

  /** Another person takes over this browser: the labels that it keeps stay with their name. */
  leave() {
    this.keepNote();
    remember(`ragpipe.label.${this.about.draw}.who`, null);
    location.reload();
  }

  /* what the browser keeps: events, never a text of a case */

  key() {
    return `ragpipe.label.${this.about.draw}.${this.annotator}`;
  }

  stored() {
    try {
      return JSON.parse(remembered(this.key())) ?? { saved: 0, events: [] };
    } catch {
      return { saved: 0, events: [] };
    }
  }

  /** Take over what the browser has: another tab may have added to it. */
  reread() {
    const { saved, events } = this.stored();
    this.events = mergedEvents(this.events, events);
    this.saved = Math.max(this.saved, saved);
    if (this.queue) this.showProgress();
    return this.events.length > events.length;
  }

  /** Another tab has written. It may not have seen our newest label, and have written over it: then it is kept again. */
  follow() {
    if (this.reread()) this.keep();
  }

  add(event) {
    this.reread();
    this.events.push({ ...event, at: new Date().toISOString() });
    this.keep();
  }

  keep() {
    this.keeps = remember(this.key(), JSON.stringify({ saved: this.saved, events: this.events }));
    const alert = byId("alert");
    alert.hidden = this.keeps;
    if (!this.keeps) alert.replaceChildren("This browser keeps no more labels. Save the file now, and again before you close the page. ", make("button", { type: "button", text: "Save", onclick: () => this.save() }));
  }

  unkept() {
    return !this.keeps && this.events.length > this.saved;
  }

  save() {
    if (!this.annotator) return;
    this.keepNote();
    saveFile(`labels-${this.about.draw}-${this.annotator.replace(/[^\p{L}\p{N}_-]+/gu, "_")}.jsonl`, linesOf(this.about, this.annotator, this.events), "application/jsonl");
    this.saved = this.events.length;
    this.keep();
    this.showProgress();
  }

  async load(input) {
    const [file] = input.files;
    if (!file) return;
    const alert = byId("alert");
    try {
      const { annotator, events } = readLines(this.about, await file.text());
      if (this.annotator && annotator !== this.annotator && this.events.length) throw new Error(`the file has labels by ${annotator}, and you are ${this.annotator}`);
      this.events = [];
      this.start(annotator);
      this.events = mergedEvents(this.events, events);
      this.saved = Math.min(this.events.length, Math.max(this.saved, events.length));
      this.keep();
      this.place = Math.max(0, this.nextOpen(0));
      this.show();
    } catch (error) {
      alert.hidden = false;
      alert.textContent = `Nothing was loaded: ${error.message}.`;
    }
    input.value = "";
  }

  /* labels */

  label(label) {
    if (!this.queue?.length || byId("case").hidden) return;
    this.add({ item: this.queue[this.place].item, label, note: byId("note").value.trim(), ms: Math.round(performance.now() - this.opened) });
    const open = this.nextOpen(this.place + 1);
    if (open < 0) this.finish();
    else this.go(open);
  }

  keepNote() {
    const item = this.queue?.[this.place]?.item;
    if (!item || byId("case").hidden) return;
    const note = byId("note").value.trim();
    const { items } = stateOf(this.events);
    if (note === (items.get(item)?.note ?? "")) return;
    const label = labelOf(items, item);
    this.add({ item, ...(label === undefined ? {} : { label }), note });
    this.showProgress();
  }

  undo() {
    if (!this.queue) return;
    const last = stateOf(this.events).done.at(-1);
    if (!last) return;
    this.add({ item: last.item, undo: true });
    const place = this.queue.findIndex(({ item }) => item === last.item);
    this.go(Math.max(0, place));
  }

  /* moving */

  /** The next place without a label, from `start` on and then from the beginning; -1 where all are labelled. */
  nextOpen(start) {
    const { items } = stateOf(this.events);
    const places = this.queue.map((_, place) => (start + place) % this.queue.length);
    return places.find((place) => labelOf(items, this.queue[place].item) === undefined) ?? -1;
  }

  move(step) {
    if (!this.queue) return;
    this.keepNote();
    if (byId("case").hidden) this.go(step < 0 ? this.queue.length - 1 : 0);
    else this.go(Math.max(0, Math.min(this.queue.length - 1, this.place + step)));
  }

  go(place) {
    this.place = place;
    this.show();
    window.scrollTo(0, 0);
    byId("left").scrollTop = 0;
  }

  finish() {
    byId("case").hidden = true;
    this.hideChoices(true);
    byId("done").hidden = false;
    byId("done-text").textContent = `${this.queue.length} labels by ${this.annotator}. Save the file and give it to whoever gave you this page.`;
    this.showProgress();
    byId("done-save").focus();
  }

  /* drawing */

  hideChoices(hidden) {
    for (const id of ["asked", "grades", "note", "note-label"]) byId(id).hidden = hidden;
  }

  makeGrades() {
    const choices = [...this.about.grades.map((name, place) => [String(place + 1), name, name]), ["0", CANNOT_TELL, null]];
    byId("grades").append(...choices.map(([key, text, label]) => make("button", { type: "button", "data-key": key, "aria-pressed": "false", onclick: () => this.label(label) }, make("kbd", { text: key }), text)));
    this.choices = choices;
  }

  bindings() {
    return [
      ...this.choices.map(([key, text, label]) => ({ keys: [key], does: text, run: () => this.label(label) })),
      { keys: ["u"], does: "undo, as often as you like", run: () => this.undo() },
      { keys: ["ArrowLeft"], does: "previous case", run: () => this.move(-1) },
      { keys: ["ArrowRight"], does: "next case", run: () => this.move(1) },
      { keys: ["n"], does: "write a note", run: () => byId("note").focus() },
      { keys: ["s"], does: "save the file", run: () => this.save() },
      { keys: ["Escape"], does: "leave the note", always: true, run: () => document.activeElement?.blur() },
    ];
  }

  showProgress() {
    const { items } = stateOf(this.events);
    const count = this.queue.filter(({ item }) => labelOf(items, item) !== undefined).length;
    byId("progress-text").textContent = `${count} of ${this.queue.length}`;
    Object.assign(byId("progress"), { max: Math.max(1, this.queue.length), value: count });
    const unsaved = this.events.length - this.saved;
    const file = this.saved === 0 ? "no file yet" : unsaved === 0 ? "file saved" : `file ${unsaved} ${unsaved === 1 ? "label" : "labels"} ago`;
    byId("kept").textContent = `${this.annotator}: ${this.keeps ? "kept here" : "not kept here"}, ${file}`;
  }

  show() {
    this.showProgress();
    if (!this.queue.length) {
      byId("foot").hidden = true;
      byId("alert").hidden = false;
      byId("alert").textContent = `There is no case for ${this.annotator} on this page.`;
      return;
    }
    const { item, place } = this.queue[this.place];
    const shown = this.cases[place];
    const { items } = stateOf(this.events);
    const label = labelOf(items, item);
    this.choices.forEach(([, , value], place) => byId("grades").children[place].setAttribute("aria-pressed", String(value === label)));
    byId("note").value = items.get(item)?.note ?? "";
    byId("left").replaceChildren(...this.leftOf(shown));
    byId("right").replaceChildren(...this.contextsOf(shown));
    byId("done").hidden = true;
    byId("case").hidden = false;
    this.hideChoices(false);
    byId("case").dataset.item = item;
    this.opened = performance.now();
  }

  leftOf(shown) {
    const text = (value) => make("p", { class: "text", text: value });
    return [
      make("h2", { text: "Question" }),
      ...(shown.history.length ? [make("details", { class: "fold" }, make("summary", { text: `${shown.history.length} earlier turns` }), shown.history.map(([role, turn]) => [make("h3", { text: role }), text(turn)]))] : []),
      text(shown.question),
      ...(shown.other === undefined ? this.answerOf("Answer", shown.answer) : [make("div", { class: "pair" }, make("div", {}, this.answerOf("Answer A", shown.answer)), make("div", {}, this.answerOf("Answer B", shown.other)))]),
      ...(shown.references.length ? [make("h2", { text: shown.references.length > 1 ? "Reference answers (any one will do)" : "Reference answer" }), ...shown.references.map(text)] : []),
    ];
  }

  answerOf(head, answer) {
    const words = answer === null ? "not recorded" : "an empty answer";
    return [make("h2", { text: head }), answer ? make("p", { class: "text", text: answer }) : make("p", { class: "soft", text: words })];
  }

  contextsOf(shown) {
    if (shown.contexts === null) return [make("h2", { text: "Contexts" }), make("p", { class: "soft", text: "not recorded" })];
    if (!shown.contexts.length) return [make("h2", { text: "Contexts" }), make("p", { class: "soft", text: "none was retrieved" })];
    return [make("h2", { text: `Contexts (${shown.contexts.length})` }), ...shown.contexts.flatMap((context, place) => [make("h3", { text: `Context ${place + 1}` }), make("p", { class: "text", text: context || "(empty)" })])];
  }
}

async function openPage() {
  const blocks = new DataBlocks();
  const about = await blocks.json("about");
  const cases = [];
  for (let number = 0; cases.length < about.items.length; number++) cases.push(...(await blocks.json(`d${number}`)));
  return new LabelPage(about, cases);
}

openPage().catch((error) => {
  byId("alert").hidden = false;
  byId("alert").textContent = `This page cannot be used: ${error.message}.`;
});
