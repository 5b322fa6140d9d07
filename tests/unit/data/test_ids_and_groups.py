"""Records without an id, positions, units, grouped rows, and JSON that is neither a list nor one object per line."""

import json
from hashlib import sha256

import pytest

from ragpipe.core.errors import DataError


def lines(*records):
    return "".join(json.dumps(record) + "\n" for record in records)


def refused(read_file, *args, **settings):
    with pytest.raises(DataError) as error:
        read_file(*args, **settings)
    return str(error.value)


def content_hash(*content):
    text = json.dumps(list(content), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "h" + sha256(text.encode()).hexdigest()[:12]


WHO = content_hash("Who?", [], ["Ada."])
"""The id of what every record of the next two tests asks."""


@pytest.mark.parametrize("record", [
    {"question": "Who?", "reference": "Ada."},
    {"question": "Who?", "references": ["Ada."], "id": None, "history": []},
    {"question": "Who?", "references": ["Ada."], "category": "people", "relevant_docs": ["d1"]},
])  # fmt: skip
def test_a_record_without_id_gets_the_hash_of_what_it_asks(read_file, record):
    (read,) = read_file({"d.jsonl": lines({**record, "answer": "Bob."})})
    assert read.sample.id == WHO


def test_methods_on_one_question_share_the_hash(open_file):
    data = lines(*({"q": "Who?", "gold": "Ada.", "m": m, "a": f"{m} says"} for m in ("x", "y")), {"q": "When?", "m": "x"})
    fields = {"question": "q", "method": "m", "answer": "a", "reference": "gold"}
    dataset = open_file({"d.jsonl": data}, fields=fields)
    ids = [(r.sample.id, r.output.method) for r in dataset]
    assert ids == [(WHO, "x"), (WHO, "y"), (content_hash("When?", [], []), "x")]
    assert dataset.first()[0][:2] == ("id", "hash of the content")


def test_history_and_references_make_another_question(read_file):
    turns = [{"role": "user", "text": "Hello"}]
    records = read_file({"d.jsonl": lines({"question": "Who?", "history": turns}, {"question": "Who?"})})
    assert [r.sample.id for r in records] == [content_hash("Who?", turns, []), content_hash("Who?", [], [])]


def test_an_equal_question_twice_needs_an_id_or_repeat(read_file):
    data = lines({"question": "Who?", "answer": "Ada."}, {"question": "Who?", "answer": "Bob."})
    message = refused(read_file, {"d.jsonl": data})
    assert [text for text in ("a second time", "repeat: 1, 2", "give the records an id") if text not in message] == []


def test_a_mapped_id_that_is_null_is_refused_unless_the_mapping_allows_it(read_file):
    data = lines({"q": "Who?", "gold": "Ada."})
    fields = {"id": "nr", "question": "q", "reference": "gold"}
    message = refused(read_file, {"d.jsonl": data}, fields=fields)
    assert "fields.id (nr)" in message
    assert "default: null" in message
    (record,) = read_file({"d.jsonl": data}, fields={**fields, "id": {"path": "nr", "default": None}})
    assert record.sample.id == WHO


def test_default_null_says_that_an_answer_may_be_missing_everywhere(read_file):
    data, fields = lines({"q": "Who?", "m": "x"}), {"question": "q", "method": "m", "answer": "a"}
    assert "null in every record" in refused(read_file, {"d.jsonl": data}, fields=fields)
    (record,) = read_file({"d.jsonl": data}, fields={**fields, "answer": {"path": "a", "default": None}})
    assert record.output.answer is None


def test_index_counts_the_records_of_all_files(read_file):
    files = {"a.json": json.dumps([{"q": "1"}, {"q": "2"}]), "b.jsonl": lines({"q": "3", "x": [1, 2]})}
    fields = {"id": "to_string(_index)", "question": "q", "meta": "_record"}
    records = read_file(files, files={"main": ["a.json", "b.jsonl"]}, fields=fields)
    expected = [("1", "1", "./a.json:1"), ("2", "2", "./a.json:1"), ("3", "3", "./b.jsonl:1")]
    assert [(r.sample.id, r.sample.question, r.where) for r in records] == expected
    assert records[2].sample.meta == {"q": "3", "x": [1, 2]}


@pytest.mark.parametrize(("unit", "value", "expected"), [
    ("ns", 1_500_000, 1.5), ("us", 1500, 1.5), ("ms", 1.5, 1.5), ("s", 1.5, 1500.0), ("min", 2, 120_000.0), ("s", "0.25", 250.0),
])  # fmt: skip
def test_a_duration_becomes_milliseconds(read_file, unit, value, expected):
    fields = {"question": "q", "answer": "q", "timings": {"fields": {"total": {"path": "t", "unit": unit, "default": 0.0}}}}
    records = read_file({"d.jsonl": lines({"q": "Who?", "t": value}, {"q": "When?", "t": ""})}, fields=fields)
    assert [r.output.timings for r in records] == [{"total": expected}, {"total": 0.0}]


def test_a_duration_that_is_no_number_is_refused(read_file):
    fields = {"question": "q", "answer": "q", "timings": {"fields": {"total": {"path": "t", "unit": "s"}}}}
    message = refused(read_file, {"d.jsonl": lines({"q": "Who?", "t": "1.5 s"})}, fields=fields)
    assert "fields.timings.total (t)" in message
    assert "a duration in s" in message


def test_rows_of_a_key_become_one_record(read_file):
    passages = [("1", "a", "p1", "one"), ("2", "a", "p2", "two"), ("1", "a", "p3", ""), ("1", "b", "p4", "uno")]
    rows = [dict(zip(("q", "run", "text", "answer"), passage, strict=True)) for passage in passages]
    fields = {"id": "q", "question": "q", "method": "run", "answer": "answer", "contexts": "rows[].text"}
    records = read_file({"d.jsonl": lines(*rows)}, group={"by": ["q", "run"]}, fields=fields)
    expected = [("d.jsonl:1", "1", "a", ["p1", "p3"]), ("d.jsonl:2", "2", "a", ["p2"]), ("d.jsonl:4", "1", "b", ["p4"])]
    assert [(r.where, r.sample.id, r.output.method, [c.text for c in r.output.chunks]) for r in records] == expected


def test_nan_is_a_fault_unless_the_data_set_says_that_it_is_null(read_file):
    fields = {"question": "q", "answer": "q", "recorded": {"fields": {"s": "s"}}}
    for name, text in (("d.jsonl", '{"q": "Who?", "s": NaN}\n'), ("d.json", '[{"q": "Who?", "s": NaN}]')):
        assert "NaN is not JSON" in refused(read_file, {name: text}, fields=fields)
        (record,) = read_file({name: text}, fields=fields, nan=None)
        assert record.output.recorded == {"s": None}
        assert "Infinity" in refused(read_file, {name: text.replace("NaN", "Infinity")}, fields=fields, nan=None)


def test_objects_one_after_another(read_file):
    text = '{"question": "a",\n "answer": "1"}\n{"question": "b"}{"question":\n"c"}'
    records = read_file({"d.txt": text}, format="json_objects")
    assert [(r.where, r.sample.question) for r in records] == [("d.txt:1", "a"), ("d.txt:3", "b"), ("d.txt:3", "c")]
    assert "the rest of the file was not read" in refused(read_file, {"d.txt": text + "{"}, format="json_objects")
    assert "json_objects" in refused(read_file, {"d.json": text})


def test_columns_of_rows(read_file):
    columns = {"question": {"0": "a", "1": "b"}, "answer": {"0": "x", "1": None}}
    records = read_file({"d.json": json.dumps(columns)}, format="json_columns")
    expected = [("d.json:1", "a", "x"), ("d.json:2", "b", None)]
    assert [(r.where, r.sample.question, r.output and r.output.answer) for r in records] == expected
    columns["answer"].pop("1")
    assert "the 2 rows of the first column" in refused(read_file, {"d.json": json.dumps(columns)}, format="json_columns")
    assert "an object of columns" in refused(read_file, {"d.json": "[1]"}, format="json_columns")


def test_records_inside_rows_and_the_row_itself(read_file):
    both = "results || @"
    data = lines({"results": [{"q": "a"}, {"q": "b"}]}, {"q": "c"})
    fields = {"question": "q"}
    assert [r.sample.question for r in read_file({"d.jsonl": data}, records=both, fields=fields)] == ["a", "b", "c"]
    document = json.dumps([{"q": "d"}])
    assert [r.sample.question for r in read_file({"d.json": document}, records=both, fields=fields)] == ["d"]
    message = refused(read_file, {"d.jsonl": lines({"results": {"q": "a"}})}, records="results", fields=fields)
    assert "a list of objects" in message


def test_a_csv_file_of_pandas(read_file):
    """Empty cells and the index, which has no name, mean nothing where the data set says that pandas wrote the file."""
    data = ",q,a,s\n0,Who?,,0.5\n1,When?,1843,\n"
    fields = {"question": "q", "answer": "a", "recorded": "verdict(without(_record, ['q', 'a', 'Unnamed: 0']))"}
    records = read_file({"d.csv": data}, empty=None, fields=fields)
    assert [(r.output.answer, r.output.recorded) for r in records] == [(None, {"s": 0.5}), ("1843", {"s": None})]
    assert [r.output.answer for r in read_file({"d.csv": data}, fields=fields)] == ["", "1843"]
    named = data.replace(",q", "n,q", 1)
    assert [r.output.answer for r in read_file({"d.csv": named}, fields=fields)] == ["", "1843"]
