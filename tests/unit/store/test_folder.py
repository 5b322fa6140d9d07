"""The folder of a run: its paths, its wall clock through starts, its seals."""

import base64
import hashlib
import json
import os
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpipe.core.errors import ConfigError, DataError, OutputError
from ragpipe.schema.format_version import FORMAT
from ragpipe.store.run import progress_state, seals
from ragpipe.store.run import run_folder as module
from ragpipe.store.run.progress_state import WallClock, judged_seconds
from ragpipe.store.run.run_folder import RunFolder
from ragpipe.store.run.seals import changed_cells, closed_seal, open_seal, seal_table


def made(output_dir: Path, name: str = "x", run_id: str = "abc123") -> RunFolder:
    run = RunFolder.at(output_dir, name, run_id).create()
    run.manifest.write_text(json.dumps({"format": FORMAT}))
    return run


def test_iterations_in_order(tmp_path: Path) -> None:
    run = made(tmp_path)
    assert RunFolder(tmp_path / "missing").iterations() == []
    for number in (10, 2, 1):
        assert run.iteration(number).create().root.is_dir()
    (run.root / "iteration-x").mkdir()
    (run.root / "iteration-3").write_text("a file")
    assert run.iterations() == [1, 2, 10]


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../x", "a/../../x", "/etc", "a//b", "a/", ".hidden", "a/.git", "latest", "team/latest", "runs.md",
     "a\\b", "c:x", "a\nb", "a\x00b", "\x1b[2J", " a", "a ", "x" * 201, "\ud800"],
)  # fmt: skip
def test_a_name_that_escapes_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError) as found:
        RunFolder.at(tmp_path, name, "abc")
    assert found.value.problems[0].where == "name"
    with pytest.raises(ConfigError):
        RunFolder.at(tmp_path, "x", name)
    with pytest.raises(ConfigError):
        RunFolder.at(tmp_path, "x", "a/b")


@pytest.mark.parametrize("name", ["x", "team/nightly", "2024", "prüfung 1", "a.b-c_d"])
def test_other_names_are_fine(tmp_path: Path, name: str) -> None:
    assert made(tmp_path, name).root == tmp_path / name / "abc123"


def test_rights_are_those_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        run = made(tmp_path)
    finally:
        os.umask(before)
    assert run.root.stat().st_mode & 0o777 == 0o700


def test_planted_folder_links_are_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    run = made(tmp_path / "out")
    (run.root / "iteration-1").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutputError, match="symbolic link"):
        run.iteration(1).create()
    (tmp_path / "out" / "y").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutputError, match="symbolic link"):
        RunFolder.at(tmp_path / "out", "y", "abc").create()
    with pytest.raises(OutputError, match=r"not a folder|should be"):
        run.manifest and RunFolder(run.manifest).create()


def test_latest_moves_atomically_and_relatively(tmp_path: Path) -> None:
    one, two = made(tmp_path / "a", run_id="one"), made(tmp_path / "a", run_id="two")
    one.point_latest()
    assert os.readlink(one.latest) == "one"
    before = os.lstat(one.latest)
    one.point_latest()
    assert os.lstat(one.latest).st_ino == before.st_ino
    two.point_latest()
    assert RunFolder.find(tmp_path / "a" / "x" / "latest").root == two.root
    assert sorted(os.listdir(tmp_path / "a" / "x")) == ["latest", "one", "two"]
    (tmp_path / "a").rename(tmp_path / "b")
    assert RunFolder.find(tmp_path / "b" / "x" / "latest").root == tmp_path / "b" / "x" / "two"


def test_latest_is_a_text_file_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(module.os, "symlink", fail)
    run = made(tmp_path)
    run.point_latest()
    assert run.latest.read_text() == "abc123\n"
    assert not run.latest.is_symlink()
    assert RunFolder.find(run.latest).root == run.root


def test_a_folder_named_latest_is_not_removed(tmp_path: Path) -> None:
    run = made(tmp_path)
    run.latest.mkdir()
    with pytest.raises(OutputError, match="a folder is where"):
        run.point_latest()
    assert sorted(os.listdir(tmp_path / "x")) == ["abc123", "latest"]


def test_finds_a_run_by_any_of_its_names(tmp_path: Path) -> None:
    run = made(tmp_path)
    run.point_latest()
    for path in (run.root, run.latest, tmp_path / "x"):
        assert RunFolder.find(path).root == run.root


