"""Verdicts that a file holds become scores: a free name, the narrowest scale that holds them, which end is good."""

from __future__ import annotations

from typing import Any

import pytest

from ragpipe.profiling.label_fields import SeenVerdicts
from ragpipe.starting.option_files import RecordedEntry, recorded_entries


def _seen(*verdicts: Any) -> SeenVerdicts:
    seen = SeenVerdicts()
    for verdict in verdicts:
        seen.add(verdict)
    return seen


def _entry(name: str, *verdicts: Any, option: str = "ragas") -> RecordedEntry:
    (entry,), left_out = recorded_entries({name: _seen(*verdicts)}, option, ())
    assert left_out == []
    return entry


@pytest.mark.parametrize(
    ("verdicts", "scale"),
    [
        ((0.2, 0.9), (0, 1)),
        ((0, 1), (0, 1)),
        ((1, 3, 5), (1, 5)),
        ((0, 4), (0, 5)),
        ((2, 5), (1, 5)),
        ((0, 7.5), (0, 10)),
        ((12, 88), (0, 100)),
        ((-1, 0.5), None),
        ((3, 400), None),
    ],
)
def test_the_scale_is_the_narrowest_that_holds_every_value(
    verdicts: tuple[float, ...], scale: tuple[float, float] | None
) -> None:
    assert _entry("x", *verdicts).scale == scale


def test_only_true_and_false_are_binary_and_ones_and_zeros_are_not() -> None:
    assert _entry("x", True, False).is_binary
    assert not _entry("x", 1, 0).is_binary
    assert not _entry("x", True, 0.5).is_binary


@pytest.mark.parametrize(
    "name",
    ["harmfulness", "Hallucination", "toxicity", "Bias [GEval]", "maliciousness", "noise_sensitivity_in_relevant", "latency", "PIILeakage"],
)  # fmt: skip
def test_of_a_score_with_such_a_name_high_is_bad(name: str) -> None:
    assert not _entry(name, 0.5).higher_is_better


@pytest.mark.parametrize("name", ["faithfulness", "answer_relevancy", "correctness", "unbiased", "score"])
def test_of_any_other_high_is_good(name: str) -> None:
    assert _entry(name, 0.5).higher_is_better


def test_open_rag_evals_hallucination_score_is_good_at_1() -> None:
    assert _entry("hallucination_score", 0.5, option="open_rag_eval").higher_is_better


def test_a_name_that_is_taken_gets_the_name_of_the_tool() -> None:
    verdicts = {"faithfulness": _seen(0.5), "Correctness [GEval]": _seen(0.5), "correctness_geval": _seen(1)}
    entries, _ = recorded_entries(verdicts, "deepeval", {"faithfulness"})
    names = {entry.source: entry.score for entry in entries}
    assert names["faithfulness"] == "deepeval_faithfulness"
    assert names["Correctness [GEval]"] == "correctness_geval"
    assert names["correctness_geval"] == "deepeval_correctness_geval"


def test_what_holds_no_number_is_left_out_with_the_reason() -> None:
    verdicts = {
        "a": _seen(None),
        "b": _seen({"unreadable": "good"}),
        "c.d": _seen(1),
        "e": _seen(1, None, {"unreadable": "x"}),
    }
    entries, left_out = recorded_entries(verdicts, "ragas", ())
    assert [(entry.source, entry.seen) for entry in entries] == [("e", "seen: 1 to 1 in 1 verdict, 1 unreadable")]
    assert [line.split(":")[0] for line in left_out] == ["a", "b", "c.d"]
    assert "no verdict was given" in left_out[0]
    assert "no verdict is a number" in left_out[1]
