"""A part of the output that the data set does not record is no finding: whatever needs it is skipped, and says so."""

from pathlib import Path
from typing import Any

import pytest

from ragpipe.cli.command_line import compose
from ragpipe.core.errors import ConfigError
from ragpipe.core.resources import conf_dir
from ragpipe.judge.prompt_library import PromptLibrary
from ragpipe.metrics.base import Metric, run_skip_reason
from ragpipe.metrics.from_config import load_metric
from ragpipe.testing.scripted import ScriptedJudge, make_case, score_of, shipped_metric
from tests.support.claim_verdicts import in_both_forms

BOTH, CONTEXTS, ANSWER, NEITHER = {"contexts", "answer"}, {"contexts"}, {"answer"}, set[str]()
# By hand from the definitions in docs/metrics.md: the parts of the output without which the score cannot be told.
RESTS_ON: dict[str, set[str]] = {
    "abstention": ANSWER, "answer_class": ANSWER, "answer_relevance": ANSWER, "answer_synthesis": BOTH,
    "attribution_hit": CONTEXTS, "chunk_faithfulness": BOTH, "chunk_relevancy": BOTH, "one_chunk_suffices": BOTH,
    "citation": BOTH, "context_precision": CONTEXTS, "context_recall": CONTEXTS, "context_relevance": CONTEXTS,
    "context_sufficiency": CONTEXTS, "context_utilization": BOTH, "contextual_correctness": BOTH, "correctness": ANSWER,
    "expected_citation_recall": CONTEXTS, "factual_accuracy": ANSWER, "faithfulness": BOTH, "format": ANSWER,
    "groundedness": BOTH, "list_completeness": ANSWER, "must_quote": BOTH, "noise_sensitivity": BOTH, "nuggets": ANSWER, "policy_compliance": ANSWER,
    "recency_conflict": CONTEXTS, "recorded": NEITHER, "rejection_calibration": ANSWER, "relevance_grade": CONTEXTS, "retrieval": CONTEXTS,
    "rubric": ANSWER, "scope_miss": NEITHER, "semantic_similarity": ANSWER, "source_policy": BOTH,
}  # fmt: skip
CHUNK = {"text": "The warranty lasts two years.", "rel_path": "a.md", "policy": "quote_only"}
FULL: dict[str, Any] = {
    "answer": "The warranty lasts two years.", "chunks": [CHUNK], "references": ["Two years."], "relevant_chunks": ["c1"],
    "anchors": [{"rel_path": "a.md", "role": "newer"}, {"rel_path": "b.md", "role": "older"}],
    "recency_conflict_rule": "cite_newer", "citations": ["c1"], "folder_mode": "on", "selected_folders": ["x"], "recorded": {"helpful": 1},
    "expected": {"behavior": "answer", "requires_citations": True, "citations": ["a.md"], "must_quote": True, "context_has": 5},
}  # fmt: skip


def full(name, **other):
    return make_case(**{**FULL, "answerable": name != "abstention", **other})


def shipped(name):
    take = {"take": {"helpful": {"binary": True}}} if name == "recorded" else {}
    return shipped_metric(name, **take)


def test_every_shipped_metric_is_in_the_table_or_has_tests_of_its_own():
    shipped = {path.stem for path in (conf_dir() / "metrics").glob("*.yaml")}
    assert set(RESTS_ON) <= shipped
    for name in shipped - set(RESTS_ON):
        own = Path(__file__).with_name(f"test_{name}.py")
        text = own.read_text(encoding="utf-8") if own.exists() else ""
        assert "not_recorded" in text, f"which parts does {name} need? say so in RESTS_ON, or test it in {own.name}"


@pytest.mark.parametrize("name", RESTS_ON)
def test_a_metric_is_skipped_exactly_without_a_part_that_it_rests_on(name):
    metric = shipped(name)
    assert run_skip_reason(metric, full(name), embedder=True) is None
    for part, lacking in (("answer", {"answer": None}), ("contexts", {"chunks": None})):
        found = run_skip_reason(metric, full(name, **lacking), embedder=True)
        assert found == (f"not_recorded: {part}" if part in RESTS_ON[name] else None)


def test_the_acknowledgement_of_a_conflict_is_read_in_the_answer():
    metric = shipped_metric("recency_conflict")
    silent = full("recency_conflict", answer=None, recency_conflict_rule="acknowledge_both")
    assert run_skip_reason(metric, silent, embedder=True) == "not_recorded: answer"


