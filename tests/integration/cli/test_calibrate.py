"""`task=label` and `task=calibrate`: draws that grow, blind files, labels of people, and a judge held against them."""

import base64
import csv
import gzip
import json
import re
import shutil
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from ragpipe.calibration.label_files import LABEL_COLUMNS, Draw, read_draw, read_drawn, read_labels, write_draw, write_rows
from ragpipe.cli.command_line import main
from ragpipe.core.sample import answer_digest
from ragpipe.runs.measured_cases import CaseReader
from ragpipe.score.calibration_file import Calibration, read_calibration
from ragpipe.store.table_rows import table_of
from tests.support.finished_runs import FinishedRuns
from tests.support.place import output_of
from tests.support.rejudged import content

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
def demo_run(demo: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(demo, tmp_path / demo.name))


def calibration_of(run: Path) -> Calibration:
    return read_calibration(run / "calibration/calibration.json")


def cases_of(run: Path) -> list[dict[str, Any]]:
    """The cases with a value of faithfulness, with the digest of what a label of them is about."""
    from ragpipe.calibration.label_files import labelled_answers
    from ragpipe.store.run_folder import RunFolder

    rows = pq.read_table(run / "iteration-1/records.parquet").to_pylist()
    keys = [(row["sample_id"], row["method"], row["repeat"]) for row in rows]
    digests = labelled_answers(RunFolder(run), keys)
    return [
        {"sample_id": key[0], "method": key[1], "repeat": key[2], "answer_sha256": digests[key], "value": row["faithfulness"]}
        for key, row in zip(keys, rows, strict=True)
        if row["faithfulness"] is not None
    ]  # fmt: skip


def write_labels(run: Path, name: str, rows: Sequence[dict[str, Any]], *, score: str = "faithfulness", **settings: Any) -> None:
    folder = run / "labels" / name
    folder.mkdir(parents=True)
    write_draw(
        folder,
        Draw(
            draw_id=name, run_id=run.name, metric=score, score=score, question="Is it faithful?", grades=[], low=0.0,
            high=1.0, seed=0, cases=100, strata=[], settings=settings,
        ),
    )  # fmt: skip
    blank = {"annotator": "a", "grade": None, "note": None, "at": None, **AT_RANDOM}
    full = [{name: {**blank, **row}[name] for name in LABEL_COLUMNS.names} for row in rows]
    write_rows(folder / "labels.parquet", table_of(full, LABEL_COLUMNS))


def test_recorded_judges_have_the_figures_of_trusted_libraries(mtrag: Path, real_data: Path) -> None:
    expected = json.loads((real_data / "EXPECTED.json").read_text())["mtrag"]
    recorded = "calibrate.recorded={" + ", ".join(f"{judge}: human_faithfulness" for judge in JUDGES) + "}"
    limits = ["scoring.thresholds.human_faithfulness=3", "scoring.thresholds.rl_f=0.75"]
    assert main(["task=calibrate", f"run={mtrag}", recorded, *limits]) == 0
    scores = calibration_of(mtrag).scores
    assert list(scores) == list(JUDGES)
    for name, judge in JUDGES.items():
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


@pytest.mark.parametrize(("labelled", "verdict", "value"), [(60, "passed", 0.75), (59, "uncalibrated", 1.0)])
def test_labels_that_the_data_give_of_every_case_decide_a_gate(here, labelled: int, verdict: str, value: float) -> None:
    """The judge finds every answer supported, people 45 of 60. Where one case has no label, nobody knows how the others were chosen."""
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
    main(["task=rescore", f"run={run}"])  # by the calibration beside the run, as its digest says afterwards
    newest = max(Path("outputs/people").glob("*/gates.json"), key=lambda path: path.stat().st_mtime_ns)
    (gate,) = json.loads(newest.read_text())["gates"]
    assert (gate["verdict"], gate["value"]) == (verdict, pytest.approx(value))
    recorded = json.loads(newest.with_name("manifest.json").read_text())["identity"]["scoring"]["calibration"]
    assert recorded == sha256((run / "calibration/calibration.json").read_bytes()).hexdigest()


