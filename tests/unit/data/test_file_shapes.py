"""Files that are packed, named after another format, or written by id or by column: read as what they hold, or refused with the cure."""

import gzip
import io
import json
import lzma

import pyarrow as pa
import pytest

from ragpipe.core.errors import DataError
from ragpipe.data import text_lines
from ragpipe.data.recognition import recognise

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
