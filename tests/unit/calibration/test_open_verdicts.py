"""Verdicts of the report page that come back: what a file may hold, whose answers they are of, and which of two counts."""

import json
from pathlib import Path
from typing import Any

import pytest

from ragpipe.calibration.open_verdicts import (
    VERDICT_COLUMNS,
    OpenVerdict,
    is_verdicts_file,
    merged_verdicts,
    of_these_answers,
    read_verdicts,
    read_verdicts_file,
    standing_verdicts,
    verdicts_path,
)
from ragpipe.core.errors import DataError

ANSWER, OTHER = "a" * 64, "b" * 64
LINE = {
    "v": 1, "run": "r1", "sample_id": "q1", "method": "m", "repeat": 1, "score": "faithfulness", "verdict": "pass",
    "note": "", "annotator": "ann", "at": "2026-11-23T10:00:00Z", "answer": ANSWER, "blind": False,
}  # fmt: skip


def saved(folder: Path, *lines: Any) -> Path:
    path = folder / "verdicts-r1-ann.jsonl"
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def read(folder: Path, *changes: dict[str, Any]) -> list[OpenVerdict]:
    return read_verdicts_file(saved(folder, *(LINE | change for change in changes)), "r1", {"faithfulness", "overall_score"})


def test_a_line_of_the_page_is_read(tmp_path: Path) -> None:
    first, second, third = read(
        tmp_path,
        {"note": " wrong date\x1b \u202e"},
        {"verdict": "fail", "score": "overall_score", "sample_id": "q/2", "annotator": " bob "},
        {"verdict": None},
    )
    assert (first.key, first.passed, first.note) == ((("q1", "m", 1), "faithfulness", "ann"), True, "wrong date\\x1b \\u202e")
    assert (second.key, second.passed, second.note) == ((("q/2", "m", 1), "overall_score", "bob"), False, None)
    assert third.passed is None


@pytest.mark.parametrize(("change", "key", "found"), [
    ({"v": 2}, "v", "2"),
    ({"v": True}, "v", "True"),
    ({"run": "r2"}, "run", "r2"),
    ({"run": None}, "run", "None"),
    ({"sample_id": 7}, "sample_id", "7"),
    ({"method": ""}, "method", "''"),
    ({"repeat": 0}, "repeat", "0"),
    ({"repeat": True}, "repeat", "True"),
    ({"repeat": 10**30}, "repeat", "1000"),
    ({"repeat": "1"}, "repeat", "'1'"),
    ({"score": "kindness"}, "score", "kindness"),
    ({"verdict": "PASS"}, "verdict", "'PASS'"),
    ({"verdict": 1}, "verdict", "1"),
    ({"verdict": ["pass"]}, "verdict", "['pass']"),
    ({"note": 5}, "note", "5"),
    ({"note": "x" * 20_001}, "note", "'xxx"),
    ({"annotator": "  "}, "annotator", "'  '"),
    ({"at": "yesterday"}, "at", "'yesterday'"),
    ({"at": "2026-11-23T10:00:00"}, "at", "'2026-11-23T10:00:00'"),
    ({"answer": "A" * 64}, "answer", "'AAAA"),
    ({"blind": True}, "blind", "True"),
    ({"blind": 0}, "blind", "0"),
])  # fmt: skip
def test_a_fault_is_named_with_its_line(tmp_path: Path, change: dict[str, Any], key: str, found: str) -> None:
    with pytest.raises(DataError) as error:
        read(tmp_path, {}, change)
    (problem,) = error.value.problems
    assert problem.where == f"{tmp_path / 'verdicts-r1-ann.jsonl'}:2"
    assert problem.key == key
    assert problem.found.startswith(found)
    assert len(problem.found) < 100


