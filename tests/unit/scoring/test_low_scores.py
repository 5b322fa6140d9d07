"""low_scores.json: bands, shares, examples, where low cases cluster, reasons, flags; and what bands cannot be."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from ragpipe.schema.score import ScoreSpec
from ragpipe.scoring import accumulators
from ragpipe.scoring.cross_checks import scoring_faults
from ragpipe.scoring.rules import low_scores
from ragpipe.scoring.settings import ScoringSettings
from tests.support.run_tables import Row, score, stored, write_run

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test

FAITHFUL_AXIS, COMPLETE_AXIS = ScoreSpec("answer_faithfulness", 1, 5), ScoreSpec("answer_completeness", 1, 5)
FAITHFUL, CORRECT = ScoreSpec("faithfulness"), ScoreSpec("correctness", 1, 5)
NOISE = ScoreSpec("noise", 0, 1, higher_is_better=False)
YES_NO, COUNT = ScoreSpec("chunk_faithfulness", binary=True), ScoreSpec("n_claims", None, None)


def low(root: Path, specs: list[ScoreSpec], rows: list[Row], **settings: Any) -> dict[str, Any]:
    """`scores` of low_scores.json over these rows, scored in blocks of three."""
    write_run(root, rows)
    score(root, specs, ScoringSettings(slices=[], **settings), block=3)
    found: dict[str, Any] = stored(root, "low_scores.json")
    assert set(found) == {"format", "signature", "iteration", "scores"}
    return dict(found["scores"])


def of(name: str, values: list[Any]) -> list[Row]:
    return [Row(f"q{n}", "a", {name: value}) for n, value in enumerate(values)]


def counts(found: dict[str, Any]) -> dict[str, int]:
    return {band["name"]: band["n"] for band in found["bands"]}


TABLE = [
    # answer-synthesis-evaluation.md: completely false (1), mostly false (2), mixed (3); 4 and 5 are not low
    (FAITHFUL_AXIS, [1, 1, 2, 3, 3, 3, 4, 5], {"completely_false": 2, "mostly_false": 1, "mixed": 3}),
    # completeness failures (1-3), by the labels of the rubric
    (COMPLETE_AXIS, [1, 2, 2, 3, 4, 5, 5], {"fail": 1, "weak": 2, "descriptive_only": 1}),
    (CORRECT, [1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.5], {"wrong": 1, "mostly_wrong": 2, "partly_right": 2}),
    # a last band without an end takes what is left of those that did not pass (0.85)
    (FAITHFUL, [0.0, 0.5, 0.51, 0.84, 0.85, 1.0], {"nothing_supported": 1, "half_or_less": 1, "some_unsupported": 2}),
    # the default bands go by `score` among what did not pass
    (YES_NO, [0, 0, 1], {"lowest": 2, "low": 0, "under_threshold": 0}),
    (FAITHFUL, [("skipped", "x"), ("error", "refused: no"), 0.0], {"nothing_supported": 1, "half_or_less": 0, "some_unsupported": 0}),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "values", "bands"), TABLE)
def test_bands(tmp_path: Path, spec: ScoreSpec, values: list[Any], bands: dict[str, int]) -> None:
    found = low(tmp_path, [spec], of(spec.name, values))[spec.name]
    n = sum(isinstance(value, int | float) for value in values)
    assert counts(found) == bands
    assert (found["n_ok"], found["n_low"], found["share"]) == (n, sum(bands.values()), sum(bands.values()) / n)
    assert [band["share"] for band in found["bands"]] == [count / n for count in bands.values()]


SIMILAR, BERT = ScoreSpec("semantic_similarity", 0, 100), ScoreSpec("bert_score_f1", 0, 100)
READINGS = [
    # graphrag-metrics.md 7: 100 near-identical, 90-99 equivalent, 80-89 core meaning, under 80 divergent (its own examples)
    (SIMILAR, [100.0, 99.99, 96.72, 90.75, 90.0, 89.99, 87.97, 80.0, 79.99, 12.5],
     {"significantly_divergent": 2, "core_meaning_preserved": 3, "equivalent_with_minor_variations": 3, "near_identical": 2}),
    # 8: 99-100, 70-99, 30-70, 0-30; its edges overlap, and the lower band takes them
    (BERT, [99.99, 99.0, 72.38, 70.0, 30.0, 16.23, 6.62],
     {"very_different": 3, "similar_meaning_other_phrasing": 1, "very_similar": 2, "near_identical": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "values", "bands"), READINGS)
def test_the_graphrag_bands_read_high_values_too_and_call_only_low_ones_low(
    tmp_path: Path, spec: ScoreSpec, values: list[float], bands: dict[str, int]
) -> None:
    found = low(tmp_path, [spec], of(spec.name, values))[spec.name]
    assert counts(found) == bands
    assert [band["low"] for band in found["bands"]] == [True, True, False, False]
    assert found["n_low"] == sum(list(bands.values())[:2])
    assert [bool(band["examples"]) for band in found["bands"]] == [True, True, False, False]
    # by method: all are of one, so none stands out; reasons are those of the low cases ("fine" is every case's)
    assert found["reasons"] == [{"reason": "fine", "n": found["n_low"]}]


def test_where_lower_is_better_bands_go_down(tmp_path: Path) -> None:
    values, thresholds = [1.0, 0.9, 0.6, 0.3, 0.0], {"noise": 0.2}
    own = {"bands": {"noise": [{"name": "worst", "up_to": 0.9}, {"name": "bad", "up_to": 0.5}]}}
    assert counts(low(tmp_path, [NOISE], of("noise", values), thresholds=thresholds, low_scores=own)["noise"]) == {
        "worst": 2,
        "bad": 1,
    }
    default = low(tmp_path, [NOISE], of("noise", values), thresholds=thresholds)["noise"]
    assert counts(default) == {"lowest": 1, "low": 2, "under_threshold": 1}  # as `score`: 0, 0.1, 0.4, 0.7, 1


def test_what_is_left_out(tmp_path: Path) -> None:
    """A count, a score without a threshold, one that nothing measured, and one that is taken away."""
    rows = [Row("q", "a", {"n_claims": 7.0, "mrr": 0.0, "faithfulness": 0.1, "correctness": ("skipped", "x")})]
    specs = [COUNT, ScoreSpec("mrr"), FAITHFUL, CORRECT]
    assert set(low(tmp_path, specs, rows)) == {"faithfulness"}
    assert low(tmp_path, specs, rows, low_scores={"bands": {"faithfulness": None}}) == {}


def test_examples_are_the_first_and_bounded(tmp_path: Path) -> None:
    rows = of("faithfulness", [0.0] * 7)
    found = low(tmp_path, [FAITHFUL], rows)["faithfulness"]["bands"][0]
    assert [example["sample_id"] for example in found["examples"]] == ["q0", "q1", "q2", "q3", "q4"]
    assert found["examples"][0] == {"sample_id": "q0", "method": "a", "repeat": 1, "value": 0.0, "reason": "fine"}
    assert found["advice"]


@pytest.mark.slow
def test_clusters_with_their_lift(tmp_path: Path) -> None:
    """12 cases, 6 low (share 0.5). hard: 4 of 5 low, lift 0.8 / 0.5 = 1.6; easy: 2 of 7, 0.57: not named.
    method b: 2 of 2, lift 2, but fewer than three low cases: not named."""
    rows = [
        Row(f"q{n}", "b" if n in (0, 1) else "a", {"correctness": 1.0 if n in (0, 1, 2, 3, 5, 6) else 5.0},
            {"category": "hard" if n < 5 else "easy", "question_type": "x"})
        for n in range(12)
    ]  # fmt: skip
    found = low(tmp_path, [CORRECT], rows)["correctness"]["patterns"]
    assert found == {"category": [{"value": "hard", "n_low": 4, "n": 5, "share": 0.8, "lift": 1.6}]}


def test_reasons_that_differ_in_numbers_quotes_and_case_are_one(tmp_path: Path) -> None:
    said = [
        'Claims  1.5 of 3, "alpha"',
        'claims 2 of 10, "beta gamma"',
        "CLAIMS 7 OF 7, \u201cdelta\u201d",
        "Wrong date",
        "wrong date",
        "once only",
    ]
    rows = [Row(f"q{n}", "a", {"correctness": 1.0}) for n in range(len(said))]
    folder = write_run(tmp_path, rows)
    table = pq.read_table(folder / "scores.parquet")
    table = table.set_column(table.schema.get_field_index("reason"), "reason", pa.array(said))
    pq.write_table(table, folder / "scores.parquet")
    score(tmp_path, [CORRECT], block=2)
    found = stored(tmp_path, "low_scores.json")["scores"]["correctness"]
    assert found["reasons"] == [{"reason": 'claims # of #, "..."', "n": 3}, {"reason": "wrong date", "n": 2}]
    assert found["bands"][0]["examples"][0]["reason"] == 'Claims 1.5 of 3, "alpha"'


def test_flags_of_low_cases_are_counted(tmp_path: Path) -> None:
    flags = [["a"], ["a", "b"], [], ["c"]]
    rows = [
        Row(f"q{n}", "a", {"correctness": 5.0 if n == 3 else 1.0}, details={"correctness": {"flags": some, "inner": {"flags": ["no"]}}})
        for n, some in enumerate(flags)
    ]  # fmt: skip
    assert low(tmp_path, [CORRECT], rows)["correctness"]["flags"] == {"a": 2, "b": 1}


@pytest.mark.slow
def test_examples_stay_bounded_however_many_cases(tmp_path: Path) -> None:
    found = low(tmp_path, [CORRECT], of("correctness", [1.0, 2.0] * 30))["correctness"]
    assert Counter(len(band["examples"]) for band in found["bands"]) == {5: 2, 0: 1}
    assert found["n_low"] == 60


def test_an_option_names_only_what_it_changes() -> None:
    mine = ScoringSettings(low_scores={"bands": {"correctness": None}}).low_scores
    assert mine.bands["correctness"] is None
    assert mine.bands["groundedness"] == ScoringSettings().low_scores.bands["groundedness"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"bands": {"x": [{"name": "Bad", "up_to": 1}]}}, "should match pattern"),
        ({"bands": {"x": [{"name": "a", "up_to": 1}, {"name": "a", "up_to": 2}]}}, "a name of its own"),
        ({"bands": {"x": [{"name": "a"}, {"name": "b", "up_to": 2}]}}, "without `up_to` as the last one"),
        ({"bands": {"x": [{"name": "a", "up_to": 1}, {"name": "b", "up_to": 1}]}}, "from the worst on"),
        ({"bands": {"x": [{"name": "a", "up_to": 1}, {"name": "b", "up_to": 3}, {"name": "c", "up_to": 2}]}}, "from the worst on"),
        ({"bands": {"x": [{"name": "a", "up_to": 1, "low": False}, {"name": "b", "up_to": 2}]}}, "after all others"),
        ({"by": ["categroy"]}, "did you mean 'category'"),
        ({"exmples": 3}, "Extra inputs"),
    ],
)  # fmt: skip
def test_nonsense_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        ScoringSettings(low_scores=given)


@pytest.mark.parametrize(
    ("bands", "key", "found"),
    [
        ({"corectness": [{"name": "a", "up_to": 1}]}, "scoring.low_scores.bands.corectness", "did you mean 'correctness'"),
        ({"correctness": [{"name": "a", "up_to": 0.5}]}, "scoring.low_scores.bands.correctness", "up_to 0.5"),
        ({"correctness": [{"name": "a", "up_to": 3}, {"name": "b", "up_to": 2}]}, "scoring.low_scores.bands.correctness", "up_to 3, 2"),
        ({"noise": [{"name": "a", "up_to": 0.1}, {"name": "b", "up_to": 0.2}]}, "scoring.low_scores.bands.noise", "up_to 0.1, 0.2"),
    ],
)  # fmt: skip
def test_bands_that_do_not_fit_their_score_are_named(bands: dict[str, Any], key: str, found: str) -> None:
    (problem,) = scoring_faults(ScoringSettings(low_scores={"bands": bands}), [CORRECT, NOISE])
    assert problem.key == key
    assert found in problem.found


def test_a_cluster_is_held_against_the_cases_that_were_measured(tmp_path: Path) -> None:
    """8 measured, 4 low (0.5); the 8 skipped are no cases of this score. hard: 3 of 4 low, lift 0.75 / 0.5 = 1.5."""
    values = [1.0, 1.0, 1.0, 5.0, 1.0, 5.0, 5.0, 5.0, *[("skipped", "no_reference")] * 8]
    rows = [
        Row(f"q{n}", "a", {"correctness": value}, {"category": "hard" if n < 4 else "easy"})
        for n, value in enumerate(values)
    ]
    found = low(tmp_path, [CORRECT], rows, low_scores={"by": ["category"]})["correctness"]["patterns"]
    assert found == {"category": [{"value": "hard", "n_low": 3, "n": 4, "share": 0.75, "lift": 1.5}]}


def test_values_beyond_the_memory_are_no_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six values are told apart; the others, 8 of 10 low where half of all are, have nothing else in common."""
    monkeypatch.setattr(accumulators, "_LABELS", 6)
    monkeypatch.setattr(low_scores, "_DISTINCT", 3)
    rows = [Row(f"q{n}", "a", {"correctness": 5.0 if n < 8 else 1.0}, {"meta": {"user": f"u{n}"}}) for n in range(16)]
    found = low(tmp_path, [CORRECT], rows, low_scores={"by": ["meta.user"]})["correctness"]
    assert found["n_low"] == 8
    assert found["patterns"] == {}
    counts_ = low_scores._Counts()
    for text in ("a", "b", "b", "c", "d", "e", "f"):
        counts_.add(text)
    assert counts_.most(3, at_least=2) == [("b", 2)]


