"""The explanation of one case: from its scores down to the replies of the judge, as `task=explain` prints it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from ragpipe.core.sample import Case, QuotableChunks
from ragpipe.core.score import ScoreSpec
from ragpipe.core.text import MatchableText, on_one_line, printable, quote_pieces
from ragpipe.report.case_views import Passage, passage_mark, passages_of, place_words, reply_text, support_lines
from ragpipe.report.styled_text import plural
from ragpipe.score.accumulators import gated
from ragpipe.score.chunk_support import chunk_support
from ragpipe.score.dimensions import CASE, Fields
from ragpipe.score.normalisation import OVERALL
from ragpipe.score.settings import ScoringSettings

_RULE = "-" * 72
_VERDICTS = {True: "passed", False: "not passed", None: "not judged"}
_ROLES = {"contradicts": "contradicted by", "supports": "supported by", "quoted": "evidence"}
_TEXT = 1000  # characters of the question and the texts beside it
_SHORT = 100  # characters of a list that is printed on one line


@dataclass(frozen=True)
class CaseExplanation:
    """One case: rows of `scores` and `judge_inputs` (`asked`, in the order in which they are shown), its row of `records`,
    what the scores declare, the arithmetic that led from the details to each value, and by metric the `notes` on its scores. Of a case
    that is shown `is_whole` the scores that did not pass are shown at length."""

    case: Case
    scores: Sequence[Mapping[str, Any]]
    asked: Sequence[Mapping[str, Any]]
    record: Mapping[str, Any]
    specs: Mapping[str, ScoreSpec]
    arithmetic: Mapping[str, str]
    scoring: ScoringSettings
    messages: bool = False
    is_whole: bool = False
    notes: Mapping[str, Sequence[str]] = field(default_factory=dict)


def explanation_lines(chain: CaseExplanation) -> Iterator[str]:
    """What came out, the case, then the chain of each score down to the quotes; with `messages` down to prompts and replies. What begins
    with blanks belongs to the line above."""
    yield from _outcome(chain)
    case = chain.case
    texts = [("question", case.question), ("answer", case.answer), ("system error", case.output.error or "")]
    texts += [(f"reference {number}", text) for number, text in enumerate(case.references, 1)]
    for name, text in texts:
        if text or name == "answer":
            label = name.removesuffix(" 1") if len(case.references) == 1 else name
            yield f"{label}: {on_one_line(' '.join(text.split()), _TEXT)}"
    shown = [row for row in chain.scores if not chain.is_whole or _has_failed(chain, row)]
    for number, row in enumerate(shown):
        notes = chain.notes.get(row["metric"], ()) if row["metric"] not in {above["metric"] for above in shown[:number]} else ()
        yield from ("", *_score(chain, row), *(f"  {on_one_line(note, 2000)}" for note in notes))
    yield ""
    if chain.is_whole:
        yield from _other_scores(chain)
    yield from _sums(chain)
    hints = ["metric=NAME shows how a score came about"] if chain.is_whole else []
    if chain.asked and not chain.messages:
        hints.append(f"messages=true prints what the judge was asked and replied ({plural(len(chain.asked), 'question')})")
    yield from ["; ".join(hints)] if hints else []
    for number, row in enumerate(chain.asked if chain.messages else (), 1):
        yield from ("", _RULE, *_question(row, number, len(chain.asked)))


def _outcome(chain: CaseExplanation) -> Iterator[str]:
    """`dao-01/baseline: overall_score 0.61, not passed; did not pass: faithfulness; diagnosis: hallucination`."""
    record = chain.record
    overall, passed = record.get(OVERALL.name), record.get("overall_passed")
    is_shown = overall is not None and _shows_overall(chain)
    parts = [f"{OVERALL.name} {overall:.4g}" + ("" if passed is None else f", {_VERDICTS[passed]}")] if is_shown else []
    names = {"failed_by": "did not pass", "diagnosis": "diagnosis", "failure_modes": "failure modes", "flag_reasons": "flags"}
    keys = [key for key in names if record.get(key) and (chain.is_whole or key == "failed_by")]
    parts += [f"{names[key]}: {', '.join(record[key])}" for key in keys]
    yield f"{chain.case.key}: {'; '.join(parts)}" if parts else str(chain.case.key)


def _has_failed(chain: CaseExplanation, row: Mapping[str, Any]) -> bool:
    return row["status"] == "error" or chain.record.get(f"{row['score_name']}.passed") is False


def _other_scores(chain: CaseExplanation) -> Iterator[str]:
    """The scores that passed, those without a threshold, and those that were not measured, a line each."""
    groups: dict[str, list[str]] = {"passed": [], "without a threshold": [], "not measured": []}
    for row in chain.scores:
        name = row["score_name"]
        if row["status"] == "skipped":
            groups["not measured"].append(f"{name} ({on_one_line(row['reason'] or '', 100)})")
        elif not _has_failed(chain, row):
            kind = "passed" if chain.record.get(f"{name}.passed") else "without a threshold"
            groups[kind].append(f"{name} {row['value']:.4g}")
    yield from (f"{words}: {', '.join(names)}" for words, names in groups.items() if names)


def _score(chain: CaseExplanation, row: Mapping[str, Any]) -> Iterator[str]:
    """The value and what it means, why, how it was computed, then what the judge found."""
    name = row["score_name"]
    spec = chain.specs[name]
    if row["status"] != "ok":
        yield f"{name}: {row['status']}: {on_one_line(row['reason'] or '', 500)}"
    else:
        scale = " (a count)" if spec.low is None or spec.high is None else f" on {spec.low:g} to {spec.high:g}"
        lower = "" if spec.higher_is_better or scale == " (a count)" else ", lower is better"
        yield f"{name} = {row['value']:g}{scale}{lower}{_judged(chain, name, spec)}"
        if row["reason"]:
            yield f"  {on_one_line(row['reason'], 500)}"
    details = json.loads(row["details"] or "{}")
    how = chain.arithmetic.get(name)
    if how and not chain.is_whole:
        yield f"  how: {how}"
        yield from _normalised(chain, name, row["value"], spec)
    yield from _findings(details, chain.case, only_bad=chain.is_whole)
    if not chain.is_whole:
        yield from _further(details, chain.case, row["reason"], has_arithmetic=bool(how))


def _further(details: Mapping[str, Any], case: Case, reason: str | None, *, has_arithmetic: bool) -> Iterator[str]:
    """The contexts that carry no claim, and what else the metric noted: no number that the arithmetic has."""
    support = chunk_support(details, [(chunk.id, chunk.rank) for chunk in case.contexts])
    if support is not None and support.n_chunks:
        yield from (f"  {line}" for line in support_lines(support, [chunk.rank for chunk in case.contexts]))
    counted = (int, float, dict) if has_arithmetic else ()
    words = [
        f"{key.replace('_', ' ')} {on_one_line(_word(value), 200)}"
        for key, value in details.items()
        if value not in (reason, [], {}, None, "")
        and (not isinstance(value, list) or key == "flags")
        and (isinstance(value, bool) or not isinstance(value, counted))
    ]
    if words:
        yield f"  found: {', '.join(words)}"


def _word(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_word, value))
    if isinstance(value, Mapping):
        return " and ".join(f"{name} {_word(part)}" for name, part in value.items())
    return ("no", "yes")[value] if isinstance(value, bool) else f"{value:g}" if isinstance(value, int | float) else str(value)


def _normalised(chain: CaseExplanation, name: str, value: float, spec: ScoreSpec) -> Iterator[str]:
    score = chain.record.get(f"{name}.score")
    as_it_is = (spec.low, spec.high, spec.higher_is_better) == (0, 1, True)
    if score is not None and spec.low is not None and spec.high is not None and not as_it_is:
        share = f"({value:g} - {spec.low:g}) / ({spec.high:g} - {spec.low:g})"
        yield f"  on 0 to 1: {share if spec.higher_is_better else f'1 - {share}'} = {score:g}"


def _judged(chain: CaseExplanation, name: str, spec: ScoreSpec) -> str:
    """`: not passed, at least 0.85 is needed`; empty for a score without a threshold."""
    threshold, others = chain.scoring.threshold(spec), chain.scoring.passes_with.get(name, [])
    verdict = _VERDICTS[chain.record.get(f"{name}.passed")]
    need = f"{'at least' if spec.higher_is_better else 'at most'} {threshold:g}" if threshold is not None else ""
    if others:
        alone = f"; {need} is not enough by itself" if need and name in others else ""
        return f": {verdict}, passes exactly when {', '.join(others)} do{alone}"
    return f": {verdict}, {need} is needed" if need else ""


_SUBJECTS = ("claim", "text", "statement")  # what a finding is about
_SAID = (*_SUBJECTS, "reason", "verdict", "evidence", "claims", "supported", "evidence_found")  # in its words, or below it


def _findings(details: Mapping[str, Any], case: Case, *, only_bad: bool = False) -> Iterator[str]:
    """Claims, verdicts and other lists of a metric, a sentence each; each quote with the chunk and the characters where it is found.
    With `only_bad` those that are good are left out."""
    listed = details.get("claims")
    claims = {item.get("claim") for item in listed if isinstance(item, Mapping)} if isinstance(listed, list) else set()
    for name, items in details.items():
        if not isinstance(items, list) or not items or name == "flags" or claims.issuperset(map(str, items)):
            continue
        if not any(isinstance(item, Mapping) for item in items):
            texts = [on_one_line(item if isinstance(item, str) else json.dumps(item), 300) for item in items]
            is_short = sum(map(len, texts)) < _SHORT
            yield f"  {name.replace('_', ' ')}:" + (f" {', '.join(texts)}" if is_short else "")
            yield from () if is_short else (f"  - {text}" for text in texts)
        for item in (item for item in items if isinstance(item, Mapping)):
            marks = [value for name, value in item.items() if isinstance(value, bool) and name != "evidence_found"]
            if only_bad and marks and all(marks):
                continue
            yield f"  {_finding(item)}"
            if item.get("reason"):
                yield f"    {on_one_line(str(item['reason']), 300)}"
            for passage in _passages(item.get("evidence"), case):
                yield f'    {_ROLES[passage_mark(item)]} "{on_one_line(passage.quote, 400)}" in {passage.place}'
            if isinstance(item.get("claims"), list):
                yield from (f"  {line}" for line in _findings({"claims": item["claims"]}, case, only_bad=only_bad))


def _finding(item: Mapping[str, Any]) -> str:
    """`contradicted: The claim.`, `not accurate, valid: The sentence. (chunk stip-forum, citation [1])`."""
    words = [str(item["verdict"]).replace("_", " ")] if item.get("verdict") else []
    words += (
        [("not supported", "supported")[item["supported"]]] if not words and isinstance(item.get("supported"), bool) else []
    )
    for name, value in item.items():
        if isinstance(value, bool) and name not in _SAID:
            words.append(name.replace("_", " ") if value else f"not {name.replace('_', ' ')}")
    rest = ", ".join(
        f"{name.replace('_', ' ')} {_word(value)}"
        for name, value in item.items()
        if name not in _SAID and not isinstance(value, bool) and value not in (None, "", [])
    )
    subject = next((str(item[name]) for name in _SUBJECTS if item.get(name)), "")
    text = f"{subject} ({rest})" if subject and rest else subject or rest
    return on_one_line(": ".join(filter(None, (", ".join(words), text))), 600)


def _passages(evidence: Any, case: Case) -> list[Passage]:
    """The quotes of a finding. Where its metric did not look one up, it is looked for in the contexts, then in the answer."""
    if not isinstance(evidence, str) or not evidence:
        return passages_of(evidence)
    places = QuotableChunks(case.contexts).places(evidence)
    if not places and (spans := MatchableText(case.answer).find(evidence)):
        last = len(quote_pieces(evidence)) - 1
        return [Passage(evidence, f"the answer, characters {spans[0][0]} to {spans[last][1]}")]
    return [Passage(evidence, place_words(places))]


def _sums(chain: CaseExplanation) -> Iterator[str]:
    """The weighted means over the case's scores that are shown, as they were made."""
    shown = {row["score_name"] for row in chain.scores}
    for name, composite in chain.scoring.composites.items():
        if composite is not None and name in chain.record and not shown.isdisjoint(composite.weights):
            yield from _sum(chain, name, composite.weights, composite.scale[1])
    weights = {name: weight for name, weight in chain.scoring.weight_shares().items() if weight}
    if _shows_overall(chain) and (not shown or not shown.isdisjoint(weights)):
        yield from _sum(chain, OVERALL.name, weights, 1)


