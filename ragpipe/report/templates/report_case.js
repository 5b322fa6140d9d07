
// report_case.js: an opened case: the question, the answer and its scores beside the contexts, the judge's own words last.

const CONTEXTS_OPEN = 10; // of more contexts, those without a mark are folded

class QuestionView {
  constructor(blocks, index, figures) {
    Object.assign(this, { blocks, index, figures });
    this.places = index.full && new Map(index.full.map((row, place) => [row, place]));
  }

  textOf(prefix, number) { return this.blocks.item(prefix, number, this.index.texts_per_block); }

  /** What the page has of a case: null for one that it does not have in full. */
  itemOf(row) {
    const place = this.places ? this.places.get(row) : row;
    return place === undefined ? null : this.blocks.item("d", place, this.index.rows_per_block);
  }

  /** The elements of the case in a row. `sides` are the rows of its question, `state` that of the page. Rejects when a block is broken. */
  async content(row, sides, state, page) {
    const items = await Promise.all(sides.map((side) => this.itemOf(side)));
    const all = sides.map((side, place) => ({ row: side, item: items[place] ?? {}, method: this.figures.method(side) }));
    const opened = all.find((side) => side.row === row);
    const { item } = opened;
    const isDiff = state.diff === "on" && all.length > 1;
    const isAll = state.tab === "all" && all.length > 1;
    const texts = new Map(await Promise.all((isAll ? [] : item.k ?? []).map(async ({ t }) => [t, await this.textOf("t", t)])));
    const isLong = (item.ref ?? []).join("").length > LONG;
    return [
      make("p", { class: "question", dir: "auto", text: item.q ?? this.figures.question(row) }),
      item.h && fold(`Earlier turns (${item.h.length})`, item.h.map(([role, text]) => make("p", { class: "reason" }, make("b", { text: `${role}: ` }), text))),
      item.ref && fold(item.ref.length > 1 ? `References (${item.ref.length})` : "Reference", item.ref.map((text) => make("div", { class: "reason", dir: "auto", text })), { open: !isLong }),
      item.l && make("ul", { class: "labels" }, item.l.map(([name, text]) => make("li", { class: "badge", text: `${name}: ${text}` }))),
      this.tabs(all, opened, isAll, isDiff, page),
      !("a" in item) ? this.elsewhere(row, page) : isAll ? this.sideBySide(all, isDiff) : false,
      !isAll && make("div", { class: "case" },
        make("div", {}, "a" in item && [make("h3", { text: "Answer" }), this.answer(all[0], opened, isDiff)], make("h3", { text: "Scores" }), this.iterationNote(), this.scores(opened)),
        "a" in item && make("div", {}, make("h3", { text: "Contexts" }), this.contexts(opened, all, texts), this.legend(item), this.support(item))),
      !isAll && this.judge(opened, page),
      item.n && make("p", { class: "note", text: `${item.n.join(", ")}: in the tables.` }),
    ].filter(Boolean);
  }

  /** How to read a case that is too much for the page. */
  elsewhere(row, page) {
    const words = `The page has the ${this.index.full.length.toLocaleString("en")} worst cases in full, and this is none of them. To put all of them into it, and to print this one:`;
    return make("div", { class: "banner" }, make("p", { text: words }),
      make("p", { class: "mono text", text: `python -m ragpipe task=rescore run=${this.index.run} report.page_cases=null` }),
      make("p", { class: "mono text", text: page.explainCommand(row, "METRIC") }));
  }

  /** The methods of the question with their headline score, one pressed; then repeats. */
  tabs(all, opened, isAll, isDiff, page) {
    const repeats = page.repeatsOf(opened.row);
    const links = repeats.length > 1 && make("span", { class: "push" }, "repeat ", repeats.map((row) => make("a", { class: "button", href: writeAddress({ ...page.state, case: page.names[row] }, page.defaults), text: String(this.index.repeat[row]), "aria-current": String(opened.row === row) })));
    if (all.length === 1) return links && make("div", { class: "bar no-print" }, links);
    const button = (content, pressed, run) => make("button", { type: "button", "aria-pressed": String(pressed), onclick: run }, content);
    const show = (changes) => page.address.set(changes, { push: !page.state.case });
    return make("div", { class: "bar no-print tabs" },
      all.map((side) => button([methodKey(side.method) ?? "", ` ${side.method} `, this.valueOf(side, page.score)], !isAll && side === opened, () => show({ case: page.names[side.row], tab: "" }))),
      button("side by side", isAll, () => show({ case: page.names[opened.row], tab: "all" })),
      (isAll || opened !== all[0]) && button(`word diff to ${all[0].method}`, isDiff, () => page.toggleDiff()), links);
  }

