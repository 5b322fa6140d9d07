"""Journals, and tables that are read once from their beginning to their end, case by case."""

import errno
import os
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpipe.core.errors import DataError, OutputError
from ragpipe.store import journal as module
from ragpipe.store.journal import HEADER, Journal, entries_of, journal_lines
from ragpipe.store.table_rows import CaseOrderedRows, PlacedRows, rows_in_order
from tests.support.memory import quick_folder

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
values = st.recursive(scalars, lambda v: st.lists(v, max_size=4) | st.dictionaries(st.text(), v, max_size=4), max_leaves=8)
entry_lists = st.lists(st.dictionaries(st.text(), values, max_size=5), max_size=6)
ODD = {"a": "one\u2028two\u0085three\x0b\x0c\x1c\r\n", "surrogate": "\ud800", "nul": "\x00"}


def written(path: Path, entries: list[dict]) -> None:
    with Journal.open(path) as journal:
        for entry in entries:
            journal.append(entry)


def reopened(path: Path) -> tuple[list[dict], list[str]]:
    with Journal.open(path) as journal:
        return journal.entries, journal.notices


@pytest.mark.slow
@given(entry_lists, st.data())
def test_a_journal_cut_anywhere_gives_a_prefix_and_goes_on(entries: list[dict], data: st.DataObject) -> None:
    with quick_folder() as folder:
        path = Path(folder) / "journal.jsonl"
        written(path, entries)
        whole = path.read_bytes()
        cut = data.draw(st.integers(0, len(whole)))
        path.write_bytes(whole[:cut])
        torn = whole[:cut].rsplit(b"\n", 1)[-1]
        found, notices = reopened(path)
        assert (found, len(found)) == (entries[: len(found)], max(0, whole[:cut].count(b"\n") - 1))
        assert len(notices) == bool(torn)
        written(path, entries[len(found) :])
        assert (reopened(path), path.read_bytes()) == ((entries, []), whole)


def test_an_empty_file_is_a_new_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b"")
    written(path, [{"a": 1}])
    assert path.read_bytes() == HEADER + b'{"a":1}\n'


@pytest.mark.parametrize(("content", "lines"), [
    (b'{"format":1}\n{"a":1}\n', [1]), (b'{"a":1}\n', [1]), (b'{"format":true}\n', [1]), (b"[]\n", [1]),
    (HEADER + b'{"a":1}\n{"b":\n{"c":1}\n', [3]), (HEADER + b'\n{"c":1}\n', [2]),
    (HEADER + b'{"a":NaN}\n{"a":1e999}\n"text"\n{"c":1}\n', [2, 3, 4]), (HEADER + b'{"a":"\xff"}\n{}\n', [2]),
    (HEADER + b"[" * 100_000 + b"\n{}\n", [2]), (HEADER + b"\x00\x00\x00\x00\n{}\n", [2]),
])  # fmt: skip
def test_any_other_bad_line_is_refused_with_its_number_and_left_alone(tmp_path: Path, content: bytes, lines: list[int]) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError) as found:
        Journal.open(path)
    assert [p.where for p in found.value.problems] == [f"{path}:{n}" for n in lines]
    assert (path.read_bytes(), os.listdir(tmp_path)) == (content, ["journal.jsonl"])


def test_an_entry_without_what_each_one_has_is_a_bad_line(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    lines = [b'{"a":"\\ud83d\\ude00"}', b'{"a":"\\ud83d"}', b'{"a":1}', b'{"b":"x"}', b'{"a":"good","b":[]}', b'{"a":null}']
    path.write_bytes(HEADER + b"\n".join([*lines, b""]))
    with pytest.raises(DataError) as found:
        Journal.open(path, form={"a": str})
    assert [p.where for p in found.value.problems] == [f"{path}:{n}" for n in (3, 4, 5, 7)]


def test_refuses_what_is_no_json(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "journal.jsonl") as journal:
        with pytest.raises(ValueError, match="JSON compliant"):
            journal.append({"value": float("nan")})
        with pytest.raises(TypeError):
            journal.append({"value": object()})
        journal.append({"value": 1})
    assert reopened(tmp_path / "journal.jsonl")[0] == [{"value": 1}]


def test_a_planted_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "outside").write_bytes(module.HEADER)
    (tmp_path / "journal.jsonl").symlink_to(tmp_path / "outside")
    with pytest.raises(OutputError, match="symbolic link"):
        Journal.open(tmp_path / "journal.jsonl")