def _shows_overall(chain: CaseExplanation) -> bool:
    return chain.scoring.shows_overall([spec.name for spec in chain.scoring.all_specs(list(chain.specs.values()))])


def _sum(chain: CaseExplanation, name: str, weights: Mapping[str, float], top: float) -> Iterator[str]:
    """One weighted mean on a scale from 0 to `top`: the weights of the existing scores, scaled to a sum of 1."""
    record, value = chain.record, chain.record.get(name)
    used = {part: w for part, w in weights.items() if w > 0 and record.get(f"{part}.score") is not None}
    total = sum(used.values())
    if value is None or not total:
        reason = record.get("overall_reason" if name == OVERALL.name else f"{name}.reason")
        yield f"{name}: none ({on_one_line(reason or 'no score with a weight is there', 300)})"
        return
    terms = [f"{weight / total:.3f} x {record[f'{part}.score']:.3f} ({part})" for part, weight in used.items()]
    terms_added = " + ".join(terms)
    yield f"{name} = {value:.4f} = " + (terms_added if top == 1 else f"{top:g} x ({terms_added})")
    threshold = chain.scoring.threshold(ScoreSpec(name))
    passed = record.get("overall_passed" if name == OVERALL.name else f"{name}.passed")
    others = chain.scoring.passes_with.get(name, [])
    if others:
        yield f"  passes exactly when {', '.join(others)} do: {_VERDICTS[passed]}"
    elif threshold is not None:
        gates = _by_gates(chain) if name == OVERALL.name else ""
        yield f"  threshold: passes where >= {threshold:g}{gates}: {_VERDICTS[passed]}"


