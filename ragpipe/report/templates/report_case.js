
// report_case.js: an opened case: the methods of its question side by side.

const SCORES_OPEN = 12; // with more, those that passed or have no threshold are folded
const NOTES_OPEN = 5; // reasons that stand open

class QuestionView {
  constructor(blocks, index, figures) {
    Object.assign(this, { blocks, index, figures });
  }

  textOf(prefix, number) { return this.blocks.item(prefix, number, this.index.texts_per_block); }

  /** The elements of the case in a row. `sides` are the rows of its question, `state` that of the page. Rejects when a block is broken. */
  async content(row, sides, state, page) {
    const items = await Promise.all(sides.map((side) => this.blocks.item("d", side, this.index.rows_per_block)));
    const all = sides.map((side, place) => ({ row: side, item: items[place], method: this.figures.method(side), isOpened: side === row }));
    const numbers = [...new Set(items.flatMap((item) => (item.k ?? []).map((chunk) => chunk.t)))];
    const texts = new Map(await Promise.all(numbers.map(async (number) => [number, await this.textOf("t", number)])));
    const opened = all.find((side) => side.isOpened);
    const chosen = all.filter((side) => side.method === state.tab);
    const shown = chosen.length ? chosen : isNarrow() ? [opened] : all;
    const { item } = opened;
    const columns = (fill) => (shown.length === 1 ? make("div", {}, fill(shown[0])) : make("div", { class: shown.length > 3 ? "columns many" : "columns" }, shown.map((side) => make("div", {}, this.sideHead(side), fill(side)))));
    return [
      make("p", { class: "question", dir: "auto", text: item.q ?? "" }),
      item.l && make("ul", { class: "labels" }, item.l.map(([name, text]) => make("li", { class: "badge", text: `${name}: ${text}` }))),
      item.h && fold(`Earlier turns (${item.h.length})`, item.h.map(([role, text]) => make("p", { class: "reason" }, make("b", { text: `${role}: ` }), text))),
      item.ref && fold(item.ref.length > 1 ? `References (${item.ref.length})` : "Reference", item.ref.map((text) => make("div", { class: "text", dir: "auto", text }))),
      this.tabs(all, shown, state, page),
      columns((side) => this.answer(all[0], side, state.diff === "on" && all.length > 1)),
      this.legend(all),
      make("h3", { text: "Scores" }), this.iterationNote(shown), this.scores(shown, opened),
      make("h3", { text: "Contexts" }), columns((side) => [this.contexts(side, all, texts), this.support(side, shown.length === 1)].flat()),
      this.judge(shown, page),
      item.n && make("p", { class: "note", text: `${item.n.join(", ")}: in the tables.` }),
    ].filter(Boolean);
  }

  sideHead(side) {
    return make("h3", {}, side.method, side.isOpened && make("span", { class: "badge", text: "this case" }));
  }