def test_verdicts_on_parts_of_an_answer_are_one_label(tmp_path: Path, real_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Summary of a Haystack: an object of verdicts by insight. Six judges, by summary here and by insight in EXPECTED.json."""
    path = real_data / "summhay_eval/eval_benchmark_data.json"
    words = ["+experiment=summhay_eval", f"dataset.path={path}", f"output_dir={tmp_path}", "report.formats=[]"]
    assert main(words) == 0
    run = (tmp_path / "summhay_eval/latest").resolve()
    words = ["task=calibrate", f"run={run}", "calibrate.recorded={gpt-4o: human_coverage}"]
    words += ["calibrate.target.statistic=quadratic_kappa"]
    assert "none of which judged answers to two questions" in " ".join(output_of(words, 2, capsys).err.split())
    assert main([*words, "calibrate.verdicts=parts"]) == 0
    score = calibration_of(run).scores["gpt-4o"]
    records = pq.read_table(run / "iteration-1/records.parquet").to_pydict()
    people, judge = (np.array(records[name]) for name in ("human_coverage", "gpt-4o"))
    assert score.statistics["pearson"].n == 119
    assert score.statistics["pearson"].value == pytest.approx(np.corrcoef(people, judge)[0, 1])
    assert score.statistics["mae"].value == pytest.approx(np.mean(np.abs(people - judge)))
    assert (score.ceiling, score.reference) == (None, "single")


def test_the_labels_of_a_draw(demo_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases = cases_of(demo_run)
    passed = [{**case, "label": 1.0 if case["value"] >= 0.85 else 0.0} for case in cases[:40]]
    wrong = [{**passed[0], "annotator": "b", "label": 1 - passed[0]["label"]}]  # a tie: no verdict
    unsure = [{**cases[40], "label": None}]
    chosen = [{**cases[41], "label": 0.0, "part": "stratified", "probability": 1.0}]
    write_labels(demo_run, "d1", [*passed, *wrong, *unsure, *chosen])
    assert main(["task=calibrate", f"run={demo_run}"]) == 0
    calibration = calibration_of(demo_run)
    score = calibration.scores["faithfulness"]
    assert list(calibration.scores) == ["faithfulness"]
    assert (score.draw_id, score.recorded, score.reference) == ("d1", None, "majority")
    assert (score.statistics["kappa"].n, score.statistics["kappa"].value) == (39, 1.0)
    assert (score.statistics["pearson"].n, len(score.labels)) == (40, 41)
    assert [entry.part for entry in score.labels].count("stratified") == 1
    assert {entry.probability for entry in score.labels if entry.part == "random"} == {0.6}
    assert score.bound_to.threshold == 0.85
    assert capsys.readouterr().out.startswith("faithfulness: too few labels. kappa 1.00 [0."), "the verdict comes first"
    assert main(["task=verify", f"run={demo_run}"]) == 0


def no_labels(run: Path) -> None:
    pass


def two_draws(run: Path) -> None:
    for name in ("d1", "d2"):
        write_labels(run, name, [{**cases_of(run)[0], "label": 1.0}])


def of_another_answer(run: Path) -> None:
    write_labels(run, "d1", [{**cases_of(run)[0], "label": 1.0, "answer_sha256": "0" * 64}])


def of_no_case(run: Path) -> None:
    write_labels(run, "d1", [{**cases_of(run)[0], "label": 1.0, "sample_id": "nobody"}])


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize(("prepare", "words", "message"), [
    (no_labels, [], "no labels of any score"), (two_draws, [], "2 draws of faithfulness with labels"),
    (of_another_answer, [], "the label of another answer"),
    (of_no_case, [], "no such case in the run"), (no_labels, ["calibrate.scores=[groundedness]"], "no labels of groundedness"),
    (no_labels, ["calibrate.recorded={faithfulness: people}"], "people"), (no_labels, ["judge.threshold=0.5"], "task=calibrate cannot change everything of a run"),
])  # fmt: skip
def test_what_cannot_be_calibrated_is_refused(
    demo_run: Path, prepare: Callable[[Path], None], words: list[str], message: str, capsys
) -> None:
    prepare(demo_run)
    assert message in " ".join(output_of(["task=calibrate", f"run={demo_run}", *words], 2, capsys).err.split())
    assert not (demo_run / "calibration").exists()


def label(run: Path, *words: str) -> int:
    return main(["task=label", f"run={run}", *words])


def draw(run: Path, *words: str) -> Path:
    before = {path: path.stat().st_mtime_ns for path in run.glob("labels/*/draw.json")}
    assert label(run, "label.metric=faithfulness", *words) == 0
    (changed,) = (path for path in run.glob("labels/*/draw.json") if before.get(path) != path.stat().st_mtime_ns)
    return changed.parent


def items(folder: Path) -> list[str]:
    return list(read_drawn(folder)["item"].to_pylist())


def sheet(folder: Path, path: Path, annotator: str, labels: dict[str, str]) -> Path:
    with open(folder / "sheet.csv", encoding="utf-8-sig", newline="") as file:
        rows = [row | {"annotator": annotator, "label": labels.get(row["item"], "")} for row in csv.DictReader(file)]
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def blocks_of(page: Path) -> dict[str, Any]:
    found = re.findall(r'<script type="text/plain" id="block-(\w+)">([^<]*)</script>', page.read_text(encoding="utf-8"))
    return {name: json.loads(gzip.decompress(base64.b64decode(text))) for name, text in found}


def test_a_draw_names_its_cases_and_its_probabilities(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = draw(run, "label.n=4")
    assert "4 of 10 cases with a value of faithfulness" in capsys.readouterr().out
    made, rows = read_draw(folder), read_drawn(folder).to_pylist()
    assert (made.metric, made.score, made.cases, made.low, made.high) == ("faithfulness", "faithfulness", 10, 0, 1)
    assert [(grade.name, grade.value) for grade in made.grades] == [("all", 1), ("partly", 0.5), ("none", 0)]
    assert [row["probability"] for row in rows] == [0.4] * 4
    assert {(row["part"], row["stratum"]) for row in rows} == {("random", "all")}
    cases = {(case.sample.id, case.output.method): case for case in CaseReader(run / "samples.parquet", run / "outputs.parquet")}
    for row in rows:
        case = cases[row["sample_id"], row["method"]]
        assert row["answer_sha256"] == answer_digest(case.sample, case.output)


def test_a_draw_grows_and_keeps_its_cases_and_labels(run: Path) -> None:
    folder = draw(run, "label.n=4")
    first = items(folder)
    assert label(run, f"label.import=[{sheet(folder, run.parent / 'a.csv', 'ann', {first[0]: 'all'})}]") == 0
    assert (draw(run, "label.n=7"), items(folder)[:4]) == (folder, first)
    assert len(items(folder)) == 7
    assert read_labels(folder)["probability"].to_pylist() == [0.7]
    assert label(run, "label.metric=faithfulness", "label.n=4") == 0
    assert len(items(folder)) == 7
    assert main(["task=verify", f"run={run}"]) == 0


def test_what_people_get_is_blind(run: Path) -> None:
    """The page and the sheets hold what is asked and the texts of the cases, and nothing else."""
    folder = draw(run, "label.n=6", "label.draw=by_method", "label.annotators=[ann,bob]")
    page, blocks = folder / "label.html", blocks_of(folder / "label.html")
    assert blocks["about"].keys() == {"v", "draw", "score", "question", "grades", "annotators", "items"}
    assert all(entry.keys() == {"item", "asked"} for entry in blocks["about"]["items"])
    cases = blocks["d0"]
    assert len(cases) == 6
    assert all(case.keys() == {"item", "question", "history", "answer", "contexts", "references"} for case in cases)
    assert [case["item"] for case in cases] == sorted(items(folder))  # not in the order of the draw
    assert all(case["references"] == [] for case in cases)
    markup = re.sub(r'<script type="text/plain".*?</script>', "", page.read_text(encoding="utf-8"))
    reasons = {row["reason"] for row in pq.read_table(run / "iteration-1" / "scores.parquet").to_pylist()} - {None, ""}
    assert reasons
    sheets = (folder / "sheet.csv").read_text(encoding="utf-8")
    for text in (markup, json.dumps(blocks, ensure_ascii=False), sheets):
        for secret in ("probability", "stratum", "stratified", "chunk_faithfulness", "passed", "even", "odd", *reasons):
            assert not re.search(rf"\b{re.escape(secret)}\b", text), secret
        assert not re.search(r"\bq\d\b|\bc\d-\d\b|\bdefault\b(?!-src)", text)  # ids of samples and chunks, the method


def test_labels_of_several_people_come_back(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = draw(run, "label.n=4")
    first, second, third, _ = items(folder)
    ann = sheet(folder, run.parent / "ann.csv", "ann", {first: "all", second: "cannot tell", third: "0.25"})
    events = [
        {"v": 1, "draw": folder.name, "item": item, "annotator": "bob", "question": "faithfulness", "label": "none", "at": "2026-01-01T00:00:00Z"}
        for item in (first, second)
    ]  # fmt: skip
    undone = {key: value for key, value in events[1].items() if key != "label"} | {"undo": True}
    bob = run.parent / "bob.jsonl"
    bob.write_text("".join(json.dumps(event) + "\n" for event in [*events, undone]), encoding="utf-8")
    capsys.readouterr()
    assert label(run, f"label.import=[{ann},{bob}]") == 0
    said = capsys.readouterr().out
    assert "3 labels by ann (1 cannot tell)" in said
    assert "3 of 4 cases labelled by 2 people" in said
    rows = [(row["annotator"], row["label"], row["grade"]) for row in read_labels(folder).to_pylist()]
    assert sorted(rows, key=str) == [("ann", 0.25, None), ("ann", 1.0, "all"), ("ann", None, None), ("bob", 0.0, "none")]
    assert main(["task=verify", f"run={run}"]) == 0


def test_files_of_another_draw_and_changed_labels_are_found(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = draw(run, "label.n=4")
    good = sheet(folder, run.parent / "good.csv", "ann", dict.fromkeys(items(folder), "all"))
    bad = run.parent / "bad.jsonl"
    bad.write_text(json.dumps({"v": 1, "draw": "faithfulness-00000000", "item": "x", "annotator": "ann", "label": "all"}) + "\n")
    before = content(run)
    assert label(run, f"label.import=[{good},{bad}]") == 2
    said = capsys.readouterr().err
    assert f"{bad}:1" in said
    assert f"a draw of this run: {folder.name}" in said
    assert content(run) == before
    assert label(run, f"label.import=[{sheet(folder, run.parent / 'a.csv', 'ann', {items(folder)[0]: 'all'})}]") == 0
    pq.write_table(pq.read_table(folder / "labels.parquet").slice(0, 0), folder / "labels.parquet")
    assert f"labels/{folder.name}/labels.parquet" in output_of(["task=verify", f"run={run}"], 3, capsys).out