def _by_gates(chain: CaseExplanation) -> str:
    """The critical gates on this case's scores that keep it from passing; empty where there is none."""
    record = chain.record
    fields = Fields({name: pa.array([record[name]], type=kind) for name, kind, _ in CASE if name in record})
    names = [name for name, concerned in gated(fields, chain.scoring).items() if concerned[0] and name in record]
    failed = [name for name in names if record[f"{name}.passed"] is False]
    unknown = [name for name in names if record[f"{name}.status"] in (None, "error")]
    groups = ((failed, "did not pass"), (unknown, "has no result"))
    parts = [f"{', '.join(scores)} {outcome}" for scores, outcome in groups if scores]
    return f", and when every critical gate's score passes ({'; '.join(parts)})" if parts else ""


def _question(row: Mapping[str, Any], number: int, count: int) -> Iterator[str]:
    yield f"question {number} of {count}: {row['metric']} / {row['step']} ({row['turn']})"
    if row["template"] is not None:  # a text for an embedder has none
        yield f"  template: {row['template']}.{row['template_version']} sha256 {row['template_sha256']}"
    yield f"  payload {row['payload_id']}, key {row['key']}"
    yield f"  judge {row['judge']}, answered as {row['model'] or 'unknown'}, finish {row['finish_reason'] or 'not reported'}"
    kinds = ("in", "out", "cached", "reasoning", "written")
    tokens = ", ".join(f"{row[f'tokens_{k}']} {k}" for k in kinds if row[f"tokens_{k}"] is not None)
    usd = "at an unknown price" if row["paid_usd"] is None else f"${row['paid_usd']:.6f}"
    payment = "no payment" if row["paid_by"] is None else f"paid by {row['paid_by']}, {usd}"
    yield f"  tokens {tokens or 'not reported'}; {payment}; {row['attempts']} tries"
    if row["status"] != "ok":
        yield f"  {row['status']}: {on_one_line(row['message'] or '', 500)}"
    if row["flags"]:
        yield f"  flags: {', '.join(row['flags'])}"
    for message in json.loads(row["messages"] or "[]"):
        yield from _text(message["role"], message["content"])
    if row["messages"] is None:
        yield "  (the messages and the reply were not kept: keep_messages=false)"
    elif row["reply"] is not None:
        yield from _text("reply", reply_text(row))


