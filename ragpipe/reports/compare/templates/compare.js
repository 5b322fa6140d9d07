
// compare.js: the cases of a comparison: the list, its filters in the address, keys, and the case that is open.

const FLIP_CODES = { to_passed: 5, to_failed: 7, both_passed: 8, both_failed: 4 }; // 3 * the base's + the candidate's verdict
const PRINTED = 200;
const isNarrow = () => matchMedia("(max-width: 760px)").matches;

class ComparePage {
  constructor(blocks, index, columns) {
    Object.assign(this, { blocks, index, columns, texts: null, rows: [], opened: null });
    this.figures = new Figures(index, columns);
    this.view = new CaseView(blocks, index, this.figures);
    this.places = new Map(index.rows.map((name, row) => [name, row]));
    this.fields = ["q", "score", "flip", "slice", "method", "sort", "only"].filter((name) => byId(name));
    const defaults = {
      with: index.candidates[0], score: index.main, q: "", flip: "", slice: "", method: "", only: "", sort: "drop", case: "", tab: "", diff: "",
    };
    this.address = new Address(defaults, (state, how) => this.update(how));
    this.list = new VirtualList(byId("list"), { fill: (row, option) => this.fillOption(row, option), onOpen: (row) => this.open(row), label: "cases" });
    this.keys = new Keys(this.bindings(), byId("help"));
    this.listen();
  }

  get state() { return this.address.state; }
  get candidate() { return Math.max(0, this.index.candidates.indexOf(this.state.with)); }
  get score() { return this.figures.better.has(this.state.score) ? this.state.score : this.index.main; }
  gain(row) { return this.figures.gain(row, this.score, this.candidate); }

  // --- filters and order

  /** The active filters: {name: (row) => boolean}. */
  tests() {
    const { q, flip, slice, method, only } = this.state;
    const tests = {};
    const words = q.toLowerCase();
    if (words) tests.search = (row) => (this.texts ? this.texts[row] : this.index.questions[row].toLowerCase()).includes(words) || this.index.rows[row].toLowerCase().includes(words);
    if (flip in FLIP_CODES) tests.verdict = (row) => this.figures.code(row, this.score, this.candidate) === FLIP_CODES[flip];
    const flags = this.columns[`s:${slice}`];
    if (slice) tests.slice = (row) => flags?.[row] === 1;
    if (method) tests.method = (row) => this.index.methods[row] === method;
    if (only) tests.different = (row) => Math.abs(this.gain(row)) > 0;
    return tests;
  }

  /** The rows in the chosen order; those without a difference last. */
  sorted(rows) {
    const keyOf = { drop: (gain) => gain, rise: (gain) => -gain, size: (gain) => -Math.abs(gain) }[this.state.sort];
    if (!keyOf) return rows;
    const keys = new Float64Array(this.index.rows.length);
    for (const row of rows) {
      const gain = this.gain(row);
      keys[row] = Number.isNaN(gain) ? Infinity : keyOf(gain);
    }
    return rows.sort((a, b) => (keys[a] === keys[b] ? a - b : keys[a] - keys[b]));
  }

  update({ followed = false } = {}) {
    const flags = this.columns[`p${this.candidate}`];
    const tests = this.tests();
    const shared = matchingRows(flags.length, { shared: (row) => flags[row] === 1 });
    const among = Object.fromEntries(Object.entries(tests).map(([name, test]) => [name, (place) => test(shared[place])]));
    this.rows = this.sorted(matchingRows(shared.length, among).map((place) => shared[place]));
    byId("count").textContent = countSentence(this.rows.length, shared.length, among);
    this.list.show(this.rows);
    this.showControls(Object.keys(tests).filter((name) => name !== "search").length);
    this.showPanels();
    this.showCase();
    if (followed && !this.state.case) {
      byId("cases").scrollIntoView();
      byId("list").focus({ preventScroll: true });
    }
  }

  showControls(active) {
    for (const name of this.fields) {
      const field = byId(name);
      const value = name === "score" ? this.score : this.state[name];
      if (field.type === "checkbox") field.checked = Boolean(value);
      else if (field.value !== value) field.value = value;
    }
    byId("filters-head").textContent = active ? `Filters (${active})` : "Filters";
  }

  showPanels() {
    const chosen = this.index.candidates[this.candidate];
    for (const panel of document.querySelectorAll(".panel")) panel.hidden = panel.dataset.with !== chosen;
    for (const link of document.querySelectorAll("#candidates a")) link.setAttribute("aria-current", String(link.dataset.with === chosen));
  }

