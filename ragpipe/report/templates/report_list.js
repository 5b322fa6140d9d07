
// report_list.js: the cases of a run.

/** Values, verdicts and names of the rows: the columns of the page. */
class RunFigures {
  constructor(index, columns) { Object.assign(this, { index, columns }); }

  value(row, score) { return this.columns[`f:${score}`]?.[row] ?? NaN; }
  verdict(row, score) { return VERDICT_NAMES[this.columns[`v:${score}`]?.[row] ?? 5]; }
  method(row) { return this.index.methods[this.index.method[row]]; }
  sample(row) { return this.index.samples[this.index.sample[row]]; }
  question(row) { return this.index.questions[this.index.sample[row]]; }

  /** The test of a slice `field:value`; null for a field or value that the run does not have. */
  slice(text) {
    for (const { name, values, flags } of this.index.fields) {
      if (!text.startsWith(`${name}:`)) continue;
      const value = text.slice(name.length + 1);
      const place = values.indexOf(value);
      if (place < 0) continue;
      const column = flags ? this.columns[`s:${name}:${value}`] : this.columns[`c:${name}`];
      return (row) => column[row] === (flags ? 1 : place + 1);
    }
    return null;
  }
}

const sidesOfRun = (index) => {
  const single = index.methods.length < 2;
  return index.sample.map((sample, row) => [index.samples[sample], ...(single ? [] : [index.methods[index.method[row]]]), index.repeat[row]].join("/"));
};

class ReportPage extends ListPage {
  constructor(blocks, index, columns) {
    const defaults = {
      q: "", method: "", score: index.main, verdict: "", slice: "", mode: "", from: "", to: "", sort: "worst", only: "", case: "", tab: "", diff: "",
    };
    super(blocks, index, columns, { names: sidesOfRun(index), defaults, closed: "Open a case: click it, or press j or k and Enter." });
    this.figures = new RunFigures(index, columns);
    this.better = new Map(index.scores.map((score) => [score.name, score.better]));
    this.view = new QuestionView(blocks, index, this.figures);
    this.unknown = index.total > index.sample.length ? `This page has the worst ${index.sample.length.toLocaleString("en")} of ${index.total.toLocaleString("en")} cases and no such case. task=explain prints any. The nearest here:` : "This run has no such case. The nearest:";
    this.bySample = Map.groupBy(this.base(), (row) => index.sample[row]);
    this.lowQuestions = index.questions.map((text) => text.toLowerCase());
    this.differing = new Map();
    matchMedia("(max-width: 760px)").addEventListener("change", () => this.refresh());
  }

  get score() { return this.better.has(this.state.score) ? this.state.score : this.index.main; }
  chosen(name) { return name === "score" ? this.score : this.state[name]; }
  viewKey() { return [this.state.tab, this.state.diff, this.score].join("\n"); }

  /** `field:value` of all slices: of each field in turn its next value. */
  get sliceNames() {
    const { fields } = this.index;
    const longest = Math.max(0, ...fields.map(({ values }) => values.length));
    return (this.everySlice ??= Array.from({ length: longest }, (_, place) => fields.filter(({ values }) => place < values.length).map(({ name, values }) => `${name}:${values[place]}`)).flat());
  }

  showControls(active) {
    this.offer("mode", this.state.mode, this.state.mode);
    const [score, sort] = [this.score, this.state.sort];
    const orders = new Map([["worst", "worst first"], [score, `${score} rising`], [`-${score}`, `${score} falling`], ["data", "as in the data"]]);
    if (!orders.has(sort)) orders.set(sort, sort.startsWith("-") ? `${sort.slice(1)} falling` : `${sort} rising`);
    byId("sort").replaceChildren(...[...orders].map(([value, text]) => make("option", { value, text })));
    super.showControls(active);
    byId("more-head").textContent = this.rangeWords();
  }

