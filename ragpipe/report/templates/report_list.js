
// report_list.js: the cases of a run: a row per question with its methods side by side, or per case with its scores.

const METHODS_MAX = 8; // that stand side by side

/** Values, verdicts and names of the rows: the columns of the page. */
class RunFigures {
  constructor(index, columns) { Object.assign(this, { index, columns }); }

  value(row, score) { return this.columns[`f:${score}`]?.[row] ?? NaN; }
  verdict(row, score) { return VERDICT_NAMES[this.columns[`v:${score}`]?.[row] ?? 5]; }
  method(row) { return this.index.methods[this.index.method[row]]; }
  sample(row) { return this.index.samples[this.index.sample[row]]; }
  question(row) { return this.index.questions[this.index.sample[row]]; }

  /** The mean of a score over rows, and their worst verdict: what repeats of a case share. */
  shared(rows, score) {
    const values = rows.map((row) => this.value(row, score)).filter(Number.isFinite);
    const verdicts = rows.map((row) => this.verdict(row, score));
    return { value: values.length ? values.reduce((sum, value) => sum + value) / values.length : NaN, verdict: ["miss", "error"].find((name) => verdicts.includes(name)) ?? verdicts[0] };
  }

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

/** The mark of a method, as charts and the choice of methods have it. */
const methodKey = (name) => [...document.querySelectorAll("#methods input")].find(({ value }) => value === name)?.parentElement.querySelector("svg")?.cloneNode(true);

/** A name that may be broken behind its signs. */
const breakable = (name) => name.split(/(?<=[_-])/).flatMap((piece) => [piece, make("wbr")]);

class ReportPage extends ListPage {
  constructor(blocks, index, columns) {
    const defaults = {
      q: "", method: "", score: index.main, verdict: "", slice: "", mode: "", from: "", to: "", sort: "worst", view: "", cols: "", only: "", case: "", tab: "", diff: "",
    };
    super(blocks, index, columns, { names: sidesOfRun(index), defaults });
    this.figures = new RunFigures(index, columns);
    this.better = new Map(index.scores.map((score) => [score.name, score.better]));
    this.view = new QuestionView(blocks, index, this.figures);
    this.unknown = "This run has no such case. The nearest:";
    this.bySample = Map.groupBy(this.base(), (row) => index.sample[row]);
    const several = [...this.bySample.values()].filter((rows) => rows.some((row) => index.method[row] !== index.method[rows[0]])).length;
    this.isShared = index.methods.length <= METHODS_MAX && 2 * several > this.bySample.size;
    this.repeats = Math.max(...index.repeat);
    this.lowQuestions = index.questions.map((text) => text.toLowerCase());
    this.differing = new Map();
    byId("columns").addEventListener("toggle", () => this.fillColumnsMenu(), { once: true });
    matchMedia("(max-width: 900px)").addEventListener("change", () => this.refresh());
  }

  get score() { return this.better.has(this.state.score) ? this.state.score : this.index.main; }
  /** Whether a row of the list is a question: where methods share questions and none is chosen, unless the reader says otherwise. */
  get byQuestion() { return this.state.view ? this.state.view === "questions" : this.isShared && !this.state.method; }
  chosen(name) { return name === "score" ? this.score : name === "view" ? (this.byQuestion ? "questions" : "cases") : this.state[name]; }
  viewKey() { return [this.state.tab, this.state.diff, this.score].join("\n"); }

  /** The scores in the list: those that the reader chose, else the main one, the one that filters are about, and those that fail most. */
  get shownScores() {
    const picked = this.state.cols.split(",").filter((name) => this.better.has(name));
    return picked.length ? picked : [...new Set([this.index.main, this.score, ...this.failing])].filter(Boolean).slice(0, isNarrow() ? 3 : 4);
  }

  /** The scores that miss their threshold somewhere, the most frequent first. */
  get failing() {
    const count = (name) => (this.columns[`v:${name}`] ?? []).reduce((sum, code) => sum + (code === 1), 0);
    return (this.everyFailing ??= this.index.scores.map(({ name }) => [name, count(name)]).filter(([, n]) => n).sort((a, b) => b[1] - a[1]).map(([name]) => name));
  }

