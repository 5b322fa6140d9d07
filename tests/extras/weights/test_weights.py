"""`task=weights`: the run's own overall score under its own weights, other sets, ranks, ratings, and what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from ragpipe.cli.command_line import main
from ragpipe.extras.weights.weights import IN_USE
from tests.support.place import output_of

pytestmark = pytest.mark.slow  # whole runs, several per test
METHODS = ("careful", "quick", "short")


def records(count: int) -> list[dict[str, Any]]:
    """Three methods of each question with recorded scores; people rate by `use` alone, the run weighs `form` three times."""
    rng = np.random.default_rng(4)
    rows = []
    for number in range(count):
        for method, use in zip(METHODS, (0.8, 0.5, 0.3), strict=True):
            scores = {"use": use + 0.2 * rng.random(), "form": rng.random(), "depth": rng.random()}
            rows.append({
                "id": f"q{number}", "question": f"what is {number}", "method": method, "answer": "an answer",
                "recorded": {**scores, "person": 1 + 4 * scores["use"] + 0.2 * rng.random()},
            })  # fmt: skip
    return rows


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("weights")
    rows = records(40)
    rows[5]["recorded"]["depth"] = None  # does not apply to this case
    (folder / "cases.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    take = "{use: {diagnostic: false}, form: {diagnostic: false}, depth: {diagnostic: false}, person: {low: 1, high: 6}}"
    words = ["dataset=jsonl", f"dataset.path={folder}/cases.jsonl", "metrics=[recorded]", f"metrics.recorded.take={take}",
             "+scoring.weights.use=1", "+scoring.weights.form=3", "+scoring.weights.depth=1",
             f"output_dir={folder}", "name=x", "report.formats=[markdown]"]  # fmt: skip
    assert main(words) == 0
    return (folder / "x/latest").resolve()


def weighed(run: Path, *words: str) -> dict[str, Any]:
    assert main(["task=weights", f"run={run}", *words]) == 0
    return json.loads((run / "weights.json").read_text(encoding="utf-8"))


def test_the_weights_in_use_give_the_runs_own_overall_scores(run: Path) -> None:
    document = weighed(run)
    shared = json.loads((run / "final/metrics.json").read_text())["shared"]["scores"]["overall_score"]["methods"]
    in_use = document["sets"][IN_USE]
    assert in_use["weights"] == pytest.approx({"use": 0.2, "form": 0.6, "depth": 0.2})
    assert in_use["questions"] == 40
    for method in METHODS:
        figure = in_use["methods"][method]
        assert figure["mean"] == pytest.approx(shared[method]["mean"])
        for bound in ("low", "high"):
            assert figure["interval"][bound] == pytest.approx(shared[method]["interval"][bound])


@pytest.mark.slow
def test_each_set_has_its_pass_rate_with_critical_gates_and_its_correlation_with_ratings(run: Path, tmp_path: Path, capsys) -> None:
    """The run's own column `overall_passed` says how many pass; numpy says how scores and ratings correlate."""
    gate = ["scoring.thresholds.overall_score=0.5", "+scoring.thresholds.use=0.5", "+scoring.gates.use={score: use, min: 0.1}"]
    assert main(["task=rescore", f"run={run}", f"output_dir={tmp_path}", *gate]) == 0
    (gated,) = (path.parent for path in tmp_path.glob("x/*/final"))
    capsys.readouterr()
    document = weighed(gated, "weights.ratings=person", "+weights.sets.use_alone={use: 1}")
    table = pq.read_table(gated / "iteration-1/records.parquet").to_pandas()
    sets = document["sets"]
    assert sets[IN_USE]["pass_rate"] == pytest.approx(table["overall_passed"].astype(float).mean())
    assert sets["use_alone"]["pass_rate"] == pytest.approx((table["use"] >= 0.5).mean())
    for name, column in ((IN_USE, "overall_score"), ("use_alone", "use")):
        assert sets[name]["correlation"] == pytest.approx(np.corrcoef(table[column], table["person"])[0, 1])
    assert "correlation with ratings" in capsys.readouterr().out
    assert weighed(gated)["sets"][IN_USE]["correlation"] is None