  rangeWords() {
    const { low, high } = this.index.scores.find(({ name }) => name === this.score) ?? {};
    return Number.isFinite(low) && Number.isFinite(high) ? `value, ${figure(low)} to ${figure(high)}` : "value";
  }

  /** A value that came by the address is offered by its control too. */
  offer(name, value, text) {
    const field = byId(name);
    if (field && value && ![...field.options].some((option) => option.value === value)) field.append(make("option", { value, text }));
  }

  // --- filters and order

  tests() {
    const { q, method, verdict, slice, mode, from, to, only } = this.state;
    const { score, figures, index } = this;
    const tests = {};
    if (q) tests.search = this.searchTest(q, (row) => this.searched(row));
    if (method) tests.method = (row) => figures.method(row) === method;
    if (verdict) tests.verdict = (row) => figures.verdict(row, score) === verdict;
    if (slice) tests.slice = figures.slice(slice) ?? (() => false);
    const flags = this.columns[`m:${mode}`];
    if (mode) tests.mode = (row) => flags?.[row] === 1;
    const [low, high] = [from, to].map((text) => (text.trim() === "" ? NaN : Number(text)));
    const near = 1e-6; // a bound is written with fewer digits than a value has
    if (!Number.isNaN(low)) tests.from = (row) => figures.value(row, score) >= low - near;
    if (!Number.isNaN(high)) tests.to = (row) => figures.value(row, score) <= high + near;
    if (only) tests.different = (row) => this.differs(index.sample[row], score);
    return tests;
  }

  searched(row) { return this.texts ? this.texts[row] : this.lowQuestions[this.index.sample[row]]; }

  /** Whether methods of a question differ in verdict or value of a score, in any repeat. */
  differs(sample, score) {
    if (!this.differing.has(score)) this.differing.set(score, new Map());
    const known = this.differing.get(score);
    if (!known.has(sample)) {
      const repeats = Map.groupBy(this.bySample.get(sample), (row) => this.index.repeat[row]);
      known.set(sample, [...repeats.values()].some((rows) => new Set(rows.map((row) => `${this.figures.value(row, score)} ${this.figures.verdict(row, score)}`)).size > 1));
    }
    return known.get(sample);
  }

  /** The rows in the chosen order; those without a value last. */
  sorted(rows) {
    const { sort } = this.state;
    if (sort === "data") return rows;
    const name = sort.replace(/^-/, "");
    const isWorst = sort === "worst" || !(this.better.has(sort) || this.better.has(name));
    const score = isWorst ? this.score : this.better.has(sort) ? sort : name;
    const sign = isWorst ? this.better.get(score) : this.better.has(sort) ? 1 : -1;
    const keys = new Float64Array(this.names.length);
    for (const row of rows) {
      const value = this.figures.value(row, score);
      keys[row] = Number.isNaN(value) ? Infinity : sign * value;
    }
    const { failed } = this.columns;
    const ties = isWorst ? (a, b) => failed[b] - failed[a] || a - b : (a, b) => a - b;
    return rows.sort((a, b) => (keys[a] === keys[b] ? ties(a, b) : keys[a] - keys[b]));
  }

  // --- the list

  fillOption(row, option) {
    const { score, figures } = this;
    const verdict = figures.verdict(row, score);
    const failed = this.columns.failed[row];
    option.append(
      make("div", {},
        make("span", { class: `delta ${verdict === "pass" ? "up" : verdict === "miss" ? "down" : ""}`, text: figure(figures.value(row, score)) }),
        make("bdi", { text: figures.question(row) || "no question" })),
      make("div", { class: "soft" },
        verdictBadge(verdict), " ",
        failed > 0 && [make("span", { class: "badge", title: "scores that miss their threshold", text: `${failed} missed` }), " "],
        make("span", { class: "name", text: this.names[row] })));
  }

  // --- the case that is open

