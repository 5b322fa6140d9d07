"""Files that look wrong, are packed, or named after another format: read as what they hold, or refused with the cure."""

import gzip
import io
import json
import lzma
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ragpipe.core.errors import DataError
from ragpipe.data import parquet_rows, text_lines
from ragpipe.data.recognition import recognise
from tests.support.broken_files import parquet


def test_a_byte_order_mark_and_windows_line_ends(read_file):
    line = '{"id": "q1", "question": "a"}\r\n{"id": "q2", "question": "b"}\r\n'
    for name in ("bom.jsonl", "bom.json"):
        text = line if name.endswith("l") else f"[{line.replace(chr(125) + chr(13) + chr(10) + chr(123), '},{')}]"
        assert [r.sample.id for r in read_file({name: b"\xef\xbb\xbf" + text.encode()})] == ["q1", "q2"]
    assert [r.sample.id for r in read_file({"bom.csv": b"\xef\xbb\xbfid,question\r\nq1,a\r\n"})] == ["q1"]


@pytest.mark.parametrize("sign", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e"])
def test_only_a_line_feed_ends_a_line(read_file, sign):
    record = {"id": "q1", "question": f"a{sign}b", "answer": f"x{sign}"}
    raw = json.dumps(record, ensure_ascii=False)  # json escapes what is below a space, and leaves the others as they are
    (found,) = read_file({"lines.jsonl": raw + "\n"})
    assert (found.sample.question, found.output.answer) == (f"a{sign}b", f"x{sign}")
    (cell,) = read_file({"lines.csv": f"id,question\nq1,a{sign}b\n"})
    assert cell.sample.question == f"a{sign}b"


def test_csv_texts_stay_what_they_are(read_file):
    rows = "007,q,NA,NA\n7,q,None,no value\n1e5,q,N/A,true\n"
    found = read_file({"ids.csv": f"id,question,answer,category\n{rows}"})
    assert [r.sample.id for r in found] == ["007", "7", "1e5"]
    assert [r.output.answer for r in found] == ["NA", "None", "N/A"]  # a system does answer so
    assert [r.sample.category for r in found] == ["NA", "no value", "true"]


def test_csv_cells_with_newlines_quotes_and_json(read_file):
    text = 'id,question,answer,contexts,answerable,tags,category\nq1,"a\n""b"", c",,"[""x, y"", {""t"": 1}]",TRUE,,\nq2,b,z,,,,\n'
    first, second = read_file({"cells.csv": text})
    assert first.sample.question == 'a\n"b", c'
    assert first.output.answer == ""
    assert [c.text for c in first.output.chunks] == ["x, y", '{"t":1}']
    assert (first.sample.answerable, first.sample.tags, first.sample.category) == (True, [], None)
    assert (second.sample.answerable, second.output.chunks, second.where) == (None, None, "cells.csv:4")


def test_other_separators(read_file):
    assert read_file({"semi.csv": "id;question\nq1;a,b\n"}, delimiter=";")[0].sample.question == "a,b"
    assert read_file({"tab.tsv": "id\tquestion\nq1\ta,b\n"})[0].sample.question == "a,b"


def test_empty_contexts_and_an_empty_answer_are_a_case(read_file):
    (found,) = read_file({"empty.jsonl": '{"id": "q1", "question": "a", "answer": "", "contexts": []}\n'})
    assert (found.output.answer, found.output.chunks) == ("", [])


def test_several_outputs_of_one_question_and_the_short_forms(read_file):
    record = {
        "id": "q1", "question": "a",
        "outputs": [
            {"method": "m1", "answer": "x", "contexts": ["one", {"id": "k", "text": "two"}, {"title": "t", "text": "three"}]},
            {"method": "m2", "chunks": [{"text": {"b": 1, "a": "é"}, "rank": 2}, {"text": "first", "rank": 1}]},
        ],
    }  # fmt: skip
    one, two = read_file({"outputs.jsonl": json.dumps(record)})
    assert one.sample is two.sample
    expected = [("c1", 1, "one"), ("k", 2, "two"), ("c3", 3, '{"text":"three","title":"t"}')]
    assert [(c.id, c.rank, c.text) for c in one.output.chunks] == expected
    assert [(c.id, c.rank, c.text) for c in two.output.chunks] == [("c1", 1, "first"), ("c2", 2, '{"a":"é","b":1}')]


def test_a_text_that_is_an_object_is_written_in_the_declared_order(read_file):
    course = {"url": "u", "name": "Rust", "topics": ["a", "b"], "level": None}
    record = {"id": "q1", "question": "a", "contexts": [course]}
    (found,) = read_file({"course.jsonl": json.dumps(record)}, chunk_text=["name", "level", "topics"])
    assert found.output.chunks[0].text == 'name: Rust\ntopics: ["a","b"]'


def test_parquet_types(read_file):
    chunk = pa.struct([("id", pa.string()), ("text", pa.large_string()), ("score", pa.float32())])
    table = pa.table({
        "id": pa.array(["007", "1e5"]).dictionary_encode(),
        "question": pa.array(["a", "NA"], pa.large_string()),
        "answer": pa.array(["x", ""], pa.string_view()) if hasattr(pa, "string_view") else pa.array(["x", ""]),
        "chunks": pa.array([[{"id": "d1", "text": "t", "score": 0.5}], []], pa.large_list(chunk)),
        "gains": pa.array([[("d1", 1.0)], []], pa.map_(pa.string(), pa.float64())),
        "answerable": pa.array([True, None]),
        "category": pa.array([None, None], pa.string()),
    })  # fmt: skip
    first, second = read_file({"types.parquet": parquet(table)})
    assert (first.sample.id, second.sample.id, second.sample.question) == ("007", "1e5", "NA")
    assert (first.output.chunks[0].score, second.output.chunks) == (0.5, [])
    assert (first.sample.gains, second.sample.gains) == ({"d1": 1.0}, {})
    assert (first.sample.answerable, second.sample.answerable, first.where) == (True, None, "types.parquet row 1")


def test_parquet_times_and_decimals(read_file):
    """What a warehouse exports beside the question: it must not keep the file from being read."""
    table = pa.table({
        "id": ["q1"], "question": ["a"],
        "made": pa.array([1_700_000_000_123_456_789], pa.timestamp("ns")),
        "day": pa.array([19_000], pa.date32()),
        "price": pa.array([Decimal("12.50")], pa.decimal128(10, 2)),
        "count": pa.array([Decimal("12.00")], pa.decimal128(10, 2)),
    })  # fmt: skip
    fields = {name: name for name in ("id", "question")}
    assert [r.sample.id for r in read_file({"odd.parquet": parquet(table)}, fields=fields)] == ["q1"]
    meta = {"fields": {name: name for name in ("made", "day", "price", "count")}}
    (found,) = read_file({"odd.parquet": parquet(table)}, fields={**fields, "meta": meta})
    expected = {"made": "2023-11-14T22:13:20.123456", "day": "2022-01-08", "price": 12.5, "count": 12}
    assert found.sample.meta == expected


def test_json_lists_are_streamed_across_the_edges_of_a_block(read_file, monkeypatch):
    records = [{"id": f"q{i}", "question": 'é\\"]}' * (i % 7 + 1), "meta": {"n": [i, {"x": [1.5e3]}]}} for i in range(40)]
    expected = [(r["id"], r["question"], r["meta"]) for r in records]
    for block in (1, 7, 64):
        monkeypatch.setattr("ragpipe.data.json_rows._BLOCK", block)
        for indent in (None, 1):
            found = read_file({"list.json": json.dumps(records, indent=indent)})
            assert [(r.sample.id, r.sample.question, r.sample.meta) for r in found] == expected


def test_paired_surrogates_and_deep_but_sane_values(read_file):
    nested: Any = "x"
    for _ in range(90):
        nested = [nested]
    text = '{"id": "q1", "question": "\\ud83d\\ude00", "meta": {"n": ' + json.dumps(nested) + "}}"
    (found,) = read_file({"pair.jsonl": text})
    assert found.sample.question == "😀"
    assert found.sample.meta == {"n": nested}


@pytest.mark.parametrize(("unit", "factor"), [("s", 1), ("ms", 1000), ("us", 10**6), ("ns", 10**9)])
@pytest.mark.parametrize(("zone", "text"), [(None, "2023-11-14T22:13:20"), ("Europe/Berlin", "2023-11-14T23:13:20+01:00")])
def test_a_time_has_one_text_in_every_unit(read_file, unit, factor, zone, text):
    times = pa.array([1_700_000_000 * factor, None], pa.timestamp(unit, zone))
    table = pa.table({"id": ["q1", "q2"], "question": ["a", "b"], "made": times})
    fields = {"id": "id", "question": "question", "meta": {"fields": {"made": {"path": "made", "default": None}}}}
    one, two = read_file({"times.parquet": parquet(table)}, fields=fields)
    assert one.sample.meta["made"] == text
    assert two.sample.meta.get("made") is None


def test_what_parquet_holds_and_json_does_not_is_said(read_file):
    head = {"id": ["q1"], "question": ["a"]}
    twice = pa.array([[("d1", 1.0), ("d1", 2.0)]], pa.map_(pa.string(), pa.float64()))
    with pytest.raises(DataError, match="a key twice in one map") as caught:
        read_file({"map.parquet": parquet(pa.table({**head, "gains": twice}))})
    assert caught.value.problems[0].key == "gains"
    assert "damaged" not in str(caught.value)
    bytes_of = [None, pa.py_buffer(struct.pack("<ii", 0, 2)), pa.py_buffer(b"\xff\xfe")]
    latin = pa.Array.from_buffers(pa.string(), 1, bytes_of)
    with pytest.raises(DataError, match="bytes that are no UTF-8") as caught:
        read_file({"latin.parquet": parquet(pa.table({**head, "answer": latin}))})
    assert caught.value.problems[0].key == "answer"
    assert "write the texts as UTF-8" in caught.value.problems[0].fix


def test_a_struct_of_gains_has_only_the_names_of_its_row(read_file):
    """`pa.Table.from_pylist` makes one struct with the names of all rows, null where a row has none."""
    rows = [{"id": "q1", "question": "a", "gains": {"d1": 1.0}}, {"id": "q2", "question": "b", "gains": {"d2": 2.0}}]
    from_lines = read_file({"g.jsonl": "".join(json.dumps(row) + "\n" for row in rows)})
    from_parquet = read_file({"g.parquet": parquet(pa.Table.from_pylist(rows))})
    assert [record.sample for record in from_parquet] == [record.sample for record in from_lines]
    assert [record.sample.gains for record in from_parquet] == [{"d1": 1.0}, {"d2": 2.0}]


def test_an_empty_cell_of_an_id_is_no_id(read_file):
    found = read_file({"ids.csv": "id,question\nq1,a\n,b\n"})
    assert [record.sample.id[0] for record in found] == ["q", "h"]
    without = read_file({"none.csv": "question\na\nb\n"})
    assert found[1].sample.id == without[1].sample.id


def test_an_empty_cell_is_no_blank_line(read_file):
    """Of the rows of one column, two are empty cells; a blank line is no row."""
    fields = {"id": "to_string(_index)", "question": "'q'", "answer": "answer"}
    found = read_file({"one.csv": 'answer\na\n""\n\nb\n""\n'}, fields=fields)
    assert [record.output.answer for record in found] == ["a", "", "b", ""]


@pytest.mark.parametrize("field", ["repeat", "attempts"])
def test_a_count_that_no_table_holds_is_refused(read_file, field):
    record = {"id": "q1", "question": "a", "answer": "x", field: 2**63}
    with pytest.raises(DataError, match="less than or equal to 2147483647") as caught:
        read_file({"far.jsonl": json.dumps(record)})
    assert caught.value.problems[0].key == field
    record = {"id": "q1", "question": "a", "chunks": [{"id": "c", "rank": 2**63}]}
    with pytest.raises(DataError, match="less than or equal to 2147483647"):
        read_file({"far.jsonl": json.dumps(record)})


TEXT = "x" * (1 << 10)


@pytest.mark.parametrize("kept", [
    pa.array([TEXT] * 120), pa.array([[TEXT, None]] * 119 + [None], pa.list_(pa.string())),
    pa.array([[TEXT]] * 120, pa.large_list(pa.large_string())), pa.array([{"a": {"b": [TEXT]}}] * 119 + [None]),
    pa.array([[{"text": TEXT, "n": 1}]] * 120), pa.array([[("k", TEXT)]] * 120, pa.map_(pa.string(), pa.string())),
], ids=lambda kept: str(kept.type)[:20])  # fmt: skip
def test_texts_wherever_they_stand_are_read_a_few_rows_at_a_time(kept, tmp_path, monkeypatch):
    """Of a file of 120 texts whose row group is four times as large as a batch may be."""
    path = tmp_path / "d.parquet"
    table = pa.table({"id": [f"q{n}" for n in range(120)], "kept": kept})
    pq.write_table(table, path, use_dictionary=False)
    monkeypatch.setattr(parquet_rows, "_BATCH_BYTES", pq.read_metadata(path).row_group(0).total_byte_size // 4)
    row = 0
    with parquet_rows.table_batches(path) as (schema, batches):
        assert schema.equals(table.schema)
        for part in batches(128):
            assert part.num_rows <= 30
            assert part.schema.types == table.schema.types
            assert part.column(1).to_pylist() == kept.slice(row, part.num_rows).to_pylist()
            row += part.num_rows
    assert row == 120


ROWS = [{"id": f"q{n}", "question": f"Who wrote book {n}?", "answer": "Ada.", "contexts": ["Ada."]} for n in range(3)]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS)
LIST = json.dumps(ROWS)
CSV = "id,question,answer\n" + "".join(f"q{n},Who wrote book {n}?,Ada.\n" for n in range(3))


def _arrow(write):
    table, sink = pa.Table.from_pylist(ROWS), io.BytesIO()
    with write(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


@pytest.mark.parametrize(("name", "content"), [
    ("d.jsonl.gz", gzip.compress(LINES.encode(), mtime=0)),
    ("d.jsonl.xz", lzma.compress(LINES.encode())),
    ("d.csv.gz", gzip.compress(CSV.encode(), mtime=0)),
    ("D.JSONL.GZ", gzip.compress(LINES.encode(), mtime=0)),
    ("d.jsonl", gzip.compress(LINES.encode(), mtime=0)),  # packed, whatever its name
    ("d.arrow", _arrow(pa.ipc.new_stream)),  # as Hugging Face datasets keeps it
    ("d.arrow", _arrow(pa.ipc.new_file)),
    ("d.json", LINES.encode()),
    ("d.json", b"\xef\xbb\xbf" + LINES.replace("\n", "\r\n").encode()),
    ("d.jsonl", LIST.encode()),
    ("d.json.gz", gzip.compress(LINES.encode(), mtime=0)),
])  # fmt: skip
def test_a_packed_or_misnamed_file_is_read_as_what_it_is(open_file, tmp_path, name, content):
    records = list(open_file({name: content}))
    assert [record.sample.id for record in records] == ["q0", "q1", "q2"]
    found = recognise(tmp_path / name)
    assert (found.option, found.arguments) == ("jsonl", ())


@pytest.mark.parametrize(("name", "content", "told"), [
    ("d.jsonl.gz", gzip.compress(LINES.encode(), mtime=0)[:-9], "download it again"),
    ("d.jsonl.xz", lzma.compress(LINES.encode())[:-20], "download it again"),
    ("d.parquet.gz", gzip.compress(b"PAR1", mtime=0), "unpack"),
    ("d.jsonl.zst", b"\x28\xb5\x2f\xfd0000", "zstd"),
    ("d.arrow", b"ARROW1\0\0broken", "write it again"),
])  # fmt: skip
def test_what_cannot_be_unpacked_is_refused(open_file, name, content, told):
    with pytest.raises(DataError) as refused:
        list(open_file({name: content}))
    assert name in str(refused.value)
    assert told in str(refused.value)


def test_a_file_may_not_unpack_to_any_size(open_file, monkeypatch):
    monkeypatch.setattr(text_lines, "MAX_UNPACKED", 1 << 20)
    bomb = gzip.compress(LINES.encode() + b" " * (4 << 20))
    with pytest.raises(DataError, match="when it is unpacked"):
        list(open_file({"d.jsonl.gz": bomb}))


@pytest.mark.parametrize(("names", "told"), [
    (["data-00000-of-00001.arrow", "dataset_info.json", "state.json"], "data-00000-of-00001.arrow"),
    (["data-00000-of-00002.arrow", "data-00001-of-00002.arrow", "dataset_info.json", "state.json"], "load_from_disk"),
    (["dataset_dict.json", "train/state.json", "train/data-00000-of-00001.arrow", "test/state.json"], "test, train"),
])  # fmt: skip
def test_a_folder_of_save_to_disk_says_what_to_give(tmp_path, names, told):
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"{}")
    found = recognise(tmp_path)
    assert told in found.unusable
