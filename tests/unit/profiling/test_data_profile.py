"""The distributions of a profile, against plain calculations over the same values."""

import statistics
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpipe.datasets.dataset import Record
from ragpipe.profiling import distribution
from ragpipe.profiling.data_profile import DataProfile
from ragpipe.profiling.distribution import Distribution, document, median_of
from ragpipe.profiling.profile_rows import profile_rows
from ragpipe.schema.sample import Chunk, Expected, Output, Sample

NUMBERS = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30)


def _described(kind: str, values: list[object]) -> Distribution:
    found = Distribution(kind)
    for value in values:
        found.add((value,))
    return found


@pytest.mark.slow
@given(st.lists(NUMBERS, min_size=1, max_size=4))
def test_numbers_of_several_methods_together(lists: list[list[float]]) -> None:
    parts = [_described("number", list(numbers)) for numbers in lists]
    every = [number for numbers in lists for number in numbers]
    found = document(parts, len(every))
    assert (found["n"], found["min"], found["max"]) == (len(every), min(every), max(every))
    assert found["median"] == pytest.approx(statistics.median(every))


@pytest.mark.slow
@given(st.lists(st.sampled_from(["x", "y", "z"]), min_size=1))
def test_labels_are_counted(labels: list[str]) -> None:
    assert document([_described("label", list(labels))], len(labels))["top"] == dict(Counter(labels).most_common())


def test_the_median_of_more_numbers_than_are_held_is_near(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distribution, "HELD", 500)
    many, few = _described("number", [float(i) for i in range(20_000)]), _described("number", [1e6] * 10)
    assert len(many.numbers) == 500
    assert median_of([many]) == pytest.approx(10_000, rel=0.15)
    assert median_of([many, few]) == pytest.approx(10_000, rel=0.15), "ten numbers do not outweigh 20,000"


def test_labels_beyond_the_limit_are_said_to_be_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distribution, "DIFFERENT", 3)
    found = document([_described("label", list("abcd"))], 4)
    assert (found["different_at_least"], sum(found["top"].values())) == (3, 3)
    assert "different" not in found


def _records() -> list[Record]:
    first = Sample(
        id="q1",
        question="Who?",
        references=["Ada.", "Ada L."],
        category="people",
        expected=Expected(behavior="answer"),
        meta={"day": 3, "source": "log"},
    )
    second = Sample(id="q2", question="Where else?", category="places", answerable=False)
    chunks = [Chunk(id="c1", rank=1, text="Ada."), Chunk(id="c2", rank=2, text="Bob was here.", score=0.5)]
    return [
        Record(
            first, Output(sample_id="q1", method="a", answer="Ada.", chunks=chunks, recorded={"human": {"ann": 2}}), ""
        ),
        Record(first, Output(sample_id="q1", method="b", answer="Bob was it.", timings={"total": 900.0}), ""),
        Record(second, Output(sample_id="q2", method="a", answer="", chunks=[], recorded={"human": {"ann": None}}), ""),
        Record(
            second, Output(sample_id="q2", method="b", abstained=True, timings={"total": 700.0}, retrieves=False), ""
        ),
    ]


def test_every_field_is_described_once() -> None:
    profile = DataProfile()
    for _ in profile.watch(_records()):
        pass
    found = profile.document()
    assert (found["samples"], found["cases"], found["findings"]) == (2, {"a": 2, "b": 2}, [])
    samples, outputs = found["fields_of_samples"], found["fields_of_outputs"]
    assert set(samples) == {
        "question", "references", "references[]", "category", "answerable", "expected.behavior", "meta.day", "meta.source",
    }  # fmt: skip
    assert samples["question"] == {
        "kind": "text", "present": 2, "of": 2, "n": 2, "min": 4, "median": 7.5, "max": 11,
    }  # fmt: skip
    assert samples["references"] == {
        "kind": "list", "present": 1, "of": 2, "first_absent": "q2", "n": 1, "min": 2, "median": 2, "max": 2,
    }  # fmt: skip
    assert samples["answerable"]["top"] == {"false": 1}
    assert set(outputs) == {
        "answer", "contexts", "contexts[].text", "contexts[].score", "abstained", "timings.total", "recorded.human.ann",
    }  # fmt: skip
    answer = outputs["answer"]
    assert (answer["present"], answer["of"], answer["blank"], answer["first_absent"]) == (3, 4, 1, "q2")
    assert {method: one["present"] for method, one in answer["by_method"].items()} == {"a": 2, "b": 1}
    assert (outputs["contexts"]["present"], outputs["contexts"]["first_absent"]) == (2, "q1")
    assert outputs["recorded.human.ann"]["n"] == 1


def test_a_line_for_each_field() -> None:
    profile = DataProfile()
    for _ in profile.watch(_records()):
        pass
    rows = {row.field: (row.extent, row.values) for row in profile_rows(profile)}
    assert rows["question"] == ("all", "4 to 11 characters, median 7.5")
    assert rows["references"] == ("1 of 2", "2 entries; 4 to 6 characters, median 5")
    assert rows["category"] == ("all", "people 1, places 1")
    assert rows["answer"] == ("3 of 4", "0 to 11 characters, median 4; 1 empty; in 50% to 100% by method")
    assert rows["contexts[].text"] == ("", "4 to 13 characters, median 8.5")
    assert rows["timings.total"] == ("2 of 4", "700 to 900 ms, median 800; in 0% to 100% by method")


def test_a_field_that_is_a_number_here_and_a_text_there() -> None:
    samples = [Sample(id=str(i), question=f"Q{i}?", meta={"size": value}) for i, value in enumerate([4, "four", 6])]
    profile = DataProfile()
    for sample in samples:
        profile.add(sample, None)
    size = profile.document()["fields_of_samples"]["meta.size"]
    assert (size["present"], size["n"], size["min"], size["max"]) == (3, 2, 4, 6)


def test_meta_with_another_key_in_every_record_is_bounded() -> None:
    profile = DataProfile()
    for i in range(1000):
        profile.add(Sample(id=str(i), question=f"Q{i}?", meta={f"key {i}": i}), None)
    found = profile.document()
    assert len(found["fields_of_samples"]) <= 400
    assert len(found["fields_left_out"]) == 400


def test_what_is_absent_at_first_is_described_as_what_it_is() -> None:
    """Of `expected`, whose parts are numbers, lists or labels, the first sample has none."""
    parts = [None, Expected(context_has=5, citations=["a", "b"], must_quote=True), Expected(context_has=7)]
    profile = DataProfile()
    for i, expected in enumerate(parts):
        profile.add(Sample(id=f"q{i}", question=f"Q{i}?", expected=expected), None)
    rows = {row.field: (row.extent, row.values) for row in profile_rows(profile)}
    assert rows["expected.context_has"] == ("2 of 3", "5 to 7, median 6")
    assert rows["expected.citations"] == ("1 of 3", "2 entries")
    assert rows["expected.must_quote"] == ("1 of 3", "true 1")
    assert profile.document()["fields_of_samples"]["expected.citations"]["first_absent"] == "q0"