  tabs(all, shown, state, page) {
    const repeats = page.repeatsOf(all.find((side) => side.isOpened).row);
    const links = repeats.length > 1 && make("span", { class: "push" }, "repeat ", repeats.map((row) => make("a", { class: "button", href: writeAddress({ ...page.state, case: page.names[row] }, page.defaults), text: String(this.index.repeat[row]), "aria-current": String(all.some((side) => side.row === row)) })));
    if (all.length === 1) return links && make("div", { class: "bar no-print" }, links);
    const button = (text, pressed, run) => make("button", { type: "button", text, "aria-pressed": String(pressed), onclick: run });
    return make("div", { class: "bar no-print" },
      !isNarrow() && button("all methods", shown.length === all.length, () => page.address.set({ tab: "" })),
      all.map((side) => button(side.method, shown.length === 1 && shown[0] === side, () => page.address.set({ tab: side.method }))),
      button("word diff", state.diff === "on", () => page.toggleDiff()), links);
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

  /** What the marks of these cases mean. */
  legend(all) {
    const kinds = new Set(all.flatMap(({ item }) => [...(Array.isArray(item.a) ? item.a.map((part) => part[1]) : []), ...(item.k ?? []).flatMap((chunk) => (chunk.m ?? []).map((mark) => mark[2]))]));
    const shown = Object.entries(this.index.marks).filter(([mark]) => kinds.has(mark));
    return shown.length > 0 && make("p", { class: "note" }, "Marked in answers and contexts: ", shown.map(([mark, meaning], place) => [place ? ", " : "", make("mark", { class: mark, text: meaning })]), ".");
  }

  /** The chunks of a method; with several methods those that another one has too are kept. */
  contexts(side, all, texts) {
    const chunks = side.item.k ?? [];
    if (!chunks.length) return make("p", { class: "soft", text: "none" });
    const others = new Set(all.filter((other) => other !== side).flatMap((other) => (other.item.k ?? []).map((chunk) => chunk.id)));
    return chunks.map((chunk) => {
      const text = texts.get(chunk.t) ?? "";
      const badge = all.length > 1 && make("span", { class: "badge", text: others.has(chunk.id) ? "kept" : "only here" });
      const marks = [...new Set((chunk.m ?? []).map((mark) => mark[2]))].map((mark) => [" ", make("mark", { class: mark, text: mark })]);
      return make("details", { class: "chunk", open: all.length === 1 && chunks.length < 3 },
        make("summary", {}, badge, ` ${chunk.p} `, marks, " ", make("span", { class: "soft", text: text.slice(0, 90) })),
        make("div", { class: "text", dir: "auto" }, markedText(text, chunk.m)));
    });
  }

  // --- scores

  /** Which iteration a value is of, and where those of the others stand. */
  iterationNote(shown) {
    const { iterations, iteration } = this.index;
    if (!iterations.length) return false;
    const isVaried = shown.some((side) => side.item.it);
    const others = isVaried ? `below a value, where they differ, those of iterations ${iterations.join(" | ")}` : `equal in all ${iterations.length} iterations`;
    return make("p", { class: "note", text: `Of iteration ${iteration}; ${others}.` });
  }

  scores(shown, opened) {
    const urgency = (name) => ["miss", "error"].indexOf(this.figures.verdict(opened.row, name)) + 1 || 3;
    const names = this.index.scores.filter(({ name }) => shown.some((side) => this.isMeasured(side.row, name)));
    const ranks = names.filter((score) => score.rank);
    const inTable = ranks.length > 5 ? names.filter((score) => !score.rank) : names;
    const sorted = inTable.toSorted((a, b) => urgency(a.name) - urgency(b.name));
    const isFirst = ({ name, headline }) => headline || name === "overall_score" || urgency(name) < 3 || shown.some((side) => side.item.s?.[name]?.c);
    const rest = sorted.length > SCORES_OPEN ? sorted.filter((score) => !isFirst(score)) : [];
    const first = sorted.filter((score) => !rest.includes(score));
    const skipped = this.index.scores.filter(({ name }) => shown.some((side) => this.figures.verdict(side.row, name) === "skipped"));
    return make("div", {},
      this.scoreTable("scores of the case", first, shown, opened),
      this.scoreGroups(rest, shown, opened),
      ranks.length > 5 && this.rankTable(ranks, shown),
      skipped.length > 0 && fold(`Skipped (${skipped.length})`, make("p", { class: "note", text: skipped.map(({ name }) => this.skippedWords(name, shown)).join(", ") })));
  }

  scoreTable(label, scores, shown, opened) {
    let openNotes = 0;
    const heads = ["score", ...(shown.length > 1 ? shown.map((side) => side.method) : ["value"])];
    return region(label, make("table", { class: "scores" },
      make("thead", {}, make("tr", {}, heads.map((text) => make("th", { scope: "col", text })))),
      make("tbody", {}, scores.map(({ name }) => this.scoreRows(name, shown, opened, () => openNotes++ < NOTES_OPEN)))));
  }

  /** The scores that do not stand open, by what the opened case has: those that passed, and those without a threshold. */
  scoreGroups(scores, shown, opened) {
    const passed = scores.filter(({ name }) => this.figures.verdict(opened.row, name) === "pass");
    const others = scores.filter((score) => !passed.includes(score));
    return [["Passed", passed], ["Without a verdict", others]].filter(([, group]) => group.length).map(([title, group]) =>
      lazyFold(`${title} (${group.length})`, () => [this.scoreTable(title.toLowerCase(), group, shown, opened)]));
  }

  isMeasured(row, name) { return Number.isFinite(this.figures.value(row, name)) || this.figures.verdict(row, name) === "error"; }

  skippedWords(name, shown) {
    const reasons = [...new Set(shown.filter((side) => this.figures.verdict(side.row, name) === "skipped").map((side) => side.item.s?.[name]?.r).filter(Boolean))];
    return reasons.length ? `${name} (${reasons.join("; ")})` : name;
  }

  valueCell(side, name) {
    const varied = side.item.it?.[name];
    return make("td", {}, `${figure(this.figures.value(side.row, name))} `, verdictBadge(this.figures.verdict(side.row, name)),
      varied && make("span", { class: "small", text: varied.map((value) => figure(value ?? NaN)).join(" | ") }));
  }

  /** Which context carries which claim, for each score that looked up quotes. */
  support(side, isOpen) {
    const scores = Object.entries(side.item.s ?? {}).filter(([, notes]) => notes.u);
    return scores.map(([name, notes]) => fold(`Claims by context (${name})`, notes.u.flatMap(detailBlock).filter(Boolean), { open: isOpen }));
  }

  /** A score of the methods; a second row has reasons and details, open where this case misses the threshold or a claim is contradicted and `mayOpen()`. */
  scoreRows(name, shown, opened, mayOpen) {
    const notes = shown.map((side) => side.item.s?.[name]);
    const cells = shown.map((side) => this.valueCell(side, name));
    if (!notes.some(Boolean)) return make("tr", {}, make("th", { scope: "row", text: name }), cells);
    const isOpen = (["miss", "error"].includes(this.figures.verdict(opened.row, name)) || notes.some((note) => note?.c)) && mayOpen();
    const body = make("tr", { class: "notes", hidden: !isOpen }, make("td", { colspan: shown.length + 1 }));
    const button = make("button", { type: "button", class: "plain", "aria-expanded": String(isOpen), text: name, onclick: () => {
      body.hidden = !body.hidden;
      button.setAttribute("aria-expanded", String(!body.hidden));
      fill();
    } });
    const fill = () => {
      const box = body.firstChild;
      if (body.hidden || box.childNodes.length) return;
      const content = notes.map((note, place) => note && make("div", {}, shown.length > 1 && make("span", { class: "small", text: shown[place].method }), scoreNotes(note)));
      box.append(make("div", { class: shown.length > 1 ? "notes-columns" : "" }, content.filter(Boolean)));
    };
    fill();
    return [make("tr", {}, make("th", { scope: "row" }, button), cells), body];
  }

  /** Scores at several ranks as one table: a row per measure, a column per method and rank. */
  rankTable(scores, shown) {
    const measures = [...new Set(scores.map(({ rank }) => rank[0]))];
    const ranks = [...new Set(scores.map(({ rank }) => rank[1]))].sort((a, b) => a - b);
    const names = new Set(scores.map(({ name }) => name));
    const missed = scores.filter(({ name }) => shown.some((side) => this.figures.verdict(side.row, name) === "miss")).length;
    const heads = shown.flatMap((side) => ranks.map((rank) => (shown.length > 1 ? `${side.method} @${rank}` : `@${rank}`)));
    const row = (measure) => make("tr", {}, make("th", { scope: "row", text: measure }), shown.flatMap((side) => ranks.map((rank) => (names.has(`${measure}@${rank}`) ? this.valueCell(side, `${measure}@${rank}`) : make("td")))));
    return fold(`Ranking (${scores.length} scores${missed ? `, ${missed} miss the threshold` : ""})`, region("ranking scores", make("table", { class: "scores" },
      make("thead", {}, make("tr", {}, ["measure", ...heads].map((text) => make("th", { scope: "col", text })))),
      make("tbody", {}, measures.map(row)))));
  }

  // --- the questions to the judge

  judge(shown, page) {
    const asked = shown.filter((side) => side.item.j);
    if (!asked.length) return false;
    return make("div", {}, make("h3", { text: "What the judge was asked" }), asked.map((side) => {
      const command = (metric) => page.explainCommand(side.row, metric);
      return lazyFold(`${side.method} (${side.item.j.length})`, () => side.item.j.map((call, place) => judgeQuestion(call, place + 1, (number) => this.textOf("p", number), command)));
    }));
  }
}
