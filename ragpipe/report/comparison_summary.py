"""A comparison in words and tables: what the terminal prints, from the document `comparison.json`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from ragpipe.comparison.headline import lost_texts, rate_text, silent_texts, slice_text
from ragpipe.comparison.preference import preference_lines, strength_lines
from ragpipe.comparison.score_differences import OPERATIONS
from ragpipe.comparison.settings import SMALLEST_RISE, SMALLEST_SHARE
from ragpipe.core.text import escape_markdown, on_one_line
from ragpipe.report.markdown import render_sections
from ragpipe.report.model import Note, Prose, Section, SectionPart, Table, TableColumn, TableRow, Verbatim
from ragpipe.report.styled_text import case_text, difference_text, figure_text, run_words, state_text, whole, wins_text

HEADS = ("score", "base", "new", "difference", "w/t/l", "verdict", "could show")
NAMED = 5
"""Flipped cases and slices that are named."""
_ID = 60
UNDECIDED = {
    "few_changed": "fewer than 6 questions changed",
    "too_wide": "too few cases",
    "several_scores": "not certain among several scores or candidates",
    "one_sample": "one question only",
    "no_spread": "all changed alike",
    "no_pairs": "no shared case",
    "values_lost": "too many values are missing on one side",
    "judge_moved": "equal answers were judged otherwise",
    "states_nothing": "it rests on answers that state nothing",
}
"""Why a score is inconclusive, in words."""
UNUSABLE = ("values_lost", "judge_moved", "states_nothing")
"""The reasons for which the cases themselves cannot decide, however many there are."""


def side_label(side: Mapping[str, Any]) -> str:
    """`quickstart/b8d9448cf7bb baseline`."""
    label = f"{side['name']}/{side['run_id']}" + (f" {side['method']}" if side["method"] else "")
    return on_one_line(label, 2 * _ID)


def side_lines(document: Mapping[str, Any]) -> list[str]:
    """`base quickstart/b8d9448cf7bb, 2026-11-29 18:27 UTC, took 8.2 s` and the same of each candidate."""
    sides = [("base", document["base"]), *(("new", side) for side in document["candidates"])]
    return [", ".join(filter(None, (f"{role} {side_label(side)}", run_words(side)))) for role, side in sides]


def title_line(document: Mapping[str, Any], comparison: Mapping[str, Any]) -> str:
    """`base X -> new Y: 38 shared cases of 38 questions, 2 only in the base`."""
    cases, candidate = comparison["cases"], document["candidates"][comparison["candidate"]]
    text = f"base {side_label(document['base'])} -> new {side_label(candidate)}: "
    text += f"{whole(cases['both'])} shared cases of {whole(cases['questions'])} questions"
    alone = [(cases["only_base"], "only in the base"), (cases["only_candidate"], "only in the new one")]
    notes = [f"{whole(count)} {where}" for count, where in alone if count]
    if all(document["base"][key] == candidate[key] for key in ("run_id", "method")):
        scores = comparison["scores"].values()
        changed = any(score["changed"] or any(score["lost"].values()) for score in scores)
        same = f"the same run on both sides (task=runs name={candidate['name']} lists the others)"
        notes.append("one run, judged twice" if changed else same)
    return ", ".join([text, *notes])


def difference_rows(scores: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """A row of `HEADS` per score."""
    rows = []
    for name, score in scores.items():
        means = (figure_text(score["base_mean"]), figure_text(score["candidate_mean"]))
        verdict = (difference_text(score), wins_text(score), state_text(score), figure_text(score["detectable"]))
        rows.append([name + parts_mark(score), *means, *verdict])
    return rows


def parts_mark(score: Mapping[str, Any]) -> str:
    """` (2 of 8 parts)` of a composite that lacks some; ` (2 of 8 and 3 of 8 parts)` where the sides have different ones."""
    parts = dict.fromkeys(f"{measured} of {total}" for measured, total in score.get("parts") or ())
    return f" ({' and '.join(parts)} parts)" if parts else ""


def headline_rows(comparison: Mapping[str, Any]) -> list[list[str]]:
    """The rows of the headline scores, then latency and cost."""
    headline = {name: score for name, score in comparison["scores"].items() if score["headline"]}
    return [*difference_rows(headline), *operation_rows(comparison["operations"])]


def summary_lines(document: Mapping[str, Any], comparison: Mapping[str, Any]) -> Iterator[str]:
    """What stands below the table on a terminal: flips of the first headline score, slices and failure modes that differ, and what
    the page has too; the page has the flips of all scores and more slices."""
    side = document["candidates"][comparison["candidate"]]
    for name, score in comparison["scores"].items():
        if mark := parts_mark(score).strip(" ()"):
            yield f"{name}: {mark} were measured"
    yield from islice(flip_lines(comparison, side), 1)
    yield from slice_lines(comparison["slices"])
    yield from mode_lines(comparison, side, slices=1)
    yield from _notes(document, comparison)


def _notes(document: Mapping[str, Any], comparison: Mapping[str, Any]) -> Iterator[str]:
    """What inconclusive scores need, what differs, what was not compared."""
    if "preference" in comparison:
        yield from preference_lines(comparison["preference"])
    names: dict[str, list[str]] = {}  # of the scores of which the same cases have no value, or the same answers state nothing
    for name, score in comparison["scores"].items():
        for text in (*lost_texts(score), *silent_texts(score)) if score["headline"] else ():
            names.setdefault(text, []).append(name)
    yield from (f"{', '.join(scores)}: {text}" for text, scores in names.items())
    yield from index_lines(comparison["index"])
    yield from needed_lines({**comparison["scores"], **comparison["operations"]})
    yield from differs_lines(comparison["differs"])
    yield from absent_score_lines(comparison)
    first, *others = document["comparisons"]
    if comparison is document["comparisons"][-1]:
        yield from strength_lines(document.get("strengths", ()))
    if others and comparison is others[-1] and (tests := first["decided_together"]) > 1:
        yield f"{whole(tests)} tests of {whole(len(others) + 1)} candidates are decided together (Holm)"


def flip_lines(comparison: Mapping[str, Any], side: Mapping[str, Any]) -> Iterator[str]:
    """`flips of overall_score: 9 now pass (dao-01, ...), 2 no longer pass (...)` for each headline score with flips. `side` is the
    candidate."""
    for name, flips in comparison["flips"].items():
        if comparison["scores"][name]["headline"]:
            passed, failed = (_cases_text(flips[direction], side) for direction in ("to_passed", "to_failed"))
            yield f"flips of {name}: {passed} now pass, {failed} no longer pass"


def slice_lines(slices: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The slices in which a score is better or worse, the largest drops first, and how many more there are."""
    decided = _decided(slices)
    for row in decided[:NAMED]:
        yield f"{state_text(row)} in {slice_text(row)}: {row['score']} {ends_text(row)}, {difference_text(row)}, n = {whole(row['n'])}"
    if len(decided) > NAMED:
        yield f"and {whole(len(decided) - NAMED)} more slices that differ"


