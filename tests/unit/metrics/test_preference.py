"""Which of two answers is better, asked in both orders; and eight recorded judges of LLMBar by this metric."""

import asyncio
import json

import numpy as np
import pytest

from ragpipe.core.sample import Case, PairedOutput
from ragpipe.metrics.base import run_skip_reason
from ragpipe.stats.intervals import estimate_mean
from ragpipe.testing.scripted import ScriptedJudge, make_case, shipped_metric

OWN, OTHER = "Two years, by the contract.", "One year."


def pair(own=OWN, other=OTHER, **more):
    case = make_case(question="How long is the warranty?", **more)
    fields = {**dict(case.output), "answer": own, "other_answer": other}
    return Case(case.sample, PairedOutput(**fields))


def measured(*winners, case=None, **settings):
    """The scores by name, and the judge that gave these winners in the order of the questions."""
    judge = ScriptedJudge([{"reason": f"because {winner}", "winner": winner} for winner in winners])
    scores = asyncio.run(shipped_metric("preference", **settings).measure(case or pair(), judge))
    return {str(score.name): score for score in scores}, judge


@pytest.mark.parametrize(
    ("winners", "value", "first", "inconsistent"),
    [  # the base stands first in the first question, the candidate in the second
        (("B", "A"), 1.0, 0.5, 0.0),
        (("A", "B"), 0.0, 0.5, 0.0),
        (("tie", "tie"), 0.5, None, 0.0),
        (("A", "A"), 0.5, 1.0, 1.0),
        (("B", "B"), 0.5, 0.0, 1.0),
        (("tie", "A"), 0.5, 1.0, 1.0),
        (("B", "tie"), 0.5, 0.0, 1.0),
    ],
)
def test_a_side_wins_where_both_orders_choose_it(winners, value, first, inconsistent):
    scores, judge = measured(*winners)
    assert [scores[name].value for name in ("preference", "preference_first", "preference_inconsistent")] == [value, first, inconsistent]
    assert [(asked.values["first"], asked.values["second"]) for asked in judge.asked] == [(OTHER, OWN), (OWN, OTHER)]
    orders = scores["preference"].details["orders"]
    assert [order["first"] for order in orders] == ["base", "candidate"]
    assert [order["reason"] for order in orders] == [f"because {winner}" for winner in winners]


def test_the_same_answer_is_a_tie_without_a_question():
    scores, judge = measured(case=pair(f" {OWN}\n", OWN))
    assert (scores["preference"].value, scores["preference"].reason, judge.asked) == (0.5, "the same answer", [])
    assert {score.status for name, score in scores.items() if name != "preference"} == {"skipped"}


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (pair(""), "no_answer"),
        (pair(other=""), "no_answer of the base"),
        (pair(other="..."), "degenerate_answer of the base"),
        (pair(other=None), "no_other_answer"),
        (pair(None), "not_recorded: answer"),
        (make_case(answer=OWN), "no_other_answer"),
        (pair(error="timeout"), "system_error"),
        (pair(), None),
    ],
)
def test_a_pair_with_a_side_that_gave_nothing_is_skipped(case, reason):
    assert run_skip_reason(shipped_metric("preference"), case, embedder=False) == reason


def test_the_judge_sees_contexts_and_criteria_as_they_are_set():
    case = pair(chunks=[{"text": "The warranty lasts two years."}])
    _, judge = measured("B", "A", case=case)
    assert "The warranty lasts two years." in judge.asked[0].user
    assert "Length is no merit." in judge.asked[0].user
    _, judge = measured("B", "A", case=case, contexts=False, criteria="The kinder one.")
    assert "The warranty lasts two years." not in judge.asked[0].user
    assert "The kinder one." in judge.asked[0].user


def recorded(data, judge):
    """The labels of LLMBar, 1 where the second output is better, and the scores of a recorded judge of its pairs: output 1 is the base."""
    folder = data / "llmbar" / "Natural"
    labels = [float(item["label"] == 2) for item in json.loads((folder / "dataset.json").read_text())]
    shown: dict[str, list[float]] = {"preference": [], "preference_first": [], "preference_inconsistent": []}
    for result in json.loads((folder / judge / "result.json").read_text()):
        orders = [result["results"][-1][f"swap = {swapped}"]["winner"] for swapped in (False, True)]
        words: list[dict[str, str]] = [{"1": "A", "2": "B"}, {"1": "B", "2": "A"}]
        scores, _ = measured(*(said.get(str(winner), "tie") for said, winner in zip(words, orders, strict=True)))
        for name, column in shown.items():
            value = scores[name].value
            column.append(np.nan if value is None else value)
    return labels, shown


JUDGES = [
    "ChatGPT/Rating",
    "ChatGPT/Vanilla",
    "Falcon/Vanilla",
    "GPT-4/CoT",
    "GPT-4/Rating",
    "GPT-4/Vanilla",
    "LLaMA2/Vanilla",
    "PaLM2/Vanilla",
]


@pytest.mark.parametrize("name", JUDGES)
def test_recorded_judges_come_out_as_they_were_published(real_data, name):
    expected = json.loads((real_data / "EXPECTED.json").read_text())["llmbar"][f"Natural/{name}"]
    labels, scores = recorded(real_data, name)
    truth, values = np.array(labels), np.array(scores["preference"])
    assert np.sum(values == truth) == expected["correct_both"]
    assert np.sum(np.array(scores["preference_inconsistent"]) == 0) == expected["equal"]
    first = np.array(scores["preference_first"])
    chosen = {order: expected[f"winners_{order}"] for order in ("False", "True")}
    counted = sum(chosen[order][word] for order, word in (("False", "1"), ("True", "2")))
    total = sum(counts[word] for counts in chosen.values() for word in ("1", "2"))
    bias = estimate_mean(first[~np.isnan(first)], low=0.0, high=1.0)
    assert bias.value == pytest.approx(counted / total, abs=1e-9)
    assert bias.interval.low <= counted / total <= bias.interval.high
