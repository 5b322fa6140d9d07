"""`scoring.passes_with`: whose verdict a score takes over, where nobody knows it, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from ragpipe.schema.run_warning import warning_texts
from ragpipe.schema.score import ScoreSpec
from ragpipe.scoring.cross_checks import scoring_faults
from ragpipe.scoring.settings import ScoringSettings
from tests.support.run_tables import Row, records, score, stored, write_run

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test

FAITHFUL, RETRIEVAL, RELEVANT = ScoreSpec("faithfulness"), ScoreSpec("retrieval_score"), ScoreSpec("answer_relevance")
FAIL, SKIP = ("error", "refused: no"), ("skipped", "no_label")


def of(root: Path, results: list[dict[str, Any]], specs: list[ScoreSpec], **settings: Any) -> dict[str, Any]:
    write_run(root, [Row(f"q{n}", "a", one) for n, one in enumerate(results)])
    return score(root, specs, ScoringSettings(slices=[], **settings))


@pytest.mark.parametrize(
    ("own", "other", "passed"),
    [
        (1.0, 1.0, True),
        (0.0, 1.0, True),  # it is the other one that decides
        (1.0, 0.0, False),
        (1.0, FAIL, None),
        (1.0, SKIP, None),
        (SKIP, 1.0, None),  # what has no value neither passes nor fails
        (SKIP, 0.0, None),
        (FAIL, 0.0, None),
    ],
)
def test_the_verdict_is_that_of_the_others(tmp_path: Path, own: Any, other: Any, passed: bool | None) -> None:
    of(tmp_path, [{"retrieval_score": own, "faithfulness": other}], [RETRIEVAL, FAITHFUL],
       passes_with={"retrieval_score": ["faithfulness"]})  # fmt: skip
    assert records(tmp_path)[0]["retrieval_score.passed"] is passed
    examples = stored(tmp_path, "low_scores.json")["scores"].get("retrieval_score", {"bands": []})["bands"]
    assert all(isinstance(one["value"], float) for band in examples for one in band["examples"])


@pytest.mark.parametrize("others", [["faithfulness"], ["retrieval_score", "faithfulness"]])
def test_a_run_without_one_of_the_others_does_not_judge_it(tmp_path: Path, others: list[str]) -> None:
    settings = {"passes_with": {"retrieval_score": others}}
    metrics = of(tmp_path, [{"retrieval_score": 0.1}, {"retrieval_score": 1.0}], [RETRIEVAL], **settings)
    found = metrics["overall"]["scores"]["retrieval_score"]
    assert found["n_ok"] == 2
    assert not {"pass_rate", "pass_interval", "n_judged", "n_unjudged"} & found.keys()
    said = "retrieval_score is not judged passed or failed: scoring.passes_with.retrieval_score asks for faithfulness"
    assert any(text.startswith(said) for text in warning_texts(metrics))
    before = ScoringSettings(**settings).warnings([RETRIEVAL])
    assert any(text.startswith(said) for text in before), "said before anything is spent"


def test_the_shipped_ones_ask_for_nothing_where_their_metric_is_off() -> None:
    assert ScoringSettings().warnings([RETRIEVAL]) == []


@pytest.mark.parametrize("turned", [False, True])
def test_a_chain_does_not_depend_on_the_order_of_its_keys(tmp_path: Path, turned: bool) -> None:
    pairs = [("retrieval_score", ["answer_relevance"]), ("answer_relevance", ["faithfulness"])]
    given = dict(pairs[::-1] if turned else pairs)
    results = {"retrieval_score": 1.0, "answer_relevance": 1.0, "faithfulness": 0.0}
    of(tmp_path, [results], [RETRIEVAL, RELEVANT, FAITHFUL], passes_with=given)
    found = records(tmp_path)[0]
    assert (found["retrieval_score.passed"], found["answer_relevance.passed"]) == (False, False)


@pytest.mark.parametrize(
    ("given", "key", "said"),
    [
        (
            {"retrieval_score": ["answer_relevance"], "answer_relevance": ["retrieval_score"]},
            "scoring.passes_with.retrieval_score",
            "answer_relevance, which itself passes only when retrieval_score does",
        ),
        ({"overall_score": ["faithfulness"]}, "scoring.passes_with.overall_score", "overall_score"),
        ({"faithfulness": ["overall_score"]}, "scoring.passes_with.faithfulness", "overall_score"),
    ],
)
def test_what_cannot_be_judged_is_refused(given: dict[str, Any], key: str, said: str) -> None:
    problems = scoring_faults(ScoringSettings(passes_with=given), [RETRIEVAL, RELEVANT, FAITHFUL])
    assert (problems[0].where, problems[0].key, problems[0].found) == ("scoring", key, said)
