// label_events.js: what an annotator did, as events that are only ever added; the labels and the order of the cases follow from them.

/** A number from 0 to 2^32 - 1 that depends on the text alone (FNV-1a, then the finalizer of MurmurHash3). */
function textNumber(text) {
  let hash = 2166136261;
  for (const byte of new TextEncoder().encode(text)) hash = Math.imul(hash ^ byte, 16777619);
  hash = Math.imul(hash ^ (hash >>> 16), 2246822507);
  hash = Math.imul(hash ^ (hash >>> 13), 3266489909);
  return (hash ^ (hash >>> 16)) >>> 0;
}

/** The cases that an annotator is asked, in an order of the annotator's own: [{place, item}]. */
function queueOf(about, annotator) {
  return about.items
    .map(({ item, asked }, place) => ({ place, item, asked, rank: textNumber(`${annotator}\n${item}`) }))
    .filter(({ asked }) => asked === null || asked.includes(annotator))
    .sort((one, two) => one.rank - two.rank || (one.item < two.item ? -1 : 1))
    .map(({ place, item }) => ({ place, item }));
}

/** What the events come to: for each item its label, if any, and its note; and the events that can be undone. */
function stateOf(events) {
  const items = new Map();
  const done = [];
  for (const event of events) {
    const of = items.get(event.item) ?? { labels: [], note: "" };
    items.set(event.item, of);
    if (event.undo) {
      of.labels.pop();
      const place = done.findLastIndex((one) => one.item === event.item);
      if (place >= 0) done.splice(place, 1);
    } else if ("label" in event) {
      of.labels.push(event.label);
      done.push(event);
    }
    if ("note" in event) of.note = event.note ?? "";
  }
  return { items, done };
}

/** The label of an item: the name of a grade, null for "cannot tell", undefined where there is none. */
const labelOf = (items, item) => items.get(item)?.labels.at(-1);

/** The events of two copies of one annotator's work, each once, in the order of their times. */
function mergedEvents(one, two) {
  const all = new Map([...one, ...two].map((event) => [JSON.stringify([event.at, event.item, event.label, event.note, event.undo]), event]));
  return [...all.values()].sort((a, b) => (a.at < b.at ? -1 : a.at > b.at ? 1 : 0));
}

/** Events as the lines of a file. */
function linesOf(about, annotator, events) {
  const line = (event) => JSON.stringify({
    v: about.v, draw: about.draw, item: event.item, annotator, question: about.score,
    ...("label" in event ? { label: event.label } : {}), note: event.note ?? null, ms: event.ms ?? null, at: event.at, undo: Boolean(event.undo),
  });
  return events.map((event) => `${line(event)}\n`).join("");
}

/** The annotator and events of a saved file. Throws an Error, in words for the reader, for what is no file of this draw. */
function readLines(about, text) {
  const names = new Set();
  const events = text.split("\n").filter((line) => line.trim()).map((line, place) => {
    let row;
    try {
      row = JSON.parse(line);
    } catch {
      throw new Error(`line ${place + 1} of the file is broken`);
    }
    if (row?.v !== about.v || row.draw !== about.draw) throw new Error(`the file is of another draw (${row?.draw ?? "none"}), this page is of ${about.draw}`);
    names.add(row.annotator);
    return { item: row.item, ...("label" in row ? { label: row.label } : {}), note: row.note ?? "", ms: row.ms, at: row.at, undo: row.undo };
  });
  if (names.size !== 1) throw new Error(names.size ? "the file has several annotators: load one at a time" : "the file has no labels");
  return { annotator: [...names][0], events };
}
