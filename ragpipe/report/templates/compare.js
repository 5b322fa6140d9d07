
// compare.js: the cases of a comparison.

const FLIP_CODES = { to_passed: 5, to_failed: 7, both_passed: 8, both_failed: 4 }; // 3 * the base's + the candidate's verdict

class ComparePage extends ListPage {
  constructor(blocks, index, columns) {
    const defaults = {
      with: index.candidates[0], score: index.main, q: "", flip: "", slice: "", method: "", only: "", sort: "drop", case: "", tab: "", diff: "",
    };
    super(blocks, index, columns, { names: index.rows, defaults });
    this.figures = new Figures(index, columns);
    this.view = new CaseView(blocks, index, this.figures);
    this.panels = [...document.querySelectorAll(".panel")];
    this.unknown = "This comparison has no such case. The nearest:";
  }

  get candidate() { return Math.max(0, this.index.candidates.indexOf(this.state.with)); }
  get score() { return this.figures.better.has(this.state.score) ? this.state.score : this.index.main; }
  get sliceNames() { return (this.everySlice ??= Object.keys(this.columns).filter((name) => name.startsWith("s:")).map((name) => name.slice(2))); }
  gain(row) { return this.figures.gain(row, this.score, this.candidate); }
  chosen(name) { return name === "score" ? this.score : this.state[name]; }
  viewKey() { return [this.candidate, this.state.tab, this.state.diff].join("\n"); }

  /** The rows that the chosen candidate has. */
  base() {
    const flags = this.columns[`p${this.candidate}`];
    return matchingRows(flags.length, { shared: (row) => flags[row] === 1 });
  }

  tests() {
    const { q, flip, slice, method, only } = this.state;
    const tests = {};
    if (q) tests.search = this.searchTest(q, (row) => (this.texts ? this.texts[row] : this.index.questions[row].toLowerCase()));
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

  showControls(active) {
    super.showControls(active);
    const chosen = this.index.candidates[this.candidate];
    for (const panel of this.panels) {
      if (panel.dataset.with !== chosen) panel.remove(); // of several candidates only the chosen one's charts are in the page
      else if (!panel.isConnected) byId("cases").before(panel);
    }
    for (const link of document.querySelectorAll("#candidates a")) link.setAttribute("aria-current", String(link.dataset.with === chosen));
  }

  fillOption(row, option) {
    const [before, after] = this.figures.verdicts(row, this.score, this.candidate);
    const flipped = before && after && before !== after;
    const values = this.index.candidates.map((_, number) => figure(this.figures.value(row, this.score, number)));
    option.append(
      make("div", {},
        make("span", { class: `delta ${direction(this.gain(row))}`, text: signed(this.figures.change(row, this.score, this.candidate)) }),
        make("bdi", { text: this.index.questions[row] || "no question" })),
      make("div", { class: "soft" },
        flipped && [make("span", { class: `badge ${after === "pass" ? "good" : "bad"}`, text: `${before} → ${after}` }), " "],
        `${figure(this.figures.value(row, this.score, -1))} → ${values.join(" | ")} · `,
        make("span", { class: "name", text: this.index.rows[row] })));
  }

  /** Whether the chosen candidate fails the chosen score. */
  isFailed(row) { return this.figures.verdicts(row, this.score, this.candidate)[1] === "miss"; }

  countOf() { return "pairs"; }

  content(row) {
    return this.view.content(row, this.state, this.candidate, { onTab: (tab) => this.address.set({ tab }), onDiff: () => this.toggleDiff() });
  }

  toggleDiff() { this.address.set({ diff: this.state.diff === "off" ? "" : "off" }); }

  turnTab(by) { this.address.set({ tab: this.turned(["", this.index.base, ...this.index.candidates], by) }); }

  csv() {
    const names = this.index.scores.map((score) => score.name);
    const sides = [[this.index.base, -1], [this.index.candidates[this.candidate], this.candidate]];
    const head = ["case", "question", ...names.flatMap((score) => sides.map(([side]) => `${score} (${side})`))];
    const lines = this.rows.map((row) => [
      this.index.rows[row], this.index.questions[row], ...names.flatMap((score) => sides.map(([, number]) => this.figures.value(row, score, number))),
    ]);
    return { name: "comparison.csv", lines: [head, ...lines] };
  }

  printHeads() { return ["case", "question", this.index.base, this.index.candidates[this.candidate], `Δ ${this.score}`]; }

  printed(row) {
    const [score, number] = [this.score, this.candidate];
    return [
      this.index.rows[row], this.index.questions[row], figure(this.figures.value(row, score, -1)), figure(this.figures.value(row, score, number)),
      signed(this.figures.change(row, score, number)),
    ];
  }

  keepTexts(texts) { this.texts = texts; }
}

followSectionLinks();
document.querySelectorAll(".panel, footer").forEach(lightenFolds);
startListPage((blocks, index, columns) => new ComparePage(blocks, index, columns), (index) => index.rows.length);