def _text(name: str, text: str) -> Iterator[str]:
    yield f"  {name}:"
    for line in printable(text).split("\n"):
        yield f"  | {line}"


_REASON_CHARS = 60


def question_table(records: Sequence[Mapping[str, Any]], scores: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Heads and rows: scores down and methods across, from rows of `records.parquet`.

    A cell is the value in its native scale and whether it passed, or why there is none. Scores that no method has are left
    out.
    """
    repeats = ("" if record["repeat"] == 1 else f" repeat {record['repeat']}" for record in records)
    heads = ["score", *(on_one_line(r["method"], 60) + repeat for r, repeat in zip(records, repeats, strict=True))]
    present = [
        name for name in scores if any(r.get(name) is not None or r.get(f"{name}.status") in ("ok", "error") for r in records)
    ]
    return heads, [[name, *(_cell(record, name) for record in records)] for name in present]


def _cell(record: Mapping[str, Any], name: str) -> str:
    value, overall = record.get(name), name == "overall_score"
    if value is None:
        status = "none" if overall else record.get(f"{name}.status") or "not measured"
        reason = record.get("overall_reason" if overall else f"{name}.reason")
        return f"{status}: {on_one_line(reason, _REASON_CHARS)}" if reason else status
    passed = record.get("overall_passed" if overall else f"{name}.passed")
    return f"{value:.4g}" + {True: " passed", False: " failed", None: ""}[passed]
