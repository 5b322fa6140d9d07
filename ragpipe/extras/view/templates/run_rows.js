// run_rows.js: the elements of a run: its row, the row of its sweep, its card while it goes on, the line of its name.

const SVG = "http://www.w3.org/2000/svg";
const STATE_KINDS = { running: "", stalled: "bad", stopped: "warn", incomplete: "warn", complete: "good", broken: "bad", refused: "warn" };

const VERDICT_KINDS = { pass: "good", miss: "bad", "": "" };

/** The elements of a drawing that was made in Python: [tag, attributes, children]. */
function drawn([tag, attributes, children]) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.map((child) => (Array.isArray(child) ? drawn(child) : child)));
  return element;
}

const cell = (properties, ...children) => make("td", { role: "cell", ...properties }, ...children);

class RunRows {
  /** `onTick(key, on)`: a run is chosen for a comparison; null where there is no server to compare. `onOpen(key)`: a sweep is opened. */
  constructor({ onTick, onOpen }) {
    Object.assign(this, { onTick, onOpen });
  }

  /** The row of a run. `isJob`: it stands under its sweep. */
  run(row, { chosen, isJob }) {
    const [first, ...rest] = row.links;
    const name = `${row.name} ${row.id}`;
    const head = make("th", { role: "rowheader", scope: "row" },
      first ? make("a", { class: "run-link", href: first[1] }, row.name) : make("span", { class: "run-link", tabindex: "-1", text: row.name }),
      make("small", { class: "mono run-id", text: row.id }),
      rest.length > 0 && make("span", { class: "reports" }, " ", rest.map(([word, link]) => make("a", { href: link, text: word, "aria-label": `${word} of ${name}` }))),
      make("small", { text: [row.data, row.judge, row.cases].filter(Boolean).join(" · ") }));
    const kinds = [isJob && "job", !this.onTick && "static"].filter(Boolean).join(" ");
    return make("tr", { role: "row", "data-key": row.key, class: kinds },
      this.onTick && cell({ class: "tick" }, row.comparable && this.tick(row, name, chosen)),
      head,
      cell({ class: "verdict" }, this.verdict(row)),
      cell({ class: "score", "data-head": row.score ?? "" }, row.overall ?? "", row.score && make("small", { class: "score-name", text: row.score })),
      cell({ class: "change-cell", "data-head": "before" }, row.change && this.change(row.change), this.comparison(row)),
      cell({ class: "num cost", text: row.cost }),
      cell({ class: "num when", text: row.when }));
  }

  tick(row, name, chosen) {
    const box = make("input", { type: "checkbox", "aria-label": `compare ${name}`, onchange: () => this.onTick(row.key, box.checked) });
    box.checked = chosen;
    return box;
  }

  /** The state of a run that has no verdict yet, or cannot have one; else what the gates say. */
  verdict(row) {
    const badge = make("span", { class: `badge ${STATE_KINDS[row.state]}`, text: row.state });
    if (row.live) return [badge, " ", row.live.share !== null && bar(row.live, "mini", row.name), make("small", { text: row.live.done }), row.reason && make("small", { text: row.reason }), this.folded(row)];
    if (row.state === "broken" || row.state === "refused") return make("span", {}, make("span", { class: `badge ${STATE_KINDS[row.state]}`, text: row.state }), ` ${row.reason}`);
    const verdict = row.verdict ?? { words: "", kind: "", sentences: [] };
    return [
      verdict.kind ? make("span", { class: `badge ${verdict.kind}`, text: verdict.words }) : make("span", { class: "soft", text: verdict.words }),
      row.state !== "complete" && [" ", badge, make("small", { text: row.reason }), this.folded(row)],
      verdict.sentences.map((sentence) => make("small", { text: sentence })),
    ];
  }

  /** The command of a run that goes on with it, folded: a run that stalled has it in its card. */
  folded(row) {
    if (!row.resume || row.state === "stalled") return null;
    return make("details", { class: "no-print" }, make("summary", { text: "command" }), this.command(row.resume));
  }

