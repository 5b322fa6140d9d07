// view.js: the list of runs, its filters in the address, keys, and what goes on.

const ROWS = 50;
const DEFAULTS = { q: "", name: "", state: "", sort: "new", sweep: "", a: "", b: "" };

class ViewPage {
  constructor(index) {
    this.index = index;
    this.shown = ROWS;
    this.rows = new RunRows({ onTick: index.isLive ? (key, on) => this.tick(key, on) : null, onOpen: (key) => this.open(key) });
    this.address = new Address(DEFAULTS, () => this.update());
    this.keys = new Keys(this.bindings(), byId("help"));
    for (const name of ["q", "name", "state", "sort"]) byId(name).addEventListener(name === "q" ? "input" : "change", (event) => {
      this.shown = ROWS;
      this.address.set({ [name]: event.target.value });
    });
    byId("more").addEventListener("click", () => {
      this.shown += ROWS;
      this.update();
    });
    byId("tools").hidden = false;
    this.show(index);
    if (index.isLive) this.live = new Live(index.revision, { onProgress: (progress) => this.progress(progress), onIndex: (newer) => this.show(newer), say: (text) => this.say(text) });
  }

  get state() { return this.address.state; }
  get chosen() { return [this.state.a, this.state.b].filter((key) => this.index.rows.some((row) => row.key === key)); }

  bindings() {
    return [
      { keys: ["j", "ArrowDown"], does: "next run", run: () => this.step(1) },
      { keys: ["k", "ArrowUp"], does: "previous run", run: () => this.step(-1) },
      { keys: ["Enter"], does: "open the report", run: () => false },
      { keys: ["x"], does: "choose the run for a comparison", run: () => this.focused()?.querySelector("input")?.click() },
      { keys: ["/"], does: "search", run: () => byId("q").focus() },
      { keys: ["Escape"], does: "leave the search", always: true, run: (event) => (event.target === byId("q") ? byId("q").blur() : false) },
    ];
  }

  focused() { return document.activeElement?.closest?.("#rows tr"); }

  step(by) {
    const rows = [...byId("rows").children];
    const place = rows.indexOf(this.focused());
    const next = rows[place < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.max(0, Math.min(rows.length - 1, place + by))];
    next?.querySelector(".run-link, button")?.focus();
  }

  /** Show this index: all but what goes on is drawn anew. */
  show(index) {
    this.index = { ...index, isLive: this.index.isLive };
    this.options("name", index.rows.map((row) => row.name));
    this.options("state", index.rows.map((row) => row.state));
    byId("unreadable").hidden = !index.error;
    byId("unreadable").querySelector("span").textContent = index.error;
    byId("controls").hidden = byId("table").hidden = index.rows.length === 0;
    byId("none").hidden = index.rows.length > 0 || index.unread > 0;
    byId("history-section").hidden = index.history.length === 0;
    byId("history").className = "history-grid";
    byId("history").replaceChildren(...index.history.map((line) => this.rows.line(line)));
    byId("comparisons-section").hidden = index.comparisons.length === 0;
    byId("comparisons").replaceChildren(...index.comparisons.map(([words, link]) => make("li", {}, make("a", { href: link, text: words }))));
    this.drawLive();
    this.update();
  }

  options(id, values) {
    const [all] = byId(id).options;
    byId(id).replaceChildren(all, ...[...new Set(values)].sort().map((value) => make("option", { text: value })));
  }

  /** What the server says of the runs that are not finished. */
  progress({ live }) {
    for (const row of this.index.rows) {
      if (row.key in live) Object.assign(row, live[row.key]);
    }
    this.drawLive();
    for (const row of this.index.rows.filter(({ key }) => key in live)) {
      const element = document.querySelector(`#rows tr[data-key="${CSS.escape(row.key)}"]`);
      const words = JSON.stringify([row.state, row.reason, row.live, row.resume]);
      if (!element || element.dataset.words === words) continue; // what is open or selected in it stays
      element.querySelector(".verdict").replaceChildren(...[this.rows.verdict(row)].flat(Infinity).filter(Boolean));
      element.dataset.words = words;
    }
  }

  drawLive() {
    const going = this.index.rows.filter((row) => row.state === "running" || row.state === "stalled");
    going.sort((a, b) => (a.state === "stalled") - (b.state === "stalled"));
    byId("live-section").hidden = going.length === 0;
    const inCard = byId("live").contains(document.activeElement) ? document.activeElement.closest("article").dataset.key : null;
    const cards = going.slice(0, 20).map((row) => this.card(row));
    const isSame = cards.length === byId("live").children.length && cards.every((card, place) => card === byId("live").children[place]);
    if (!isSame) byId("live").replaceChildren(...cards);
    if (inCard && !byId("live").contains(document.activeElement)) cards.find((card) => card.dataset.key === inCard)?.querySelector("button")?.focus();
    const counts = new Map();
    for (const row of this.index.rows) counts.set(row.state, (counts.get(row.state) ?? 0) + 1);
    const words = ["running", "stalled"].filter((state) => counts.get(state)).map((state) => `${counts.get(state)} ${state}`);
    byId("states").textContent = [`${this.index.rows.length.toLocaleString("en")} run${this.index.rows.length === 1 ? "" : "s"}`, ...words, this.index.unread ? `${this.index.unread} still to be read` : ""].filter(Boolean).join(", ");
  }

