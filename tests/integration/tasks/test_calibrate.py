"""`task=calibrate`: a finished run compared with recorded scores of people, and against the labels of a draw."""

import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from ragpipe.calibrating.score_calibration import RatedCases, agreement_statistics, confusion_of
from ragpipe.cli import main
from ragpipe.labelling.label_files import LABEL_COLUMNS, LABELS, Draw, write_draw, write_rows
from ragpipe.reports.calibration_report import calibration_markdown
from ragpipe.schema.score import ScoreSpec
from ragpipe.schema.table_schemas import table_of
from ragpipe.scoring.calibration_file import (
    Calibration,
    CalibrationSlice,
    CalibrationStatistic,
    asked_shapes,
    binding_differences,
    binding_of,
    read_calibration,
)
from tests.support.finished_runs import FinishedRuns

pytestmark = pytest.mark.slow  # whole runs, several per test

CLOSE = 6e-7
JUDGES = {"rl_f": "rl_f", "rb_llm": "rb_llm", "rb_agg": "rb_agg", "rouge_l": "RougeL", "bert_k_precision": "Bert-KPrec"}
"""Our names of the recorded judges, and those of the reference figures."""
AT_RANDOM = {"part": "random", "stratum": "all", "probability": 0.6}


@pytest.fixture(scope="module")
def mtrag(tmp_path_factory: pytest.TempPathFactory, real_data: Path) -> Path:
    folder = tmp_path_factory.mktemp("mtrag")
    path = real_data / "mtrag_human/mtrag_human_evaluations.json"
    words = ["+experiment=mtrag_human", f"dataset.path={path}", f"output_dir={folder}", "report.formats=[]"]
    assert main(words) == 0
    return (folder / "mtrag_human/latest").resolve()


@pytest.fixture(scope="module")
def demo(finished_runs: FinishedRuns) -> Path:
    return finished_runs.of("+experiment=quickstart", "report.formats=[]").latest()


@pytest.fixture
def run(demo: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(demo, tmp_path / demo.name))


def calibration_of(run: Path) -> Calibration:
    return read_calibration(run / "calibration/calibration.json")


def cases_of(run: Path) -> list[dict[str, Any]]:
    """The cases with a value of faithfulness, with the digest of what a label of them is about."""
    from ragpipe.calibrating.people_labels import labelled_answers
    from ragpipe.store.run.run_folder import RunFolder

    rows = pq.read_table(run / "iteration-1/records.parquet").to_pylist()
    keys = [(row["sample_id"], row["method"], row["repeat"]) for row in rows]
    digests = labelled_answers(RunFolder(run), keys)
    return [
        {"sample_id": key[0], "method": key[1], "repeat": key[2], "answer_sha256": digests[key], "value": row["faithfulness"]}
        for key, row in zip(keys, rows, strict=True)
        if row["faithfulness"] is not None
    ]  # fmt: skip


def label(run: Path, name: str, rows: Sequence[dict[str, Any]], *, score: str = "faithfulness") -> None:
    """A draw of these rows with their labels, as an import leaves it."""
    folder = run / "labels" / name
    folder.mkdir(parents=True)
    write_draw(
        folder,
        Draw(
            draw_id=name, run_id=run.name, metric=score, score=score, question="Is it faithful?", grades=[], low=0.0,
            high=1.0, seed=0, cases=100, strata=[], settings={},
        ),
    )  # fmt: skip
    blank = {"annotator": "a", "grade": None, "note": None, "at": None, **AT_RANDOM}
    full = [{name: {**blank, **row}[name] for name in LABEL_COLUMNS.names} for row in rows]
    write_rows(folder / LABELS, table_of(full, LABEL_COLUMNS))


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("names", [["rl_f"], pytest.param(list(JUDGES), marks=pytest.mark.slow)])
def test_recorded_judges_have_the_figures_of_trusted_libraries(names: list[str], mtrag: Path, real_data: Path) -> None:
    expected = json.loads((real_data / "EXPECTED.json").read_text())["mtrag"]
    judges = {name: JUDGES[name] for name in names}
    recorded = "calibrate.recorded={" + ", ".join(f"{judge}: human_faithfulness" for judge in judges) + "}"
    limits = ["scoring.thresholds.human_faithfulness=3", "scoring.thresholds.rl_f=0.75"]
    assert main(["task=calibrate", f"run={mtrag}", recorded, *limits]) == 0
    scores = calibration_of(mtrag).scores
    assert list(scores) == list(judges)
    for name, judge in judges.items():
        figures, statistics = expected[f"all: human faithfulness vs {judge}"], scores[name].statistics
        for ours, theirs in {"pearson": "pearson", "spearman": "spearman", "kendall": "kendall_tau_b"}.items():
            assert statistics[ours].value == pytest.approx(figures[theirs], abs=CLOSE), (name, ours)
            assert (statistics[ours].n, statistics[ours].clusters) == (234, 78)
    _of_verdicts(scores["rl_f"], expected)


