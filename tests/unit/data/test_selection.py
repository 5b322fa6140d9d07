"""limit, sample, filter; the digest; reading twice; files that change."""

import json
import os
from pathlib import Path

import pytest

from ragpipe.core.errors import DataError
from ragpipe.data.dataset import Record, open_dataset
from ragpipe.data.settings import DatasetSettings

RECORDS = [
    {"id": f"q{i}", "question": "a", "method": method, "answer": f"{i}", "difficulty": "hard" if i % 2 else "easy"}
    for i in range(30)
    for method in ("m1", "m2")
]


def written(records):
    return {"d.jsonl": "".join(json.dumps(record) + "\n" for record in records)}


def ids(dataset):
    return [record.sample.id for record in dataset]


def test_limit_counts_samples_and_keeps_all_their_methods(open_file):
    apart = sorted(RECORDS, key=lambda record: record["method"])  # the second method stands at the end of the file
    assert ids(open_file(written(apart), limit=3)) == ["q0", "q1", "q2", "q0", "q1", "q2"]
    assert len(ids(open_file(written(RECORDS), limit=1000))) == 60


def test_a_sample_does_not_depend_on_the_order_or_on_what_else_is_there(open_file):
    chosen = ids(open_file(written(RECORDS), sample={"n": 7, "seed": 1}))
    assert len(set(chosen)) == 7
    assert len(chosen) == 14
    assert sorted(ids(open_file(written(RECORDS[::-1]), sample={"n": 7, "seed": 1}))) == sorted(chosen)
    assert set(ids(open_file(written(RECORDS), sample={"n": 8, "seed": 1}))) > set(chosen)
    fewer = [record for record in RECORDS if record["id"] in chosen or record["id"] < "q2"]
    assert set(ids(open_file(written(fewer), sample={"n": 7, "seed": 1}))) == set(chosen)
    assert set(ids(open_file(written(RECORDS), sample={"n": 7, "seed": 2}))) != set(chosen)


def test_the_chosen_ones_come_in_data_order(open_file):
    chosen = ids(open_file(written(RECORDS), sample={"n": 9}))
    assert chosen == sorted(chosen, key=lambda name: int(name[1:]))


def test_a_filter_looks_at_the_mapped_record_before_sample_and_limit(open_file):
    hard = "difficulty == 'hard' && method == 'm2'"
    assert ids(open_file(written(RECORDS), filter=hard)) == [f"q{i}" for i in range(1, 30, 2)]
    assert ids(open_file(written(RECORDS), filter=hard, limit=2)) == ["q1", "q3"]
    assert all(int(name[1:]) % 2 for name in ids(open_file(written(RECORDS), filter=hard, sample={"n": 5})))
    nested = {"id": "n", "question": "a", "outputs": [{"method": "m1"}, {"method": "m2"}]}
    (found,) = open_file(written([nested]), filter="method == 'm2'")
    assert found.output.method == "m2"


@pytest.mark.parametrize(
    ("filter", "found"),
    [
        ("references", ["short", "long"]), ("references[0] == 'r'", ["short", "long"]), ("chunks[0].text == 't'", ["short", "long"]),
        ("reference", ["short"]), ("repeat == `1`", ["short", "long", "none"]), ("method == 'default'", ["short", "none"]),
        ("method == 'm'", ["long"]),
    ],
)  # fmt: skip
def test_a_filter_sees_a_short_form_as_its_long_one_and_defaults(open_file, filter, found):
    records = [
        {"id": "short", "question": "a", "reference": "r", "contexts": ["t"], "method": None},
        {"id": "long", "question": "b", "references": ["r"], "chunks": [{"id": "c", "text": "t"}], "method": "m", "repeat": 1},
        {"id": "none", "question": "c", "answer": "x"},
    ]
    assert ids(open_file(written(records), filter=filter)) == found


def test_a_filter_can_leave_out_cases_that_would_collide(open_file):
    twice = [{"id": "q", "question": "a", "answer": "1", "tags": ["old"]}, {"id": "q", "question": "a", "answer": "2"}]
    assert [record.output.answer for record in open_file(written(twice), filter="!tags") if record.output] == ["2"]


def test_it_can_be_read_twice_with_the_same_result(open_file):
    dataset = open_file(written(RECORDS), sample={"n": 5}, limit=3)
    assert list(dataset) == list(dataset)


def test_the_digest_is_of_the_contents_of_all_files_and_not_of_their_places(tmp_path):
    mapping = {"fields": {"id": "id", "question": "gold.q"}, "join": {"gold": {"file": "gold", "by": "id", "key": "id"}}}

    def digest(folder, *, main='{"id": "1"}\n', gold="id,q\n1,a\n", name="gold.csv"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "main.jsonl").write_text(main, encoding="utf-8")
        (tmp_path / folder / name).write_text(gold, encoding="utf-8")
        (tmp_path / folder / "other.txt").write_text(folder, encoding="utf-8")
        files = {"main": "main.jsonl", "gold": name}
        return open_dataset(DatasetSettings(path=folder, files=files, **mapping), tmp_path).digest

    first = digest("a")
    assert digest("b", name="silver.csv") == first
    assert digest("c", main='{"id": "1"}\n\n') != first
    assert digest("d", gold="id,q\n1,b\n") != first


def test_good_records_before_a_fault_are_given_and_the_error_comes_at_the_end(open_file):
    dataset = open_file({"d.jsonl": written(RECORDS[:2])["d.jsonl"] + "broken\n" + written(RECORDS[2:])["d.jsonl"]})
    given: list[Record] = []
    with pytest.raises(DataError, match=r"d\.jsonl:3"):
        given.extend(dataset)
    assert [record.where for record in given] == ["d.jsonl:1", "d.jsonl:2"]


def test_a_file_that_changes_between_or_during_two_readings_is_refused(open_file, tmp_path):
    dataset = open_file(written(RECORDS))
    assert len(list(dataset)) == 60
    path = tmp_path / "d.jsonl"
    os.utime(path, ns=(1, 1))
    with pytest.raises(DataError, match=r"d\.jsonl changed while it was being used"):
        list(dataset)
    fresh = open_dataset(DatasetSettings(path="d.jsonl"), tmp_path)
    records = iter(fresh)
    next(records)
    path.write_text(path.read_text() + "\n", encoding="utf-8")
    with pytest.raises(DataError, match="changed"):
        list(records)


def test_a_path_of_the_package(monkeypatch, tmp_path):
    (tmp_path / "data" / "demo").mkdir(parents=True)
    (tmp_path / "data" / "demo" / "x.jsonl").write_text('{"id": "1", "question": "a"}\n', encoding="utf-8")
    monkeypatch.setattr("ragpipe.core.resources.PACKAGE", tmp_path)
    dataset = open_dataset(DatasetSettings(path="package:demo/x.jsonl"), Path("/nowhere"))
    assert [record.where for record in dataset] == ["package:demo/x.jsonl:1"]