@pytest.mark.slow
def test_sets_are_weighed_as_a_rescore_would(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Only `use` has a weight: the means of that score. With all three, those of a rescore with these weights."""
    document = weighed(run, "+weights.sets.use_alone={use: 2}", "+weights.sets.even={use: 1, form: 1, depth: 1}")
    printed = capsys.readouterr().out
    table = pq.read_table(run / "iteration-1/records.parquet")
    for method in METHODS:
        is_method = np.array(table["method"].to_pylist()) == method
        mean = float(np.mean(np.array(table["use"].to_pylist(), dtype=float)[is_method]))
        assert document["sets"]["use_alone"]["methods"][method]["mean"] == pytest.approx(mean)
    assert [document["sets"]["use_alone"]["methods"][method]["rank"] for method in METHODS] == [1, 2, 3]
    assert "use_alone" in printed
    assert main(["task=rescore", f"run={run}", f"output_dir={tmp_path}", "scoring.weights.form=1"]) == 0
    (figures,) = tmp_path.glob("x/*/final/metrics.json")
    methods = json.loads(figures.read_text(encoding="utf-8"))["shared"]["scores"]["overall_score"]["methods"]
    assert {m: document["sets"]["even"]["methods"][m]["mean"] for m in METHODS} == pytest.approx({m: methods[m]["mean"] for m in METHODS})


def test_ranks_over_all_weights_are_written_sealed_and_repeatable(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = weighed(run)
    before = (run / "weights.json").stat().st_mtime_ns
    assert (weighed(run), (run / "weights.json").stat().st_mtime_ns) == (first, before)
    methods = first["stability"]["methods"]
    assert sum(figure["first"] for figure in methods.values()) == pytest.approx(1)
    # the methods differ in `use` alone, and by more than chance in the two other scores
    assert methods["careful"]["first"] > 0.7 > 0.3 > methods["short"]["first"]
    assert methods["careful"]["mean_rank"] == pytest.approx(
        sum(place * share for place, share in enumerate(methods["careful"]["ranks"], 1))
    )
    assert "weights.json" in output_of(["task=verify", f"run={run}"], 0, capsys).out
    assert "| `careful` |" in (run / "weights.md").read_text(encoding="utf-8")


def test_weights_are_fitted_to_a_recorded_score(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fit = weighed(run, "weights.ratings=person")["tuning"]
    assert (fit["n_rated"], fit["n"], fit["questions"]) == (120, 119, 40)
    assert fit["absent"] == {"depth": 1}
    assert fit["advised"]
    assert fit["fitted"]["use"] > 0.9
    assert sum(fit["fitted"].values()) == pytest.approx(1)
    assert fit["gain"] == pytest.approx(fit["fitted_correlation"] - fit["correlation"])
    printed = capsys.readouterr().out
    assert "advice: take the fitted weights, scoring.weights={use:" in printed
    assert "without depth (1): left out" in printed


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize(("words", "messages"), [
    (["+weights.sets.a={fom: 1}"], ["weights.sets.a.fom", "did you mean form?"]),
    (["+weights.sets.a={person: 1}"], ["a score of the run that may have a weight: use, form, depth"]),
    (["+weights.sets.a={form: 0}"], ["weight over 0 in 'a'"]),
    (["+weights.sets.in_use={form: 1}"], ["a name of its own"]),
    (["weights.ratings=persn"], ["did you mean person?"]),
    (["weights.ratings=form"], ["a score that has no weight in the overall score"]),
    (["weights.ratings=nothing.csv"], ["'nothing.csv'", "a score of the run with a scale: use, form, depth, person"]),
])  # fmt: skip
def test_what_does_not_fit_is_refused(run: Path, words: list[str], messages: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    error = output_of(["task=weights", f"run={run}", *words], 2, capsys).err
    for message in messages:
        assert message in error, error
