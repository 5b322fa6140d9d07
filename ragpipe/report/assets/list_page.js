// list_page.js: a page of cases: the list, its filters in the address, keys, and the case that is open.

const PRINTED = 200;
const EMPTY = "–";
const isNarrow = () => matchMedia("(max-width: 900px)").matches;

const figure = (value) => {
  if (!Number.isFinite(value)) return EMPTY;
  return Math.abs(value) < 10 ? String(Number(value.toFixed(3))) : Number(value.toPrecision(5)).toLocaleString("en");
};

/** A figure as wide as others above it. */
const tidy = (value) => (Number.isFinite(value) && Math.abs(value) < 100 ? value.toFixed(2) : figure(value));

/**
 * A page with the elements #list, #pane, #count, #count-of, #message, #copy, #help, #reset, #filters, #print-list, #cases, and a control for each part
 * of its state that a reader may choose. A row of the page is a case; an entry of the list is what `entryOf(row)` says of one or several.
 * Where there is room, a case is always open: the one that the address names, else the first of the list.
 *
 * A page gives: `tests()`: the active filters, {name: (row) => boolean}; `sorted(rows)`; `fillOption(entry, option)`; `isFailed(row)`; `content(row)`: the
 * elements of a case, which may reject; `viewKey()`: what the open case depends on besides its name; `printed(row)` and `printHeads()`;
 * `sliceNames`: `field:value` of all slices; `csv()`: a file name and rows; `turnTab(by)`; `keepTexts(value)`: takes the texts of the search; `unknown`: what an unknown case is told.
 */
class ListPage {
  constructor(blocks, index, columns, { names, defaults }) {
    Object.assign(this, { blocks, index, columns, names, defaults, texts: null, rows: [], members: new Map(), opened: null, filtered: null });
    this.places = new Map(names.map((name, row) => [name, row]));
    this.fields = Object.keys(defaults).filter((name) => byId(name));
    this.address = new Address(defaults, (state, how) => this.update(how));
    this.list = new VirtualList(byId("list"), {
      fill: (entry, option) => this.fillOption(entry, option), label: "cases", onMove: () => this.follow(),
      onOpen: (entry, target) => this.open(Number(target?.closest("[data-row]")?.dataset.row ?? this.toOpen(entry))),
    });
    this.keys = new Keys(this.bindings(), byId("help"));
    this.listen();
  }

  get state() { return this.address.state; }

  /** The rows among which the filters choose. */
  base() { return (this.every ??= this.names.map((_, row) => row)); }

  /** The entry of the list that a row belongs to. */
  entryOf(row) { return row; }

  /** The row that an entry opens. */
  toOpen(entry) { return this.members.get(entry)[0]; }

  /** The rows of the list, from its top to its end. */
  get order() { return this.list.rows.flatMap((entry) => this.members.get(entry)); }

  /** What stands behind the count. */
  countOf() { return ""; }

  /** The filter of the search: names of the cases, and their texts as far as they are read. */
  searchTest(words, textOf) {
    const low = words.toLowerCase();
    return (row) => textOf(row).includes(low) || this.names[row].toLowerCase().includes(low);
  }

  update({ followed = false } = {}) {
    const { case: _, tab, diff, ...filters } = this.state;
    const key = JSON.stringify(filters);
    if (key !== this.filtered) this.filter(key);
    this.showCase();
    if (!followed) return;
    if (this.state.case) this.reveal();
    else {
      byId("cases").scrollIntoView();
      byId("list").focus({ preventScroll: true });
    }
  }

  filter(key) {
    this.filtered = key;
    const tests = this.tests();
    const base = this.base();
    const among = Object.fromEntries(Object.entries(tests).map(([name, test]) => [name, (place) => test(base[place])]));
    this.rows = this.sorted(matchingRows(base.length, among).map((place) => base[place]));
    this.members = Map.groupBy(this.rows, (row) => this.entryOf(row));
    byId("count").textContent = countSentence(this.rows.length, base.length, among);
    byId("count-of").textContent = this.rows.length ? this.countOf() : "";
    this.list.show([...this.members.keys()]);
    this.showControls(Object.keys(tests).filter((name) => name !== "search").length);
  }

  /** Filter again although the state is the same: what the filters look at has changed. */
  refresh() {
    this.filtered = null;
    this.opened = null;
    this.update();
  }

