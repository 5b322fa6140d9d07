
// case_parts.js: the parts of an opened case as elements: texts with marks, scores, details, questions to the judge.

const LONG = 600; // characters of references that are folded
const VERDICT_NAMES = ["none", "miss", "pass", "error", "skipped", ""];
const VERDICT_MARKS = { miss: "\u00a0✗", pass: "\u00a0✓" };
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

const cellText = (value) => (value === true ? "yes" : value === false ? "no" : String(value));

/** One part of a score's details: a list, findings of objects, a table, or single values in a line. */
function detailBlock(block) {
  const { n: name, h: heads = [], r: rows = [] } = block;
  const isFound = heads.some((head) => ["reason", "verdict"].includes(head)) || rows.some((row) => row.some((value) => typeof value === "boolean"));
  const short = name ? [] : rows.filter(([, value]) => cellText(value).length < 40);
  return [
    name && rows.length + (block.i ?? []).length > 0 && make("span", { class: "small", text: name }),
    block.i && make("ul", {}, block.i.map((text) => make("li", { text }))),
    short.length > 0 && make("p", { class: "note", text: short.map(([key, value]) => `${key} ${cellText(value)}`).join(" · ") }),
    !name && rows.filter((row) => !short.includes(row)).map(([key, value]) => make("p", { class: "note", text: `${key}: ${value}` })),
    name && rows.length > 0 && (isFound ? make("ul", { class: "findings" }, rows.map((row) => finding(heads, row))) : region(name, make("table", {},
      make("thead", {}, make("tr", {}, heads.map((text) => make("th", { scope: "col", text })))),
      make("tbody", {}, rows.map((row) => make("tr", {}, row.map((value) => make("td", { text: cellText(value) })))))))),
    block.more && make("p", { class: "note", text: `${block.more} more in scores.parquet` }),
  ].flat();
}

/** An object of the details as a line: what was found of it, what it is about, and below what belongs to it. */
function finding(heads, row) {
  const parts = Object.fromEntries(heads.map((head, place) => [head, row[place]]).filter(([, value]) => value !== "" && value !== "[]"));
  const judged = "verdict" in parts ? "verdict" : heads.find((head) => typeof parts[head] === "boolean");
  const word = { true: judged, false: `not ${judged}` }[parts[judged]] ?? parts[judged];
  const about = ["claim", "text"].find((head) => head in parts) ?? heads.find((head) => head !== judged && typeof parts[head] === "string");
  const others = Object.keys(parts).filter((head) => ![about, judged].includes(head) && !(head === "supported" && judged === "verdict"));
  return make("li", {},
    judged && [make("span", { class: `badge ${/^(no|neither|un|contra)/i.test(word) ? "bad" : "good"}`, text: word }), " "], parts[about],
    others.map((head) => make("span", { class: "small", text: head === "reason" ? parts[head] : `${head}: ${cellText(parts[head])}` })));
}

/** Value, reason, contradicted claims and details of one score of one case. With `isOpen` the details stand open. */
function scoreNotes(value, { r: reason, c: claims = [], b: blocks = [] }, isOpen) {
  const told = new Set(claims.map(([claim]) => claim)); // stand above with their passages
  const listed = new Set([...told, ...blocks.flatMap(({ h = [], r = [] }) => (h.includes("claim") ? r.map((row) => row[h.indexOf("claim")]) : []))]);
  const isTold = (heads) => (row) => heads.includes("claim") ? told.has(row[heads.indexOf("claim")]) : heads[0] === "" && row[1] === reason;
  const parts = () => blocks.map((block) => ({ ...block, r: block.r?.filter((row) => !isTold(block.h)(row)), i: block.i?.filter((text) => !listed.has(text)) })).flatMap(detailBlock).filter(Boolean);
  return [
    make("p", { class: "reason" }, value, reason && [" ", make("bdi", { text: reason })]),
    claims.map(([claim, passages]) => make("p", { class: "contradiction" }, make("span", { class: "badge bad", text: "contradicted" }), ` ${claim}`,
      passages.length ? passages.map(([quote, place]) => make("span", { class: "small" }, `by ${place}: `, make("mark", { class: "contradicts", text: quote }))) : make("span", { class: "small", text: "without a passage" }))),
    blocks.length > 0 && (isOpen ? parts() : lazyFold("details", parts)),
  ].flat(3).filter(Boolean);
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
      parts.push(make("h3", { text: role }), make("div", { class: "text mono", text: await textOf(place) }));
    }
    return parts;
  });
}