  // --- the list

  fillOption(row, option) {
    const [before, after] = this.figures.verdicts(row, this.score, this.candidate);
    const flipped = before && after && before !== after;
    const values = this.index.candidates.map((_, number) => figure(this.figures.value(row, this.score, number)));
    option.append(
      make("div", {},
        make("span", { class: `delta ${direction(this.gain(row))}`, text: signed(this.figures.change(row, this.score, this.candidate)) }),
        make("b", { text: this.index.rows[row] }),
        ` ${figure(this.figures.value(row, this.score, -1))} → ${values.join(" | ")}`),
      make("div", { class: "soft" },
        flipped && make("span", { class: `badge ${after === "pass" ? "good" : "bad"}`, text: `${before} → ${after}` }),
        ` ${this.index.questions[row]}`));
  }

  // --- the case that is open

  open(row) {
    const name = this.index.rows[row];
    if (name !== this.state.case) this.address.set({ case: name }, { push: !this.state.case });
    byId("pane").focus({ preventScroll: true });
    if (isNarrow()) window.scrollTo(0, 0);
  }

  /** The row that an address names: exactly, or without its method, or by its sample alone. */
  rowOf(name) {
    const parts = name.split("/");
    const names = [name, [...parts.slice(0, -2), parts.at(-1)].join("/"), `${name}/1`];
    return names.map((text) => this.places.get(text)).find((row) => row !== undefined);
  }

  /** The three names that share the longest beginning with this one. */
  nearest(name) {
    const shared = (text) => {
      let n = 0;
      while (n < text.length && text[n] === name[n]) n++;
      return n;
    };
    return [...this.index.rows].sort((a, b) => shared(b) - shared(a) || a.length - b.length).slice(0, 3);
  }

  showCase() {
    const name = this.state.case;
    document.body.classList.toggle("opened", Boolean(name));
    document.body.classList.toggle("closed", !name);
    const row = name ? this.rowOf(name) : undefined;
    const place = row === undefined ? -1 : this.rows.indexOf(row);
    if (place >= 0 && place !== this.list.selected) this.list.select(place);
    const view = [name, this.candidate, this.state.tab, this.state.diff].join("\n");
    if (view !== this.opened) this.fillPane(view, name, row);
  }

  async fillPane(view, name, row) {
    const isOther = this.opened?.split("\n")[0] !== name;
    this.opened = view;
    let content = [make("p", { class: "soft", text: "Open a case: click it, or press j or k and Enter." })];
    if (name && row === undefined) {
      const links = this.nearest(name).map((other) => make("li", {}, make("a", { href: writeAddress({ case: other }), text: other })));
      content = [this.caseHead(name), make("p", { text: "This comparison has no such case. The nearest:" }), make("ul", {}, links)];
    } else if (name) {
      const buttons = { onTab: (tab) => this.address.set({ tab }), onDiff: () => this.toggleDiff() };
      const body = await this.view.content(row, this.state, this.candidate, buttons)
        .catch((error) => [make("p", { class: "banner bad", text: error.message })]);
      content = [this.caseHead(this.index.rows[row]), ...body];
    }
    if (this.opened !== view) return;
    byId("pane").replaceChildren(...content);
    if (isOther) byId("pane").scrollTop = 0;
  }

  caseHead(name) {
    return make("div", { class: "bar" },
      make("button", { type: "button", class: "no-print", text: "← Back", onclick: () => this.close() }),
      make("h3", { text: name }),
      make("button", { type: "button", class: "push no-print", text: "Copy link", onclick: () => this.copy() }));
  }

  close() {
    this.address.set({ case: "" }, { push: true });
    byId("list").focus({ preventScroll: true });
  }

  // --- keys and controls

  step(by) {
    this.list.move(by);
    if (this.state.case && this.list.selected >= 0) this.address.set({ case: this.index.rows[this.rows[this.list.selected]] });
  }

  toggleDiff() { this.address.set({ diff: this.state.diff === "off" ? "" : "off" }); }

  turnTab(by) {
    const tabs = ["", this.index.base, ...this.index.candidates];
    this.address.set({ tab: tabs[(Math.max(0, tabs.indexOf(this.state.tab)) + by + tabs.length) % tabs.length] });
  }

  async copy() {
    history.replaceState(null, "", this.address.fragment());
    byId("message").textContent = await copyLink();
  }

