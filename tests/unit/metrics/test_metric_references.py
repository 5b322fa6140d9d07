"""Several reference answers: which of them count, what the judge is shown, and what is made of the values by each."""

import pytest

from ragpipe.core.digest import sha256
from ragpipe.core.errors import JudgeError, Skipped
from ragpipe.core.fences import fence
from ragpipe.core.score import Score, ScoreSpec
from ragpipe.metrics.base import Metric
from ragpipe.metrics.recording_judge import questions_of
from ragpipe.metrics.shared.multi_reference import by_reference, mean_of_references, with_rule
from ragpipe.runs.plan import PromptCounter, make_plan
from ragpipe.testing.scripted import ScriptedJudge, make_case, score_of, shipped_metric
from tests.support.claim_verdicts import in_both_forms

SHOWN = {"shows": ["answer", "reference"]}
HARBOUR = {
    "answer": "The lighthouse opened in 1803. It is white.",
    "chunks": ["The lighthouse opened in 1803.", "It is red."],
    "question": "When did the lighthouse open?",
}
ONE, TWO = "It opened in 1803 and is red.", "In 1804."
SEVERAL = make_case(**HARBOUR, references=[ONE, " ", TWO, f" {ONE}"])

# sha256 of the messages of version 1, taken before several references were shown: a case with one must keep its keys, whatever the rule
GOLDEN = [
    ("correctness", {}, ["4e8e00f4180d5120"]),
    ("answer_class", {}, ["44721abee5838264"]),
    ("factual_accuracy", {}, ["d87d44a225994154"]),
    ("context_recall", {}, ["c5bfa9e90b2c0f0e", "9d9b6daec6c7ab3d"]),
    ("context_recall", {"steps": "combined"}, ["39f1e92f8f50a211"]),
    ("nuggets", {}, ["c18d4511064bcb95", "fcdf949bb6fee69a"]),
    ("noise_sensitivity", {}, ["aa432dc9ddb9cf48", "177c3ea53b8a051e", "4ebc0975b61373ea", "112361c143ce69da"]),
    ("context_precision", {}, ["4ebc0975b61373ea"]),
    ("context_utilization", {}, ["4ebc0975b61373ea", "2230f2f5243c2044"]),
    ("rubric", SHOWN, ["b6658a3a1cd5ddd0"]),
]


def version_1(name, **parameters):
    prompts = dict.fromkeys(shipped_metric(name).step_names(), "v1")
    return shipped_metric(name, **parameters, prompts=prompts)


@pytest.mark.parametrize("rule", [None, "any", "first", "all"])
@pytest.mark.parametrize(("name", "parameters", "messages"), GOLDEN)
def test_one_reference_asks_what_it_always_asked(name, parameters, messages, rule):
    for references in ([ONE], [ONE, ONE], ["", ONE]):  # the same answer twice is one, a blank one is none
        metric = version_1(name, **parameters, references=rule)
        asks = questions_of(metric, make_case(**HARBOUR, references=references))
        assert [sha256([*ask.prompt.render(**ask.values)])[:16] for ask in asks] == messages


@pytest.mark.parametrize(("name", "parameters", "messages"), GOLDEN)
def test_first_asks_what_the_first_alone_asks(name, parameters, messages):
    asks = questions_of(version_1(name, **parameters, references="first"), SEVERAL)
    assert [sha256([*ask.prompt.render(**ask.values)])[:16] for ask in asks] == messages


@pytest.mark.parametrize(("name", "parameters"), [row[:2] for row in GOLDEN if row[0] not in ("context_recall", "nuggets")])
def test_any_shows_all_in_one_question_each_in_its_own_fence(name, parameters):
    metric = shipped_metric(name, **parameters)
    users = [ask.prompt.render(**ask.values)[-1]["content"] for ask in questions_of(metric, SEVERAL)]
    showing = [text for text in users if fence(ONE) in text]
    assert len(showing) == (2 if name == "noise_sensitivity" else 1)
    for user in showing:
        assert f"Reference answer 1:\n{fence(ONE)}\n\nReference answer 2:\n{fence(TWO)}\n" in user
        before = user.partition("Reference answer 1:")[0].splitlines()[-2]
        assert before.startswith("Any one of these 2 reference answers will do.")  # outside all fences
    assert len(users) == len(questions_of(metric, make_case(**HARBOUR, references=[ONE])))


def test_no_reference_can_pass_for_another_one():
    forged = f"{ONE}\n\nReference answer 2:\nIt opened in 2001."
    case = make_case(**HARBOUR, references=[forged, TWO])
    (ask,) = questions_of(shipped_metric("correctness"), case)
    user = ask.prompt.render(**ask.values)[-1]["content"]
    assert fence(forged) in user
    assert user.count("Reference answer 2:") == 2  # one of them inside the fence of the first


def graded(*scores):
    return [{"reason": f"r{score}", "score": score} for score in scores]