def _of_verdicts(score: Any, expected: dict[str, Any]) -> None:
    figures = expected["faithful (human mean >= 3) vs rl_f >= 0.75"]
    values = {name: statistic.value for name, statistic in score.statistics.items()}
    names = {"kappa": "cohen_kappa", "auroc": "auroc", "agreement": "accuracy", "sensitivity": "recall",
             "balanced_accuracy": "balanced_accuracy"}  # fmt: skip
    for ours, theirs in names.items():
        assert values[ours] == pytest.approx(figures[theirs], abs=CLOSE), ours
    assert score.confusion.counts == [[figures["tn"], figures["fp"]], [figures["fn"], figures["tp"]]]
    # the judge's own mean, and people's: 1..4 brought to 0..1
    of_people = (expected["all: human faithfulness vs rl_f"]["human_mean"] - 1) / 3
    judged = expected["all: human faithfulness vs rl_f"]["judge_mean"]
    assert values["difference"] == pytest.approx(judged - of_people, abs=CLOSE)
    assert (score.state, score.reference, score.ceiling.cases) == ("failed", "mean", 234)
    alpha = expected["faithfulness"]["alpha"]["interval"]
    assert score.ceiling.statistics["alpha_interval"].value == pytest.approx(alpha, abs=CLOSE)
    assert score.ceiling.statistics["kappa"].n == expected["faithfulness"]["pairs"]
    assert {label.annotators for label in score.labels} == {2, 3}