  /** A value with the mark of its verdict. */
  valueOf(side, name) {
    const verdict = this.figures.verdict(side.row, name);
    return make("span", { class: `cell ${verdict}`, text: `${figure(this.figures.value(side.row, name))}${VERDICT_MARKS[verdict] ?? ""}` });
  }

  /** The answers of all methods, and their scores: those that a method misses first. */
  sideBySide(all, isDiff) {
    const urgency = ({ name }) => Math.min(...all.map((side) => ["miss", "error"].indexOf(this.figures.verdict(side.row, name)) + 1 || 3));
    const scores = this.index.scores.filter(({ name }) => all.some((side) => this.isMeasured(side.row, name))).toSorted((a, b) => urgency(a) - urgency(b));
    const row = ({ name }) => make("tr", {}, make("th", { scope: "row", text: name }), all.map((side) => make("td", {}, this.valueCell(side, name))));
    return make("div", {},
      make("div", { class: all.length > 3 ? "columns many" : "columns", ...(all.length > 3 ? { tabindex: "0", role: "region", "aria-label": "answers" } : {}) }, all.map((side) => make("div", {}, make("h3", { text: side.method }), this.answer(all[0], side, isDiff)))),
      region("scores of all methods", make("table", { class: "scores" },
        make("thead", {}, make("tr", {}, ["score", ...all.map((side) => side.method)].map((text) => make("th", { scope: "col", text })))),
        make("tbody", {}, scores.map(row)))));
  }

  /** The answer of a method with its marks; with word diff what is new and gone since the first method. */
  answer(first, side, isDiff) {
    const { a: answer, e: error, dg: diagnosis = [] } = side.item;
    const notes = [
      error && make("p", { class: "badge bad", text: `system error: ${error}` }),
      diagnosis.length > 0 && make("p", {}, diagnosis.map((name) => [make("span", { class: "badge warn", text: name }), " "])),
    ];
    if (answer === null) return [...notes, make("p", { class: "soft", text: "no answer was recorded" })];
    const base = first.item.a;
    if (!isDiff || side === first || base === null) return [...notes, make("div", { class: "text", dir: "auto" }, markedParts(answer))];
    const pieces = changedParts(plainParts(base), plainParts(answer));
    return [...notes, make("div", { class: "text", dir: "auto" }, pieces ?? plainParts(answer)), !pieces && make("p", { class: "note", text: "too different for a word diff" })];
  }

  /** What the marks of the case mean. */
  legend(item) {
    const kinds = new Set([...(Array.isArray(item.a) ? item.a.map((part) => part[1]) : []), ...(item.k ?? []).flatMap((chunk) => (chunk.m ?? []).map((mark) => mark[2]))]);
    const shown = Object.entries(this.index.marks).filter(([mark]) => kinds.has(mark));
    return shown.length > 0 && make("p", { class: "note" }, "Marked in answers and contexts: ", shown.map(([mark, meaning], place) => [place ? ", " : "", make("mark", { class: mark, text: meaning })]), ".");
  }

  /** The chunks of a method; with several methods those that another one has too are kept. */
  contexts(side, all, texts) {
    const chunks = side.item.k ?? [];
    if (!chunks.length) return make("p", { class: "soft", text: "none" });
    const others = new Set(all.filter((other) => other !== side).flatMap((other) => (other.item.k ?? []).map((chunk) => chunk.id)));
    return chunks.map((chunk, place) => {
      const text = texts.get(chunk.t) ?? "";
      const badge = all.length > 1 && make("span", { class: "badge", text: others.has(chunk.id) ? "kept" : "only here" });
      const marks = [...new Set((chunk.m ?? []).map((mark) => mark[2]))].map((mark) => [" ", make("mark", { class: mark, text: mark })]);
      return make("details", { class: "chunk", open: place < CONTEXTS_OPEN || marks.length > 0 },
        make("summary", {}, badge, ` ${chunk.p} `, marks, " ", make("span", { class: "soft", text: text.slice(0, 90) })),
        make("div", { class: "text", dir: "auto" }, markedText(text, chunk.m)));
    });
  }

  // --- scores