def test_a_line_written_in_part_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk fills in the middle of a line, room is made, and the run goes on in the same process."""
    path, real = tmp_path / "journal.jsonl", os.write
    left = [7]

    def fill(descriptor: int, data: bytes) -> int:
        if not left[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        part, left[0] = real(descriptor, data[: left[0]]), 0
        return part

    journal = Journal.open(path)
    journal.append({"a": 1})
    with monkeypatch.context() as patch:
        patch.setattr(module.os, "write", fill)
        with pytest.raises(OutputError, match="disk is full"):
            journal.append({"b": 2})
    journal.append({"c": 3})
    journal.close()
    assert reopened(path) == ([{"a": 1}, {"c": 3}], [])


@pytest.mark.slow
def test_syncs_in_the_background_at_most_once_a_second_and_at_close(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[float] = []
    monkeypatch.setattr(module, "sync", lambda *_: synced.append(time.monotonic()))
    monkeypatch.setattr(module, "SYNC_S", 0.2)
    journal = Journal.open(tmp_path / "j")
    started = time.monotonic()
    while len(synced) < 3:
        journal.append({})
    assert len(synced) <= (time.monotonic() - started) / 0.2 + 1
    before = len(synced)
    journal.close()
    journal.close()
    assert len(synced) == before + 1
    with pytest.raises(ValueError, match="closed"):
        journal.append({})


def test_a_failed_background_sync_is_not_swallowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    journal = Journal.open(tmp_path / "j")
    monkeypatch.setattr(module, "SYNC_S", -1.0)
    monkeypatch.setattr(module, "sync", fail)
    journal.append({})
    assert journal._sync
    journal._sync.join()
    with pytest.raises(OutputError, match="input/output"):
        journal.append({})


@pytest.mark.slow
@given(entry_lists)
def test_lines_made_elsewhere_are_those_of_the_journal(entries: list[dict]) -> None:
    entries = [*entries, ODD]
    lines = journal_lines(entries)
    assert entries_of(lines) == entries
    with quick_folder() as folder:
        path = Path(folder) / "journal.jsonl"
        written(path, entries)
        with Journal.open(Path(folder) / "lines.jsonl") as journal:
            journal.append_lines(lines)
        assert journal.path.read_bytes() == path.read_bytes()


Case = tuple[str, str, int]


def ordered(path: Path, cases: list[tuple[Case, int]], group: int) -> list[tuple[Case, int]]:
    rows = [(case, number) for case, count in cases for number in range(count)]
    columns = {name: [case[part] for case, _ in rows] for part, name in enumerate(("sample_id", "method", "repeat"))}
    columns |= {"number": [number for _, number in rows], "text": [f"{case}: {number}" for case, number in rows]}
    types = {"sample_id": pa.string(), "method": pa.string(), "text": pa.string()}
    schema = pa.schema([(name, types.get(name, pa.int32())) for name in columns])
    pq.write_table(pa.table(columns, schema=schema), path, row_group_size=group)
    return rows


def key(number: int) -> Case:
    return f"s{number // 4}", "ab"[number // 2 % 2], 1 + number % 2


@pytest.mark.slow
@given(
    counts=st.lists(st.integers(0, 5), min_size=1, max_size=20), group=st.integers(1, 12), block=st.integers(1, 7),
    wide=st.sets(st.integers(0, 19)), among=st.none() | st.sets(st.integers(0, 19)),
)  # fmt: skip
def test_every_case_gets_its_rows_whatever_the_row_groups_and_blocks(tmp_path_factory, counts, group, block, wide, among) -> None:
    path = tmp_path_factory.mktemp("t") / "t.parquet"
    cases = [(key(number), count) for number, count in enumerate(counts)]
    ordered(path, cases, group)
    asked_for = [key(number) for number in range(len(cases)) if among is None or number in among]
    found = {}
    with CaseOrderedRows(path, ["number"], ["text"], among=None if among is None else set(asked_for)) as rows:
        for start in range(0, len(asked_for), block):
            found |= rows.take(asked_for[start : start + block], {key(number) for number in wide})
        if asked_for:
            rows.check_end()
    assert found == {
        case: [{"number": n, "text": f"{case}: {n}"} if place in wide else {"number": n} for n in range(count)]
        for place, (case, count) in enumerate(cases)
        if case in asked_for
    }


@pytest.mark.parametrize("others", [[(key(9), 1)], [(key(0), 1), (key(1), 2), (key(0), 1)], [(key(1), 1), (key(0), 1)]])
def test_rows_of_other_cases_or_in_another_order_are_an_error_at_the_end(tmp_path: Path, others: list[tuple[Case, int]]) -> None:
    ordered(tmp_path / "t.parquet", others, group=1)
    with CaseOrderedRows(tmp_path / "t.parquet", ["number"]) as rows:
        for case in (key(0), key(1)):
            rows.take([case])
        with pytest.raises(DataError, match=r"rows of other cases, or in another order"):
            rows.check_end()


def test_rows_by_their_places_and_in_order(tmp_path: Path) -> None:
    ordered(tmp_path / "t.parquet", [(key(0), 7)], group=3)
    with PlacedRows(tmp_path / "t.parquet") as rows:
        assert [row and row["number"] for row in map(rows.get, (6, 0, 3, 6, 7, -1))] == [6, 0, 3, 6, None, None]
    places = np.array([1, 2, 6])
    assert list(rows_in_order(tmp_path / "t.parquet", ["number"], places)) == [{"number": n} for n in (1, 2, 6)]