def test_a_calibration_is_sealed_and_the_same_every_time(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    label(run, "d1", [{**case, "label": 1.0} for case in cases_of(run)[:12]])
    assert main(["task=calibrate", f"run={run}"]) == 0
    before = {path.name: path.read_bytes() for path in (run / "calibration").iterdir()}
    assert main(["task=calibrate", f"run={run}"]) == 0
    assert {path.name: path.read_bytes() for path in (run / "calibration").iterdir()} == before
    capsys.readouterr()
    assert main(["task=verify", f"run={run}"]) == 0
    assert "sealed   calibration/calibration.json" in capsys.readouterr().out


@pytest.mark.thorough
def test_the_embedded_judge_against_marked_hallucinations(tmp_path: Path, real_data: Path) -> None:
    from sklearn.metrics import cohen_kappa_score, roc_auc_score

    path = real_data / "ragtruth_qa/ragtruth_qa.jsonl"
    words = ["+experiment=ragtruth", f"dataset.path={path}", f"output_dir={tmp_path}", "report.formats=[]"]
    assert main([*words, "metrics=[faithfulness,recorded]"]) == 0
    run = (tmp_path / "ragtruth/latest").resolve()
    assert main(["task=calibrate", f"run={run}", "calibrate.recorded={faithfulness: human_hallucinated}"]) == 0
    score = calibration_of(run).scores["faithfulness"]
    rows = pq.read_table(run / "iteration-1/records.parquet").to_pylist()
    supported = [row["human_hallucinated"] == 0 for row in rows]
    values = [row["faithfulness"] for row in rows]
    assert score.statistics["auroc"].value == pytest.approx(roc_auc_score(supported, values))
    verdicts = [value >= 0.85 for value in values]
    assert score.statistics["kappa"].value == pytest.approx(cohen_kappa_score(supported, verdicts))
    assert score.prevalence is not None
    assert score.prevalence.value == pytest.approx(1 - 129 / 412)  # EXPECTED.json: hallucinated_responses
    assert score.length_baseline is not None
    assert score.length_baseline.shorter_passes
    assert score.state == "failed"


@pytest.mark.parametrize(("labelled", "verdict", "value"), [(60, "passed", 0.75), (59, "uncalibrated", 1.0)])
def test_labels_that_the_data_give_of_every_case_decide_a_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, labelled: int, verdict: str, value: float
) -> None:
    """The judge finds every answer supported, people 45 of 60. Where one case has no label, nobody knows how the others were chosen."""
    monkeypatch.chdir(tmp_path)
    cases = []
    for n in range(60):
        text = f"Bridge {n} was opened in {1900 + n}."
        recorded = {"recorded": {"people": int(n % 4 != 0)}} if n < labelled else {}
        cases.append({"id": f"q{n}", "question": f"When was bridge {n} opened?", "answer": text, "contexts": [text], **recorded})
    Path("cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
    words = ["dataset=jsonl", "dataset.path=cases.jsonl", "name=people", "metrics=[faithfulness,recorded]", "report.formats=[]"]
    words += ["metrics.recorded.take={people: {binary: true}}", "+scoring.gates.faithful={score: faithfulness, of: mean, min: 0.4}"]
    main(words)
    run = Path("outputs/people/latest").resolve()
    assert main(["task=calibrate", f"run={run}", "calibrate.recorded={faithfulness: people}"]) == 0
    main(["task=rescore", f"run={run}", f"scoring.calibration={run / 'calibration/calibration.json'}"])
    newest = max(Path("outputs/people").glob("*/gates.json"), key=lambda path: path.stat().st_mtime_ns)
    (gate,) = json.loads(newest.read_text())["gates"]
    assert (gate["verdict"], gate["value"]) == (verdict, pytest.approx(value))


def test_verdicts_on_parts_of_an_answer_are_one_label(tmp_path: Path, real_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Summary of a Haystack: an object of verdicts by insight. Six judges, by summary here and by insight in EXPECTED.json."""
    path = real_data / "summhay_eval/eval_benchmark_data.json"
    words = ["+experiment=summhay_eval", f"dataset.path={path}", f"output_dir={tmp_path}", "report.formats=[]"]
    assert main(words) == 0
    run = (tmp_path / "summhay_eval/latest").resolve()
    words = ["task=calibrate", f"run={run}", "calibrate.recorded={gpt-4o: human_coverage}"]
    words += ["calibrate.target.statistic=quadratic_kappa"]
    assert main(words) == 2
    assert "none of which judged answers to two questions" in " ".join(capsys.readouterr().err.split())
    assert main([*words, "calibrate.verdicts=parts"]) == 0
    score = calibration_of(run).scores["gpt-4o"]
    records = pq.read_table(run / "iteration-1/records.parquet").to_pydict()
    people, judge = (np.array(records[name]) for name in ("human_coverage", "gpt-4o"))
    assert score.statistics["pearson"].n == 119
    assert score.statistics["pearson"].value == pytest.approx(np.corrcoef(people, judge)[0, 1])
    assert score.statistics["mae"].value == pytest.approx(np.mean(np.abs(people - judge)))
    assert (score.ceiling, score.reference) == (None, "single")


def test_ordinal_labels_have_the_figures_of_trusted_libraries(real_data: Path) -> None:
    """The 887 insights one by one: none, half and full coverage."""
    expected = json.loads((real_data / "EXPECTED.json").read_text())["summhay"]
    figures = expected["predictions_prompted_gpt-4o"]
    levels = {"not_covered": 0.0, "partially_covered": 0.5, "fully_covered": 1.0}
    levels |= {"NO_COVERAGE": 0.0, "PARTIAL_COVERAGE": 0.5, "FULL_COVERAGE": 1.0}
    labels, scores, questions = [], [], []
    for place, summary in enumerate(json.loads((real_data / "summhay_eval/eval_benchmark_data.json").read_text())):
        judged = {one["insight_id"]: one["coverage"] for one in summary["predictions_prompted_gpt-4o"]}
        for one in summary["annotation"]:
            labels.append(levels[one["coverage"]])
            scores.append(levels[judged[one["insight_id"]]])
            questions.append(place)
    spec = ScoreSpec("coverage", grades=(("full", 1.0), ("partial", 0.5), ("none", 0.0)))
    none = np.full(len(labels), np.nan)
    rated = RatedCases(np.array(labels), none, np.array(scores), none, np.array(questions))
    values = {name: statistic.value for name, statistic in agreement_statistics(rated, spec, 0.95).items()}
    names = {"pearson": "pearson", "spearman": "spearman", "kendall": "kendall_tau_b", "mae": "mae",
             "difference": "bias_judge_minus_human"}  # fmt: skip
    for ours, theirs in names.items():
        assert values[ours] == pytest.approx(figures[theirs], abs=CLOSE), ours
    assert values["quadratic_kappa"] == pytest.approx(figures["ordinal"]["kappa_quadratic"], abs=CLOSE)
    confusion = confusion_of(rated, spec)
    assert confusion is not None
    assert (confusion.classes, confusion.counts) == (["none", "partial", "full"], figures["ordinal"]["confusion_human_rows"])


def test_the_labels_of_a_draw(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases = cases_of(run)
    passed = [{**case, "label": 1.0 if case["value"] >= 0.85 else 0.0} for case in cases[:40]]
    wrong = [{**passed[0], "annotator": "b", "label": 1 - passed[0]["label"]}]  # a tie: no verdict
    unsure = [{**cases[40], "label": None}]
    chosen = [{**cases[41], "label": 0.0, "part": "stratified", "probability": 1.0}]
    label(run, "d1", [*passed, *wrong, *unsure, *chosen])
    assert main(["task=calibrate", f"run={run}"]) == 0
    calibration = calibration_of(run)
    score = calibration.scores["faithfulness"]
    assert list(calibration.scores) == ["faithfulness"]
    assert (score.draw_id, score.recorded, score.reference) == ("d1", None, "majority")
    assert (score.statistics["kappa"].n, score.statistics["kappa"].value) == (39, 1.0)
    assert score.statistics["pearson"].n == 40
    assert len(score.labels) == 41
    assert [entry.part for entry in score.labels].count("stratified") == 1
    assert {entry.probability for entry in score.labels if entry.part == "random"} == {0.6}
    assert score.bound_to.threshold == 0.85
    out = capsys.readouterr().out
    assert "faithfulness: not enough labels. kappa 1.00 [0." in out
    assert main(["task=verify", f"run={run}"]) == 0


def test_a_calibration_holds_for_its_run_and_for_no_other_prompt(run: Path) -> None:
    label(run, "d1", [{**case, "label": 1.0} for case in cases_of(run)[:30]])
    assert main(["task=calibrate", f"run={run}"]) == 0
    calibration = calibration_of(run)
    bound = calibration.scores["faithfulness"].bound_to
    identity = json.loads((run / "manifest.json").read_text())["identity"]
    shapes = asked_shapes(run / "iteration-1/judge_inputs.parquet")["faithfulness"]
    assert set(shapes) == {"extract", "verify"}
    assert binding_differences(bound, binding_of(identity, "faithfulness", shapes, 0.85)) == []
    identity["judge_identity"]["threshold"] = 0.4
    other = binding_of(identity, "faithfulness", shapes, 0.85)
    assert binding_differences(bound, other) == ["judge.threshold: 0.33 -> 0.4"]


def test_the_table_shows_the_statistic_that_was_asked_for(run: Path, capsys, monkeypatch) -> None:
    """Grades without a threshold are values and no verdicts: what to do is said, and nothing but the values is shown."""
    monkeypatch.setenv("COLUMNS", "250")
    label(run, "d1", [{**case, "label": place % 3 / 2} for place, case in enumerate(cases_of(run)[:30])])
    words = ["task=calibrate", f"run={run}", "scoring.thresholds.faithfulness=null"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "faithfulness: inconclusive. 30 labels, but no threshold from which a case passes" in said
    assert "set scoring.thresholds.faithfulness=..., or ask for calibrate.target.statistic=quadratic_kappa" in said
    assert main([*words, "calibrate.target.statistic=quadratic_kappa"]) == 0
    said = capsys.readouterr().out
    (heads,) = [line.split("  ") for line in said.splitlines() if "Spearman" in line]
    assert [head.strip() for head in heads if head.strip()] == [
        "score", "labels", "quadratic kappa", "Spearman", "absolute difference", "judge - people (mean)",
    ]  # fmt: skip
    (row,) = [line for line in said.splitlines() if line.strip().startswith("faithfulness  ")]
    statistics = calibration_of(run).scores["faithfulness"].statistics
    assert f" {statistics['quadratic_kappa'].value:.2f} [" in row
    assert f" {statistics['difference'].value:+.2f} [" in row
    assert " - " not in row


@pytest.mark.thorough
def test_a_verdict_that_is_replaced_is_named(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases = cases_of(run)
    label(run, "d1", [{**case, "label": float(case["value"] < 0.85)} for case in cases[:40]])  # the contrary
    label(run, "d2", [{**case, "label": 1.0} for case in cases[:20]])
    words = ["task=calibrate", f"run={run}"]
    assert main([*words, "calibrate.draw=d1"]) == 0
    assert main([*words, "calibrate.draw=d1"]) == 0
    assert "replaces" not in capsys.readouterr().out
    assert main([*words, "calibrate.draw=d2"]) == 0
    assert "replaces: faithfulness failed on 40 labels of draw d1\n" in capsys.readouterr().out
    (run / "calibration/calibration.json").write_text("{}")
    assert main([*words, "calibrate.draw=d2"]) == 0
    assert "which is no calibration that can be read" in capsys.readouterr().out


def test_the_page_says_in_words_what_has_no_figure(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    label(run, "d1", [{**case, "label": 1.0} for case in cases_of(run)[:30]])
    assert main(["task=calibrate", f"run={run}"]) == 0
    assert "passed by people" in capsys.readouterr().out
    page = (run / "calibration/calibration.md").read_text()
    assert "; one label per case." in page
    assert "all are of one class" in page
    assert not re.search(r"\b(one|no|rests_on|few)_\w+", re.sub(r"`[^`]*`", "", page))

    def measured(n: int, clusters: int, reason: str | None = None) -> CalibrationStatistic:
        return CalibrationStatistic(n=n, clusters=clusters, value=0.5, reason=reason)

    slices = [
        CalibrationSlice(
            field="category",
            value=name,
            statistics={"kappa": measured(n, clusters, "rests_on_one_question"), "agreement": measured(n, clusters)},
            difference=measured(n, clusters),
        )
        for name, n, clusters in (("few", 12, 4), ("enough", 9, 5))
    ]
    calibration = calibration_of(run)
    score = calibration.scores["faithfulness"].model_copy(update={"slices": slices})
    page = calibration_markdown(calibration.model_copy(update={"scores": {"faithfulness": score}}))
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if "category=" in line]
    few = "n = 4: too few"
    assert rows == [
        ["`category=few`", "12", "4", few, few, few],
        ["`category=enough`", "9", "5", "0.50 (rests on one question)", "0.50", "+0.50"],
    ]


def no_labels(run: Path) -> None:
    pass


def two_draws(run: Path) -> None:
    for name in ("d1", "d2"):
        label(run, name, [{**cases_of(run)[0], "label": 1.0}])


def of_another_answer(run: Path) -> None:
    label(run, "d1", [{**cases_of(run)[0], "label": 1.0, "answer_sha256": "0" * 64}])


def of_no_case(run: Path) -> None:
    label(run, "d1", [{**cases_of(run)[0], "label": 1.0, "sample_id": "nobody"}])


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize(("prepare", "words", "message"), [
    (no_labels, [], "no labels of any score"), (two_draws, [], "2 draws of faithfulness with labels"),
    (two_draws, ["calibrate.draw=d3"], "no labels of any score"), (of_another_answer, [], "the label of another answer"),
    (of_no_case, [], "no such case in the run"), (no_labels, ["calibrate.scores=[groundedness]"], "no labels of groundedness"),
    (no_labels, ["calibrate.scores=[grounded]"], "grounded"), (no_labels, ["calibrate.recorded={faithfulness: people}"], "people"),
    (no_labels, ["calibrate.target.above=1.5"], "calibrate.target.above"),
    (no_labels, ["judge.threshold=0.5"], "task=calibrate cannot change everything of a run"),
])  # fmt: skip
def test_what_cannot_be_calibrated_is_refused(run: Path, prepare: Callable[[Path], None], words: list[str], message: str, capsys) -> None:
    prepare(run)
    assert main(["task=calibrate", f"run={run}", *words]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (run / "calibration").exists()


def test_one_of_several_draws_is_named(run: Path) -> None:
    two_draws(run)
    assert main(["task=calibrate", f"run={run}", "calibrate.draw=d2"]) == 0
    assert calibration_of(run).scores["faithfulness"].draw_id == "d2"