def test_what_does_not_apply_says_so_first():
    """A case without a reference says nothing of what the data set lacks: it would not be measured anyway."""
    for name, why in (("correctness", "no_reference_answer"), ("context_recall", "no_reference_answer"),
                      ("retrieval", "no_relevance_labels"), ("abstention", "no_answerable_label")):  # fmt: skip
        assert run_skip_reason(shipped_metric(name), make_case(answer=None, chunks=None), embedder=True) == why


def test_a_metric_of_the_users_own_cannot_pass_over_it():
    class Own(Metric):
        reads = frozenset({"contexts"})

        def run_skip_reason(self, case):
            return None

    assert run_skip_reason(Own(name="own"), make_case(chunks=None), embedder=True) == "not_recorded: contexts"


def test_contexts_that_are_known_by_their_ids_alone():
    """Ids serve the metrics of retrieval; nobody is asked about a text that is not there."""
    ids = [{"id": "c1"}, {"id": "c2"}]
    for name, why in (("faithfulness", "not_recorded: context_texts"), ("context_precision", "not_recorded: context_texts"),
                      ("retrieval", None)):  # fmt: skip
        case = make_case(answer="Yes.", chunks=ids, references=["Yes."], relevant_chunks=["c1"])
        assert run_skip_reason(shipped_metric(name), case, embedder=True) == why, name
    some = make_case(answer="Yes.", chunks=[*ids, {"id": "c3", "text": "Yes."}])
    assert run_skip_reason(shipped_metric("faithfulness"), some, embedder=True) is None


GARBAGE = {"unreadable": "garbage"}
GRADE = {"low": 1, "high": 4}

# (what, recorded, how it is taken, value or status, reason)
TABLE = [
    ("a number", {"s": 0.25}, {}, 0.25, None),
    ("true is 1", {"s": True}, {"binary": True}, 1.0, None),
    ("false is 0", {"s": False}, {"binary": True}, 0.0, None),
    ("the ends of its scale", {"s": 4}, GRADE, 4.0, None),
    ("a count has no scale", {"s": 17}, {"low": None, "high": None}, 17.0, None),
    ("the mean of the annotators", {"s": {"a1": 4, "a2": 2, "a3": 3}}, GRADE, 3.0, None),  # (4 + 2 + 3) / 3
    ("an annotator who gave none is left out", {"s": {"a1": 4, "a2": None, "a3": 3}}, GRADE, 3.5, None),  # (4 + 3) / 2
    ("one annotator", {"s": {"a1": 4, "a2": 2}}, {"from": "s.a2", **GRADE}, 2.0, None),
    ("one of a list, by its place", {"s": [4, 2, 3]}, {"from": "s.2", **GRADE}, 2.0, None),
    ("a place after the list", {"s": [4, 2, 3]}, {"from": "s.4", **GRADE}, "skipped", "not_recorded"),
    ("a name with dots", {"gpt-3.5": 0.5}, {"from": "gpt-3.5"}, 0.5, None),
    ("a part of a name with dots", {"gpt-3.5": {"v1.0": 0.5}}, {"from": "gpt-3.5.v1.0"}, 0.5, None),
    ("the whole name comes first", {"s.a": 1, "s": {"a": 0}}, {"from": "s.a"}, 1.0, None),
    ("the share of a list", {"s": [True, False, True, True]}, {}, 0.75, None),
    ("median of two", {"s": [1, 4]}, {"combine": "median", **GRADE}, 2.5, None),
    ("min: all of them", {"s": [1, 1, 0]}, {"combine": "min", "binary": True}, 0.0, None),
    ("max: any of them", {"s": [0, 1, 0]}, {"combine": "max", "binary": True}, 1.0, None),
    ("majority of three", {"s": [0.5, 1, 1]}, {"combine": "majority"}, 1.0, None),
    ("majority is more than half", {"s": [1, 1, 0, 0.5]}, {"combine": "majority"}, "skipped", "no_majority"),
    ("three different labels", {"s": [0, 0.5, 1]}, {"combine": "majority"}, "skipped", "no_majority"),
    ("nothing of this name", {"other": 1}, {}, "skipped", "not_recorded"),
    ("null", {"s": None}, {}, "skipped", "not_recorded"),
    ("nobody gave one", {"s": {"a1": None, "a2": None}}, {}, "skipped", "not_recorded"),
    ("no part of a number", {"s": 1}, {"from": "s.a7"}, "skipped", "not_recorded"),
    ("no part of an unreadable one", {"s": GARBAGE}, {"from": "s.unreadable"}, "skipped", "not_recorded"),
    ("no claims", {"s": []}, {}, "skipped", "no_verdicts"),
    ("no claims, which counts as 1", {"s": []}, {"if_empty": 1}, 1.0, "no verdicts: `if_empty`"),
    ("only null claims are no empty list", {"s": [None]}, {"if_empty": 1}, "skipped", "not_recorded"),
    ("unreadable", {"s": GARBAGE}, {}, "error", "unreadable: 'garbage'"),
    ("one of them unreadable", {"s": {"a1": 1, "a2": GARBAGE}}, {}, "error", "unreadable: 'garbage' (a2)"),
    ("off the scale", {"s": 5}, GRADE, "error", "off_scale: 5 is not within 1 to 4"),
    ("one of them off the scale", {"s": [1, 0]}, GRADE, "error", "off_scale: 0 is not within 1 to 4 (2)"),
    ("a rounding beyond the scale is its end", {"s": 1.000000238418579}, {}, 1.0, None),
    ("a rounding under the scale", {"s": -1e-7}, {}, 0.0, None),
    ("a rounding of a binary one", {"s": 1.0000001}, {"binary": True}, 1.0, None),
    ("more than a rounding, named in full", {"s": 1.00001}, {}, "error", "off_scale: 1.00001 is not within 0 to 1"),
    ("not binary", {"s": 0.5}, {"binary": True}, "error", "not_binary: 0.5 is neither 0 nor 1"),
]  # fmt: skip