  /** `field:value` of all slices: of each field in turn its next value. */
  get sliceNames() {
    const { fields } = this.index;
    const longest = Math.max(0, ...fields.map(({ values }) => values.length));
    return (this.everySlice ??= Array.from({ length: longest }, (_, place) => fields.filter(({ values }) => place < values.length).map(({ name, values }) => `${name}:${values[place]}`)).flat());
  }

  showControls(active) {
    this.offer("mode", this.state.mode, this.state.mode);
    const [score, sort] = [this.score, this.state.sort];
    const orders = new Map([["worst", "worst first"], [score, `${score} rising`], [`-${score}`, `${score} falling`], ...(this.isShared ? [["difference", "largest difference"]] : []), ["data", "as in the data"]]);
    if (!orders.has(sort)) orders.set(sort, sort.replace(/^(-?)(?:method:)?(.*)/s, (_, back, name) => `${name} ${back ? "falling" : "rising"}`));
    byId("sort").replaceChildren(...[...orders].map(([value, text]) => make("option", { value, text })));
    super.showControls(active);
    const { low, high } = this.index.scores.find(({ name }) => name === score) ?? {};
    byId("from").placeholder = `from ${figure(low)}`;
    byId("to").placeholder = `to ${figure(high)}`;
    byId("columns").hidden = this.byQuestion;
    for (const box of byId("columns-of").querySelectorAll("input")) box.checked = this.shownScores.includes(box.value);
    this.showHeads();
  }

  fillColumnsMenu() {
    const pick = () => this.address.set({ cols: [...byId("columns-of").querySelectorAll("input:checked")].map((box) => box.value).join(",") });
    byId("columns-of").append(...this.index.scores.map(({ name }) => make("label", {}, make("input", { type: "checkbox", value: name, checked: this.shownScores.includes(name), onchange: pick }), ` ${name}`)));
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
    const keyOf = this.sortKey(sort);
    const keys = new Float64Array(this.names.length);
    for (const row of rows) {
      const key = keyOf(row);
      keys[row] = Number.isNaN(key) ? Infinity : key;
    }
    const { failed } = this.columns;
    const ties = sort === "worst" ? (a, b) => failed[b] - failed[a] || a - b : (a, b) => a - b;
    return rows.sort((a, b) => (keys[a] === keys[b] ? ties(a, b) : keys[a] - keys[b]));
  }

  /** What rows are ordered by, the lowest first: a score, that of one method (`method:<name>`), the difference between methods, or how bad. */
  sortKey(sort) {
    const { figures, score } = this;
    const [name, sign] = this.better.has(sort) || !sort.startsWith("-") ? [sort, 1] : [sort.slice(1), -1];
    if (this.better.has(name)) return (row) => sign * figures.value(row, name);
    const worst = (row) => this.better.get(score) * figures.value(row, score);
    if (name === "difference") return (row) => -sign * this.spread(this.index.sample[row]);
    return name.startsWith("method:") ? (row) => (`method:${figures.method(row)}` === name ? sign * worst(row) : NaN) : worst;
  }

  /** How far the methods of a question lie apart in the chosen score. */
  spread(sample) {
    const values = [...this.methodsOf(sample).values()].map((rows) => this.figures.shared(rows, this.score).value).filter(Number.isFinite);
    return values.length > 1 ? Math.max(...values) - Math.min(...values) : NaN;
  }

  /** The rows of each method of a question, by its number. */
  methodsOf(sample) { return Map.groupBy(this.bySample.get(sample), (row) => this.index.method[row]); }

  // --- the list

  /** The number of the question, or of question and method: repeats share an entry. */
  entryOf(row) { return this.byQuestion ? this.index.sample[row] : this.index.sample[row] * this.index.methods.length + this.index.method[row]; }

  toOpen(entry) {
    const rows = this.members.get(entry);
    const open = this.state.case ? this.rowOf(this.state.case) : undefined;
    return rows.find((row) => this.index.method[row] === this.index.method[open]) ?? rows[0];
  }

