"""Verdicts of report.html in a finished run: imported, and left out of every calibration."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ragpipe.calibration.label_files import draw_folders
from ragpipe.cli.command_line import main
from ragpipe.core.sample import answer_digest
from ragpipe.runs.measured_cases import CaseReader
from tests.integration.cli.test_label import items, label, sheet

pytestmark = pytest.mark.slow  # whole runs, several per test

Key = tuple[str, str, int]


def digests(run: Path) -> dict[Key, str]:
    cases = CaseReader(run / "samples.parquet", run / "outputs.parquet")
    return {case.key[:3]: answer_digest(case.sample, case.output) for case in cases}


def verdicts(run: Path, given: Mapping[Key, str | None], name: str = "ann", of_run: str = "", **changes: Any) -> Path:
    """The file that the page saves: a verdict per case."""
    known, manifest = digests(run), json.loads((run / "manifest.json").read_text())
    path = run.parent / f"verdicts-{name}.jsonl"
    with open(path, "w", encoding="utf-8") as file:
        for (sample_id, method, repeat), verdict in given.items():
            line = {
                "v": 1, "run": of_run or manifest["run_id"], "sample_id": sample_id, "method": method, "repeat": repeat,
                "score": "faithfulness", "verdict": verdict, "note": "seen", "annotator": name, "at": "2026-11-23T10:00:00Z",
                "answer": known[sample_id, method, repeat], "blind": False,
            }  # fmt: skip
            file.write(json.dumps(line | changes) + "\n")
    return path


def test_verdicts_are_kept_sealed_and_marked_as_not_blind(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = list(digests(run))
    path = verdicts(run, {keys[0]: "pass", keys[1]: "fail", keys[2]: None})
    assert label(run, f"label.import=[{path}]") == 0
    said = capsys.readouterr().out
    assert "2 new verdicts by ann" in said
    assert "not blind" in said
    rows = pq.read_table(run / "labels/verdicts.parquet").to_pylist()
    assert {(row["sample_id"], row["method"], row["repeat"]): row["passed"] for row in rows} == {
        keys[0]: True, keys[1]: False, keys[2]: None,
    }  # fmt: skip
    assert {row["blind"] for row in rows} == {False}
    assert "labels/verdicts.parquet" in json.loads((run / "seal.json").read_text())["files"]
    assert main(["task=verify", f"run={run}"]) == 0


def test_a_fault_imports_nothing_and_another_answer_is_left_out(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = list(digests(run))
    good = verdicts(run, {keys[0]: "pass"})
    other_run = verdicts(run, {keys[1]: "pass"}, "bob", of_run="r-other")
    assert label(run, f"label.import=[{good},{other_run}]") == 2
    assert not (run / "labels").exists()
    other_answer = verdicts(run, {keys[1]: "pass"}, "bob", answer="0" * 64)
    assert label(run, f"label.import=[{other_answer}]") == 2
    assert not (run / "labels").exists()
    with open(good, "a", encoding="utf-8") as file:
        file.write(other_answer.read_text())
    capsys.readouterr()
    assert label(run, f"label.import=[{good}]") == 0
    assert "1 verdict is of another answer than the run has" in capsys.readouterr().err
    assert pq.read_table(run / "labels/verdicts.parquet").num_rows == 1


def test_a_calibration_leaves_them_out_unless_it_is_told_and_then_writes_none(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = list(digests(run))
    assert label(run, f"label.import=[{verdicts(run, dict.fromkeys(keys, 'pass'))}]") == 0
    assert main(["task=calibrate", f"run={run}"]) == 2  # no other labels
    assert label(run, "label.metric=faithfulness", "label.n=4") == 0
    (folder,) = draw_folders(run)
    assert label(run, f"label.import=[{sheet(folder, run.parent / 'sheet.csv', 'bob', dict.fromkeys(items(folder), 'all'))}]") == 0
    capsys.readouterr()
    assert main(["task=calibrate", f"run={run}"]) == 0
    assert f"faithfulness: not used: {len(keys)} verdicts given on report.html, not blind" in capsys.readouterr().out
    calibration = json.loads((run / "calibration/calibration.json").read_text())
    assert [item["part"] for item in calibration["scores"]["faithfulness"]["labels"]] == ["random"] * 4
    written = (run / "calibration/calibration.json").read_bytes()
    assert main(["task=calibrate", f"run={run}", "calibrate.open_labels=true", "calibrate.width=0.1"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "not blind: these verdicts were given on report.html" in said
    assert f"on {len(keys)} labels" in said
    assert "corrected mean" not in said.replace("no gate or corrected mean", "")
    assert (run / "calibration/calibration.json").read_bytes() == written