  /** What a control shows. */
  chosen(name) { return this.state[name]; }

  showControls(active) {
    for (const name of this.fields) {
      const field = byId(name);
      const value = this.chosen(name);
      if (field.type === "checkbox") field.checked = Boolean(value);
      else if (field.value !== value) field.value = value;
    }
    byId("filters-head").textContent = active ? `Filters (${active})` : "Filters";
  }

  // --- the case that is open

  /** The row that is open; undefined for an unknown case, and for none. */
  get openRow() {
    if (this.state.case) return this.rowOf(this.state.case);
    return isNarrow() || !this.list.rows.length ? undefined : this.members.get(this.list.rows[0])[0];
  }

  open(row) {
    byId("message").textContent = "";
    const name = this.names[row];
    if (name !== this.state.case) this.address.set({ case: name }, { push: !this.state.case });
    byId("pane").focus({ preventScroll: true });
    this.reveal();
  }

  /** Bring the open case into sight; where it is, nothing moves. */
  reveal() {
    const { top } = byId("pane").getBoundingClientRect();
    if (isNarrow()) window.scrollTo(0, 0);
    else if (top < 40 || top > innerHeight / 3) byId("cases").scrollIntoView();
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
    const lengths = this.names.map(shared);
    return this.base().toSorted((a, b) => lengths[b] - lengths[a] || this.names[a].length - this.names[b].length || a - b).slice(0, 3).map((row) => this.names[row]);
  }

  showCase() {
    const row = this.openRow;
    const name = this.state.case || this.names[row];
    document.body.classList.toggle("opened", Boolean(this.state.case));
    document.body.classList.toggle("closed", !this.state.case);
    const place = row === undefined ? -1 : this.list.rows.indexOf(this.entryOf(row));
    if (place >= 0 && place !== this.list.selected) this.list.select(place);
    const view = [name, this.viewKey()].join("\n");
    if (view !== this.opened) this.fillPane(view, name, row);
  }

  async fillPane(view, name, row) {
    this.opened = view;
    let content = [make("p", { class: "soft", text: "No case is open." })];
    if (name && row === undefined) {
      const links = this.nearest(name).map((other) => make("li", {}, make("a", { href: writeAddress({ case: other }), text: other })));
      content = [this.caseHead(name), make("p", { text: this.unknown }), make("ul", {}, links)];
    } else if (name) {
      const body = await this.content(row).catch((error) => [make("p", { class: "banner bad", text: error.message })]);
      content = [this.caseHead(this.names[row]), ...body];
    }
    if (this.opened === view) byId("pane").replaceChildren(...content);
  }

  caseHead(name) {
    const button = (text, run, more = {}) => make("button", { type: "button", text, onclick: run, ...more });
    return make("div", { class: "bar case-head" },
      button("← Back", () => this.close(), { class: "back" }),
      make("h3", { text: name }),
      make("span", { class: "bar push no-print" },
        button("‹ Previous", () => this.step(-1)), button("Next ›", () => this.step(1)),
        button("‹ Failed", () => this.seekFailed(-1), { "aria-label": "previous failed case" }),
        button("Failed ›", () => this.seekFailed(1), { "aria-label": "next failed case" }), button("Copy link", () => this.copy())));
  }

  close() {
    this.address.set({ case: "" }, { push: true });
    byId("list").focus({ preventScroll: true });
  }

  // --- keys and controls

  step(by) {
    this.list.move(by);
    this.follow();
  }

  /** Open what is selected in the list, where a case is open. */
  follow() {
    if (this.list.selected < 0 || (isNarrow() && !this.state.case)) return;
    this.address.set({ case: this.names[this.toOpen(this.list.rows[this.list.selected])] }, { push: !this.state.case });
    this.reveal();
  }

  /** Open the next case of the list that failed, or the one before. */
  seekFailed(by) {
    const { order } = this;
    let place = order.indexOf(this.openRow) + by;
    while (place >= 0 && place < order.length && !this.isFailed(order[place])) place += by;
    if (place >= 0 && place < order.length) this.open(order[place]);
    else byId("message").textContent = `No failed case of the list is ${by > 0 ? "below" : "above"} this one.`;
  }