  countOf() {
    const words = (n, noun) => `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;
    return ["cases", this.byQuestion && `on ${words(this.members.size, "question")}`, this.repeats > 1 && `, ${words(this.repeats, "repeat")}`, this.index.iterations.length > 0 && `, ${words(this.index.iterations.length, "iteration")}`]
      .filter(Boolean).join(" ").replaceAll(" ,", ",");
  }

  /** The heads over the figures: a click orders the list by one, the worst first, and again the other way round. */
  showHeads() {
    const head = (sort, text, back = `-${sort}`, key = null) => {
      const isOn = [sort, back].includes(this.state.sort);
      return make("button", { type: "button", class: "plain", title: `order by ${text}`, "aria-pressed": String(isOn), onclick: () => this.address.set({ sort: this.state.sort === sort ? back : sort }) },
        key, breakable(text), isOn && (this.state.sort === sort ? " ▾" : " ▴"));
    };
    const worstFirst = (name) => (this.better.get(name) > 0 ? head(name, name) : head(`-${name}`, name, name));
    const heads = this.byQuestion ? [...this.index.methods.map((name) => head(`method:${name}`, name, `-method:${name}`, methodKey(name))), head("difference", "max − min")] : this.shownScores.map(worstFirst);
    byId("list-head").replaceChildren(make("span", {}, this.byQuestion ? breakable(this.score) : "case"), ...heads);
    const { style } = byId("list-box").parentElement;
    style.setProperty("--figures", heads.length);
    style.setProperty("--lead", this.byQuestion ? "9rem" : "13rem");
    style.setProperty("--figure", this.byQuestion ? "4rem" : "5.6rem"); // as wide as its head
  }

  /** A figure of the list with its verdict as colour and mark; a click opens its first row. */
  cell(rows, score) {
    const { value, verdict } = this.figures.shared(rows, score);
    const text = verdict === "error" || verdict === "skipped" ? verdict : tidy(value);
    return make("span", { class: `cell ${verdict}`, "data-row": rows[0], title: `${score} ${figure(value)} ${verdict}` }, `${text}${VERDICT_MARKS[verdict] ?? ""}`);
  }

  fillOption(entry, option) {
    const rows = this.members.get(entry);
    const sample = this.index.sample[rows[0]];
    const methods = this.methodsOf(sample);
    const name = this.byQuestion ? this.index.samples[sample] : this.names[rows[0]];
    const shown = new Set(rows.map((row) => this.index.method[row]));
    option.append(make("bdi", { class: "asked", text: this.figures.question(rows[0]) || "no question" }), make("span", { class: "name soft", text: name }));
    if (!this.byQuestion) {
      option.append(...this.shownScores.map((score) => this.cell(methods.get(this.index.method[rows[0]]), score)));
      return;
    }
    const cells = this.index.methods.map((_, number) => {
      const cell = methods.has(number) ? this.cell(methods.get(number), this.score) : make("span", { class: "cell soft", text: EMPTY });
      cell.classList.toggle("out", !shown.has(number));
      return cell;
    });
    const spread = this.spread(sample);
    option.append(...cells, make("span", { class: `cell ${spread > 0 ? "differs" : "soft"}`, text: tidy(spread) }));
  }

  isFailed(row) {
    const { threshold } = this.index.scores.find(({ name }) => name === this.score) ?? {};
    return threshold == null ? this.columns.failed[row] > 0 : ["miss", "error"].includes(this.figures.verdict(row, this.score));
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

  /** The command that prints a case, with prompts and replies. */
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
    const sides = this.openRow === undefined ? [] : this.sidesOf(this.openRow);
    if (sides.length > 1) this.address.set({ case: this.names[sides[(sides.indexOf(this.openRow) + by + sides.length) % sides.length]], tab: "" }, { push: !this.state.case });
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
  followMethods(page?.address);
  chooseMaps();
  document.querySelectorAll(".front").forEach(lightenFolds);
});
