"""Questions that several metrics ask in the same words are planned once; and what a plan is held to at first."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from ragpipe.core.errors import ConfigError
from ragpipe.core.score import Score, ScoreSpec
from ragpipe.judge.answers import Grade15
from ragpipe.judge.prompt import Prompt
from ragpipe.judge.prompt_library import PromptLibrary
from ragpipe.judge.settings import JudgeSettings
from ragpipe.metrics.base import Metric
from ragpipe.runs.plan import PromptCounter, make_plan
from ragpipe.runs.plan_notices import check_call_budget
from ragpipe.runs.settings import LiveTransportSettings, StoredTransportSettings
from ragpipe.testing.scripted import make_case, shipped_metric

CASES = [make_case(id=f"q{i}", references=["Paris"], chunks=[f"a {i}", f"b {i}"]) for i in range(3)]


def plan(*metrics, iterations=1):
    return make_plan(CASES, metrics, iterations=iterations, counter=PromptCounter(len))


def test_shared_questions_are_counted_once() -> None:
    names = ("faithfulness", "context_precision", "context_utilization", "noise_sensitivity")
    metrics = [shipped_metric(name) for name in names]
    # alone 2 + 1 + 2 + 4 = 9 a case; extract is asked once for two of them, grade once for three
    alone = [plan(metric) for metric in metrics]
    assert [(one.calls, one.shared) for one in alone] == [(6, 0), (3, 0), (6, 0), (12, 0)]
    together = plan(*metrics)
    assert (together.calls, together.shared) == (18, 9)
    assert {(s.metric, s.step): s.shared for s in together.steps if s.shared} == {
        ("context_utilization", "grade"): 3,
        ("noise_sensitivity", "extract"): 3,
        ("noise_sensitivity", "grade"): 3,
    }
    assert (plan(*metrics, iterations=2).calls, plan(*metrics, iterations=2).shared) == (36, 18)
    # the same chunks and reference, other answers: all that looks at no answer is asked once for both methods.
    cases = [
        make_case(f"It is {town}.", id=f"q{i}", method=town, references=["Paris is the capital."], chunks=[f"a {i}", f"b {i}"])
        for i in range(3)
        for town in ("Paris", "Rome")
    ]
    names = ("faithfulness", "context_precision", "context_recall")
    made = make_plan(cases, [shipped_metric(name) for name in names], iterations=1, counter=PromptCounter(len))
    # per question: extract and verify of each answer, one question that grades both chunks, extract and verify of the reference
    assert (made.calls, made.shared) == (3 * (4 + 1 + 2), 3 * (1 + 2))
    assert {(s.metric, s.step): (s.calls, s.shared) for s in made.steps if s.shared} == {
        ("context_precision", "grade"): (3, 3),
        ("context_recall", "extract"): (3, 3),
        ("context_recall", "verify"): (3, 3),
    }
    # three cases with references and one without: correctness needs one.
    metrics = [shipped_metric("faithfulness"), shipped_metric("correctness")]
    made = make_plan([*CASES, make_case()], metrics, iterations=1, counter=PromptCounter(len))
    assert made.cases == 4
    assert [(metric.name, metric.cases) for metric in made.metrics] == [("faithfulness", 4), ("correctness", 3)]
    assert [sum(metric.skipped.values()) for metric in made.metrics] == [0, 1]


@pytest.mark.parametrize(("chains", "calls", "shared"), [
    ([["a", "same"], ["b", "same"], ["a", "same"]], 4, 2),  # the second question shows what came of the first, which another chunk decides
    ([["a", "b", "c"], ["a", "b", "d"]], 4, 2),  # the third chunk is another one
])  # fmt: skip
def test_a_chain_that_may_go_another_way_is_counted_for_each_method(chains, calls, shared):
    cases = [make_case(id="q", method=f"m{n}", references=["Paris"], chunks=chunks) for n, chunks in enumerate(chains)]
    made = make_plan(cases, [shipped_metric("chunk_relevancy")], iterations=1, counter=PromptCounter(len))
    assert (made.calls, made.shared) == (calls, shared)


class Repeating(Metric):
    """Shows the question beside every chunk."""

    grade: Prompt

    def scores(self):
        return (ScoreSpec(self.name, 1, 5),)

    async def measure(self, case, judge):
        await judge(self.grade, Grade15, question=case.question, contexts=case.contexts)
        return Score(1.0)


def test_a_question_that_grows_by_its_template_is_too_long_in_the_plan_too(tmp_path):
    """Its values are short of the limit (4,000,000 characters), what a loop over the chunks makes of them is not."""
    (tmp_path / "repeating").mkdir()
    (tmp_path / "repeating/grade.v1.jinja").write_text(
        "---\nroles: {question: question, contexts: sources}\n---\n[[user]]\n"
        "{% for chunk in contexts %}{{ question }}{{ chunk.text }}{% endfor %}\n"
    )
    metric = Repeating(name="repeating", grade=PromptLibrary([tmp_path]).load("repeating", "grade", "v1"))
    cases = [make_case(id=f"q{i}", question="q" * 100_000, chunks=["a"] * n) for i, n in enumerate((3, 60, 3))]
    found = make_plan(cases, [metric], iterations=1, counter=PromptCounter(len))
    assert (found.metrics[0].cases, found.metrics[0].too_long, found.calls) == (3, 1, 2)
    assert "the variable question has 100,000 characters" in found.metrics[0].first_too_long


@pytest.mark.parametrize(("n", "stored", "fits"), [(0, False, True), (10, False, True), (11, False, False), (11, True, True)])
def test_a_plan_starts_within_the_budget_of_live_calls(n, stored, fits):
    transport = StoredTransportSettings() if stored else LiveTransportSettings()
    config = SimpleNamespace(judge=JudgeSettings.model_construct(max_calls=10), transport=transport)
    with nullcontext() if fits else pytest.raises(ConfigError, match="about 11 new calls"):
        check_call_budget(SimpleNamespace(new_calls=n), config)
