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
from ragpipe.score.chunk_support import CARRIED, chunk_support
from ragpipe.score.dimensions import CASE, Fields
from ragpipe.score.normalisation import OVERALL
from ragpipe.score.settings import ScoringSettings

_RULE = "-" * 72
_VERDICTS = {True: "passed", False: "not passed", None: "not judged"}
_ROLES = {"contradicts": "contradicted by", "supports": "supported by", "quoted": "evidence"}


@dataclass(frozen=True)
class CaseExplanation:
    """One case: rows of `scores` and `judge_inputs` (`asked`, in the order in which they are shown), its row of `records`,
    what the scores declare, the arithmetic that led from the details to each value, and by metric the `notes` that stand
    before its scores."""

    case: Case
    scores: Sequence[Mapping[str, Any]]
    asked: Sequence[Mapping[str, Any]]
    record: Mapping[str, Any]
    specs: Mapping[str, ScoreSpec]
    arithmetic: Mapping[str, str]
    scoring: ScoringSettings
    messages: bool = False
    notes: Mapping[str, Sequence[str]] = field(default_factory=dict)


def explanation_lines(chain: CaseExplanation) -> Iterator[str]:
    """The chain from the score down to the replies. Texts of data and judges are printed as they are, without controls."""
    case = chain.case
    yield f"case {case.key}"
    yield from _text("question", case.question)
    yield from _text("answer", case.answer)
    if case.output.error:
        yield from _text("system_error", case.output.error)
    references = case.references
    for number, text in enumerate(references, 1):
        yield from _text(f"reference {number}" if len(references) > 1 else "reference", text)
    metrics_seen: set[str] = set()
    for row in chain.scores:
        metric = row["metric"]
        if metric not in metrics_seen and chain.notes.get(metric):
            notes = (f"  {on_one_line(note, 2000)}" for note in chain.notes[metric])
            yield from ("", _RULE, f"metric {metric}", *notes)
        metrics_seen.add(metric)
        yield from ("", _RULE, *_score(chain, row))
    yield from ("", _RULE, *_sums(chain))
    if chain.asked and not chain.messages:
        yield from ("", f"{plural(len(chain.asked), 'question')} to the judge: messages=true prints prompts and replies")
        return
    for number, row in enumerate(chain.asked, 1):
        yield from ("", _RULE, *_question(row, number, len(chain.asked)))


def _score(chain: CaseExplanation, row: Mapping[str, Any]) -> Iterator[str]:
    name = row["score_name"]
    spec = chain.specs[name]
    if row["status"] != "ok":
        yield f"score {name}: {row['status']}: {on_one_line(row['reason'] or '', 500)}"
    else:
        scale = " (a count)" if spec.low is None or spec.high is None else f" on {spec.low:g} to {spec.high:g}"
        lower = "" if spec.higher_is_better or scale == " (a count)" else ", lower is better"
        yield f"score {name} = {row['value']:g}{scale}{lower}"
        if how := chain.arithmetic.get(name):
            yield f"  how: {how}"
        if row["reason"]:
            yield f"  reason: {on_one_line(row['reason'], 500)}"
        yield from _judged(chain, name, row["value"], spec)
    details = json.loads(row["details"] or "{}")
    yield from _findings(details, chain.case)
    yield from _support(details, chain.case)
    for key, value in details.items():
        if (not isinstance(value, list) or key == "flags") and value not in ([], {}, None, ""):
            yield f"  {key}: {on_one_line(json.dumps(value, ensure_ascii=False), 500)}"


def _judged(chain: CaseExplanation, name: str, value: float, spec: ScoreSpec) -> Iterator[str]:
    record = chain.record
    score = record.get(f"{name}.score")
    as_it_is = (spec.low, spec.high, spec.higher_is_better) == (0, 1, True)
    if score is not None and spec.low is not None and spec.high is not None and not as_it_is:
        share = f"({value:g} - {spec.low:g}) / ({spec.high:g} - {spec.low:g})"
        yield f"  normalised: {share if spec.higher_is_better else f'1 - {share}'} = {score:g}"
    threshold, others = chain.scoring.threshold(spec), chain.scoring.passes_with.get(name, [])
    passed = record.get(f"{name}.passed")
    sign = ">=" if spec.higher_is_better else "<="
    if threshold is not None and not others:
        yield f"  threshold: passes where {sign} {threshold:g}: {'passed' if passed else 'not passed'}"
    elif threshold is not None and name in others:
        yield f"  threshold: {sign} {threshold:g}, and not by that alone"
    if others:
        yield f"  passes exactly when {', '.join(others)} do: {_VERDICTS[passed]}"