  command(text) {
    return make("div", { class: "resume" }, make("p", { class: "text mono", text }),
      make("button", { type: "button", onclick: (event) => copyText(text, event.target), text: "Copy" }));
  }

  change([words, state, before]) {
    const mark = { better: "▲ ", worse: "▼ " }[state] ?? "";
    return [make("span", { class: `change ${state}`, text: mark + words }), state && make("small", { text: `${state} against ${before.split("/").pop()}` })];
  }

  /** The comparison with the previous run: where it is, or the command that makes it. */
  comparison({ compare: [link, command], name, id }) {
    if (link) return make("small", {}, make("a", { href: link, text: "comparison", "aria-label": `comparison of ${name} ${id} with the previous run` }));
    if (!command || !this.onTick) return null;
    return make("details", { class: "no-print" }, make("summary", { text: "compare" }), this.command(command));
  }

  /** The row over the jobs of a sweep. */
  sweep(sweep, jobs, isOpen) {
    const button = make("button", { type: "button", "aria-expanded": String(isOpen), onclick: () => this.onOpen(sweep.key), text: `${isOpen ? "−" : "+"} sweep of ${jobs.length}` });
    return make("tr", { role: "row", class: "group", "data-key": sweep.key },
      cell({ colspan: this.onTick ? 7 : 6 }, button, ` ${jobs[0].name} `, make("span", { class: "mono", text: sweep.words }), make("span", { class: "reports" }, " ", make("a", { href: sweep.link, text: "comparison of the jobs" }))));
  }

  /** The card of a run that goes on, or has stalled. */
  card(row) {
    const { live } = row;
    return make("article", { class: `card run-live ${row.state}`, "data-key": row.key, "aria-label": `${row.name} ${row.id}` },
      make("div", { class: "bar" }, make("h3", {}, row.name, " ", make("span", { class: "mono soft", text: row.id })),
        make("span", { class: `badge ${STATE_KINDS[row.state]}`, text: row.state }), live.phase && make("span", { class: "soft", text: live.phase }),
        make("b", { class: "push", text: live.left ?? "" })),
      live.share !== null && bar(live, "", row.name),
      make("p", { class: "small", text: [live.done, row.reason].filter(Boolean).join("; ") }),
      live.figures.length > 0 && make("dl", { class: "figures" }, live.figures.map(([name, value]) => make("div", {}, make("dt", { text: name }), make("dd", { text: value })))),
      live.errors.length > 0 && make("p", { class: "small" }, "errors: ", live.errors.map(([name, n]) => [make("span", { class: "badge bad", text: `${name} ${n}` }), " "])),
      live.cases.length > 0 && make("ul", { class: "cases", "aria-label": "newest cases" }, live.cases.map(([question, method, scores]) => make("li", {},
        make("span", { text: question }), make("small", { class: "soft", text: ` ${method} ` }),
        scores.map(([name, value, verdict]) => [make("span", { class: `badge ${VERDICT_KINDS[verdict]}`, text: [name, value, verdict].filter(Boolean).join(" ") }), " "])))),
      row.resume && [make("p", { class: "small", text: "To go on where it stopped (answered questions are not asked again):" }), this.command(row.resume)]);
  }

  /** The line of a name. */
  line(line) {
    return make("figure", { class: "card line" },
      make("figcaption", {}, make("b", { text: line.name }), ` ${line.score} ${line.newest} `, make("small", { class: "soft", text: line.words })),
      drawn(line.svg),
      make("div", { class: "ends" }, make("span", { text: line.from }), make("span", { text: line.to })));
  }
}

function bar(live, kind, name) {
  const percent = Math.floor(100 * live.share);
  return make("progress", { class: kind, max: "1", value: String(live.share), "aria-label": `${name}: ${percent}%`, text: `${percent}%` });
}

async function copyText(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Not allowed";
  }
}
