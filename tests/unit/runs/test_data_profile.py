"""The distributions of a profile, against plain calculations over the same values."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from ragpipe.cli.profile_report import profile_rows
from ragpipe.core.sample import Chunk, Expected, Output, Sample, Turn
from ragpipe.data.dataset import Record
from ragpipe.data.settings import DatasetSettings
from ragpipe.metrics.base import Metric
from ragpipe.metrics.needs import WHOLE_CASES, DataFacts, metric_needs, need_of
from ragpipe.runs import data_profile
from ragpipe.runs.data_profile import DataProfile, Distribution, times_are_known
from ragpipe.runs.load_dataset import load_dataset, load_samples
from ragpipe.store.run_folder import RunFolder
from ragpipe.testing.scripted import make_case, shipped_metric


def profiled(records: Sequence[Record], metrics: Sequence[Metric] = (), **options: Any) -> DataProfile:
    """The profile of the tables that are made of the records; those without an output are questions only."""
    with TemporaryDirectory() as place:
        folder = RunFolder(Path(place))
        if records[0].output is None:
            load_samples(records, samples=folder.samples)
            return DataProfile(metrics, **options).read(folder.samples)
        load_dataset(records, samples=folder.samples, outputs=folder.outputs)
        return DataProfile(metrics, **options).read(folder.samples, folder.outputs)


def test_labels_beyond_the_limit_are_said_to_be_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_profile, "DIFFERENT", 3)
    found = Distribution("label")
    for label in "abcd":
        found.add([label])
    document = found.document(4)
    assert (document["different_at_least"], sum(document["top"].values())) == (3, 3)
    assert "different" not in document


def _records() -> list[Record]:
    first = Sample(
        id="q1", question="Who?", references=["Ada.", "Ada L."], category="people", expected=Expected(behavior="answer"),
        meta={"day": 3, "source": "log"},
    )  # fmt: skip
    second = Sample(id="q2", question="Where else?", category="places", answerable=False)
    chunks = [Chunk(id="c1", rank=1, text="Ada."), Chunk(id="c2", rank=2, text="Bob was here.", score=0.5)]
    return [
        Record(first, Output(sample_id="q1", method="a", answer="Ada.", chunks=chunks, recorded={"human": {"ann": 2}}), ""),
        Record(first, Output(sample_id="q1", method="b", answer="Bob was it.", timings={"total": 900.0}), ""),
        Record(second, Output(sample_id="q2", method="a", answer="", chunks=[], recorded={"human": {"ann": None}}), ""),
        Record(second, Output(sample_id="q2", method="b", abstained=True, timings={"total": 700.0}, retrieves=False), ""),
    ]


def test_every_field_is_described_once() -> None:
    profile = profiled(_records())
    found = profile.document()
    assert (found["samples"], found["cases"], found["findings"]) == (2, {"a": 2, "b": 2}, [])
    samples, outputs = found["fields_of_samples"], found["fields_of_outputs"]
    assert set(samples) == {
        "question", "references", "references[]", "category", "answerable", "expected.behavior", "meta.day", "meta.source",
    }  # fmt: skip
    assert samples["question"] == {"kind": "text", "present": 2, "of": 2, "n": 2, "min": 4, "median": 7.5, "max": 11}
    assert str(samples["question"]["max"]) == "11", "a length is written as a whole number"
    assert samples["references"] == {
        "kind": "list", "present": 1, "of": 2, "first_absent": "q2", "n": 1, "min": 2, "median": 2, "max": 2,
    }  # fmt: skip
    assert samples["answerable"]["top"] == {"false": 1}
    assert set(outputs) == {
        "answer", "contexts", "contexts[].text", "contexts[].score", "abstained", "timings.total", "recorded.human.ann",
    }  # fmt: skip
    answer = outputs["answer"]
    assert (answer["present"], answer["of"], answer["blank"], answer["first_absent"]) == (3, 4, 1, "q2")
    assert answer["by_method"] == {"a": 2, "b": 1}
    assert (outputs["contexts"]["present"], outputs["contexts"]["first_absent"]) == (2, "q1")
    assert outputs["recorded.human.ann"]["n"] == 1


def test_a_line_for_each_field() -> None:
    profile = profiled(_records())
    rows = {row.field: (row.extent, row.values) for row in profile_rows(profile)}
    assert rows["question"] == ("all", "4 to 11 characters, median 7.5")
    assert rows["references"] == ("1 of 2", "2 entries; 4 to 6 characters, median 5")
    assert rows["category"] == ("all", "people 1, places 1")
    assert rows["answer"] == ("3 of 4", "0 to 11 characters, median 4; 1 empty; in 50% to 100% by method")
    assert rows["contexts[].text"] == ("", "4 to 13 characters, median 8.5")
    assert rows["timings.total"] == ("2 of 4", "700 to 900 ms, median 800; in 0% to 100% by method")


def test_a_field_that_is_a_number_here_and_a_text_there() -> None:
    samples = [Sample(id=str(i), question=f"Q{i}?", meta={"size": value}) for i, value in enumerate([4, "four", 6])]
    size = profiled([Record(sample, None, "") for sample in samples]).document()["fields_of_samples"]["meta.size"]
    assert (size["present"], size["n"], size["min"], size["max"]) == (3, 2, 4, 6)


def test_meta_with_another_key_in_every_record_is_bounded() -> None:
    samples = (Sample(id=str(i), question=f"Q{i}?", meta={f"key {i}": i}) for i in range(1000))
    found = profiled([Record(sample, None, "") for sample in samples]).document()
    assert len(found["fields_of_samples"]) <= 400
    assert len(found["fields_left_out"]) == 400


def test_what_is_absent_at_first_is_described_as_what_it_is() -> None:
    """Of `expected`, whose parts are numbers, lists or labels, the first sample has none."""
    parts = [None, Expected(context_has=5, citations=["a", "b"], must_quote=True), Expected(context_has=7)]
    samples = (Sample(id=f"q{i}", question=f"Q{i}?", expected=expected) for i, expected in enumerate(parts))
    profile = profiled([Record(sample, None, "") for sample in samples])
    rows = {row.field: (row.extent, row.values) for row in profile_rows(profile)}
    assert rows["expected.context_has"] == ("2 of 3", "5 to 7, median 6")
    assert rows["expected.citations"] == ("1 of 3", "2 entries")
    assert rows["expected.must_quote"] == ("1 of 3", "true 1")
    assert profile.document()["fields_of_samples"]["expected.citations"]["first_absent"] == "q0"


WORDS = ["harbour", "museum", "railway", "theatre", "library", "castle", "garden", "bridge", "market", "tower"]


def sound(methods: tuple[str, ...] = ("a", "b")) -> list[Record]:
    """Ten questions with an output each of two methods, in which nothing is wrong."""
    records = []
    for i, word in enumerate(WORDS):
        sample = Sample(id=f"q{i}", question=f"When was the {word} opened?", references=[f"The {word} opened in 190{i}."])
        chunks = [Chunk(id=f"c{i}", rank=1, text=f"The {word} of the town opened in 190{i}.")]
        given = {"sample_id": sample.id, "chunks": chunks, "timings": {"total": 800.0 + i}, "recorded": {"human": 1 + i % 4}}
        for method in methods:
            output = Output(method=method, answer=f"The {word} was opened in 190{i}, says {method}.", **given)
            records.append(Record(sample, output, "x"))
    return records


def changed(record: Record, sample: dict[str, Any] | None = None, **output: Any) -> Record:
    """The record with other fields; an id of the sample is that of the output too."""
    sample = sample or {}
    if "id" in sample:
        output["sample_id"] = sample["id"]
    return Record(record.sample.model_copy(update=sample), record.output.model_copy(update=output), record.where)


def findings(records: list[Record]) -> dict[str, tuple[int, str]]:
    """By name the count and the first id."""
    scale = shipped_metric("recorded", take={"human": {"low": 1, "high": 4}})
    profile = profiled(records, [scale])
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
    "long_answers": (_of([2], answer="word " * 6001), (1, "q1")),
    "long_contexts": (_of([6], chunks=_texts("word " * 12001)), (1, "q3")),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_and_nothing_else_is_found(name: str) -> None:
    records, expected = PLANTED[name]
    found = findings(records)
    if name in ("similar_ids", "repeated_questions"):
        found.pop("differing_questions")  # the question that was added has an output of one method only
    assert found == {name: expected}


THEATRE = Turn(role="user", text="The theatre?")
HARMLESS = {
    "sound data": sound(),
    "a refusal that is given often": _of(EVERY, answer="I cannot find this in the documents."),
    "empty answers": _of(EVERY, answer=""),
    "a failed system": _of(EVERY, answer="", chunks=[], error="down"),
    "a quick failure among slow answers": _of([0], timings={"total": 0.4}),
    "verdicts of several people": _of([0], recorded={"human": {"ann": 1, "bob": None}}),
    "contexts that are ids alone": [changed(record, chunks=[Chunk(id=record.sample.id, rank=1)]) for record in sound()],
    "the same last words in two conversations": [*sound(("a",)), changed(sound(("a",))[3], {"id": "z", "history": [THEATRE]})],
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_is_no_fault_is_not_said(name: str) -> None:
    assert findings(HARMLESS[name]) == {}


def test_a_warning_names_what_to_do() -> None:
    profile = profiled(_of(EVERY, timings={"total": 1.9}))
    texts = [str(found) for found in profile.findings()]
    assert texts == [
        f"method {name}: the median of timings.total is 1.9 milliseconds; if these are seconds, map them as {{path: ..., unit: s}}"
        for name in "ab"
    ]


@pytest.mark.parametrize(("dataset", "known"), [
    ({}, False),
    ({"fields": {"timings": {"fields": {"total": "latency"}}}}, False),
    ({"fields": {"timings": {"fields": {"total": {"path": "latency", "unit": "s"}}}}}, True),
    ({"fields": {"timings": {"fields": {"total": "latencyMs"}}}}, True),
    ({"fields": {"timings": {"fields": {"total": "number(latency_ms)"}}}}, True),
    ({"fields": {"timings": {"fields": {"total": "minus(time_ms(end), time_ms(start))"}}}}, True),
    ({"fields": {"timings": "timings"}, "format": "spans"}, True),
])  # fmt: skip
def test_a_mapping_that_names_the_unit_of_times_is_believed(dataset: dict[str, Any], known: bool) -> None:
    if "fields" in dataset:
        dataset = {**dataset, "fields": {"question": "q", **dataset["fields"]}}
    assert times_are_known(DatasetSettings.model_validate({"path": "x.jsonl", **dataset})) is known
    profile = profiled(_of(EVERY, timings={"total": 1.9}), times_known=known)
    assert bool(profile.findings()) is not known


GOLD = "relevant_docs or relevant_chunks or gains or anchors"
ROLES = ("anchors", "anchors[].role")
# metric -> (the rules judge answers, embedder, labels)
BY_HAND = {
    "faithfulness": ("yes", False, ("answer", "contexts")),
    "correctness": ("no", False, ("answer", "reference")),
    "context_precision": ("partly", False, ("contexts",)),  # with a reference only
    # whether both notes are acknowledged is a question to a model, whether the newer is cited is not
    "recency_conflict": ("partly", False, ("answer", "contexts", "citations", *ROLES, "recency_conflict_rule")),
    "retrieval": ("yes", False, ("contexts", f"{GOLD} or required_support_groups")),
    "attribution_hit": ("yes", False, ("contexts", "citations", GOLD)),
    "abstention": ("yes", False, ("answerable=false", "answer or abstained")),
    "rejection_calibration": ("yes", False, ("answer", "expected.behavior")),
    "recorded": ("yes", False, ("recorded",)),
}


@pytest.fixture(scope="module")
def needs():
    return {need.name: need for need in metric_needs(DataFacts())}


@pytest.mark.parametrize("name", BY_HAND)
def test_needs_by_hand(needs, name):
    need = needs[name]
    assert (need.rules_judge, need.needs_embedder, need.labels) == BY_HAND[name]
    assert need.missing == need.labels, "without facts everything is missing"


def test_every_label_named_is_one_that_facts_can_have(needs):
    facts = DataFacts.of(WHOLE_CASES)
    for need in metric_needs(facts):
        assert need.missing == (("recorded",) if need.name == "recorded" else ()), need.name


def test_only_what_no_case_has_is_missing():
    cases = [make_case(answer="Ada.", chunks=["Ada."], references=["Ada."]), make_case(answer="Ada.", relevant_docs=["d1"])]
    facts = DataFacts.of(cases)
    assert need_of(shipped_metric("retrieval"), facts).missing == ()
    assert need_of(shipped_metric("attribution_hit"), facts).missing == ("citations",)
    assert need_of(shipped_metric("abstention"), facts).missing == ("answerable=false",)


def test_recorded_values_are_needed_by_name():
    metric = shipped_metric("recorded", take={"human": {"from": "grades.ann", "low": 1, "high": 4}})
    facts = DataFacts.of([make_case(answer="Ada.", recorded={"other": 1})])
    assert need_of(metric, facts).labels == ("recorded.grades",)
    assert need_of(metric, facts).missing == ("recorded.grades",)
    assert need_of(shipped_metric("recorded"), facts).missing == ()
