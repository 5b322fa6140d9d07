"""Diagnoses: the source documents' own scenarios, the demonstration set's planted failures, order, counts, examples."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ragpipe
from ragpipe.core.score import ScoreSpec, warning_texts
from ragpipe.core.text import escape_markdown
from ragpipe.report.diagnosis_section import diagnosis_section
from ragpipe.report.report_data import ReportData
from ragpipe.score.aggregate import asked, shared_score
from ragpipe.score.settings import ScoringSettings
from tests.support.finished_runs import FinishedRuns
from tests.support.reports import markdown_of, report_of, terminal_of
from tests.support.run_tables import Row, records, score, write_run

pytestmark = pytest.mark.slow
YES_NO = {"chunk_faithfulness": {}, "chunk_relevancy": {}}
SCALES = {"correctness": (1, 5), "answer_faithfulness": (1, 5), "answer_completeness": (1, 5), "groundedness": (0, 5)}
HIT = {"hit@5": 1.0, "mrr": 1.0}
MISS = {"hit@5": 0.0, "mrr": 0.0}

DOCUMENTS = [
    # llamaindex-evaluators.md, "Failure Scenarios", with its own numbers
    ("A hallucination", {"chunk_faithfulness": 0.0, "chunk_relevancy": 1.0}, ["hallucination"]),
    ("B off topic", {"chunk_faithfulness": 1.0, "answer_relevance": 0.0}, ["off_topic"]),
    ("a NO of the chunks", {"chunk_faithfulness": 1.0, "chunk_relevancy": 0.0}, []),
    ("C retrieval failure", {"chunk_faithfulness": 1.0, "chunk_relevancy": 1.0, **MISS}, ["retrieval_failure"]),
    ("D partial correctness", {"correctness": 2.5}, ["partly_correct"]),
    ("D with its retrieval", {"correctness": 2.5, **HIT}, ["partly_correct"]),
    ("the run's worked example", {"chunk_faithfulness": 1.0, "chunk_relevancy": 1.0, "correctness": 4.5, **HIT}, []),
    ("a failure of faithfulness", {"chunk_faithfulness": 0.0}, ["unsupported_answer"]),
    # the same by the scores of rag-evaluation-framework.md
    ("A on 0..1", {"faithfulness": 0.0, "answer_relevance": 0.9}, ["hallucination"]),
    ("B on 0..1", {"faithfulness": 1.0, "answer_relevance": 0.1}, ["off_topic"]),
    ("neither", {"faithfulness": 0.2, "answer_relevance": 0.1}, ["unsupported_and_off_topic"]),
    ("both", {"faithfulness": 0.9, "answer_relevance": 0.8}, []),
    ("relevance failed", {"faithfulness": 0.2, "answer_relevance": ("error", "refused: no")}, ["unsupported_answer", "not_judged"]),
    # metrics.md section 9: correctness 2-3 *with a hit*
    ("2 with a hit", {"correctness": 2.0, **HIT}, ["partly_correct"]),
    ("3 with a hit", {"correctness": 3.0, **HIT}, ["partly_correct"]),
    ("3 without one", {"correctness": 3.0, **MISS}, ["retrieval_failure"]),
    ("1 with a hit", {"correctness": 1.0, **HIT}, ["wrong_despite_hit"]),
    ("4 with a hit", {"correctness": 4.0, **HIT}, []),
    # answer-synthesis-evaluation.md, "Why Two Independent Dimensions?"
    ("persuasive", {"answer_faithfulness": 2.0, "answer_completeness": 5.0}, ["complete_but_unsupported"]),
    ("useless", {"answer_faithfulness": 5.0, "answer_completeness": 2.0}, ["faithful_but_incomplete"]),
    ("ideal", {"answer_faithfulness": 4.0, "answer_completeness": 4.0}, []),
    # and what stands around them
    ("found and buried", {"context_relevance": 0.3, **HIT}, ["noisy_context"]),
    ("no labels", {"context_relevance": 0.3}, ["context_off_topic"]),
    ("third place", {"mrr": 1 / 3}, ["relevant_ranked_low"]),
    ("second place", {"mrr": 1 / 2}, []),
    ("root before consequence", {"faithfulness": 0.0, "answer_relevance": 1.0, **MISS}, ["retrieval_failure", "hallucination"]),
]  # fmt: skip


@pytest.mark.parametrize(("results", "diagnosis"), [row[1:] for row in DOCUMENTS], ids=[row[0] for row in DOCUMENTS])
def test_scenarios_get_their_diagnosis(tmp_path: Path, results: dict[str, Any], diagnosis: list[str]) -> None:
    write_run(tmp_path, [Row("q", "a", results)])
    score(tmp_path, [ScoreSpec(name, *SCALES.get(name, (0, 1)), binary=name in YES_NO) for name in results])
    assert records(tmp_path)[0]["diagnosis"] == diagnosis


# (faithfulness, unsupported claims, the diagnosis of a judge that reads, and of the rules judge)
EVIDENCE = [
    (0.75, 1, ["unsupported_answer"], []), (0.75, 2, ["unsupported_answer"], ["unsupported_answer"]),
    (0.5, 1, ["unsupported_answer"], ["unsupported_answer"]), (0.9, 2, [], []),
]  # fmt: skip


@pytest.mark.parametrize(("value", "unsupported", "read", "compared"), EVIDENCE)
def test_one_claim_of_several_is_no_diagnosis_by_the_rules_judge(tmp_path, value, unsupported, read, compared) -> None:
    details = {"faithfulness": {"unsupported_claims": ["x"] * unsupported}}
    write_run(tmp_path, [Row("q", "a", {"faithfulness": value}, details=details)])
    for label, diagnosis in (("scripted", read), ("rules-v1", compared)):
        score(tmp_path, SPECS[:1], judge={"label": label, "calibrated": None})
        (record,) = records(tmp_path)
        assert (record["diagnosis"], "unsupported_claim" in record["failure_modes"]) == (diagnosis, value < 0.85), label


def test_a_cosine_tells_nothing_of_the_topic(tmp_path: Path) -> None:
    results = {"answer_relevance": 0.2, "faithfulness": 0.2}
    write_run(tmp_path, [Row("right", "a", results | {"faithfulness": 1.0}), Row("made-up", "a", results)])
    score(tmp_path, [ScoreSpec("answer_relevance", method="questions"), ScoreSpec("faithfulness")])
    assert [row["diagnosis"] for row in records(tmp_path)] == [[], ["unsupported_answer"]]


SPECS = [ScoreSpec("faithfulness"), ScoreSpec("answer_relevance"), ScoreSpec("mrr")]


def test_counts_order_and_examples(tmp_path: Path) -> None:
    """Seven hallucinations, of which two also missed; the first five in data order are named, over blocks of two."""
    rows = [Row(f"q{n}", "ab"[n % 2], {"faithfulness": 0.1, "answer_relevance": 1.0, "mrr": 0.0 if n < 2 else 1.0}) for n in range(7)]
    write_run(tmp_path, [*rows, Row("ok", "a", {"faithfulness": 1.0, "answer_relevance": 1.0, "mrr": 1.0})])
    metrics = score(tmp_path, SPECS, ScoringSettings(slices=[]), block=2)
    assert [one["name"] for one in metrics["diagnosis"]] == ["retrieval_failure", "hallucination"]
    missed, made_up = metrics["diagnosis"]
    assert {key: made_up[key] for key in ("n", "n_first", "n_judged")} == {"n": 7, "n_first": 5, "n_judged": 8}
    assert made_up["examples"] == [{"sample_id": f"q{n}", "method": "ab"[n % 2], "repeat": 1} for n in range(5)]
    assert (missed["n"], missed["n_first"]) == (2, 2)
    assert "use only facts from the contexts" in made_up["advice"][0]
    assert {m: g["diagnosis"]["hallucination"]["n"] for m, g in metrics["by"]["method"].items()} == {"a": 4, "b": 3}
    assert "partly_correct" in metrics["not_applicable"]["diagnosis"]


def test_order_words_and_rules_are_configuration(tmp_path: Path) -> None:
    write_run(tmp_path, [Row("q", "a", {"faithfulness": 0.1, "answer_relevance": 1.0, "mrr": 0.0})])
    mine = {"when": {"all": [{"failure_mode": "retrieval_miss"}, {"field": "method", "equals": "a"}]}, "message": "It is a.", "order": 1}
    settings = ScoringSettings(diagnosis={"hallucination": {"order": 2}, "mine": mine, "retrieval_failure": None})
    score(tmp_path, SPECS, settings)
    assert records(tmp_path)[0]["diagnosis"] == ["mine", "hallucination"]
    # metrics.json holds the words: a run with others is another folder, never one whose report says something else
    worded = ScoringSettings(diagnosis={"hallucination": {"message": "It lies."}})
    assert worded.identity() != ScoringSettings().identity()


def test_the_report_says_what_is_wrong(tmp_path: Path) -> None:
    rows = [Row(f"q{n}|`", "a", {"faithfulness": 0.1, "answer_relevance": 1.0, "mrr": 1.0}) for n in range(2)]
    write_run(tmp_path, [*rows, Row("miss", "a", {"mrr": 0.0}), Row("x", "a", {"mrr": 0.5})])
    report = report_of(diagnosis_section(ReportData(score(tmp_path, SPECS, ScoringSettings(slices=[])), {})))
    page = markdown_of(report)
    assert "`hallucination`: 2 of 4 (50.0%)" in page
    assert "**Try:** Tighten the system prompt: use only facts from the contexts" in page
    assert "`` q0|` `` / `a`" in page
    assert "| `unsupported_claim` | 2 | 50.0% | 66.7% | 66.7% | 2 |" in page
    assert "3 cases have a failure mode" in page
    lines = terminal_of(report, 80).splitlines()
    assert lines[1].split()[:2] == ["50.0%", "hallucination"]
    assert max(map(len, lines)) <= 80
    assert diagnosis_section(ReportData(score(tmp_path, SPECS, NOTHING), {})) is None


NOTHING = ScoringSettings(
    failure_modes=dict.fromkeys(ScoringSettings().failure_modes), diagnosis=dict.fromkeys(ScoringSettings().diagnosis)
)


def test_words_of_a_configuration_are_no_markup() -> None:
    assert escape_markdown("<b>*a*</b> [x](http://y) `c`\n# d") == r"\<b\>\*a\*\</b\> \[x\](http\://y) \`c\` \# d"


DEMO = Path(ragpipe.__file__).parent / "data" / "demo" / "cases.jsonl"
SEEN = {"retrieval_miss", "scope_miss", "false_acceptance", "hallucinated_unanswerable", "empty_answer", "system_error", "missing_citation"}
# What the quickstart's computed scores and its rules judge can see of the rest: planted cases found, of how many.
PARTLY = {"unsupported_claim": (15, 20), "false_rejection": (6, 7), "stale_source": (2, 3)}


@pytest.fixture(scope="module")
def demo(finished_runs: FinishedRuns) -> dict[tuple[str, str], tuple[set[str], dict[str, Any]]]:
    """Every case of the quickstart: what was planted in it, and its record."""
    folder = finished_runs.of("+experiment=quickstart", "report.formats=[]").latest()
    planted = {
        (line["id"], output["method"]): set(line["meta"].get("planted", {}).get(output["method"], ()))
        for line in map(json.loads, DEMO.read_text(encoding="utf-8").splitlines())
        for output in line["outputs"]
    }
    return {(row["sample_id"], row["method"]): (planted[row["sample_id"], row["method"]], row) for row in records(folder)}


def test_planted_failures_that_the_quickstart_can_see(demo: Any) -> None:
    for mode in SEEN:
        assert {k for k, (planted, _) in demo.items() if mode in planted} == {
            k for k, (_, row) in demo.items() if mode in row["failure_modes"]
        }, mode
    for mode, (both, of) in PARTLY.items():
        planted = [row for there, row in demo.values() if mode in there]
        assert (sum(mode in row["failure_modes"] for row in planted), len(planted)) == (both, of), mode


@pytest.mark.parametrize(
    ("case", "first"),
    [
        (("dao-02", "baseline"), "unsupported_answer"),  # scenario A, with nothing that measures relevance
        (("dao-03", "baseline"), "relevant_not_cited"),  # scenario B by its citations
        (("dao-04", "baseline"), "retrieval_failure"),  # scenario C
        (("dao-05", "baseline"), None),  # scenario D needs correctness, which the rules judge does not answer
        (("dao-02", "rerank"), None),
        (("courses-09", "baseline"), "scope_too_narrow"),
        (("courses-09", "no_rerank_small_k"), "blank_answer"),
        (("earnings-10", "baseline"), "system_failure"),
        (("dao-10", "baseline"), "should_have_refused"),
    ],
)
def test_the_first_diagnosis_of_demonstration_cases(demo: Any, case: tuple[str, str], first: str | None) -> None:
    assert next(iter(demo[case][1]["diagnosis"]), None) == first


FAITHFUL, RECALL = ScoreSpec("faithfulness"), ScoreSpec("recall@5")
SCALE = {"low": 0, "high": 1, "binary": False}
PLAIN = ScoringSettings(slices=[], thresholds={"faithfulness": 0.5})
NAN = np.nan


def test_a_method_that_had_the_easy_questions_is_not_better(tmp_path: Path) -> None:
    """q1, q2 are easy, q3, q4 hard. a answered all: (1 + .8 + .2 + .2) / 4 = .55; b the easy ones: (.9 + .7) / 2 = .8.
    On q1 and q2 a has .9."""
    a = dict(zip("1234", (1.0, 0.8, 0.2, 0.2), strict=True))
    rows = [Row(f"q{q}", "a", {"faithfulness": value}) for q, value in a.items()]
    rows += [Row("q1", "b", {"faithfulness": 0.9}), Row("q2", "b", {"faithfulness": 0.7})]
    write_run(tmp_path, rows)
    found = score(tmp_path, [FAITHFUL], PLAIN)
    means = {name: group["scores"]["faithfulness"]["mean"] for name, group in found["by"]["method"].items()}
    assert means == pytest.approx({"a": 0.55, "b": 0.8})
    shared = found["shared"]
    assert (shared["n_questions"], shared["of"]) == (2, 4)
    one = shared["scores"]["faithfulness"]
    assert (one["n_questions"], one["of"]) == (2, 4)
    assert {name: figures["mean"] for name, figures in one["methods"].items()} == pytest.approx({"a": 0.9, "b": 0.8})
    assert [one["methods"][m]["pass_rate"] for m in "ab"] == [1.0, 1.0]
    assert "methods share 2 of 4 questions" in " ".join(warning_texts(found))
    write_run(tmp_path / "apart", [rows[0], rows[-1]])
    assert "methods share none of 2 questions" in " ".join(warning_texts(score(tmp_path / "apart", [FAITHFUL], PLAIN)))


def test_a_question_that_one_method_skipped_is_not_shared(tmp_path: Path) -> None:
    skip, fail = ("skipped", "no_claims"), ("error", "refused: no")
    rows = [
        Row(q, method, {"faithfulness": value})
        for q, values in (("q1", (0.4, 0.8)), ("q2", (skip, 0.1)), ("q3", (0.9, fail)))
        for method, value in zip("ab", values, strict=True)
    ]
    write_run(tmp_path, rows)
    found = score(tmp_path, [FAITHFUL], PLAIN)
    one = found["shared"]["scores"]["faithfulness"]
    assert (found["shared"]["n_questions"], one["n_questions"], one["of"]) == (3, 1, 3)
    assert {name: (f["n_ok"], f["mean"]) for name, f in one["methods"].items()} == {"a": (1, 0.4), "b": (1, 0.8)}
    assert not [text for text in warning_texts(found) if "same questions" in text], "they were asked the same"


def test_a_method_that_never_has_a_score_empties_it_for_nobody(tmp_path: Path) -> None:
    none = ("skipped", "retrieves_nothing")
    rows = [
        Row(f"q{i}", method, {"faithfulness": 0.5, "recall@5": none if method == "closed" else value})
        for i, value in enumerate((0.2, 0.6))
        for method in ("a", "b", "closed")
    ]
    write_run(tmp_path, rows)
    scores = score(tmp_path, [FAITHFUL, RECALL], PLAIN)["shared"]["scores"]
    assert (set(scores["recall@5"]["methods"]), scores["recall@5"]["n_questions"]) == ({"a", "b"}, 2)
    assert set(scores["faithfulness"]["methods"]) == {"a", "b", "closed"}


def test_no_question_in_common_is_a_score_without_a_mean() -> None:
    methods, samples = {"a": np.array([0, 1]), "b": np.array([2])}, np.array([0, 1, 2])
    assert asked(methods, samples) == {"n_questions": 0, "of": 3}
    one = shared_score(methods, samples, np.array([0.1, 0.2, 0.3]), np.full(3, NAN), SCALE, 0.95)
    assert (one["n_questions"], one["of"]) == (0, 3)
    assert {name: figures["mean"] for name, figures in one["methods"].items()} == {"a": None, "b": None}


def test_methods_are_compared_on_shared_questions(finished_runs: FinishedRuns) -> None:
    """Measured by a second reading of records.parquet with pandas: over all that each one answered rerank is ahead by 1.8 (89.3 to 87.5),
    on the 19 questions for which all three methods have a value by 5.3 (92.1 to 86.8)."""
    run = ragpipe.load(finished_runs.of("+experiment=quickstart").latest())
    everything = {name: g["scores"]["faithfulness"]["mean"] for name, g in run.metrics["by"]["method"].items()}
    assert (round(everything["no_rerank_small_k"], 3), round(everything["rerank"], 3)) == (0.875, 0.893)
    for metrics in (run.metrics, run.final):
        shared = metrics["shared"]
        assert (shared["n_questions"], shared["of"]) == (21, 40)
        one = shared["scores"]["faithfulness"]
        assert (one["n_questions"], one["of"]) == (19, 38)
        assert round(one["methods"]["rerank"]["mean"], 3) == 0.921
        assert round(one["methods"]["no_rerank_small_k"]["mean"], 3) == 0.868
    frame = run.records.pivot(index="sample_id", columns="method", values="faithfulness").dropna()
    assert frame.mean().to_dict() == pytest.approx({m: f["mean"] for m, f in one["methods"].items()})
    page = (run.path / "report.md").read_text()
    assert "## On shared questions (21 of 40 were asked of all methods)" in page
    assert "questions with a value" in page, "what the rows count is not what was asked"
    assert "| `faithfulness` | 19 of 38 | 0.74 [" in page
    assert "methods share 21 of 40 questions" in page