  /** The tab after or before this one, of several. */
  turned(tabs, by) { return tabs[(Math.max(0, tabs.indexOf(this.state.tab)) + by + tabs.length) % tabs.length]; }

  async copy() {
    history.replaceState(null, "", this.address.fragment());
    byId("message").textContent = await copyLink();
  }

  saveCsv() {
    const { name, lines } = this.csv();
    saveFile(name, csvText(lines), "text/csv");
  }

  escape(event) {
    if (event.target.matches?.("input, select, textarea")) event.target.blur();
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
      { keys: ["J"], does: "next failed case", run: () => this.seekFailed(1) },
      { keys: ["K"], does: "previous failed case", run: () => this.seekFailed(-1) },
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

  /** The slices that hold these words, `field:value`. */
  slicesWith(words) { return this.sliceNames.filter((name) => name.toLowerCase().includes(words.toLowerCase())); }

  /** Offer the slices that hold what is typed, at most 40; a whole name is a choice, also where the browser waits with `change`. */
  offerSlices() {
    const typed = byId("slice").value;
    byId("slice-names").replaceChildren(...this.slicesWith(typed).slice(0, 40).map((value) => make("option", { value })));
    if (typed !== this.state.slice && (!typed || this.sliceNames.includes(typed))) this.address.set({ slice: typed });
  }

  /** What a control means for the state. A part of a slice's name stands for the first slice with it. */
  fieldValue(name, field) {
    if (field.type === "checkbox") return field.checked ? "1" : "";
    const { value } = field;
    return name === "slice" && value && !this.sliceNames.includes(value) ? this.slicesWith(value)[0] ?? value : value;
  }

  listen() {
    for (const name of this.fields) {
      const event = name === "q" ? "input" : "change";
      byId(name).addEventListener(event, () => this.address.set({ [name]: this.fieldValue(name, byId(name)) }));
    }
    for (const event of ["focus", "input"]) byId("slice")?.addEventListener(event, () => this.offerSlices());
    byId("reset").addEventListener("click", () => this.address.set(Object.fromEntries([...this.fields, "method"].map((name) => [name, this.defaults[name]]))));
    byId("copy").addEventListener("click", () => this.copy());
    window.addEventListener("beforeprint", () => this.fillPrint());
    window.addEventListener("afterprint", () => byId("print-list").replaceChildren());
  }

  /** On paper the list is a table of its first rows. */
  fillPrint() {
    byId("print-list").replaceChildren(
      make("p", { text: `${byId("count").textContent} ${byId("count-of").textContent}; on paper the first ${Math.min(PRINTED, this.rows.length)}` }),
      make("table", {}, make("thead", {}, make("tr", {}, this.printHeads().map((text) => make("th", { text })))),
        make("tbody", {}, this.rows.slice(0, PRINTED).map((row) => make("tr", {}, this.printed(row).map((text) => make("td", { text })))))));
  }

  async loadTexts() {
    this.keepTexts(await this.blocks.parse("text"));
    if (this.state.q) this.refresh();
  }
}

/** Read the list and start the page that `build(blocks, index, columns)` makes. `count(index)` is the number of its rows. */
async function startListPage(build, count) {
  const blocks = new DataBlocks();
  try {
    const index = await blocks.parse("index");
    const columns = columnsOf(await blocks.bytes("cols"), index.columns, count(index));
    for (const id of ["live", "tools", "candidates"]) if (byId(id)) byId(id).hidden = false;
    byId("worst").remove(); // the list has these cases too
    byId("filters").open = matchMedia("(min-width: 900px)").matches;
    const page = build(blocks, index, columns);
    page.update();
    document.documentElement.dataset.ready = "list";
    if (Object.keys(readAddress(location.hash)).some((name) => name !== "with")) byId("cases").scrollIntoView(); // a link to cases
    const whenIdle = window.requestIdleCallback ?? ((run) => setTimeout(run, 200));
    whenIdle(() => page.loadTexts()
      .catch((error) => { byId("message").textContent = `The search sees questions only: ${error.message}`; })
      .finally(() => { document.documentElement.dataset.ready = "all"; }));
    return page;
  } catch (error) {
    byId("message").textContent = `The list cannot be shown: ${error.message}`;
    byId("message").className = "banner bad";
    return null;
  }
}
