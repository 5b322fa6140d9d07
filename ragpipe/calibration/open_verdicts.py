"""Verdicts that people gave on `report.html`, where they saw what the judge said: read, checked, and kept beside the draws.

They are not blind and of no draw. `labels/verdicts.parquet` keeps them by case, score and annotator; no corrected mean, gate or
weight goes by them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from ragpipe.calibration.label_files import LABELS_FOLDER, Key, read_columns_of, table_schema
from ragpipe.calibration.label_import import CANNOT_READ, checked, json_line_rows, labelled_text
from ragpipe.core.digest import DIGEST
from ragpipe.core.errors import DataError, Problem
from ragpipe.core.text import printable, shorten
from ragpipe.store.run_tables import run_file_error
from ragpipe.store.table_rows import FLAG, TEXT, WHOLE, table_of

VERDICTS = "verdicts.parquet"
OVERALL = "overall_score"
VERDICT_COLUMNS = table_schema(
    ("sample_id", TEXT, "the sample's id"),
    ("method", TEXT, "the RAG variant"),
    ("repeat", WHOLE, "which output of this method for this sample, from 1"),
    ("answer_sha256", TEXT, "digest of what the verdict is about: question, earlier turns, answer and chunk texts"),
    ("score", TEXT, "the score that it is about, or overall_score"),
    ("annotator", TEXT, "who gave it"),
    ("passed", FLAG, "whether the person passes the case; null = withdrawn"),
    ("note", TEXT, "what the person wrote; null = nothing"),
    ("at", TEXT, "when it was given (UTC, ISO 8601)"),
    ("blind", FLAG, "false: the person saw what the judge said"),
)
_NAMED = 3  # cases that a refusal names
_Text = Annotated[str, Field(pattern=r"\S")]


class _Line(BaseModel):
    """A line of the file, as the page writes it."""

    model_config = ConfigDict(strict=True)

    v: Annotated[int, Field(ge=1, le=1)]
    run: _Text
    sample_id: _Text
    method: _Text
    repeat: Annotated[int, Field(ge=1, lt=2**31)]
    score: _Text
    verdict: Literal["pass", "fail"] | None
    note: Annotated[str, Field(max_length=20_000)] | None = None
    annotator: _Text
    answer: Annotated[str, Field(pattern=f"^(?:{DIGEST.pattern})$")]
    at: str
    blind: bool

    @field_validator("at")
    @classmethod
    def _has_a_zone(cls, text: str) -> str:
        if not _is_time(text):
            raise ValueError("a time with its zone, as 2026-11-23T10:00:00Z")
        return text

    @field_validator("blind")
    @classmethod
    def _is_open(cls, is_blind: bool) -> bool:
        if is_blind:
            raise ValueError("false: verdicts of the page are not blind, task=label makes blind pages")
        return is_blind


class VerdictKey(NamedTuple):
    """Whose verdict of what."""

    case: Key
    score: str
    annotator: str


@dataclass(frozen=True)
class OpenVerdict:
    """A line of a verdicts file. `passed` is None where the verdict was withdrawn."""

    key: VerdictKey
    answer_sha256: str
    passed: bool | None
    note: str | None
    at: str
    where: str = ""
    run_id: str = ""


@dataclass(frozen=True)
class MergedVerdicts:
    """The table with the verdicts of a file, and what became of them: how many are new, given again by the same person at
    another time, of these with another verdict, and withdrawn."""

    table: pa.Table
    new: int
    again: int
    changed: int
    withdrawn: int


def is_verdicts_file(path: Path) -> bool:
    """Whether the file is one of verdicts of a report page: its first line names a run and a verdict."""
    problems: list[Problem] = []
    text = labelled_text(path, problems) if path.suffix.lower() == ".jsonl" else None
    if not text:
        return False
    _, row = next(json_line_rows(path, text.lstrip().partition("\n")[0], problems), ("", {}))
    return "verdict" in row and "run" in row


def read_verdicts_file(path: Path, run_id: str, scores: Collection[str]) -> list[OpenVerdict]:
    """The verdicts of a file in their order.

    Raises DataError, with every fault, for a file that is none, lines of another run, and scores that the run does not have.
    """
    problems: list[Problem] = []
    text = labelled_text(path, problems) or ""
    lines = [_verdict(where, row, run_id, scores, problems) for where, row in json_line_rows(path, text, problems)]
    checked(problems)
    return [verdict for verdict in lines if verdict is not None]


def _verdict(
    where: str, row: Mapping[str, Any], run_id: str, scores: Collection[str], problems: list[Problem]
) -> OpenVerdict | None:
    try:
        line = _Line.model_validate(row)
    except ValidationError as error:
        for fault in error.errors(include_url=False):
            found = "nothing" if fault["type"] == "missing" else shorten(repr(fault["input"]), 60)
            expected = fault["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
            if fault["type"] == "string_pattern_mismatch":
                expected = "64 hexadecimal digits" if fault["loc"] == ("answer",) else "a text"
            fix = ""
            if fault["loc"] == ("v",):
                expected, fix = "1", "save it with a report.html of this ragpipe"
            problems.append(Problem(where, str(fault["loc"][0]), found, expected, fix))
        return None
    if line.run != run_id:
        fix = "import it into the run whose page it is of"
        problems.append(Problem(where, "run", shorten(line.run, 60), run_id, fix))
    elif line.score not in scores:
        known = shorten(", ".join(sorted(scores)), 200)
        problems.append(Problem(where, "score", shorten(line.score, 60), f"one of {known}"))
    key = VerdictKey((line.sample_id, line.method, line.repeat), line.score, printable(line.annotator.strip()))
    passed = None if line.verdict is None else line.verdict == "pass"
    note = printable((line.note or "").strip()) or None
    return OpenVerdict(key, line.answer, passed, note, line.at, where, line.run)


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def of_these_answers(verdicts: Iterable[OpenVerdict], digests: Mapping[Key, str]) -> tuple[list[OpenVerdict], list[str]]:
    """The verdicts of cases and answers that the run has, and a sentence per reason why others are refused.

    The page shows control characters of an id as escapes, and its file has them so: a verdict is of the case that is shown
    alike, of several of the one with its answer. `digests` has by case of the run the digest of its answer.
    """
    kept, refused = list[OpenVerdict](), dict[str, list[OpenVerdict]]()
    shown_alike: dict[Key, list[Key]] = {}
    for case in digests:
        shown_alike.setdefault(case_as_shown(case), []).append(case)
    for verdict in verdicts:
        cases = shown_alike.get(case_as_shown(verdict.key.case), [])
        case_of_answer = next((case for case in cases if digests[case] == verdict.answer_sha256), None)
        if case_of_answer is not None:
            kept.append(replace(verdict, key=verdict.key._replace(case=case_of_answer)))
        else:
            reason = "of another answer than the run has" if cases else "of a case that the run does not have"
            refused.setdefault(reason, []).append(verdict)
    return kept, [_refusal(reason, lines) for reason, lines in refused.items()]


def case_as_shown(case: Key) -> Key:
    """A case as `report.html` names it: with control characters as escapes."""
    return printable(case[0]), printable(case[1]), case[2]


def _refusal(reason: str, lines: Sequence[OpenVerdict]) -> str:
    cases = list(dict.fromkeys("/".join(map(str, line.key.case)) for line in lines))
    named = ", ".join(shorten(case, 60) for case in cases[:_NAMED])
    more = f" and {len(cases) - _NAMED:,} more" if len(cases) > _NAMED else ""
    count = "1 verdict is" if len(lines) == 1 else f"{len(lines):,} verdicts are"
    return f"{count} {reason}, and not imported: {named}{more} (first at {lines[0].where})"


def merged_verdicts(earlier: pa.Table | None, new: Iterable[OpenVerdict]) -> MergedVerdicts:
    """The verdicts of a run: those it has and those of a file, by case, score and annotator. Of two the later one counts; at the
    same time the one that was read last."""
    verdicts = {verdict.key: verdict for verdict in _from_rows(earlier)}
    of_file: dict[VerdictKey, OpenVerdict] = {}
    for verdict in new:
        if verdict.key not in of_file or not _is_later(of_file[verdict.key], verdict):
            of_file[verdict.key] = verdict
    added = again = changed = withdrawn = 0
    for key, verdict in of_file.items():
        before = verdicts.get(key)
        if before is not None and _is_later(before, verdict):
            continue
        verdicts[key] = verdict
        if before is None or before.passed is None:
            added += verdict.passed is not None
        elif verdict.passed is None:
            withdrawn += 1
        elif before.at != verdict.at:
            again += 1
            changed += before.passed != verdict.passed
    rows = [_row(verdicts[key]) for key in sorted(verdicts)]
    return MergedVerdicts(table_of(rows, VERDICT_COLUMNS), added, again, changed, withdrawn)


def _is_later(before: OpenVerdict, verdict: OpenVerdict) -> bool:
    """Whether the verdict that there is was given after the new one."""
    return datetime.fromisoformat(before.at) > datetime.fromisoformat(verdict.at)


def _row(verdict: OpenVerdict) -> dict[str, Any]:
    key = verdict.key
    given = verdict.passed, verdict.note, verdict.at, False
    cells = (*key.case, verdict.answer_sha256, key.score, key.annotator, *given)
    return dict(zip(VERDICT_COLUMNS.names, cells, strict=True))


def _from_rows(table: pa.Table | None) -> Iterable[OpenVerdict]:
    for row in table.to_pylist() if table is not None else ():
        key = VerdictKey((row["sample_id"], row["method"], row["repeat"]), row["score"], row["annotator"])
        yield OpenVerdict(key, row["answer_sha256"], row["passed"], row["note"], row["at"])


def verdicts_path(run: Path) -> Path:
    """Where a run keeps them."""
    return run / LABELS_FOLDER / VERDICTS


def read_verdicts(run: Path) -> pa.Table | None:
    """The verdicts of a run (VERDICT_COLUMNS), withdrawn ones included; None where it has none. Raises DataError."""
    path = verdicts_path(run)
    if not path.exists() and not path.is_symlink():
        return None
    table = read_columns_of(path, VERDICT_COLUMNS)
    for name in set(table.column_names) - {"passed", "note"}:
        if table[name].null_count:
            raise run_file_error(path, "rows without a value", "a value in each row", key=name)
    if faults := [text for text in table["at"].to_pylist() if not _is_time(text)]:
        raise run_file_error(path, shorten(faults[0], 60), "a time with its zone", key="at")
    return table


def standing_verdicts(run: Path, score: str) -> list[OpenVerdict]:
    """The verdicts of a score that were not withdrawn, by case and annotator. Raises DataError."""
    verdicts = _from_rows(read_verdicts(run))
    return [verdict for verdict in verdicts if verdict.key.score == score and verdict.passed is not None]


def nothing_imported(path: Path, refusals: Sequence[str]) -> DataError:
    """The error where no line of a file is of this run's answers."""
    content = "; ".join(refusals) or "no verdict"
    return DataError(CANNOT_READ, [Problem(str(path), "label.import", content, "verdicts of this run's answers")])