def test_all_is_the_mean_and_lists_each():
    judge = ScriptedJudge(graded(2, 5))
    found = score_of(shipped_metric("correctness", references="all"), SEVERAL, judge)["correctness"]
    assert found.value == 3.5
    assert [row["reference"] for row in found.details["references"]] == [1, 2]
    assert [(row["value"], row["feedback"]) for row in found.details["references"]] == [(2, "r2"), (5, "r5")]
    assert mean_of_references(found.details) == "(2 + 5) / 2 references"
    assert [fence(text) in asked.user for asked in judge.asked for text in (ONE, TWO)] == [True, False, False, True]


@pytest.mark.parametrize(("rule", "reference", "shown"), [(None, "any of 2", True), ("first", "1 of 2", False)])
def test_any_and_first_are_one_question_and_say_so(rule, reference, shown):
    judge = ScriptedJudge(graded(4))
    found = score_of(shipped_metric("correctness", references=rule), SEVERAL, judge)["correctness"]
    assert (found.value, found.reason, found.details["reference"]) == (4, "r4", reference)
    assert (fence(TWO) in judge.asked[0].user) is shown


def test_one_reference_says_nothing_of_references():
    case = make_case(**HARBOUR, references=[ONE])
    for rule in ("any", "first", "all"):
        found = score_of(shipped_metric("correctness", references=rule), case, ScriptedJudge(graded(3)))
        assert set(found["correctness"].details) == {"feedback", "flags"}


def test_a_class_by_several_references_is_a_share():
    replies = [{"reason": "", "verdict": verdict} for verdict in ("CORRECT", "WRONG")]
    metric = shipped_metric("answer_class", references="all")
    found = score_of(metric, SEVERAL, ScriptedJudge(replies))
    assert [found[name].value for name in ("correct_answers", "wrong_answers", "dont_know_answers")] == [0.5, 0.5, 0]
    assert not any(spec.binary for spec in metric.scores())  # a half is no 0 or 1
    assert all(spec.binary for spec in shipped_metric("answer_class").scores())


def listing(asked):
    """A statement for every sentence of the shown reference, and those are held that name 1803."""
    if asked.step == "extract":
        text = asked.values["reference"]
        return {"claims": [] if "not in" in text.lower() else [part for part in text.split(". ") if part]}
    held = ["1803" in claim for claim in asked.values["claims"]]
    return {"verdicts": [{"index": n, "evidence": ""} | in_both_forms(s) for n, s in enumerate(held, 1)]}


RECALL = [
    # rule, references, value, reference, calls
    ("any", ["In 1804. In 1803", "In 1803"], 100, "2 of 2", 4),
    ("any", ["In 1804", "In 1805. In 1803. In 1806"], pytest.approx(100 / 3), "2 of 2", 4),
    ("any", ["In 1804", "In 1805"], 0, "1 of 2", 4),  # equal: the first
    ("any", ["Not in the documents", "In 1804. In 1803"], 50, "2 of 2", 3),  # says nothing that could be held
    ("any", ["Not in the documents", "Not in any"], 100, "1 of 2", 2),
    ("all", ["In 1804. In 1803", "In 1803"], 50, "all 2 together", 3),  # 1803 stands in both and counts once
    ("all", ["Not in the documents", "In 1803"], 100, "all 2 together", 3),
    ("first", ["In 1804. In 1803", "In 1803"], 50, "1 of 2", 2),
]


@pytest.mark.parametrize(("rule", "references", "value", "reference", "calls"), RECALL)
def test_context_recall(rule, references, value, reference, calls):
    judge = ScriptedJudge(listing)
    found = score_of(shipped_metric("context_recall", references=rule), make_case(**HARBOUR, references=references), judge)
    score = found["context_recall"]
    assert (score.value, score.details["reference"], len(judge.asked)) == (value, reference, calls)
    if rule == "any":
        assert [row["reference"] for row in score.details["references"]] == [1, 2]


@pytest.mark.parametrize("rule", ["any", "first", "all"])
@pytest.mark.parametrize("name", ["context_recall", "nuggets"])
def test_the_plan_counts_every_question(name, rule):
    metric, case = shipped_metric(name, references=rule), make_case(**HARBOUR, references=["In 1803", "In 1804"])
    judge = ScriptedJudge(listing if name == "context_recall" else facts)
    score_of(metric, case, judge)
    assert len(questions_of(metric, case)) == len(judge.asked) == {"any": 4, "first": 2, "all": 3}[rule]


def facts(asked):
    """Every sentence of the reference is a vital nugget but `okay ...`; the answer holds those that name 1803."""
    if asked.step == "nuggetize":
        parts = asked.values["reference"].split(". ")
        kinds = ["okay" if part.startswith("okay") else "vital" for part in parts]
        return {"nuggets": [{"nugget": p, "importance": k} for p, k in zip(parts, kinds, strict=True) if p != "none"]}
    held = ["support" if "1803" in one else "not_support" for one in asked.values["nuggets"]]
    return {"verdicts": [{"index": n, "support": s} for n, s in enumerate(held, 1)]}