@pytest.mark.parametrize(("recorded", "taken", "value", "reason"), [row[1:] for row in TABLE], ids=[r[0] for r in TABLE])
def test_score_of_a_recorded_value(recorded, taken, value, reason):
    found = score_of(shipped_metric("recorded", take={"s": taken}), make_case(recorded=recorded))["s"]
    assert (found.value if found.status == "ok" else found.status, found.reason) == (value, reason)


def test_single_verdicts_stay_in_the_details():
    people = {"a1": 4, "a2": None, "a3": 3}
    found = score_of(shipped_metric("recorded", take={"s": GRADE}), make_case(recorded={"s": people}))["s"]
    assert found.details == {"verdicts": people}


def test_a_score_is_declared_as_it_is_taken():
    take = {"a": {"low": -2, "high": 2, "higher_is_better": False, "diagnostic": False}, "b": {"binary": True}}
    a, b = shipped_metric("recorded", take=take).scores()
    assert (a.name, a.low, a.high, a.higher_is_better, a.binary, a.diagnostic) == ("a", -2, 2, False, False, False)
    assert (b.name, b.low, b.high, b.higher_is_better, b.binary, b.diagnostic) == ("b", 0, 1, True, True, True)


def test_an_output_without_any_of_them_is_skipped_as_a_whole():
    metric = shipped_metric("recorded", take={"a": {}, "b": {}})
    assert metric.skip_reason(make_case()) == "not_recorded"
    assert metric.skip_reason(make_case(recorded={"b": 0})) is None


WRONG = [
    ("half a scale", {"low": None}, "`low` and `high` both"),
    ("a scale upside down", {"low": 4, "high": 1}, "`low` below `high`, found 4 and 1"),
    ("binary on another scale", {"binary": True, "high": 4}, "a binary score from 0 to 1"),
    ("empty off the scale", {"if_empty": 0, **GRADE}, "`if_empty` on the scale, found 0"),
    ("unknown key", {"hgh": 4}, "there is no 'hgh'"),
    ("unknown rule", {"combine": "mode"}, "'mean', 'median', 'majority', 'min' or 'max'"),
    ("a number as a name", {"from": 7}, "string"),
    ("an infinite scale", {"high": float("inf")}, "finite"),
]