def ends_text(row: Mapping[str, Any]) -> str:
    """`0.300 -> 0.840`: the means of both sides."""
    return f"{figure_text(row['base_mean'])} -> {figure_text(row['candidate_mean'])}"


MODE_HEADS = ("failure mode", "rate", "cases", "difference", "verdict")


def shown_modes(rows: Sequence[Sequence[str]]) -> Sequence[Sequence[str]]:
    """The failure modes of a terminal: those that became more frequent or rarer, and at least five."""
    decided = sum(row[-1].endswith(("better", "worse")) for row in rows)
    return rows[: max(decided, NAMED)]


def mode_rows(modes: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """A row of `MODE_HEADS` per failure mode that a case has on either side, those that became more frequent first, then those that became
    rarer, by the size of the change: `false_rejection`, `10.7 % -> 1.7 %`, `32 -> 5`, ..., `↓ better`."""
    order = {"worse": 0, "better": 1}
    shown = {name: mode for name, mode in modes.items() if mode["base_mean"] or mode["candidate_mean"]}
    ordered = sorted(shown.items(), key=lambda item: (order.get(item[1]["state"], 2), -abs(item[1]["difference"])))
    rows = []
    for name, mode in ordered:
        rates = f"{rate_text(mode['base_mean'])} -> {rate_text(mode['candidate_mean'])}"
        cases = f"{whole(mode['base_n'])} -> {whole(mode['candidate_n'])}"
        rows.append([name, rates, cases, difference_text(mode), state_text(mode)])
    return rows


def mode_lines(comparison: Mapping[str, Any], side: Mapping[str, Any], *, slices: int = NAMED) -> Iterator[str]:
    """`false_rejection: 28 cases no longer have it (q-1, ...), 1 has it now (q-7)` of each failure mode that is better or worse, and the
    first `slices` in which it is; values that one side lost. `side` is the candidate."""
    for name, mode in comparison["failure_modes"].items():
        if mode["state"] in ("better", "worse"):
            gone, new = (_cases_text(mode["flips"][direction], side) for direction in ("to_passed", "to_failed"))
            yield f"{name}: {gone} no longer, {new} now"
            for row in _decided(mode["slices"])[:slices]:
                yield (
                    f"{state_text(row)} in {slice_text(row)}: {name} {rate_text(row['base_mean'])} -> "
                    f"{rate_text(row['candidate_mean'])}, n = {whole(row['n'])}"
                )
        if mode["reason"] in ("values_lost", "judge_moved"):
            yield f"{name} is inconclusive: {UNDECIDED[mode['reason']]}"


def _decided(slices: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The slices in which a score is worse, then those in which one is better, the largest differences first."""
    decided = [row for row in slices if row["state"] in ("worse", "better")]
    return sorted(decided, key=lambda row: (row["state"] != "worse", -abs(row["difference"])))


def index_lines(index: Mapping[str, Any] | None) -> Iterator[str]:
    """What differs between two indexes: documents, chunks and their size, gold that is out of reach, recall by type of the document."""
    if index is None:
        return
    documents, chunks, size = index["documents"], index["chunks"], index["chunk_size"]
    changes = [
        f"{whole(documents[f'n_{word}'])} {word}: {_ids(documents[word])}" for word in ("lost", "new") if documents[word]
    ]
    changes += [f"{whole(documents['n_rechunked'])} with other chunks"] if documents["n_rechunked"] else []
    line = f"index: {whole(documents['base'])} -> {whole(documents['candidate'])} documents"
    line += f" ({'; '.join(changes)})" if changes else ""
    line += f", {whole(chunks['base'])} -> {whole(chunks['candidate'])} chunks"
    if None not in (size["base"], size["candidate"]):
        what = "tokens per chunk" if size["unit"] == "tokens" else "characters per retrieved chunk"
        line += f", {size['base']:,.1f} -> {size['candidate']:,.1f} {what}"
    yield line
    for name, (old, new) in index["versions"].items():
        if old != new:
            yield f"index: {name.replace('_', ' ')} {', '.join(old) or 'none'} -> {', '.join(new) or 'none'}"
    gold = index["gold"]
    if gold["n_lost"]:
        named = "; ".join(
            f"{on_one_line(row['document'], _ID)} (asked by {_ids(row['samples'])})" for row in gold["lost"][:NAMED]
        )
        more = f"; and {whole(gold['n_lost'] - NAMED)} more" if gold["n_lost"] > NAMED else ""
        yield f"{whole(gold['n_lost'])} of {whole(gold['n'])} gold documents are no longer in the index by its manifest: {named}{more}"
    if gold["n_found"]:
        yield f"{whole(gold['n_found'])} of {whole(gold['n'])} gold documents are in the index now by its manifest"
    if index["recall"]:
        rows = (
            f"{on_one_line(row['doc_type'], _ID)} {figure_text(row['base_mean'])} -> {figure_text(row['candidate_mean'])}, "
            f"{difference_text(row)}, n = {whole(row['n'])}"
            for row in index["recall"]["by_doc_type"]
        )
        yield f"{index['recall']['score']} by type of the gold document: {'; '.join(rows)}"


def _ids(names: Sequence[str]) -> str:
    return ", ".join(on_one_line(name, _ID) for name in names[:NAMED]) + (", ..." if len(names) > NAMED else "")


def needed_lines(scores: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """For each inconclusive headline score, latency and cost: why, what could have been shown, and how many cases would decide."""
    for name, score in scores.items():
        if (score["headline"] or name in OPERATIONS) and score["state"] == "inconclusive" and score["n"]:
            unchanged = "" if score["changed"] else "no value changed; "
            yield f"{name} is inconclusive: {unchanged}{undecided_text(score)}"


def undecided_text(score: Mapping[str, Any]) -> str:
    """`too few cases: 40 could show a difference of 0.110; one of 0.050 takes about 264`, `fewer than 6 questions changed; about 59
    cases would decide`. Of latency and cost the smallest
    difference is a share of the base's mean."""
    text, typical = UNDECIDED.get(score["reason"], score["reason"] or "too few cases"), score.get("typical")
    if score["reason"] in UNUSABLE:
        return text
    if score["reason"] == "few_changed":
        return f"{text}; about {whole(score['n_needed'])} cases would decide" if score["n_needed"] else text
    if score["detectable"]:
        text += f": {whole(score['n'])} could show a difference of {figure_text(score['detectable'])}"
    if score["n_needed"]:
        share = f" ({score['smallest_effect'] / score['base_mean']:.0%} of the base)" if typical and score["base_mean"] else ""
        text += f"; one of {figure_text(score['smallest_effect'])}{share} takes about {whole(score['n_needed'])}"
    return text


def differs_lines(differs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What the runs differ in although it was accepted, and other scorings; the systems' own settings in one line."""
    for row in differs:
        if row["part"] not in ("answers", "scoring"):
            yield f"differs (accepted): {row['part']}: {row['key']}: {row['base']} -> {row['candidate']}"
    for part, text in (("answers", "the systems differ"), ("scoring", "the scoring differs")):
        keys = [f"{row['key']}: {row['base']} -> {row['candidate']}" for row in differs if row["part"] == part]
        if keys:
            more = f" and {len(keys) - NAMED} more" if len(keys) > NAMED else ""
            note = "; composites and verdicts are each run's own" if part == "scoring" else ""
            yield f"{text}: {', '.join(keys[:NAMED])}{more}{note}"


def absent_score_lines(comparison: Mapping[str, Any]) -> Iterator[str]:
    """Scores that were not compared, and why."""
    for key, text in (
        ("only_base_scores", "scores of the base only"),
        ("only_candidate_scores", "scores of the new one only"),
        ("other_scale", "scores on another scale or in another direction"),
    ):
        if comparison[key]:
            yield f"{text}: {', '.join(on_one_line(name, _ID) for name in comparison[key])}"


def _cases_text(keys: Sequence[Sequence[Any]], side: Mapping[str, Any]) -> str:
    if not keys:
        return "none"
    more = ", ..." if len(keys) > NAMED else ""
    names = ", ".join(case_text(key, bool(side["method"])) for key in keys[:NAMED])
    return f"{whole(len(keys))} ({names}{more})"


_DROPS = {"could show": 4, "w/t/l": 3, "new": 2, "base": 1}  # columns that a narrow screen leaves out, the largest first


def headline_table(comparison: Mapping[str, Any]) -> Table:
    """A row per headline score, then medians and means of latency and cost."""
    return _table([[name.partition(" (")[0], *figures] for name, *figures in headline_rows(comparison)])


def _table(rows: Iterable[Sequence[str]], title: str = "") -> Table:
    """The rows of scores under `HEADS`."""
    columns = (TableColumn(head, is_text=head in ("score", "verdict"), drop=_DROPS.get(head, 0)) for head in HEADS)
    return Table(tuple(columns), tuple(TableRow((Verbatim(name), *figures)) for name, *figures in rows), title)


def mode_table(rows: Sequence[Sequence[str]], heads: Sequence[str] = MODE_HEADS) -> Table:
    """Rows of failure modes for a terminal: the first and the last cell are words; the cases are left out first."""
    columns = (
        TableColumn(head, is_text=place in (0, len(heads) - 1), drop={"cases": 2, "difference": 1}.get(head, 0))
        for place, head in enumerate(heads)
    )
    return Table(tuple(columns), tuple(TableRow((Verbatim(name), *figures)) for name, *figures in rows))


def operation_rows(operations: Mapping[str, Mapping[str, Any]]) -> Iterator[list[str]]:
    """For each quantity a row of the medians, with the ratio of the middle case, and one of the means; the columns are those of
    `comparison_summary.HEADS`."""
    for name, score in operations.items():
        typical = score["typical"]
        ratio = "" if typical["median_ratio"] is None else f"x{typical['median_ratio']:.2f}"
        medians = [figure_text(typical["base_median"]), figure_text(typical["candidate_median"])]
        yield [f"{name} median", *medians, ratio, wins_text(score), "", ""]
        means = [figure_text(score["base_mean"]), figure_text(score["candidate_mean"]), difference_text(score)]
        yield [f"{name} mean", *means, "", score["state"], figure_text(score["detectable"])]


_LISTED = 20  # slices of a comparison


def summary_markdown(document: Mapping[str, Any]) -> str:
    """The page: both runs, and for each candidate the verdict, the headline scores, flips, slices, all scores, and what differs."""
    reading = (
        f"Intervals are {document['settings']['level']:.0%}, by question; w/t/l counts cases in which the new one is better, equal, worse. "
        "could show is the true difference that these cases find in 8 of 10 samples. "
        f"same: within {SMALLEST_SHARE:g} of a score's scale, {SMALLEST_RISE:g} of a failure mode's rate, or the smallest effect that was set."
    )
    return render_sections(
        f"Compared with {escape_markdown(side_label(document['base']))}",
        [
            Section("runs", "Runs", tuple(Note(Prose(line)) for line in side_lines(document))),
            *(_candidate(document, comparison) for comparison in document["comparisons"]),
            Section("reading", "How to read it", (Note(reading),)),
        ],
    )


def _candidate(document: Mapping[str, Any], comparison: Mapping[str, Any]) -> Section:
    side = document["candidates"][comparison["candidate"]]
    first = (comparison["verdict"]["sentence"], title_line(document, comparison))
    lines = [*flip_lines(comparison, side), *mode_lines(comparison, side), *_notes(document, comparison)]
    rest = {name: score for name, score in comparison["scores"].items() if not score["headline"]}
    others = "Other scores, each on its own: no correction for their number"
    decided = _decided(comparison["slices"])
    heads = ("slice", "score", "n", "mean", "difference", "q", TableColumn("verdict", is_text=True))
    rows = []
    for row in decided[:_LISTED]:
        figures = (whole(row["n"]), ends_text(row), difference_text(row), figure_text(row["q_value"]), state_text(row))
        rows.append((Verbatim(slice_text(row)), Verbatim(row["score"]), *figures))
    more = f", {whole(len(decided) - _LISTED)} more in comparison.json" if len(decided) > _LISTED else ""
    parts: list[SectionPart] = [
        *(Note(Prose(line)) for line in first),
        _table(headline_rows(comparison)),
        *_modes(comparison["failure_modes"]),
        *(Note(Prose(line)) for line in lines),
        *([Table.of(heads, rows, texts=2, title=f"Slices that differ{more}")] if rows else []),
        *([_table(difference_rows(rest), others)] if rest else []),
    ]
    return Section("candidate", escape_markdown(side_label(side)), tuple(parts))


def _modes(modes: Mapping[str, Mapping[str, Any]]) -> Iterator[Table]:
    rows = [[*row[:3], *_rate_intervals(modes[row[0]]), *row[3:]] for row in mode_rows(modes)]
    if rows:
        heads = (*MODE_HEADS[:3], "base interval", "new interval", *MODE_HEADS[3:])
        yield replace(mode_table(rows, heads), title="Failure modes")


def _rate_intervals(mode: Mapping[str, Any]) -> Iterator[str]:
    for interval in (mode["base_interval"], mode["candidate_interval"]):
        yield f"{rate_text(interval['low'])} to {rate_text(interval['high'])}" if interval else "-"
