
// case_view.js: one compared case as elements: both answers, the scores, the contexts kept, lost and new.

const EQUAL_OPEN = 12; // of more scores of a case, those that are equal are folded
const VERDICTS = ["", "miss", "pass"];
const signed = (value) => (Number.isFinite(value) ? `${value > 0 ? "+" : ""}${figure(value)}` : EMPTY);
const direction = (value) => (value > 0 ? "up" : value < 0 ? "down" : "");

/** Values and verdicts of the rows: the columns of the page by score and side. Side -1 is the base, n the candidate n. */
class Figures {
  constructor(index, columns) {
    Object.assign(this, { index, columns });
    this.better = new Map(index.scores.map((score) => [score.name, score.better]));
  }

  value(row, score, side) { return this.columns[side < 0 ? `b:${score}` : `c${side}:${score}`]?.[row] ?? NaN; }
  change(row, score, side) { return this.value(row, score, side) - this.value(row, score, -1); }
  gain(row, score, side) { return this.change(row, score, side) * this.better.get(score); }
  code(row, score, candidate) { return this.columns[`v${candidate}:${score}`]?.[row] ?? 0; }

  /** "miss", "pass" or "" of the base and of a candidate. */
  verdicts(row, score, candidate) {
    const code = this.code(row, score, candidate);
    return [VERDICTS[Math.floor(code / 3)], VERDICTS[code % 3]];
  }
}

class CaseView {
  constructor(blocks, index, figures) {
    Object.assign(this, { blocks, index, figures });
  }

  /** The elements of a case. `state` is that of the page, `candidate` the number of the chosen candidate; `onTab` and `onDiff`
   *  are called by the buttons. Rejects when a data block is broken. */
  async content(row, state, candidate, { onTab, onDiff }) {
    const { rows_per_block: perBlock, texts_per_block: textsPerBlock, base, candidates } = this.index;
    const item = await this.blocks.item("d", row, perBlock);
    const sides = [{ name: base, text: item.b, number: -1 }, ...candidates.map((name, number) => ({ name, text: item.c[number], number }))].filter((side) => side.text);
    const numbers = [...new Set(sides.flatMap((side) => side.text.k.map((chunk) => chunk[2])))];
    const texts = new Map(await Promise.all(numbers.map(async (n) => [n, await this.blocks.item("t", n, textsPerBlock)])));
    const chosen = sides.filter((side) => side.name === state.tab);
    const shown = chosen.length ? chosen : sides;
    const columns = (content) => make("div", { class: shown.length > 2 ? "columns many" : "columns" }, shown.map((side) => make("div", {}, make("h3", { text: side.name }), content(side))));
    const word = state.diff !== "off";
    return [
      make("p", { class: "question", dir: "auto", text: item.q }),
      item.h.length > 0 && fold(`Earlier turns (${item.h.length})`, item.h.map(([role, text]) => make("p", { class: "reason" }, make("b", { text: `${role}: ` }), text))),
      item.ref.length > 0 && fold(item.ref.length > 1 ? `References (${item.ref.length})` : "Reference", item.ref.map((text) => make("div", { class: "reason", dir: "auto", text })), { open: item.ref.join("").length <= LONG }),
      this.tabs(sides, state.tab, word, onTab, onDiff),
      columns((side) => this.answer(item.b, side, word)),
      make("h3", { text: "Scores" }), this.scoreTable(row, sides, candidate),
      make("h3", { text: "Contexts" }), columns((side) => this.contexts(item, side, candidate, texts)),
    ].filter(Boolean);
  }

  tabs(sides, tab, word, onTab, onDiff) {
    const button = (text, pressed, run) => make("button", { type: "button", text, "aria-pressed": String(pressed), onclick: run });
    return make("div", { class: "bar no-print" },
      [["all", ""], ...sides.map((side) => [side.name, side.name])].map(([text, name]) => button(text, tab === name, () => onTab(name))),
      button("word diff", word, onDiff));
  }

