"""Each finding of a profile: data with exactly that fault are told it, the same data without it nothing."""

from __future__ import annotations

from typing import Any

import pytest

from ragpipe.datasets.dataset import Record
from ragpipe.datasets.settings import DatasetSettings
from ragpipe.profiling.data_profile import DataProfile, times_are_known
from ragpipe.schema.sample import Chunk, Output, Sample, Turn
from ragpipe.testing.scripted import shipped_metric

WORDS = ["harbour", "museum", "railway", "theatre", "library", "castle", "garden", "bridge", "market", "tower"]


def sound(methods: tuple[str, ...] = ("a", "b")) -> list[Record]:
    """Ten questions with an output each of two methods, in which nothing is wrong."""
    records = []
    for i, word in enumerate(WORDS):
        sample = Sample(
            id=f"q{i}", question=f"When was the {word} opened?", references=[f"The {word} opened in 190{i}."]
        )
        for method in methods:
            chunks = [Chunk(id=f"c{i}", rank=1, text=f"The {word} of the town opened in 190{i}.")]
            answer = f"The {word} was opened in 190{i}, says {method}."
            timings, recorded = {"total": 800.0 + i}, {"human": 1 + i % 4}
            records.append(
                Record(
                    sample,
                    Output(
                        sample_id=sample.id,
                        method=method,
                        answer=answer,
                        chunks=chunks,
                        timings=timings,
                        recorded=recorded,
                    ),
                    "x",
                )
            )
    return records


def changed(record: Record, sample: dict[str, Any] | None = None, **output: Any) -> Record:
    """The record with other fields; an id of the sample is that of the output too."""
    sample = sample or {}
    assert record.output is not None
    if "id" in sample:
        output["sample_id"] = sample["id"]
    return Record(record.sample.model_copy(update=sample), record.output.model_copy(update=output), record.where)


def findings(records: list[Record]) -> dict[str, tuple[int, str]]:
    """By name the count and the first id."""
    scale = shipped_metric("recorded", take={"human": {"low": 1, "high": 4}})
    profile = DataProfile([scale])
    for _ in profile.watch(records):
        pass
    return {found.name: (found.count, found.first) for found in profile.findings()}


def _of(places: list[int], sample: dict[str, Any] | None = None, **output: Any) -> list[Record]:
    """The sound records, those at these places changed."""
    records = sound()
    return [changed(record, sample, **output) if i in places else record for i, record in enumerate(records)]


def _texts(*texts: str) -> list[Chunk]:
    return [Chunk(id=f"c{rank}", rank=rank, text=text) for rank, text in enumerate(texts, 1)]


EVERY = list(range(20))
OF_A = list(range(0, 20, 2))
PLANTED = {
    "similar_ids": ([*sound(), changed(sound()[0], {"id": "Q3 ", "question": "Who?"})], (1, "Q3 ")),
    "repeated_questions": ([*sound(), changed(sound()[6], {"id": "z"})], (1, "z")),
    "differing_questions": ([record for i, record in enumerate(sound()) if i not in (5, 9)], (2, "q2")),
    "same_answers": (_of([4, 6, 8], answer="The town does not keep such records in its archive."), (3, "q2")),
    "same_contexts": (_of(OF_A, chunks=_texts("One page for all.")), (10, "q0")),
    "off_scale": (_of([3, 7], recorded={"human": 5}), (2, "q1")),
    "seconds": (_of(OF_A, timings={"total": 1.9}), (10, "q0")),
    "blank_references": (_of([4, 5], {"references": ["It opened in 1902.", " "]}), (1, "q2")),
    "blank_contexts": (_of([2], chunks=_texts("The museum.", " ")), (1, "q1")),
    "long_questions": (_of([2, 3], {"question": "Why? " * 3000}), (1, "q1")),
    "long_answers": (_of([2], answer="word " * 6001), (1, "q1")),
    "long_contexts": (_of([6], chunks=_texts("word " * 12001)), (1, "q3")),
}


def test_sound_data_are_told_nothing() -> None:
    assert findings(sound()) == {}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_and_nothing_else_is_found(name: str) -> None:
    records, expected = PLANTED[name]
    found = findings(records)
    if name in ("similar_ids", "repeated_questions"):
        found.pop("differing_questions")  # the question that was added has an output of one method only
    assert found == {name: expected}


HARMLESS = {
    "a refusal that is given often": _of(EVERY, answer="I cannot find this in the documents."),
    "one short answer to most questions": _of(EVERY[:16], answer="Yes."),
    "empty answers": _of(EVERY, answer=""),
    "two questions on the same page": _of([0, 1, 2, 3], chunks=_texts("One page for two.")),
    "a failed system": _of(EVERY, answer="", chunks=[], error="down"),
    "a quick failure among slow answers": _of([0], timings={"total": 0.4}),
    "a verdict at the end of its scale": _of([0], recorded={"human": 4}),
    "verdicts of several people": _of([0], recorded={"human": {"ann": 1, "bob": None}}),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_is_no_fault_is_not_said(name: str) -> None:
    assert findings(HARMLESS[name]) == {}


def test_contexts_that_all_lack_a_text_are_ids_and_no_fault() -> None:
    records = [changed(record, chunks=[Chunk(id=record.sample.id, rank=1)]) for record in sound()]
    assert findings(records) == {}


def test_the_same_last_words_in_two_conversations_are_two_questions() -> None:
    other = {"id": "z", "history": [Turn(role="user", text="The theatre?")]}
    records = [*sound(("a",)), changed(sound(("a",))[3], other)]
    assert findings(records) == {}


def test_a_warning_names_what_to_do() -> None:
    profile = DataProfile()
    for _ in profile.watch(_of(EVERY, timings={"total": 1.9})):
        pass
    texts = [str(found) for found in profile.findings()]
    assert texts == [
        f"method {name}: the median of timings.total is 1.9 milliseconds; if these are seconds, map them as "
        "{path: ..., unit: s}"
        for name in "ab"
    ]


@pytest.mark.parametrize(
    ("dataset", "known"),
    [
        ({}, False),
        ({"fields": {"timings": "timings"}}, False),
        ({"fields": {"timings": {"fields": {"total": "latency"}}}}, False),
        ({"fields": {"timings": {"fields": {"total": "programs"}}}}, False),
        ({"fields": {"timings": {"fields": {"total": {"path": "latency", "unit": "s"}}}}}, True),
        ({"fields": {"timings": {"fields": {"total": "latencyMs"}}}}, True),
        ({"fields": {"timings": {"fields": {"total": "number(latency_ms)"}}}}, True),
        ({"fields": {"timings": {"fields": {"total": "minus(time_ms(end), time_ms(start))"}}}}, True),
        ({"fields": {"timings": "timings"}, "format": "spans"}, True),
    ],
)
def test_a_mapping_that_names_the_unit_of_times_is_believed(dataset: dict[str, Any], known: bool) -> None:
    if "fields" in dataset:
        dataset = {**dataset, "fields": {"question": "q", **dataset["fields"]}}
    assert times_are_known(DatasetSettings.model_validate({"path": "x.jsonl", **dataset})) is known
    profile = DataProfile(times_known=known)
    for _ in profile.watch(_of(EVERY, timings={"total": 1.9})):
        pass
    assert bool(profile.findings()) is not known