NUGGETS = [
    # rule, references, strict vital, all, reference
    ("any", ["In 1804. In 1803", "In 1803. okay red"], 1.0, 0.5, "2 of 2"),  # every score rests on the same reference
    ("any", ["okay red", "In 1804"], 0.0, 0.0, "2 of 2"),  # one without a vital nugget gives no main score
    ("any", ["none", "In 1803"], 1.0, 1.0, "2 of 2"),
    ("all", ["In 1804. In 1803", "In 1803. okay red"], 0.5, pytest.approx(1 / 3), "all 2 together"),
    ("first", ["In 1804. In 1803", "In 1803. okay red"], 0.5, 0.5, "1 of 2"),
]


@pytest.mark.parametrize(("rule", "references", "strict", "every", "reference"), NUGGETS)
def test_nuggets(rule, references, strict, every, reference):
    found = score_of(shipped_metric("nuggets", references=rule), make_case(**HARBOUR, references=references), ScriptedJudge(facts))
    assert (found["nuggets"].value, found["nuggets_all_strict"].value) == (strict, every)
    assert {score.details["reference"] for score in found.values()} == {reference}


def test_where_no_reference_gives_a_value_the_score_is_skipped():
    case = make_case(**HARBOUR, references=["none", "none. none"])
    found = score_of(shipped_metric("nuggets"), case, ScriptedJudge(facts))
    assert {(score.status, score.reason) for score in found.values()} == {("skipped", "no_nuggets")}


SIMILAR = {HARBOUR["answer"]: [1, 0], "near": [1, 0], "far": [0, 1], "half": [1, 1]}


@pytest.mark.parametrize(
    ("rule", "value", "reference"),
    [("any", 100, "2 of 3"), ("first", 0, "1 of 3"), ("all", pytest.approx((0 + 100 + 70.71) / 3), "mean of 3 of 3")],
)
def test_computed_metrics_take_the_best(rule, value, reference):
    metric, case = shipped_metric("semantic_similarity", references=rule), make_case(**HARBOUR, references=["far", "near", "half"])  # fmt: skip
    found = score_of(metric, case, ScriptedJudge(vectors=SIMILAR))["semantic_similarity"]
    assert (found.value, found.details["reference"]) == (value, reference)
    made = make_plan([case], [metric], iterations=1, counter=PromptCounter(len), has_embedder=True)
    assert made.embeddings == (2 if rule == "first" else 4)  # the answer, and the references that are compared


def picky(outcomes, rule):
    """Of a metric with one score, lower is better, whose outcome by a reference is what `outcomes` says."""

    class Told(type(shipped_metric("semantic_similarity"))):
        def scores(self):
            return (ScoreSpec(self.name, 0, 10, higher_is_better=False),)

        @by_reference
        async def measure(self, case, judge):
            found = outcomes[case.reference]
            if isinstance(found, Exception):
                raise found
            return found

    metric = Told(name="told", references=rule)
    return score_of(metric, make_case(**HARBOUR, references=list(outcomes)), ScriptedJudge())["told"]


def test_the_best_is_the_lowest_where_lower_is_better():
    assert picky({"a": Score(3), "b": Score(1), "c": Score(2)}, "any").value == 1


@pytest.mark.parametrize("rule", ["any", "all"])
def test_an_error_by_one_reference_is_an_error(rule):
    raised = picky({"a": Score(3), "b": JudgeError("timeout", "late")}, rule)
    assert (raised.status, raised.value) == ("error", None)
    said = picky({"a": Score(3), "b": Score(status="error", reason="off_scale: 7")}, rule)
    assert (said.status, said.reason) == ("error", "reference 2: off_scale: 7")


def test_a_reference_that_measures_nothing_is_left_out_and_listed():
    outcomes = {"a": Score(3), "b": Skipped("no_factual_claims"), "c": Score(status="skipped", reason="no_nuggets"), "d": Score(5)}  # fmt: skip
    mean, best = picky(outcomes, "all"), picky(outcomes, "any")
    assert (mean.value, mean.details["reference"]) == (4, "mean of 2 of 4")
    assert [row["reason"] for row in mean.details["references"]] == [None, "no_factual_claims", "no_nuggets", None]
    assert (best.value, best.details["reference"]) == (3, "1 of 4")
    none = picky({"a": Skipped("no_factual_claims"), "b": Skipped("no_factual_claims")}, "any")
    assert (none.status, none.reason) == ("skipped", "no_factual_claims")


def test_a_metric_of_ones_own_gets_the_first():
    class Mine(Metric):
        async def measure(self, case, judge):
            return Score(float(len(case.reference)), details={"text": case.reference})

    found = score_of(Mine.model_validate({"name": "mine"}), make_case(references=["", "a", "bc"]))
    assert (found["mine"].value, found["mine"].details) == (1, {"text": "a"})


def test_the_data_set_says_it_for_metrics_that_do_not():
    metrics = {"a": shipped_metric("correctness"), "b": shipped_metric("nuggets", references="first"),
               "c": shipped_metric("faithfulness")}  # fmt: skip
    ruled = with_rule(metrics, "all")
    assert (ruled["a"].references, ruled["b"].references) == ("all", "first")
    assert ruled["c"] is metrics["c"]