  /** The card of a run; the one that stands there where nothing of it has changed, so that a selection in it stays. */
  card(row) {
    this.cards ??= new Map();
    const words = JSON.stringify([row.state, row.reason, row.live, row.resume]);
    const known = this.cards.get(row.key);
    if (known?.words === words) return known.card;
    const card = this.rows.card(row);
    this.cards.set(row.key, { words, card });
    return card;
  }

  tests() {
    const words = this.state.q.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = this.index.rows;
    const tests = {};
    if (words.length) tests.search = (place) => words.every((word) => rows[place].search.includes(word));
    if (this.state.name) tests.name = (place) => rows[place].name === this.state.name;
    if (this.state.state) tests.state = (place) => rows[place].state === this.state.state;
    return tests;
  }

  /** The rows of the table: runs, live ones first, and sweeps in the place of their newest job. */
  items(places) {
    const rows = places.map((place) => this.index.rows[place]);
    if (this.state.sort === "best") return rows.filter((row) => row.overall).sort((a, b) => b.mean - a.mean).map((row) => ({ row }));
    const live = rows.filter((row) => row.live);
    const sweeps = new Map(this.index.sweeps.map((sweep) => [sweep.key, { sweep, jobs: [] }]));
    const items = live.map((row) => ({ row }));
    for (const row of rows.filter((row) => !row.live)) {
      const group = sweeps.get(row.sweep);
      if (!group) items.push({ row });
      else if (group.jobs.push(row) === 1) items.push(group);
    }
    return items.flatMap((item) => (item.sweep ? this.opened(item) : [item]));
  }

  opened(group) {
    const isOpen = this.state.sweep === group.sweep.key;
    return [{ ...group, isOpen }, ...(isOpen ? group.jobs.map((row) => ({ row, isJob: true })) : [])];
  }

  update() {
    for (const name of ["q", "name", "state", "sort"]) if (byId(name).value !== this.state[name]) byId(name).value = this.state[name];
    const tests = this.tests();
    const items = this.items(matchingRows(this.index.rows.length, tests));
    const places = matchingRows(this.index.rows.length, tests).length;
    const focused = this.focused()?.dataset.key;
    const onTick = document.activeElement?.type === "checkbox";
    byId("rows").replaceChildren(...items.slice(0, this.shown).map((item) => (item.sweep
      ? this.rows.sweep(item.sweep, item.jobs, item.isOpen)
      : this.rows.run(item.row, { chosen: this.chosen.includes(item.row.key), isJob: item.isJob }))));
    if (focused) document.querySelector(`#rows tr[data-key="${CSS.escape(focused)}"]`)?.querySelector(onTick ? "input" : ".run-link, button")?.focus();
    byId("more").hidden = items.length <= this.shown;
    byId("more").textContent = `Show ${Math.min(ROWS, items.length - this.shown)} more of ${(items.length - this.shown).toLocaleString("en")}`;
    byId("count").textContent = countSentence(places, this.index.rows.length, tests);
    this.updateChoice();
  }

  updateChoice() {
    const { chosen } = this;
    byId("choice").hidden = !this.index.isLive || chosen.length === 0;
    byId("choice").textContent = chosen.length === 2 ? `To compare them, run: ${this.command()}` : `chosen: ${chosen[0] ?? ""}; choose one more`;
    if (chosen.length === 2) this.checkShared(chosen);
  }

  /** Two runs without a shared sample are not compared. */
  async checkShared(chosen) {
    const [a, b] = chosen;
    const reply = await fetch(`shared?${new URLSearchParams({ a, b })}`, { cache: "no-store" }).catch(() => null);
    const { shared } = reply?.ok ? await reply.json() : {};
    if (shared === 0 && this.chosen.join() === chosen.join()) byId("choice").textContent = "These two runs share no sample: there is nothing to compare.";
  }

  open(key) { this.address.set({ sweep: this.state.sweep === key ? "" : key }); }

  tick(key, on) {
    const rest = this.chosen.filter((other) => other !== key);
    const [a = "", b = ""] = on ? [...rest.slice(-1), key] : rest;
    this.address.set({ a, b });
  }

  /** Base and candidate: rows are newest first, and the older run is the base. */
  sides() {
    const place = new Map(this.index.rows.map((row, at) => [row.key, at]));
    return [...this.chosen].sort((a, b) => place.get(b) - place.get(a));
  }

  /** What compares the two chosen runs in a terminal. */
  command() {
    const [base, candidate] = this.sides().map((key) => `'${`${this.index.folder}/${key}`.replaceAll("'", "'\\''")}'`);
    return `python -m ragpipe task=compare base=${base} candidate=${candidate}`;
  }

  say(text) {
    byId("message").hidden = text === null;
    if (text !== null && byId("message").textContent !== text) byId("message").textContent = text;
  }
}

new DataBlocks().json("index").then((index) => new ViewPage(index)).then(() => { document.documentElement.dataset.ready = "all"; }).catch((error) => {
  byId("message").hidden = false;
  byId("message").textContent = `The page cannot be shown: ${error.message}`;
});
