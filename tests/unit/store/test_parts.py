"""Parts of a table, how they are joined, and rows found in it by their cells or by their place."""

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragpipe.core.errors import DataError
from ragpipe.store.parquet_parts import Parts
from ragpipe.store.run_tables import numbered_rows, query_rows, rows_at
from tests.support.memory import quick_folder

pytestmark = pytest.mark.slow

SCHEMA = pa.schema([
    pa.field("id", pa.string(), metadata={"description": "an id"}), pa.field("value", pa.float64()),
    pa.field("tags", pa.list_(pa.string())),
])  # fmt: skip
some_rows = st.fixed_dictionaries({
    "id": st.text(st.characters(exclude_categories=["Cs"]), max_size=8), "value": st.none() | st.floats(allow_nan=False),
    "tags": st.none() | st.lists(st.sampled_from(["a", "b"]), max_size=3),
})  # fmt: skip
part_lists = st.lists(st.lists(some_rows, max_size=8), max_size=4)


def table(rows: list[dict]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def some(count: int, rows: int = 3) -> list[list[dict]]:
    return [[{"id": f"{p}-{r}", "value": r / 7, "tags": ["x"] * r} for r in range(rows)] for p in range(count)]


def joined(folder: Path, parts: list[list[dict]]) -> bytes:
    made = Parts(folder / "parts", SCHEMA)
    for index, rows in enumerate(parts):
        made.write(index, table(rows))
    made.join(folder / "whole.parquet")
    return (folder / "whole.parquet").read_bytes()


@settings(max_examples=20, deadline=None)
@given(part_lists, st.data())
def test_the_same_rows_give_the_same_bytes_however_often_interrupted(parts: list[list[dict]], data: st.DataObject) -> None:
    with quick_folder() as a, quick_folder() as b:
        expected = joined(Path(a), parts)
        folder, target = Path(b) / "parts", Path(b) / "whole.parquet"
        steps = [*range(len(parts)), *data.draw(st.lists(st.integers(0, max(0, len(parts) - 1)), max_size=4))]
        for index in data.draw(st.permutations(steps)):
            if index >= len(parts):
                continue
            made = Parts(folder, SCHEMA)  # a new process
            split = data.draw(st.integers(0, len(parts[index])))  # the same rows in another memory layout
            made.write(index, pa.concat_tables([table(parts[index][:split]), table(parts[index][split:])]))
            if data.draw(st.booleans()):
                victim = made.path(data.draw(st.sampled_from(sorted(made.done()))))
                victim.write_bytes(victim.read_bytes()[: data.draw(st.integers(0, victim.stat().st_size - 1))])
        made = Parts(folder, SCHEMA)
        for index in set(range(len(parts))) - made.done():
            made.write(index, table(parts[index]))
        made.join(target)
        assert (target.read_bytes(), os.listdir(b)) == (expected, ["whole.parquet"])
        found = pq.read_table(target)
        assert found.to_pylist() == [row for rows in parts for row in rows]
        assert found.schema.equals(SCHEMA)
        assert found.schema.field("id").metadata == {b"description": b"an id"}


def test_done_removes_what_is_broken_with_a_notice(tmp_path: Path) -> None:
    parts = Parts(tmp_path / "parts", SCHEMA)
    for index, rows in enumerate(some(5, 500)):
        parts.write(index, table(rows))
    parts.path(0).write_bytes(b"")
    whole = bytearray(parts.path(1).read_bytes())
    whole[100] ^= 0xFF  # inside a data page: the footer is whole
    parts.path(1).write_bytes(whole)
    pq.write_table(pa.table({"other": [1]}), parts.path(2))
    (tmp_path / "outside").write_bytes(parts.path(3).read_bytes())
    parts.path(3).unlink()
    parts.path(3).symlink_to(tmp_path / "outside")
    (tmp_path / "parts" / "note.txt").write_text("not a part")
    assert parts.done() == {4}
    assert [notice.split(":")[0] for notice in parts.notices] == [str(parts.path(n)) for n in range(4)]
    assert sorted(os.listdir(tmp_path / "parts")) == ["note.txt", "part-000004.parquet", "part-000004.sha256"]
    assert (tmp_path / "outside").exists()
    parts.discard(4)
    parts.discard(4)
    assert (parts.done(), Parts(tmp_path / "missing", SCHEMA).done()) == (set(), set())


@given(st.data())
def test_no_changed_byte_of_a_part_goes_unseen(data: st.DataObject) -> None:
    """Also one in the footer, which no checksum of Parquet covers."""
    with quick_folder() as folder:
        parts = Parts(Path(folder) / "parts", SCHEMA)
        parts.write(0, table(some(1, 5)[0]))
        whole = bytearray(parts.path(0).read_bytes())
        whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
        parts.path(0).write_bytes(whole)
        assert (parts.done(), len(parts.notices)) == (set(), 1)
        assert os.listdir(parts.folder) == []


def test_a_part_may_have_several_row_groups_and_keeps_them(tmp_path: Path) -> None:
    parts = Parts(tmp_path / "parts", SCHEMA)
    parts.write_groups(0, (table(rows) for rows in some(3)))
    parts.write_groups(1, iter(()))
    parts.write(2, table(some(1)[0]))
    assert parts.done() == {0, 1, 2}
    parts.join(tmp_path / "whole.parquet")
    found = pq.ParquetFile(tmp_path / "whole.parquet").metadata
    assert [found.row_group(i).num_rows for i in range(found.num_row_groups)] == [3, 3, 3, 3]


def test_a_missing_part_is_no_end(tmp_path: Path) -> None:
    parts = Parts(tmp_path / "parts", SCHEMA)
    for index in (0, 2):
        parts.write(index, table(some(1)[0]))
    with pytest.raises(ValueError, match="part 1 of 3 is not done"):
        parts.join(tmp_path / "whole.parquet")
    assert parts.done() == {0, 2}
    assert not (tmp_path / "whole.parquet").exists()


def test_a_broken_part_is_named_and_the_old_file_stays(tmp_path: Path) -> None:
    parts = Parts(tmp_path / "parts", SCHEMA)
    parts.write(0, table(some(1)[0]))
    parts.path(0).write_bytes(parts.path(0).read_bytes()[:-20])
    (tmp_path / "whole.parquet").write_text("old")
    with pytest.raises(DataError, match=r"part-000000\.parquet"):
        parts.join(tmp_path / "whole.parquet")
    assert (tmp_path / "whole.parquet").read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["parts", "whole.parquet"]


def test_the_folder_of_all_parts_goes_with_the_last(tmp_path: Path) -> None:
    tables = [Parts(tmp_path / ".parts" / name, SCHEMA) for name in ("scores", "judge_inputs")]
    for parts in tables:
        parts.write(0, table(some(1)[0]))
    for number, parts in enumerate(tables):
        assert (tmp_path / ".parts").exists()
        parts.join(tmp_path / f"{number}.parquet")
    assert sorted(os.listdir(tmp_path)) == ["0.parquet", "1.parquet"]


ROWS = [
    {"sample_id": f"q{place % 7}", "method": ("a", "b", None)[place % 3], "repeat": 1 + place % 2, "text": f"{place}"}
    for place in range(60)
]


@pytest.fixture(params=[1, 8, 60])
def table_of_tables(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "table.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS), path, row_group_size=request.param)
    return path


@pytest.mark.parametrize("cells", [
    {"sample_id": "q3"}, {"sample_id": "q3", "method": "b"}, {"method": None}, {"method": None, "repeat": 2},
    {"sample_id": "q5", "method": "a", "repeat": 1}, {"repeat": 2, "sample_id": "q0"}, {"sample_id": "not there"},
    {},
])  # fmt: skip
def test_the_rows_with_these_cells(table_of_tables: Path, cells: dict[str, Any]) -> None:
    expected = {place: row for place, row in enumerate(ROWS) if row.items() >= cells.items()}
    assert query_rows(table_of_tables, **cells) == list(expected.values())
    assert numbered_rows(table_of_tables, **cells) == expected
    texts = {place: {"text": row["text"]} for place, row in expected.items()}
    assert numbered_rows(table_of_tables, ["text"], **cells) == texts


def test_the_rows_at_these_places(table_of_tables: Path) -> None:
    places = [59, 0, 17, 8, 7, 16]
    assert rows_at(table_of_tables, places) == {place: ROWS[place] for place in places}
    assert rows_at(table_of_tables, []) == {}