  /** Which iteration the values are of, and how to print those of another. */
  iterationNote() {
    const { iterations, iteration } = this.index;
    return iterations.length > 0 && make("p", { class: "note", text: `Of iteration ${iteration} of ${iterations.length}; task=explain with iteration=N prints another.` });
  }

  /** The scores of a case: those that failed, with their parts; the headline scores; the others folded. */
  scores(side) {
    const verdict = ({ name }) => this.figures.verdict(side.row, name);
    const measured = this.index.scores.filter(({ name }) => this.isMeasured(side.row, name));
    const ranks = measured.filter((score) => score.rank);
    const inTable = ranks.length > 5 ? measured.filter((score) => !score.rank) : measured;
    const isUrgent = (score) => ["miss", "error"].includes(verdict(score)) || Boolean(side.item.s?.[score.name]?.c);
    const rest = inTable.filter((score) => !isUrgent(score) && !score.headline);
    const first = [...inTable.filter(isUrgent), ...inTable.filter((score) => !isUrgent(score) && score.headline)];
    const groups = [["Passed", rest.filter((score) => verdict(score) === "pass")], ["Without a verdict", rest.filter((score) => verdict(score) !== "pass")]];
    const skipped = this.index.scores.filter((score) => verdict(score) === "skipped");
    const because = ({ name }) => (side.item.s?.[name]?.r ? `${name} (${side.item.s[name].r})` : name);
    return [
      this.scoreTable("scores of the case", first, side, isUrgent),
      groups.filter(([, group]) => group.length).map(([title, group]) => lazyFold(`${title} (${group.length})`, () => [this.scoreTable(title.toLowerCase(), group, side, () => false)])),
      ranks.length > 5 && this.rankTable(ranks, side),
      skipped.length > 0 && fold(`Skipped (${skipped.length})`, make("p", { class: "note", text: skipped.map(because).join(", ") })),
    ];
  }

  scoreTable(label, scores, side, isOpen) {
    const row = (score) => make("tr", {}, make("th", { scope: "row", text: score.name }), make("td", {}, scoreNotes(this.valueCell(side, score.name), side.item.s?.[score.name] ?? {}, isOpen(score))));
    return region(label, make("table", { class: "scores" },
      make("thead", {}, make("tr", {}, ["score", "value and why"].map((text) => make("th", { scope: "col", text })))),
      make("tbody", {}, scores.map(row))));
  }

  isMeasured(row, name) { return Number.isFinite(this.figures.value(row, name)) || this.figures.verdict(row, name) === "error"; }

  valueCell(side, name) {
    return [make("b", { text: figure(this.figures.value(side.row, name)) }), " ", verdictBadge(this.figures.verdict(side.row, name))];
  }

  /** Which context carries which claim, for each score that looked up quotes. */
  support(item) {
    const scores = Object.entries(item.s ?? {}).filter(([, notes]) => notes.u);
    return scores.map(([name, notes]) => fold(`Claims by context (${name})`, notes.u.flatMap(detailBlock).filter(Boolean)));
  }

  /** Scores at several ranks as one table: a row per measure, a column per rank. */
  rankTable(scores, side) {
    const measures = [...new Set(scores.map(({ rank }) => rank[0]))];
    const ranks = [...new Set(scores.map(({ rank }) => rank[1]))].sort((a, b) => a - b);
    const names = new Set(scores.map(({ name }) => name));
    const missed = scores.filter(({ name }) => this.figures.verdict(side.row, name) === "miss").length;
    const cell = (name) => make("td", {}, names.has(name) ? this.valueCell(side, name) : []);
    return fold(`Ranking (${scores.length} scores${missed ? `, ${missed} miss the threshold` : ""})`, region("ranking scores", make("table", { class: "scores" },
      make("thead", {}, make("tr", {}, ["measure", ...ranks.map((rank) => `@${rank}`)].map((text) => make("th", { scope: "col", text })))),
      make("tbody", {}, measures.map((measure) => make("tr", {}, make("th", { scope: "row", text: measure }), ranks.map((rank) => cell(`${measure}@${rank}`))))))));
  }

  // --- the questions to the judge

  judge(side, page) {
    const { j: calls } = side.item;
    const command = (metric) => page.explainCommand(side.row, metric);
    return calls && lazyFold(`What the judge was asked, and its replies (${calls.length})`, () => calls.map((call, place) => judgeQuestion(call, place + 1, (number) => this.textOf("p", number), command)));
  }
}
