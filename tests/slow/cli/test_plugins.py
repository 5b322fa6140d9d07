"""The plugin of docs/adding-a-metric.md, from outside of the package: by `plugins`, and as an installed distribution."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyarrow.parquet import read_table

from tests.support.pages import DOCS, commands, sections

TITLE = "A judge, system, reader, task, export or section"


def start(line: str, here: Path, *paths: Path) -> str:
    words = line.replace("'", "").split()[2:]
    path = os.pathsep.join(map(str, (Path(__file__).parents[3], *paths)))
    done = subprocess.run([sys.executable, "-m", *words], cwd=here, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("is_installed", [False, True])
def test_a_judge_a_system_a_reader_a_task_an_export_and_a_section_of_ones_own(is_installed: bool, tmp_path: Path) -> None:
    lib = tmp_path / "lib"
    steps = [step for section in sections("adding-a-metric.md") if section.title == TITLE for step in section.steps]
    files = {step.path: step.text for step in steps if step.kind == "file"}
    assert all(len(text.splitlines()) < 25 for text in files.values())
    for name, text in files.items():
        path = (lib if name.startswith("mine/") else tmp_path) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    lines = [line for step in steps if step.kind == "commands" for line in commands(step.text)]
    if is_installed:
        info = lib / "mine-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n", encoding="utf-8")
        (info / "entry_points.txt").write_text("[ragpipe.plugins]\nmine = mine\n", encoding="utf-8")
        lines = [line.replace("'plugins=[mine]' ", "") for line in lines]
    printed = [start(line, tmp_path, lib) for line in lines]
    assert "worst: b groundedness" in printed[1]
    assert "## How many cases" in (tmp_path / "outputs/own/latest/report.md").read_text(encoding="utf-8")
    assert "2 ids in lists/ids.txt" in printed[2]
    answers = read_table(tmp_path / "outputs/asked/latest/outputs.parquet").column("answer").to_pylist()
    start("python -m ragpipe dataset=demo dataset.limit=1 metrics=[retrieval] name=sectioned plugins=[mine]", tmp_path, lib)
    with pytest.raises(AssertionError, match="a plugin that adds a section to them may be missing"):
        start("python -m ragpipe task=verify run=sectioned", tmp_path)
    assert sorted(answers) == ["How long?", "How long?", "Who pays?", "Who pays?"]
    assert "adding-a-metric.md#a-judge" in (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