def test_a_group_of_that_very_name_is_one(tmp_path: Path) -> None:
    rows = [Row(f"q{n}", "a", {"correctness": 1.0 if n < 4 else 5.0},
                {"meta": {"user": "(other)" if n < 4 else "u"}}) for n in range(8)]  # fmt: skip
    found = low(tmp_path, [CORRECT], rows, low_scores={"by": ["meta.user"]})["correctness"]["patterns"]
    assert [one["value"] for one in found["meta.user"]] == ["(other)"]


def test_the_overall_score_has_the_bands_that_it_is_given_and_no_others(tmp_path: Path) -> None:
    rows = of("faithfulness", [0.1, 0.3, 0.9, ("error", "refused: no")])
    assert set(low(tmp_path, [FAITHFUL], rows)) == {"faithfulness"}
    bands = {"overall_score": [{"name": "poor", "up_to": 0.2}, {"name": "weak", "up_to": 0.5}]}
    found = low(tmp_path, [FAITHFUL], rows, low_scores={"bands": bands})["overall_score"]
    assert (counts(found), found["n_ok"], found["n_low"]) == ({"poor": 1, "weak": 1}, 3, 2)
    assert [one["sample_id"] for one in found["bands"][0]["examples"]] == ["q0"]
    assert "overall_score" not in low(tmp_path, [FAITHFUL], rows, low_scores={"bands": {"overall_score": None}})