def test_all_faults_come_at_once(tmp_path: Path) -> None:
    path = saved(tmp_path, LINE, "{", "[1]", json.dumps(LINE | {"verdict": "x"}), "[" * 100_000, '{"v": 1}')
    with pytest.raises(DataError) as error:
        read_verdicts_file(path, "r1", {"faithfulness"})
    lines = {problem.where.rpartition(":")[2] for problem in error.value.problems}
    assert lines == {"2", "3", "4", "5", "6"}


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b'{"v": 1, "item": "x"}\n', b"[]\n", b"{\n", b"null", b"\n\n"])
def test_other_files_are_no_verdicts(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_bytes(content)
    assert not is_verdicts_file(path)


def test_a_file_is_known_by_its_first_line(tmp_path: Path) -> None:
    assert is_verdicts_file(saved(tmp_path, "", LINE))
    assert not is_verdicts_file(tmp_path / "missing.jsonl")
    (tmp_path / "verdicts.csv").write_text(json.dumps(LINE))
    assert not is_verdicts_file(tmp_path / "verdicts.csv")


def test_other_answers_and_unknown_cases_are_refused_in_groups(tmp_path: Path) -> None:
    strangers = [{"sample_id": f"x{n}"} for n in range(5)]
    verdicts = read(tmp_path, {}, {"sample_id": "q2", "answer": OTHER}, *strangers)
    kept, refusals = of_these_answers(verdicts, {("q1", "m", 1): ANSWER, ("q2", "m", 1): ANSWER})
    assert [verdict.key.case[0] for verdict in kept] == ["q1"]
    path = tmp_path / "verdicts-r1-ann.jsonl"
    assert refusals == [
        f"1 verdict is of another answer than the run has, and not imported: q2/m/1 (first at {path}:2)",
        f"5 verdicts are of a case that the run does not have, and not imported: x0/m/1, x1/m/1, x2/m/1 and 2 more (first at {path}:3)",
    ]


def test_ids_with_control_characters_are_known_as_the_page_shows_them(tmp_path: Path) -> None:
    """The page has `q\\x1b` for q and an escape character; a case whose id is that text has another answer."""
    control, text = ("q\x1b", "m", 1), ("q\\x1b", "m", 1)
    shown = {"sample_id": "q\\x1b"}
    verdicts = read(tmp_path, shown, shown | {"answer": OTHER}, shown | {"answer": "c" * 64}, {"sample_id": "q\x1b"})
    kept, refusals = of_these_answers(verdicts, {text: OTHER, control: ANSWER})
    assert [verdict.key.case for verdict in kept] == [control, text, control]
    assert len(refusals) == 1
    assert "of another answer than the run has" in refusals[0]


def test_the_later_of_two_counts_and_is_reported(tmp_path: Path) -> None:
    """ann passes q1 and q2 at 10:00; at 11:00 q1 fails, q2 passes again; a file of 9:00 changes nothing."""
    first = merged_verdicts(None, read(tmp_path, {}, {"sample_id": "q2"}, {"annotator": "bob"}))
    assert (first.new, first.again, first.changed, first.withdrawn) == (3, 0, 0, 0)
    assert first.table.schema.equals(VERDICT_COLUMNS)
    later = {"at": "2026-11-23T12:00:00+01:00"}
    second = merged_verdicts(first.table, read(tmp_path, later | {"verdict": "fail"}, later | {"sample_id": "q2"}))
    assert (second.new, second.again, second.changed, second.withdrawn) == (0, 2, 1, 0)
    early = read(tmp_path, {"at": "2026-11-23T09:00:00Z", "verdict": "pass"})
    third = merged_verdicts(second.table, early)
    assert third.table == second.table
    rows = {(row["sample_id"], row["annotator"]): row["passed"] for row in third.table.to_pylist()}
    assert rows == {("q1", "ann"): False, ("q2", "ann"): True, ("q1", "bob"): True}
    assert third.table["blind"].to_pylist() == [False] * 3


def test_within_a_file_the_last_word_counts_and_a_withdrawn_verdict_stays_withdrawn(tmp_path: Path) -> None:
    at = [{"at": f"2026-11-23T10:00:0{n}Z"} for n in range(4)]
    toggled = merged_verdicts(None, read(tmp_path, at[0], at[1] | {"verdict": "fail"}, at[2]))
    assert (toggled.new, toggled.again) == (1, 0)
    assert toggled.table["passed"].to_pylist() == [True]
    withdrawn = merged_verdicts(toggled.table, read(tmp_path, at[3] | {"verdict": None}))
    assert (withdrawn.withdrawn, withdrawn.table["passed"].to_pylist()) == (1, [None])
    old_file = merged_verdicts(withdrawn.table, read(tmp_path, at[0], at[1]))
    assert old_file.table["passed"].to_pylist() == [None]


def test_standing_verdicts_are_those_of_the_score_that_were_not_withdrawn(tmp_path: Path) -> None:
    from ragpipe.calibration.label_files import write_rows

    lines = [{}, {"sample_id": "q2", "verdict": None}, {"sample_id": "q3", "score": "overall_score"}]
    assert read_verdicts(tmp_path) is None
    verdicts_path(tmp_path).parent.mkdir()
    write_rows(verdicts_path(tmp_path), merged_verdicts(None, read(tmp_path, *lines)).table)
    assert [verdict.key.case[0] for verdict in standing_verdicts(tmp_path, "faithfulness")] == ["q1"]


@pytest.mark.parametrize(("column", "value"), [("at", None), ("at", "never"), ("annotator", None), ("sample_id", None)])
def test_a_table_with_holes_is_an_error_with_its_column(tmp_path: Path, column: str, value: str | None) -> None:
    from ragpipe.calibration.label_files import write_rows
    from ragpipe.store.table_rows import table_of

    (row,) = merged_verdicts(None, read(tmp_path, {})).table.to_pylist()
    verdicts_path(tmp_path).parent.mkdir()
    write_rows(verdicts_path(tmp_path), table_of([row | {column: value}], VERDICT_COLUMNS))
    with pytest.raises(DataError) as error:
        read_verdicts(tmp_path)
    assert error.value.problems[0].key == column