@pytest.mark.parametrize("target", ["../../secret", "/etc", "..", ".", "a/b", "", "gone"])
def test_a_pointer_that_leads_elsewhere_is_not_followed(tmp_path: Path, target: str) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "manifest.json").write_text("{}")
    (tmp_path / "out" / "x").mkdir(parents=True)
    latest = tmp_path / "out" / "x" / "latest"
    latest.write_text(target)
    with pytest.raises(DataError, match="no run"):
        RunFolder.find(latest)
    if target:
        latest.unlink()
        latest.symlink_to(target)
        with pytest.raises(DataError, match="no run"):
            RunFolder.find(latest)


def test_no_run_is_said_so(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing", tmp_path / "missing" / "latest"):
        with pytest.raises(DataError, match=r"no manifest\.json|no such folder"):
            RunFolder.find(path)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock as a list of one number that a test may change."""
    times = [100.0]
    monkeypatch.setattr(progress_state.time, "monotonic", lambda: times[0])
    return times


def test_the_time_of_a_killed_start_is_kept(tmp_path: Path, now: list[float]) -> None:
    """12 s in a start that was killed at its 14th second, then 3 s in the one that goes on."""
    path = tmp_path / ".wall.json"
    clock = WallClock(path)
    for now[0] in (102.0, 107.0, 109.0, 112.0, 114.0):  # written at 7 and at 12
        clock.tick()
    assert json.loads(path.read_text()) == {"judging_s": 12.0}
    now[0] = 900.0
    again = WallClock(path)
    now[0] = 903.0
    again.write()
    assert judged_seconds(path) == 15.0


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"judging_s": "x"}', '{"judging_s": -1}', '{"judging_s": true}'])
def test_a_file_that_says_nothing_starts_from_nothing(tmp_path: Path, text: str) -> None:
    path = tmp_path / ".wall.json"
    assert judged_seconds(path) is None
    path.write_text(text)
    assert judged_seconds(path) is None
    assert WallClock(path).seconds < 1


def test_a_file_that_cannot_be_written_costs_the_time_alone(tmp_path: Path) -> None:
    WallClock(tmp_path / "gone" / ".wall.json").write()


WHOLE: dict[str, Any] = {"manifest": {}, "files": {"final/metrics.json": "0" * 64}, "tables": {}, "spent": {}, "prices": {}}


def written(folder: Path, text: str) -> Path:
    path = folder / "seal.json"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_seal_is_read_back(tmp_path: Path) -> None:
    found = open_seal(written(tmp_path, json.dumps(closed_seal(WHOLE))))
    assert found is not None
    assert {key: found[key] for key in WHOLE} == WHOLE


@pytest.mark.parametrize("part", ["files", "tables"])
@pytest.mark.parametrize("name", ["/etc/passwd", "../other/samples.parquet", "iteration-1/../../x", "a\0b"])
def test_a_seal_that_names_a_file_elsewhere_is_refused(tmp_path: Path, part: str, name: str) -> None:
    """Its digest fits: whoever writes a seal can compute it."""
    path = written(tmp_path, json.dumps(closed_seal({**WHOLE, part: {name: "0" * 64}})))
    with pytest.raises(ValueError, match=f"`{part}` names more than files of this folder"):
        open_seal(path)


@pytest.mark.parametrize("part", ["files", "tables"])
def test_a_seal_whose_parts_are_no_mappings_is_refused(tmp_path: Path, part: str) -> None:
    with pytest.raises(ValueError, match=f"`{part}` names"):
        open_seal(written(tmp_path, json.dumps(closed_seal({**WHOLE, part: ["final/metrics.json"]}))))


def test_names_that_only_look_like_going_up_are_files_of_the_folder(tmp_path: Path) -> None:
    names = {"prompts/a..b.jinja": "0" * 64, "..x/y": "0" * 64}
    found = open_seal(written(tmp_path, json.dumps(closed_seal({**WHOLE, "files": names}))))
    assert found is not None
    assert found["files"] == names


@pytest.mark.parametrize("text", ["", "[]", "{}", "[" * 200_000, '{"files": {}, "tables": {}, "digest": "0"}'])
def test_a_damaged_seal_is_a_value_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match=r"digest|no readable JSON|a JSON list"):
        open_seal(written(tmp_path, text))


TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=5)
COLUMNS = {
    "text": (pa.string(), TEXTS),
    "whole": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "real": (pa.float64(), st.floats(allow_nan=False)),
    "flag": (pa.bool_(), st.booleans()),
    "texts": (pa.list_(pa.string()), st.lists(st.none() | TEXTS, max_size=3)),
    "pairs": (pa.list_(pa.struct({"a": pa.int64()})), st.lists(st.fixed_dictionaries({"a": st.integers(0, 3)}), max_size=2)),
}  # fmt: skip
MASK = 2**64 - 1


def mixed(value: int) -> int:
    """The finalizer of splitmix64, number by number."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def cell_digest(kind: pa.DataType, value: Any) -> int:
    """The digest of one cell: of its text, of its 64 bits, or of a list as JSON."""
    if value is None and not pa.types.is_list(kind):
        return 0x9E3779B97F4A7C15
    if pa.types.is_floating(kind):
        return mixed(struct.unpack("<Q", struct.pack("<d", value))[0])
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return mixed(int(value) & MASK)
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


ROWS = st.lists(st.fixed_dictionaries({name: st.none() | values for name, (_, values) in COLUMNS.items()}), min_size=1, max_size=9)


@pytest.mark.slow
@given(ROWS, st.integers(1, 9))
def test_rows_and_columns_are_sealed_cell_by_cell(tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], group: int) -> None:
    kinds = {name: kind for name, (kind, _) in COLUMNS.items()}
    path = tmp_path_factory.getbasetemp() / "sealed.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema=pa.schema(kinds)), path, row_group_size=group)
    digests = {name: [cell_digest(kind, row[name]) for row in rows] for name, kind in kinds.items()}
    totals = []
    for place in range(len(rows)):
        total = 0
        for name in kinds:
            total = mixed((total + digests[name][place]) & MASK)
        totals.append(total >> 32)
    seal = seal_table(path)
    assert seal["columns"] == {
        name: hashlib.sha256(struct.pack(f"<{len(rows)}Q", *column)).hexdigest()[:16] for name, column in digests.items()
    }
    assert base64.b64decode(seal["rows"]) == struct.pack(f"<{len(rows)}I", *totals)
    assert seal["rows_per_digest"] == 1


