"""limit, sample, filter; the digest; reading twice; files that change. Draws from a log: rate, daily budget, seed."""

import datetime
import json
import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpipe.core.errors import DataError
from ragpipe.core.sample import Sample
from ragpipe.data.dataset import Record, calendar_day, drawn_ids, open_dataset, place_by_hash
from ragpipe.data.faults import Faults
from ragpipe.data.settings import DatasetSettings, SampleOf

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
    assert chosen == sorted(chosen, key=lambda name: int(name[1:])), "in the order of the data"


def test_a_filter_looks_at_the_mapped_record_before_sample_and_limit(open_file):
    hard = "difficulty == 'hard' && method == 'm2'"
    assert ids(open_file(written(RECORDS), filter=hard)) == [f"q{i}" for i in range(1, 30, 2)]
    assert ids(open_file(written(RECORDS), filter=hard, limit=2)) == ["q1", "q3"]
    assert all(int(name[1:]) % 2 for name in ids(open_file(written(RECORDS), filter=hard, sample={"n": 5})))
    nested = {"id": "n", "question": "a", "outputs": [{"method": "m1"}, {"method": "m2"}]}
    (found,) = open_file(written([nested]), filter="method == 'm2'")
    assert found.output.method == "m2"


@pytest.mark.parametrize(("filter", "found"), [
    ("references", ["short", "long"]), ("references[0] == 'r'", ["short", "long"]), ("chunks[0].text == 't'", ["short", "long"]),
    ("reference", ["short"]), ("repeat == `1`", ["short", "long", "none"]), ("method == 'default'", ["short", "none"]),
    ("method == 'm'", ["long"]),
])  # fmt: skip
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


def test_a_file_is_read_twice_with_one_result_and_refused_where_it_changed_between_or_during(open_file, tmp_path):
    chosen = open_file(written(RECORDS), sample={"n": 5}, limit=3)
    assert list(chosen) == list(chosen)
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


LOG = st.dictionaries(st.text("abcdef", min_size=1, max_size=5), st.integers(1, 4), max_size=60)
"""Days (of a month) by id."""


def drawn(log, **selection):
    faults, times = Faults("log"), {name: f"2026-03-{day:02}T23:59:59Z" for name, day in log.items()}
    lines = [(Sample(id=name, question="?", meta={"time": time}), "log.jsonl:1") for name, time in times.items()]
    names = drawn_ids(SampleOf(**{"seed": 7, **selection}), lines, faults)
    faults.raise_all()
    return names


def per_day(log, budget, **selection):
    return drawn(log, per_day=budget, time="meta.time", **selection)


@given(LOG, st.randoms(use_true_random=False))
def test_the_order_of_the_lines_changes_nothing(log, order):
    shuffled = list(log.items())
    order.shuffle(shuffled)
    assert per_day(dict(shuffled), 3, rate=0.7) == per_day(log, 3, rate=0.7)
    assert drawn(dict(shuffled), rate=0.5) == drawn(log, rate=0.5)


@given(LOG, st.integers(1, 4))
def test_lines_of_other_days_change_nothing(log, day):
    that_day = {name: number for name, number in log.items() if number == day}
    assert per_day(that_day, 3, rate=0.8) == {name for name in per_day(log, 3, rate=0.8) if log[name] == day}


@given(LOG, LOG)
def test_a_later_line_displaces_only_where_the_budget_is_full(log, later):
    more = {**later, **log}
    before, after = per_day(log, 4, rate=0.9), per_day(more, 4, rate=0.9)
    counts = Counter(more[name] for name in after)
    assert all(counts[more[name]] == 4 for name in before - after)
    assert (after & log.keys()) <= before  # who was passed over is not drawn because others came


@given(LOG)
def test_more_is_always_a_superset_and_the_budget_is_used(log):
    assert per_day(log, 2) <= per_day(log, 5) <= per_day(log, 100) == frozenset(log)
    assert drawn(log, rate=0.2) <= drawn(log, rate=0.6) <= drawn(log, rate=1.0) == frozenset(log)
    sizes = Counter(log[name] for name in per_day(log, 2))
    assert sizes == {day: min(2, number) for day, number in Counter(log.values()).items()}


@pytest.mark.slow
def test_a_rate_is_a_rate_and_seeds_are_independent():
    log = {f"trace-{number}": 1 for number in range(20_000)}
    first, second = drawn(log, rate=0.05), drawn(log, rate=0.05, seed=8)
    assert abs(len(first) - 1000) < 5 * (20_000 * 0.05 * 0.95) ** 0.5  # five standard deviations of a binomial
    assert abs(len(first & second) - 50) < 5 * 50**0.5  # 0.05 of 0.05 of them
    assert all(0 <= place_by_hash(7, name) < 0.05 for name in first)


@pytest.mark.parametrize(("value", "day"), [
    ("2026-03-01", "2026-03-01"),
    ("20260301", "2026-03-01"),
    ("2026-03-01T23:30:00", "2026-03-01"),
    ("2026-03-01 23:30:00Z", "2026-03-01"),
    ("2026-03-01T23:30:00-02:00", "2026-03-02"),
    ("2026-03-02T00:30:00+01:00", "2026-03-01"),
    ("2026-03-01T23:30:00.123456789+00:00", "2026-03-01"),
    (1772323199, "2026-02-28"),
    (1772323200, "2026-03-01"),  # date -u -d 2026-03-01 +%s
    (1772323200.5, "2026-03-01"),
    (1772323200123, "2026-03-01"),
    (1772323200123456, "2026-03-01"),
    (1772323200123456789, "2026-03-01"),
    ("1772323200123456789", "2026-03-01"),
    (0, "1970-01-01"),
])  # fmt: skip
def test_the_day_of_a_time(value, day):
    assert calendar_day(value) == datetime.date.fromisoformat(day)


@pytest.mark.parametrize("value", [None, "", "yesterday", "01.03.2026", True, -1, [], 10**30, float("inf")])
def test_what_is_no_time(value):
    with pytest.raises(ValueError, match=r".*"):
        calendar_day(value)


def test_a_sample_without_a_time_is_named(open_file):
    log = {"log.jsonl": '{"id": "a", "question": "?", "meta": {"time": "2026-03-01"}}\n{"id": "b", "question": "?"}\n'}
    chosen = {"per_day": 5, "time": "meta.time", "seed": 1}
    with pytest.raises(DataError, match=r"(?s)log\.jsonl:2 \(id 'b'\): sample\.time \(meta\.time\).*null.*dataset\.filter"):
        list(open_file(log, sample=chosen))
    assert [record.sample.id for record in open_file(log, sample=chosen, filter="meta.time")] == ["a"]


@pytest.mark.parametrize("selection", [
    {}, {"n": 3, "rate": 0.5}, {"n": 3, "per_day": 4, "time": "t"}, {"per_day": 4}, {"rate": 0.5, "time": "t"},
    {"rate": 0.0}, {"rate": 1.5}, {"per_day": 0, "time": "t"}, {"per_day": 4, "time": "a["},
])  # fmt: skip
def test_what_does_not_go_together(selection):
    with pytest.raises(ValueError, match=r"SampleOf"):
        SampleOf(**selection)