  rowOf(name) {
    const exact = super.rowOf(name);
    if (exact !== undefined) return exact;
    const sample = this.index.samples.findIndex((id) => id === name || name.startsWith(`${id}/`) && /^\d+$/.test(name.slice(id.length + 1)));
    return this.bySample.get(sample)?.[0];
  }

  /** The rows of the methods of a question: those of the same repeat, else the first of the method. */
  sidesOf(row) {
    const byMethod = Map.groupBy(this.bySample.get(this.index.sample[row]), (other) => this.index.method[other]);
    return [...byMethod.keys()].sort((a, b) => a - b).map((method) => {
      const rows = byMethod.get(method);
      return rows.find((other) => this.index.repeat[other] === this.index.repeat[row]) ?? rows[0];
    });
  }

  repeatsOf(row) {
    return this.bySample.get(this.index.sample[row]).filter((other) => this.index.method[other] === this.index.method[row]);
  }

  /** Links to cases have their question as a title, and as their text where the id is a hash of the question (datasets/native_form.py). */
  nameCases() {
    for (const link of document.querySelectorAll('.front a[href^="#v=1&case="]')) {
      const row = this.rowOf(readAddress(link.getAttribute("href")).case);
      if (row === undefined) continue;
      link.title = this.figures.question(row);
      if (/^h[0-9a-f]{12}$/.test(this.figures.sample(row))) link.textContent = `${this.figures.question(row).slice(0, 60)} / ${this.figures.method(row)}`;
    }
  }

  content(row) { return this.view.content(row, this.sidesOf(row), this.state, this); }

  explainCommand(row, metric) {
    const part = (key, text) => {
      const word = /^[\w.@-]+$/.test(text) ? `${key}=${text}` : `${key}="${text.replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"`;
      return /^[\w.@=-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
    };
    const repeat = this.index.repeat[row];
    const more = [repeat !== 1 && `repeat=${repeat}`, this.index.iteration !== 1 && `iteration=${this.index.iteration}`].filter(Boolean);
    return ["python -m ragpipe task=explain run=.", part("case", this.figures.sample(row)), part("method", this.figures.method(row)), part("metric", metric), ...more, "messages=true"].join(" ");
  }

  toggleDiff() { this.address.set({ diff: this.state.diff === "on" ? "" : "on" }); }

  turnTab(by) {
    const methods = this.state.case ? this.sidesOf(this.rowOf(this.state.case) ?? 0).map((row) => this.figures.method(row)) : [];
    this.address.set({ tab: this.turned(["", ...methods], by) });
  }

  bindings() {
    return super.bindings().map((one) => ({ ...one, does: one.does.replace("side", "method").replace("only different cases", "only where methods differ") }));
  }

  csv() {
    const scores = this.index.scores.map((score) => score.name);
    const head = ["id", "method", "repeat", "question", ...scores.flatMap((name) => [name, `${name} verdict`])];
    const value = (row, name) => (Number.isFinite(this.figures.value(row, name)) ? Number(this.figures.value(row, name).toPrecision(7)) : NaN);
    const lines = this.rows.map((row) => [
      this.figures.sample(row), this.figures.method(row), this.index.repeat[row], this.figures.question(row),
      ...scores.flatMap((name) => [value(row, name), this.figures.verdict(row, name)]),
    ]);
    return { name: `cases-${this.index.run}.csv`, lines: [head, ...lines] };
  }

  printHeads() { return ["case", "question", this.score, "verdict", "thresholds missed"]; }

  printed(row) {
    return [this.names[row], this.figures.question(row), figure(this.figures.value(row, this.score)), this.figures.verdict(row, this.score), String(this.columns.failed[row])];
  }

  keepTexts(texts) { this.texts = texts; }
}

followSectionLinks();
startListPage((blocks, index, columns) => new ReportPage(blocks, index, columns), (index) => index.sample.length).then((page) => {
  page?.nameCases();
  document.querySelectorAll(".front").forEach(lightenFolds);
});
