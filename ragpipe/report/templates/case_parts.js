
// case_parts.js: the parts of an opened case as elements: texts with marks, scores, details, questions to the judge.

const VERDICT_NAMES = ["none", "miss", "pass", "error", "skipped", ""];
const VERDICT_KINDS = { miss: "bad", pass: "good", error: "bad" };

const verdictBadge = (verdict) => (verdict in VERDICT_KINDS ? make("span", { class: `badge ${VERDICT_KINDS[verdict]}`, text: verdict }) : null);

const fold = (title, content, properties = {}) => make("details", { class: "fold", ...properties }, make("summary", { text: title }), content);

/** A fold whose content is made when it is opened first. `fill` may be slow and may reject. */
function lazyFold(summary, fill) {
  const box = make("div");
  const element = make("details", { class: "fold" }, make("summary", {}, summary), box);
  element.addEventListener("toggle", async () => {
    if (!element.open || box.childNodes.length) return;
    box.append(make("p", { class: "soft", text: "…" }));
    box.replaceChildren(...(await Promise.resolve().then(fill).catch((error) => [make("p", { class: "banner bad", text: error.message })])));
  });
  return element;
}

const region = (label, content) => make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, content);

/** A text of the data as its pieces: texts, and [text, mark] for what is marked. */
const markedParts = (parts) => (typeof parts === "string" ? [parts] : parts).map((part) => (typeof part === "string" ? part : make("mark", { class: part[1], text: part[0] })));

/** A text with marks at [start, end, mark]. */
function markedText(text, marks = []) {
  const pieces = [];
  let start = 0;
  for (const [from, to, mark] of marks) {
    pieces.push(text.slice(start, from), make("mark", { class: mark, text: text.slice(from, to) }));
    start = to;
  }
  return [...pieces, text.slice(start)];
}

const plainParts = (parts) => (typeof parts === "string" ? parts : parts.map((part) => (typeof part === "string" ? part : part[0])).join(""));

/** One part of a score's details: a list, or a table. */
function detailBlock(block) {
  const cell = (value) => (value === true ? "yes" : value === false ? "no" : String(value));
  const rows = block.r ?? [];
  return [
    block.n && make("span", { class: "small", text: block.n }),
    block.i && make("ul", {}, block.i.map((text) => make("li", { text }))),
    rows.length > 0 && region(block.n || "details", make("table", {},
      block.n && make("thead", {}, make("tr", {}, block.h.map((text) => make("th", { scope: "col", text })))),
      make("tbody", {}, rows.map((row) => make("tr", {}, row.map((value) => make("td", { text: cell(value) }))))))),
    block.more && make("p", { class: "note", text: `${block.more} more in scores.parquet` }),
  ];
}

/** Reason, contradicted claims and details of one score of one case. */
function scoreNotes({ r: reason, c: claims = [], b: blocks = [] }) {
  return [
    reason && make("p", { class: "reason", dir: "auto", text: reason }),
    claims.map(([claim, passages]) => make("p", { class: "contradiction" }, make("span", { class: "badge bad", text: "contradicted" }), ` ${claim}`,
      passages.length ? passages.map(([quote, place]) => make("span", { class: "small" }, `by ${place}: `, make("mark", { class: "contradicts", text: quote }))) : make("span", { class: "small", text: "without a passage" }))),
    blocks.length > 0 && lazyFold("details", () => blocks.flatMap(detailBlock).filter(Boolean)),
  ];
}

/** One question to the judge; prompt and reply are read when it is opened. `textOf(number)` resolves to a text. */
function judgeQuestion(call, number, textOf, command) {
  const tokens = call.c ? " · computed" : call.in !== undefined ? ` · ${call.in} tokens in, ${call.out} out` : "";
  const head = [`${number}. ${call.m} / ${call.s}${call.t ? ` (${call.t})` : ""} `, make("span", { class: "soft", text: `${call.st ?? ""}${tokens}` })];
  const about = [call.j, call.tp, call.k, ...(call.f ?? []), call.msg].filter(Boolean).join(" · ");
  return lazyFold(head, async () => {
    const parts = [make("p", { class: "note", text: about })];
    if (!call.r) return [...parts, make("p", {}, "Prompt and reply are not on the page, to keep it small. In the folder of the run: "), make("p", { class: "mono text", text: command(call.m) })];
    for (const [role, place] of [...(call.p ?? []), ["reply", call.r[0]]]) {
      parts.push(make("h3", { text: role }), make("div", { class: "text mono tall", tabindex: "0", role: "region", "aria-label": role, text: await textOf(place) }));
    }
    return parts;
  });
}
