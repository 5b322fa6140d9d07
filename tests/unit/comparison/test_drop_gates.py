"""A gate against a baseline on two small runs whose figures are calculated by hand."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ragpipe.comparison.drop_gates import BaselineNeeds, GatedRun, measure_drops, read_baselines, worst_cases, write_baselines
from ragpipe.core.errors import DataError
from ragpipe.core.score import ScoreSpec
from ragpipe.core.version import FORMAT
from ragpipe.score.aggregate import score_declarations
from ragpipe.score.settings import ScoringSettings
from ragpipe.store.run_folder import RunFolder
from tests.support.compared_runs import scored_run
from tests.support.run_tables import Result, Row, score, write_run

pytestmark = pytest.mark.slow
FAITHFUL, CORRECT = ScoreSpec("faithfulness"), ScoreSpec("correctness", 1, 5)
MISS = ScoreSpec("scope_miss", higher_is_better=False, binary=True)
SPECS = (FAITHFUL, CORRECT, MISS)
BASE = "aaaaaaaaaaaa"
METRICS = {spec.name: {"class": "c", "version": 1, "parameters": {}, "prompts": {}} for spec in SPECS}


def identity(**changes: Any) -> dict[str, Any]:
    return {
        "judge_identity": {"model": "a"}, "embedder": {"kind": "none"}, "parser": 1, "metrics": METRICS,
        "scoring": ScoringSettings().identity(), **changes,
    }  # fmt: skip


def finished(root: Path, rows: Sequence[Row], **changes: Any) -> RunFolder:
    write_run(root, rows)
    metrics = score(root, SPECS)
    folder = RunFolder(root)
    folder.final.create()
    folder.final.metrics.write_text(json.dumps({**metrics, "iterations": [1]}))
    manifest = {"format": FORMAT, "run_id": BASE, "name": "n", "identity": identity(**changes), "prompts": {}}
    manifest["judge_drift"] = {"first": "2026-01-01T10:00", "last": "2026-01-01T11:00"}
    folder.manifest.write_text(json.dumps(manifest))
    return folder


def rows_of(values: Sequence[Result], name: str = "faithfulness", method: str = "m", **labels: Any) -> list[Row]:
    return [Row(f"q{i:02}", method, {name: value}, labels, {"answer": f"Worth {value}."}) for i, value in enumerate(values)]


def drop(tmp_path: Path, base: Sequence[Row], candidate: Sequence[Row], gate: dict[str, Any], **more: Any) -> dict[str, Any]:
    baseline = finished(tmp_path / "base", base, **more.pop("base_identity", {}))
    run = finished(tmp_path / "candidate", candidate)
    gate = {**({} if "failure_mode" in gate else {"score": "faithfulness"}), "against": BASE, **gate}
    settings = ScoringSettings(gates={"g": gate}, **more.pop("settings", {}))
    active = settings.active_gates()["g"]
    write_baselines(run, {BASE: BaselineNeeds({active.measure}, [active.labels()])}, {BASE: baseline}, {})
    gated = GatedRun(
        manifest={"identity": identity(), "prompts": {}, **more.pop("manifest", {})},
        folder=run,
        records=[run.iteration(1).records],
        declared=score_declarations(SPECS, settings),
        settings=settings,
        metrics={spec.name: {spec.name} for spec in SPECS},
        judged=more.pop("judged", {"faithfulness", "correctness"}),
        embedding=set(),
    )
    return measure_drops(gated, read_baselines(run.baseline))["g"]


def test_equal_answers_and_answers_that_state_nothing_decide_no_gate(tmp_path: Path) -> None:
    """Each pair says what the gate finds with other answers, and with the same ones: the judge moved, whichever way. An answer that
    states nothing has 1: the 20 others fell by .5."""
    for name, after, reason in (("fell", 0.5, "judge_moved"), ("rose", 1.0, "judge_moved")):
        same = [Row(f"q{n:02}", "m", {"faithfulness": 0.75}) for n in range(40)]
        moved = [Row(f"q{n:02}", "m", {"faithfulness": after}) for n in range(40)]
        paired = drop(tmp_path / name, same, moved, {})["paired"]
        assert (paired["state"], paired["reason"]) == ("inconclusive", reason)
    speaking, silent = rows_of([0.5] * 20), rows_of([(1.0, "no_factual_claims")] * 40)[20:]
    paired = drop(tmp_path / "silent", rows_of([0.75] * 40), [*speaking, *silent], {})["paired"]
    assert (paired["state"], paired["reason"]) == ("failed", "states_nothing")


@pytest.mark.thorough(tried=3)
@pytest.mark.parametrize(
    ("base", "candidate", "state"),
    [
        ([0.9] * 40, [0.9] * 39 + [0.8], "inconclusive"),  # one of 40 changed: that 5 % dropped to 0 has probability .40
        ([0.9] * 80, [0.9] * 80, "passed"),  # none of 80: .95^80 = .017 is below .025
        ([1.0] * 30, [0.0] * 10 + [1.0] * 20, "failed"),  # fell by .33, no interval of it holds 0
        ([0.5] * 30, [0.5, 0.6] * 15, "passed"),  # rose
        ([0.6] * 30, [0.58] * 30, "inconclusive"),  # all fell by .02 alike: the added questions decide
        ([0.6, 0.5] * 15, [0.58, 0.47] * 15, "passed"),  # fell by .02 or .03 each, within .05
        ([0.6, 0.5] * 15, [0.5, 0.45] * 15, "failed"),  # fell by .10 or .05
    ],
)
def test_the_rule(tmp_path: Path, base: list[Result], candidate: list[Result], state: str) -> None:
    assert drop(tmp_path, rows_of(base), rows_of(candidate), {})["paired"]["state"] == state


TIMEOUT: Result = ("error", "error: timeout")


@pytest.mark.parametrize(
    ("base", "candidate", "gate", "state", "value"),
    [
        ([1.0] * 60, [0.25] * 12 + [1.0] * 48, {}, "failed", 0.2),
        ([0.25] * 12 + [1.0] * 48, [0.9] * 60, {}, "passed", -0.2),
        # .2 +- t(59, .975) sqrt(.2 .8 / 59) = .0958 to .3042
        ([1.0] * 60, [0.25] * 12 + [1.0] * 48, {"max_rise": 0.31}, "passed", 0.2),
        ([1.0] * 60, [0.25] * 12 + [1.0] * 48, {"max_rise": 0.25}, "inconclusive", 0.2),
        ([1.0] * 60, [0.25] * 3 + [1.0] * 57, {}, "inconclusive", 0.05),  # 3 changed
        ([1.0] * 200, [0.9] * 200, {}, "passed", 0.0),  # .98^200 = .018 is below .025
        ([1.0] * 60, [TIMEOUT] * 2 + [0.25] * 12 + [1.0] * 46, {}, "failed", 12 / 58),  # nobody knows of two cases
    ],
)
def test_a_gate_on_the_rise_of_a_failure_mode(tmp_path, base, candidate, gate, state, value) -> None:
    """The mode is `unsupported_claim`: faithfulness below its threshold of .85."""
    measured = drop(tmp_path, rows_of(base), rows_of(candidate), {"failure_mode": "unsupported_claim", **gate})
    assert (measured["paired"]["state"], measured["value"]) == (state, pytest.approx(value))
    assert (measured["n_ok"], measured["n_error"]) == (len(base) - candidate.count(TIMEOUT), candidate.count(TIMEOUT))


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ({"scoring": {**ScoringSettings().identity(), "thresholds": {"faithfulness": 0.5}}}, "scoring.thresholds.faithfulness: 0.5 -> "),
        ({"scoring": {**ScoringSettings().identity(), "failure_modes": {}}}, "scoring.failure_modes.unsupported_claim"),
        ({"judge_identity": {"model": "b"}}, "judge.model"),
    ],
)
def test_a_mode_that_was_found_otherwise_is_no_evidence(tmp_path: Path, before: dict[str, Any], said: str) -> None:
    rows = rows_of([1.0] * 60)
    assert said in drop(tmp_path, rows, rows, {"failure_mode": "unsupported_claim"}, base_identity=before)["absent"]


def test_means_and_pass_rates_of_the_shared_cases(tmp_path: Path) -> None:
    base = [*rows_of([0.4, 0.6, 0.8]), Row("gone", "m", {"faithfulness": 0.0})]
    candidate = [*rows_of([0.5, 0.6, 0.4]), Row("new", "m", {"faithfulness": 1.0})]
    measured = drop(tmp_path, base, candidate, {"accept": ["data"]})
    assert measured["value"] == pytest.approx((0.1 + 0 - 0.4) / 3)
    paired = measured["paired"]
    assert (paired["base"], paired["candidate"]) == (pytest.approx(0.6), pytest.approx(0.5))
    assert [paired[key] for key in ("n", "questions", "only_base", "only_candidate")] == [3, 3, 1, 1]
    assert [paired[key] for key in ("wins", "losses", "ties", "changed")] == [1, 1, 1, 2]
    assert measured["n_ok"] == 3
    # faithfulness passes from 0.8 on: 4 of 4 before, 3 of 4 after.
    threshold = ScoringSettings().thresholds["faithfulness"]
    base, candidate = rows_of([threshold] * 4), rows_of([threshold] * 3 + [threshold - 0.1])
    assert drop(tmp_path, base, candidate, {"of": "pass_rate"})["value"] == -0.25
    rows, settings = rows_of([0.5] * 8), {"thresholds": {"faithfulness": 0.123}}
    assert drop(tmp_path / "a", rows, rows, {"of": "mean"}, settings=settings)["value"] == 0
    measured = drop(tmp_path / "b", rows, rows, {"of": "pass_rate"}, settings=settings)
    assert "scoring.thresholds.faithfulness" in measured["absent"]


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize(
    ("name", "before", "after", "value"),
    [
        ("correctness", 5.0, 4.0, -0.25),  # a grade of 1-5 is a quarter of the scale
        ("scope_miss", 0.0, 1.0, -1.0),  # lower is better: a rise is a drop
        ("scope_miss", 1.0, 0.0, 1.0),
    ],
)
def test_a_drop_is_a_worsening_on_zero_to_one(tmp_path: Path, name: str, before: float, after: float, value: float) -> None:
    measured = drop(tmp_path, rows_of([before] * 8, name), rows_of([after] * 8, name), {"score": name, "of": "mean"}, judged=set())
    assert measured["value"] == pytest.approx(value)


OTHER_PROMPT = {"faithfulness": {**METRICS["faithfulness"], "prompts": {"verify": "f" * 64}}}


def test_a_judge_that_drifted_between_the_runs_is_no_evidence(tmp_path: Path) -> None:
    base, candidate = rows_of([0.5] * 40), rows_of([0.4] * 40)
    noted = {"first": "2026-01-03T10:00", "last": "2026-01-03T11:00"}
    replies, alarm = ({"judge_drift": {**noted, "alarms": alarms}} for alarms in ([], [["2026-01-02T10:00", "2026-01-02T11:00"]]))
    measured = drop(tmp_path / "a", base, candidate, {"max_drop": 0.02}, manifest=alarm)
    assert "accept: [judge]" in measured["absent"]
    for name, gate, manifest in (("b", {"accept": ["judge"]}, alarm), ("c", {}, replies)):
        measured = drop(tmp_path / name, base, candidate, {"max_drop": 0.02, **gate}, manifest=manifest)
        assert measured["value"] == pytest.approx(-0.1)
    unjudged = drop(tmp_path / "d", base, candidate, {"max_drop": 0.02}, manifest=alarm, judged=set())
    assert unjudged["value"] == pytest.approx(-0.1)


@pytest.mark.thorough(tried=2)
@pytest.mark.parametrize(("base_identity", "part", "line"), [
    ({"judge_identity": {"model": "b"}}, "judge", "judge.model: b -> a"),
    ({"parser": 2}, "parser", "parser: 2 -> 1"),
    ({"metrics": {**METRICS, "faithfulness": {**METRICS["faithfulness"], "version": 2}}}, "metrics",
     "faithfulness.version: 2 -> 1"),
    ({"metrics": METRICS | OTHER_PROMPT}, "prompts", "faithfulness.verify: ffffffffffff -> (absent)"),
])  # fmt: skip
def test_runs_that_were_not_judged_alike_are_no_evidence_unless_it_is_accepted(tmp_path, base_identity, part, line) -> None:
    base, candidate = rows_of([0.5] * 8), rows_of([0.6] * 8)
    measured = drop(tmp_path / "a", base, candidate, {}, base_identity=base_identity)
    assert measured["value"] is None
    assert line in measured["absent"]
    assert f"accept: [{part}]" in measured["absent"]
    accepted = drop(tmp_path / "b", base, candidate, {"accept": [part]}, base_identity=base_identity)
    assert accepted["value"] == pytest.approx(0.1)
    assert [difference["part"] for difference in accepted["paired"]["differs"]] == [part]


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize(
    "base_identity",
    [
        {"judge_identity": {"model": "b"}},  # no judge decides this score
        {"metrics": {**METRICS, "correctness": {**METRICS["correctness"], "version": 2}}},  # another score's metric
    ],
)
def test_what_does_not_touch_the_score_is_no_difference(tmp_path: Path, base_identity: dict[str, Any]) -> None:
    rows = rows_of([0.5] * 8)
    assert drop(tmp_path, rows, rows, {}, judged=set(), base_identity=base_identity)["value"] == 0


def test_other_references_are_other_data(tmp_path: Path) -> None:
    base, candidate = rows_of([0.5] * 8), rows_of([0.6] * 8)
    candidate[3].labels = {"references": ["Another answer."]}
    measured = drop(tmp_path, base, candidate, {})
    assert "1 of 8 shared cases, first q03" in measured["absent"]
    assert "accept: [data]" in measured["absent"]


def test_a_run_that_leaves_out_what_failed_is_no_evidence_unless_it_is_accepted(tmp_path: Path) -> None:
    """Of 80 cases 35 would fall by .5: without them nothing changed, and the rest alone would pass."""
    base = rows_of([0.9] * 80)
    measured = drop(tmp_path / "a", base, base[35:], {})
    assert measured["value"] is None
    assert "cases: 35 of 80 in the baseline only, first q00 -> left out" in measured["absent"]
    assert "accept: [data] allows it" in measured["absent"]
    assert (measured["paired"]["only_base"], measured["paired"]["only_candidate"]) == (35, 0)
    accepted = drop(tmp_path / "b", base, base[35:], {"accept": ["data"]})
    assert (accepted["value"], accepted["n_ok"]) == (0, 45)
    assert [difference["part"] for difference in accepted["paired"]["differs"]] == ["data"]


@pytest.mark.thorough(tried=2)
@pytest.mark.parametrize(
    ("where", "only_base"),
    [
        ({"category": "a"}, 2),
        ({"category": "b"}, 0),  # the cases that are missing are of the other category
        ({"method": "new"}, 2),  # one method each: paired whatever their names are
        ({"method": "new", "category": "a"}, 2),
        ({"method": "old"}, None),  # no case of the run: the gate is about none
    ],
)
def test_only_missing_cases_that_where_chooses_count(tmp_path: Path, where: dict[str, str], only_base: int | None) -> None:
    base = [
        *rows_of([0.5] * 6, method="old", category="a"),
        *[Row(f"x{i}", "old", {"faithfulness": 0.9}, {"category": "b"}) for i in range(4)],
    ]
    candidate = [Row(row.sample, "new", row.results, row.labels) for row in base[2:]]
    measured = drop(tmp_path, base, candidate, {"where": where})
    assert measured["paired"]["only_base"] == (only_base or 0)
    assert (measured["value"] is None) == (only_base != 0)


def test_what_a_baseline_does_not_tell(tmp_path: Path) -> None:
    failed: list[Result] = [("error", "refused: no")] * 2
    measured = drop(tmp_path, rows_of([*failed, *[0.5] * 8]), rows_of([0.6] * 10), {})
    assert measured["absent"] == f"in run {BASE} 2 of the shared cases have an error"
    base, candidate = ([Row(name, "m", {"faithfulness": 1.0})] for name in "ab")
    measured = drop(tmp_path, base, candidate, {"accept": ["data"]})
    assert measured["absent"] == f"no chosen case has a value here and in run {BASE}"
    run = finished(tmp_path / "run", rows_of([0.5]))
    with pytest.raises(DataError) as error:
        write_baselines(run, {BASE: BaselineNeeds({"mrr"})}, {BASE: run}, {})
    assert error.value.problems[0].found == "no score mrr"


def test_a_copy_has_the_shared_cases_and_the_scores_that_are_needed_alone(tmp_path: Path) -> None:
    base = finished(tmp_path / "base", [Row(f"q{i}", "m", {"faithfulness": 0.5, "correctness": 3.0}) for i in range(5)])
    run = finished(tmp_path / "run", [Row(f"q{i}", "m", {"faithfulness": 0.5}) for i in (1, 3, 9)])
    write_baselines(run, {BASE: BaselineNeeds({"faithfulness"}, [{}])}, {BASE: base}, {})
    kept = read_baselines(run.baseline)[BASE]
    rows = kept.rows.select(["sample_id", "score", "value"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [("q1", "faithfulness", 0.5), ("q3", "faithfulness", 0.5)]
    assert kept.manifest["identity"]["judge_identity"] == {"model": "a"}
    assert kept.left_out({}) == (5, 3, "q0")
    assert kept.holds(BaselineNeeds({"faithfulness"}, [{}]))
    assert not kept.holds(BaselineNeeds({"correctness"}, [{}])), "another score"
    assert not kept.holds(BaselineNeeds({"faithfulness"}, [{"category": ["a"]}])), "other cases"


CASE_SPECS = (ScoreSpec(name="grade", low=1, high=5), ScoreSpec(name="made_up", low=0, high=1, higher_is_better=False))
ROWS = [
    Row("a", "m", {"grade": 5.0, "made_up": 0.0}, labels={"category": "x"}),
    Row("b", "m", {"grade": 2.0, "made_up": 0.6}, labels={"category": "x"}),
    Row("c", "m", {"grade": 3.0, "made_up": 0.2}, labels={"category": "y"}),
    Row("d", "m", {"grade": ("error", "error: timeout"), "made_up": 1.0}, labels={"category": "y"}),
]


@pytest.mark.parametrize(("gate", "worst"), [
    # grades 5, 2, 3 are 1, .25, .5 of the scale
    ({"score": "grade", "of": "mean", "min": 0.9, "coverage_floor": 0}, [("b", 0.25), ("c", 0.5), ("a", 1.0)]),
    ({"score": "grade", "of": "pass_rate", "min": 0.9, "coverage_floor": 0}, [("b", 0.0), ("a", 1.0), ("c", 1.0)]),
    ({"score": "grade", "min": 0.9, "coverage_floor": 0, "where": {"category": "y"}}, [("c", 0.5)]),
    # 0.6 made up is .4 of the scale whose best end is 0
    ({"score": "made_up", "min": 0.9}, [("d", 0.0), ("b", 0.4), ("c", 0.8), ("a", 1.0)]),
    ({"failure_mode": "low", "max": 0.1, "coverage_floor": 0}, [("b", None), ("c", None)]),
    ({"score": "grade", "min": 0.9}, [("d", None)]),  # 3 of 4 came out: the one that did not
    ({"score": "faithfulness", "min": 0.9}, []),
])  # fmt: skip
def test_the_worst_come_first(tmp_path: Path, gate: Mapping[str, Any], worst: list[tuple[str, float | None]]) -> None:
    settings = ScoringSettings.model_validate(
        {"gates": {"g": gate}, "thresholds": {"grade": 2.5}, "weights": {"grade": 1.0},
         "failure_modes": {"low": [{"score": "grade", "below": 4}]}, "fill_defaults": False}
    )  # fmt: skip
    run = scored_run(tmp_path, ROWS, specs=CASE_SPECS, scoring=settings)
    (decided,) = json.loads(run.gates.read_text())["gates"]
    found = worst_cases(run, decided, 10)
    assert [(case.sample_id, case.value) for case in found] == [(name, value and pytest.approx(value)) for name, value in worst]
    assert worst_cases(run, decided, 1) == found[:1]