  saveCsv() {
    const names = this.index.scores.map((score) => score.name);
    const sides = [[this.index.base, -1], [this.index.candidates[this.candidate], this.candidate]];
    const head = ["case", "question", ...names.flatMap((score) => sides.map(([side]) => `${score} (${side})`))];
    const lines = this.rows.map((row) => [
      this.index.rows[row], this.index.questions[row], ...names.flatMap((score) => sides.map(([, number]) => this.figures.value(row, score, number))),
    ]);
    saveFile("comparison.csv", csvText([head, ...lines]), "text/csv");
  }

  escape(event) {
    if (event.target.matches?.("input, select")) event.target.blur();
    else if (this.state.case) this.close();
    else return false;
    return true;
  }

  bindings() {
    const openSelected = (event) => (event.target === document.body ? this.list.open(Math.max(0, this.list.selected)) : false);
    const openFilters = () => {
      byId("filters").open = true;
      byId("score").focus();
    };
    return [
      { keys: ["j"], does: "next case", run: () => this.step(1) },
      { keys: ["k"], does: "previous case", run: () => this.step(-1) },
      { keys: ["Enter"], does: "open the case", run: openSelected },
      { keys: ["Escape"], does: "leave a field, or go back to the list", run: (event) => this.escape(event), always: true },
      { keys: ["/"], does: "search", run: () => byId("q").focus() },
      { keys: ["f"], does: "filters", run: openFilters },
      { keys: ["x"], does: "only different cases", run: () => this.address.set({ only: this.state.only ? "" : "1" }) },
      { keys: ["d"], does: "word diff on and off", run: () => this.toggleDiff() },
      { keys: ["["], does: "previous side", run: () => this.turnTab(-1) },
      { keys: ["]"], does: "next side", run: () => this.turnTab(1) },
      { keys: ["c"], does: "copy the link", run: () => void this.copy() },
      { keys: ["e"], does: "save the list as CSV", run: () => this.saveCsv() },
    ];
  }

  listen() {
    for (const name of this.fields) {
      const field = byId(name);
      const value = () => (field.type === "checkbox" ? (field.checked ? "1" : "") : field.value);
      field.addEventListener(name === "q" ? "input" : "change", () => this.address.set({ [name]: value() }));
    }
    byId("reset").addEventListener("click", () => this.address.set({ q: "", flip: "", slice: "", method: "", only: "", sort: "drop", score: this.index.main }));
    byId("copy").addEventListener("click", () => this.copy());
    window.addEventListener("beforeprint", () => this.fillPrint());
    window.addEventListener("afterprint", () => byId("print-list").replaceChildren());
  }

  /** On paper the list is a table of its first rows. */
  fillPrint() {
    const [score, number] = [this.score, this.candidate];
    const cells = (row) => [
      this.index.rows[row], this.index.questions[row], figure(this.figures.value(row, score, -1)), figure(this.figures.value(row, score, number)),
      signed(this.figures.change(row, score, number)),
    ];
    const heads = ["case", "question", this.index.base, this.index.candidates[number], `Δ ${score}`];
    byId("print-list").replaceChildren(
      make("p", { text: `${byId("count").textContent} cases; on paper the first ${Math.min(PRINTED, this.rows.length)}` }),
      make("table", {}, make("thead", {}, make("tr", {}, heads.map((text) => make("th", { text })))),
        make("tbody", {}, this.rows.slice(0, PRINTED).map((row) => make("tr", {}, cells(row).map((text) => make("td", { text })))))));
  }

  async loadTexts() {
    this.texts = await this.blocks.parse("text");
    if (this.state.q) this.update();
  }
}

async function start() {
  const blocks = new DataBlocks();
  try {
    const index = await blocks.parse("index");
    const columns = columnsOf(await blocks.bytes("cols"), index.columns, index.rows.length);
    for (const id of ["live", "tools", "candidates"]) if (byId(id)) byId(id).hidden = false;
    byId("worst").remove(); // the list has these cases too
    byId("filters").open = matchMedia("(min-width: 900px)").matches;
    const page = new ComparePage(blocks, index, columns);
    page.update();
    document.documentElement.dataset.ready = "list";
    const whenIdle = window.requestIdleCallback ?? ((run) => setTimeout(run, 200));
    whenIdle(() => page.loadTexts()
      .catch((error) => { byId("message").textContent = `The search sees questions only: ${error.message}`; })
      .finally(() => { document.documentElement.dataset.ready = "all"; }));
  } catch (error) {
    byId("message").textContent = `The list cannot be shown: ${error.message}`;
    byId("message").className = "banner bad";
  }
}

start();
