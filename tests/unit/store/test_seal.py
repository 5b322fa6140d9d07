"""Which seals are believed: a seal may come from a stranger, and its names are joined to a run folder."""

import base64
import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpipe.store.run import seals
from ragpipe.store.run.seals import changed_cells, closed_seal, open_seal, seal_table

WHOLE: dict[str, Any] = {
    "manifest": {},
    "files": {"final/metrics.json": "0" * 64},
    "tables": {},
    "spent": {},
    "prices": {},
}


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


ROWS = st.lists(
    st.fixed_dictionaries({name: st.none() | values for name, (_, values) in COLUMNS.items()}), min_size=1, max_size=9
)


@pytest.mark.slow
@given(ROWS, st.integers(1, 9))
def test_rows_and_columns_are_sealed_cell_by_cell(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], group: int
) -> None:
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
        name: hashlib.sha256(struct.pack(f"<{len(rows)}Q", *column)).hexdigest()[:16]
        for name, column in digests.items()
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
        ([5, 6, 7, 8, 0, 10, 11], [range(3, 6)]),
        ([6, 5, 7, 8, 9, 10, 11], [range(3)]),
        ([5, 6, 7, 8, 9, 10, 12], [range(6, 9)]),
        ([5, 6, 7], [range(3, 6), range(6, 9)]),
        ([5, 6, 7, 8, 9, 10, 11, 12, 13, 14], [range(6, 9), range(9, 12)]),
    ],
)
def test_a_change_is_located_to_the_rows_that_share_a_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, numbers: list[int], places: list[range]
) -> None:
    monkeypatch.setattr(seals, "MOST_DIGESTS", 3)
    path = tmp_path / "t.parquet"
    seal = numbered(path, [5, 6, 7, 8, 9, 10, 11])
    assert changed_cells(path, seal) == ([], [])
    numbered(path, numbers)
    assert changed_cells(path, seal) == (places, ["n"])
