"""`task=label`: draws of a finished run that grow and repeat, blind files, labels of several people, and no call."""

import base64
import csv
import gzip
import json
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ragpipe.calibration.label_files import draw_folders, read_draw, read_drawn, read_labels
from ragpipe.cli.command_line import main
from ragpipe.core.sample import answer_digest
from ragpipe.runs.measured_cases import CaseReader
from tests.support.place import output_of
from tests.support.rejudged import content

pytestmark = pytest.mark.slow  # whole runs, several per test


def label(run: Path, *words: str) -> int:
    return main(["task=label", f"run={run}", *words])


def draw(run: Path, *words: str) -> Path:
    before = {folder: (folder / "draw.json").stat().st_mtime_ns for folder in draw_folders(run)}
    assert label(run, "label.metric=faithfulness", *words) == 0
    changed = [f for f in draw_folders(run) if before.get(f) != (f / "draw.json").stat().st_mtime_ns]
    assert len(changed) == 1
    return changed[0]


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