def numbered(path: Path, numbers: list[int]) -> dict[str, Any]:
    """The seal of a table with one column, `n`."""
    pq.write_table(pa.table({"n": pa.array(numbers, pa.int64())}), path)
    return seal_table(path)


def test_of_a_long_table_neighbours_share_a_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven rows and at most three digests: three rows each, the last one alone. A row's digest is `mixed` of its cell, theirs adds the
    rows up, mixed after each; what is absent counts 0."""
    monkeypatch.setattr(seals, "MOST_DIGESTS", 3)
    numbers = [5, 6, 7, 8, 9, 10, 11]
    seal = numbered(tmp_path / "t.parquet", numbers)
    totals = []
    for rows in ([5, 6, 7], [8, 9, 10], [11]):
        total = 0
        for row in [*(mixed(mixed(number)) for number in rows), 0, 0][:3]:
            total = mixed((total + row) & MASK)
        totals.append(total >> 32)
    assert base64.b64decode(seal["rows"]) == struct.pack("<3I", *totals)
    assert seal["rows_per_digest"] == 3


@pytest.mark.parametrize(
    ("numbers", "places"),
    [
        ([5, 6, 7, 8, 0, 10, 11], [range(3, 6)]), ([6, 5, 7, 8, 9, 10, 11], [range(3)]), ([5, 6, 7, 8, 9, 10, 12], [range(6, 9)]),
        ([5, 6, 7], [range(3, 6), range(6, 9)]), ([5, 6, 7, 8, 9, 10, 11, 12, 13, 14], [range(6, 9), range(9, 12)]),
    ],
)  # fmt: skip
def test_a_change_is_located_to_the_rows_that_share_a_digest(tmp_path, monkeypatch, numbers: list[int], places: list[range]) -> None:
    monkeypatch.setattr(seals, "MOST_DIGESTS", 3)
    path = tmp_path / "t.parquet"
    seal = numbered(path, [5, 6, 7, 8, 9, 10, 11])
    assert changed_cells(path, seal) == ([], [])
    numbered(path, numbers)
    assert changed_cells(path, seal) == (places, ["n"])