def _findings(details: Mapping[str, Any], case: Case) -> Iterator[str]:
    """Claims, verdicts and other lists of a metric; each quote with the chunk and the characters where it is found."""
    for name, items in details.items():
        if not isinstance(items, list) or not items or name == "flags":
            continue
        yield f"  {name.replace('_', ' ')}:"
        for item in items:
            if not isinstance(item, Mapping):
                yield f"  - {on_one_line(item if isinstance(item, str) else json.dumps(item), 300)}"
                continue
            nested = {key: value for key, value in item.items() if key == "claims" and isinstance(value, list)}
            plain = {k: v for k, v in item.items() if k not in ("evidence", *nested) and v not in (None, "", [])}
            words = {key: ("no", "yes")[value] if isinstance(value, bool) else str(value) for key, value in plain.items()}
            first, *others = (f"{key.replace('_', ' ')}: {on_one_line(text, 300)}" for key, text in words.items())
            yield f"  - {first}"
            if others:
                yield f"    {'; '.join(others)}"
            for passage in _passages(item.get("evidence"), case):
                yield f'      {_ROLES[passage_mark(item)]}: "{on_one_line(passage.quote, 400)}"'
                yield f"      found in: {passage.place}"
            yield from (f"    {line}" for line in _findings(nested, case))


def _support(details: Mapping[str, Any], case: Case) -> Iterator[str]:
    """Claims down, a column for each context that carries one, and the chain over the contexts."""
    support = chunk_support(details, [(chunk.id, chunk.rank) for chunk in case.contexts])
    if support is not None and support.n_chunks:
        ranks = [chunk.rank for chunk in case.contexts]
        columns = ", ".join(str(ranks[place]) for place in support.used)
        yield f"  which context carries which claim{f' (columns: contexts {columns})' if columns else ''}:"
        for claim in support.claims:
            cells = "".join("x " if place in claim.chunks else ". " for place in support.used)
            yield f"  {cells}{CARRIED[claim.how]}: {on_one_line(claim.claim)}"
        yield from (f"  {line}" for line in support_lines(support, ranks))


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
    """The weighted means over the case's scores as they were made, and what was concluded from all of them."""
    for name, composite in chain.scoring.composites.items():
        if composite is not None and name in chain.record:
            yield from _sum(chain, name, composite.weights, composite.scale[1])
    if chain.scoring.shows_overall([spec.name for spec in chain.scoring.all_specs(list(chain.specs.values()))]):
        yield from _sum(chain, OVERALL.name, chain.scoring.weight_shares(), 1)
    for key in ("failed_by", "failure_modes", "diagnosis", "flag_reasons"):
        if chain.record.get(key):
            yield f"{key}: {', '.join(chain.record[key])}"


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


_ANSWER_CHARS = 160
_REASON_CHARS = 60


def question_table(records: Sequence[Mapping[str, Any]], scores: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Heads and rows: the answers, then scores down and methods across, from rows of `records.parquet`.

    A cell is the value in its native scale and whether it passed, or why there is none. Scores that no method has are left
    out.
    """
    repeats = ("" if record["repeat"] == 1 else f" repeat {record['repeat']}" for record in records)
    heads = ["score", *(on_one_line(r["method"], 60) + repeat for r, repeat in zip(records, repeats, strict=True))]
    answers = [on_one_line(record["system_error"] or record["answer"] or "", _ANSWER_CHARS) for record in records]
    present = [
        name for name in scores if any(r.get(name) is not None or r.get(f"{name}.status") in ("ok", "error") for r in records)
    ]
    return heads, [["answer", *answers], *([name, *(_cell(record, name) for record in records)] for name in present)]


def _cell(record: Mapping[str, Any], name: str) -> str:
    value, overall = record.get(name), name == "overall_score"
    if value is None:
        status = "none" if overall else record.get(f"{name}.status") or "not measured"
        reason = record.get("overall_reason" if overall else f"{name}.reason")
        return f"{status}: {on_one_line(reason, _REASON_CHARS)}" if reason else status
    passed = record.get("overall_passed" if overall else f"{name}.passed")
    return f"{value:.4g}" + {True: " passed", False: " misses the threshold", None: ""}[passed]