@pytest.mark.parametrize(("taken", "says"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_a_wrong_entry_is_refused_with_its_key(taken, says):
    with pytest.raises(ConfigError) as refused:
        load_metric("r", {"class": "RecordedMetric", "take": {"s": taken}}, PromptLibrary([]))
    assert refused.value.problems[0].key.startswith("metrics.r.take.s")
    assert says in str(refused.value)


@pytest.mark.slow
def test_without_entries_the_configuration_is_wrong():
    with pytest.raises(ConfigError, match=r"metrics\.recorded\.take"):
        compose(["dataset=demo", "metrics=[recorded]"])


INVENTED = "Ada Lovelace wrote it in 1843. It was printed in Paris."
CLAIMS = {"claims": ["Ada Lovelace wrote it in 1843.", "It was printed in Paris."]}
COMBINED = {"claims": [{"claim": claim, "evidence": claim, "reason": ""} | in_both_forms(True) for claim in CLAIMS["claims"]]}
REFUSAL = "I could not find any information about that in the documents."


def measured(name, answer, *replies, **parameters):
    """(value, status, reason) by score, and the steps that were asked."""
    judge = ScriptedJudge(replies)
    found = score_of(shipped_metric(name, **parameters), make_case(answer=answer, chunks=[]), judge)
    return {key: (score.value, score.status, score.reason) for key, score in found.items()}, judge.steps


def test_faithfulness_lists_the_claims_and_supports_none():
    for steps, reply, asked in (("separate", CLAIMS, ["extract"]), ("combined", COMBINED, ["combined"])):
        found, steps_asked = measured("faithfulness", INVENTED, reply, steps=steps)
        assert found == {"faithfulness": (0.0, "ok", "0 of 2 claims are supported")}
        assert steps_asked == asked
    score = score_of(shipped_metric("faithfulness"), make_case(answer=INVENTED, chunks=[]), ScriptedJudge([CLAIMS]))
    details = score["faithfulness"].details
    assert details["unsupported_claims"] == CLAIMS["claims"]
    assert (details["total"], details["supported"], details["flags"]) == (2, 0, ["no_context_retrieved"])
    assert {row["reason"] for row in details["claims"]} == {"nothing was retrieved"}


@pytest.mark.parametrize(("without_claims", "value", "status"), [("one", 1.0, "ok"), ("zero", 0.0, "ok"), ("skip", None, "skipped")])  # fmt: skip
def test_faithfulness_of_a_refusal_and_of_an_answer_without_claims(without_claims, value, status):
    expected = {"faithfulness": (value, status, "no_factual_claims")}
    assert measured("faithfulness", REFUSAL, without_claims=without_claims) == (expected, [])
    assert measured("faithfulness", "What a day!", {"claims": []}, without_claims=without_claims) == (expected, ["extract"])


@pytest.mark.parametrize("name", ["groundedness", "chunk_faithfulness", "chunk_relevancy"])
def test_zero_without_a_call(name):
    assert measured(name, INVENTED) == ({name: (0.0, "ok", "no_context_retrieved")}, [])
    assert measured(name, REFUSAL) == ({name: (None, "skipped", "no_claims")}, [])
    assert measured(name, "") == ({name: (None, "skipped", "no_answer")}, [])


def test_answer_synthesis_grades_the_truth_alone():
    true, complete, overall = "answer_faithfulness", "answer_completeness", "synthesis_overall"
    lacking = (None, "skipped", "no_context_retrieved")
    assert measured("answer_synthesis", INVENTED) == (
        {true: (1.0, "ok", "no_context_retrieved"), complete: lacking, overall: lacking}, [],
    )  # fmt: skip
    for answer, why in ((REFUSAL, "no_claims"), ("", "no_answer"), ("...", "degenerate_answer")):
        assert measured("answer_synthesis", answer) == (dict.fromkeys((true, complete, overall), (None, "skipped", why)), [])


@pytest.mark.parametrize("name", ["faithfulness", "groundedness", "chunk_faithfulness", "chunk_relevancy", "answer_synthesis"])
def test_they_can_be_left_out(name):
    found, asked = measured(name, INVENTED, without_contexts="skip")
    assert set(found.values()) == {(None, "skipped", "no_context_retrieved")}
    assert asked == []
    judged = score_of(shipped_metric(name, without_contexts="skip"), make_case(), ScriptedJudge(lambda _: "nonsense"))
    assert {score.status for score in judged.values()} == {"error"}  # with contexts it is asked all the same


def test_a_refusal_that_goes_on_to_answer_is_none():
    found, asked = measured("faithfulness", f"{REFUSAL} But Ada Lovelace wrote it in 1843.", {"claims": CLAIMS["claims"][:1]})
    assert (found["faithfulness"][0], asked) == (0.0, ["extract"])


def test_patterns_of_ones_own():
    own = {"declines": ["weiß ich nicht"]}
    assert measured("groundedness", "Das weiß ich nicht.", patterns=own)[0]["groundedness"][2] == "no_claims"
    assert measured("groundedness", "Das ist mir schnuppe, glaub mir das.", patterns=own)[0]["groundedness"][2] == "language_not_covered"
