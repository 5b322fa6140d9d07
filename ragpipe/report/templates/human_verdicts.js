
// human_verdicts.js: what a reader of the page says of a case. Kept in this browser, saved as a file; no text of the run is kept.

class HumanVerdicts {
  constructor(run) {
    Object.assign(this, { run, store: `ragpipe.verdicts.${run}`, events: new Map() });
    try {
      for (const event of JSON.parse(remembered(this.store) ?? "[]")) if (event?.run === run) this.events.set(this.key(event), event);
    } catch {
      // what another page wrote under this name is no list of verdicts
    }
  }

  get annotator() { return remembered("ragpipe.annotator") ?? ""; }
  key({ sample_id: sample, method, repeat, score, annotator }) { return JSON.stringify([sample, method, repeat, score, annotator]); }

  /** The verdict on a case and a score by the annotator of this browser, or null. */
  of(about) {
    const event = this.events.get(this.key({ ...about, annotator: this.annotator }));
    return event?.verdict ? event : null;
  }

  /** How many cases and scores have a verdict or a withdrawal that the file would hold. */
  get size() { return this.events.size; }

  /** Note a verdict ("pass", "fail", or null to withdraw it). Returns whether the browser kept it. */
  add(about, verdict, note, answer) {
    const { sample_id, method, repeat, score } = about;
    const annotator = this.annotator;
    const event = { v: 1, run: this.run, sample_id, method, repeat, score, verdict, note, annotator, at: new Date().toISOString(), answer, blind: false };
    this.events.set(this.key(event), event);
    return remember(this.store, JSON.stringify([...this.events.values()]));
  }

  save() {
    const name = this.annotator.replace(/[^\p{L}\p{N}._-]+/gu, "_") || "nobody";
    const lines = [...this.events.values()].map((event) => JSON.stringify(event));
    saveFile(`verdicts-${this.run}-${name}.jsonl`, `${lines.join("\n")}\n`, "application/jsonl");
  }
}

/** The form for a verdict on a case. `about` names case and score, `answer` is the digest of what is judged; `onChange(sentence)`. */
function verdictForm(verdicts, about, answer, onChange) {
  const current = verdicts.of(about);
  const note = make("input", { type: "text", "aria-label": "note", placeholder: "note", maxlength: "2000", class: "note-field" });
  note.value = current?.note ?? "";
  const name = make("input", { type: "text", "aria-label": "your name", placeholder: "your name", maxlength: "80", autocomplete: "off" });
  name.value = verdicts.annotator;
  name.addEventListener("change", () => remember("ragpipe.annotator", name.value.trim() || null));
  const say = (verdict) => () => {
    if (!remember("ragpipe.annotator", name.value.trim() || null)) return onChange("The browser does not let the page keep anything: no verdict can be given here.");
    if (!verdicts.annotator) {
      name.focus();
      return onChange("Type your name first: a verdict carries it.");
    }
    const isKept = verdicts.add(about, verdict, note.value.trim(), answer);
    return onChange(isKept ? (verdict ? `Noted: ${verdict}.` : "Withdrawn.") : "The browser refused to keep the verdict: save the file now, it is lost when the page is closed.");
  };
  const button = (text, verdict) => make("button", { type: "button", text, "aria-pressed": String((current?.verdict ?? null) === verdict && verdict !== null), onclick: say(verdict) });
  return make("details", { class: "fold human no-print", id: "human" },
    make("summary", {}, "Your verdict", current && make("span", { class: `badge ${current.verdict === "pass" ? "good" : "bad"}`, text: `you: ${current.verdict}` })),
    make("div", { class: "bar" }, make("span", { text: about.score }), button("pass", "pass"), button("fail", "fail"), current && button("withdraw", null), note, name,
      make("button", { type: "button", text: `Save ${verdicts.size} as a file`, disabled: verdicts.size === 0, onclick: () => verdicts.save() })),
    make("p", { class: "note", text: "You have seen the scores, so this verdict is not blind. It is kept in this browser; the saved file is for task=label 'label.import=[FILE]'. Calibration does not use it unless told to." }));
}