  /** The answer of a side; that of a candidate with the words that are new and gone since the base. */
  answer(base, side, word) {
    const { a: answer, e: error } = side.text;
    const note = error && make("p", { class: "badge bad", text: `system error: ${error}` });
    if (answer === null) return make("div", {}, note, make("p", { class: "soft", text: "no answer was recorded" }));
    const isDiff = word && side.number >= 0 && base.a !== null;
    const pieces = isDiff ? changedParts(base.a, answer) : null;
    return make("div", {}, note, make("div", { class: "text", dir: "auto" }, pieces ?? answer), isDiff && !pieces && make("p", { class: "note", text: "too different for a word diff" }));
  }

  /** Contexts of a side: those of the base are kept or lost by the chosen candidate, those of a candidate kept or new. */
  contexts(item, side, candidate, texts) {
    const isBase = side.number < 0;
    const others = new Set(((isBase ? item.c[candidate] : item.b)?.k ?? []).map((chunk) => chunk[0]));
    if (!side.text.k.length) return make("p", { class: "soft", text: "none" });
    return side.text.k.map(([key, place, number]) => {
      const [word, kind] = others.has(key) ? ["kept", ""] : isBase ? ["lost", "bad"] : ["new", "good"];
      const text = texts.get(number) ?? "";
      return make("details", { class: "chunk", open: word !== "kept" },
        make("summary", {}, make("span", { class: `badge ${kind}`, text: word }), ` ${place} `, make("span", { class: "soft", text: text.slice(0, 90) })),
        make("div", { class: "text", dir: "auto", text }));
    });
  }

  scoreTable(row, sides, candidate) {
    const heads = sides.flatMap((side) => (side.number < 0 ? [side.name] : [side.name, "Δ"]));
    const scores = this.index.scores.filter(({ name }) => this.isMeasured(row, sides, name)).sort((a, b) => this.isFlipped(row, b, candidate) - this.isFlipped(row, a, candidate) || b.headline - a.headline);
    const isEqual = ({ name, headline }) => !headline && sides.every(({ number }) => number < 0 || this.figures.change(row, name, number) === 0);
    const equal = scores.length > EQUAL_OPEN ? scores.filter(isEqual) : [];
    const table = (label, shown) => region(label, make("table", { class: "scores" },
      make("thead", {}, make("tr", {}, ["score", ...heads].map((text) => make("th", { scope: "col", text })))),
      make("tbody", {}, shown.map(({ name }) => this.scoreRow(row, sides, candidate, name)))));
    return make("div", {}, table("scores of the case", scores.filter((score) => !equal.includes(score))),
      equal.length > 0 && fold(`Equal on all sides (${equal.length})`, table("equal scores of the case", equal)));
  }

  /** Whether the verdict of a score is another one than that of the base. */
  isFlipped(row, { name }, candidate) {
    const [before, after] = this.figures.verdicts(row, name, candidate);
    return Boolean(before && after && before !== after);
  }

  /** Whether any side has a value or an error of a score. */
  isMeasured(row, sides, name) {
    return sides.some(({ number, text }) => Number.isFinite(this.figures.value(row, name, number)) || text.s[name] === "error");
  }

  /** A score of the case. */
  scoreRow(row, sides, candidate, name) {
    const { figures } = this;
    const cells = sides.flatMap(({ number, text }) => {
      const verdict = number < 0 ? figures.verdicts(row, name, candidate)[0] : figures.verdicts(row, name, number)[1];
      const note = [text.s[name], text.r[name]].filter(Boolean).join(": ");
      const cell = make("td", {}, `${figure(figures.value(row, name, number))} `,
        verdictBadge(verdict),
        note && make("p", { class: "reason", text: note }));
      return number < 0 ? [cell] : [cell, make("td", { class: `num ${direction(figures.gain(row, name, number))}`, text: signed(figures.change(row, name, number)) })];
    });
    return make("tr", {}, make("th", { scope: "row", text: name }), cells);
  }
}
