"""Whole evaluations: what several iterations cost, and that nobody's folder is touched without its lock."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ragpipe.cli import main
from ragpipe.judging.replies.answer_parsing import PARSER
from ragpipe.schema.judge_answers.grade_answers import YesNo
from ragpipe.store.run.folder_lock import FolderLock
from ragpipe.testing.openai_server import serving
from tests.support.harness import arguments, write_cases


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAGPIPE_TEST_KEY", "sk-sentinel-4242")
    return tmp_path


def written(folder: Path) -> dict[str, int]:
    return {str(f.relative_to(folder)): f.stat().st_mtime_ns for f in folder.rglob("*") if f.is_file()}


@pytest.mark.slow
def test_each_iteration_pays_for_itself_and_a_second_start_rewrites_nothing(here: Path) -> None:
    data = write_cases(here / "data.jsonl", 3)
    with serving() as server:
        words = arguments(data, here / "out", server.url, "iterations=2")
        assert main(words) == 0
        asked = len(server.log)
        run = (here / "out" / "torture" / "latest").resolve()
        bills: list[dict[str, Any]] = [json.loads((run / f"iteration-{i}/cost.json").read_text()) for i in (1, 2)]
        assert [bill["spent"]["calls"] for bill in bills] == [asked / 2, asked / 2]
        assert [bill["saved"]["calls"] for bill in bills] == [0, 0]
        before = written(run)
        assert main(words) == 0
        assert len(server.log) == asked
    assert written(run) == before
    assert "iterations 1-2" in (run / "report.md").read_text()


@pytest.mark.slow
def test_a_folder_that_another_process_is_filling_is_left_alone(here: Path) -> None:
    data = write_cases(here / "data.jsonl", 1)
    words = ["dataset=jsonl", f"dataset.path={data}", "metrics=[faithfulness]", "name=two"]
    assert main(words) == 0
    run = (here / "outputs" / "two" / "latest").resolve()
    shutil.rmtree(run)
    run.mkdir()
    (run / "samples.parquet").write_bytes(b"half way")  # no manifest yet: the other one is still loading
    with FolderLock(run):
        assert main(words) == 6
        assert (run / "samples.parquet").read_bytes() == b"half way"


@pytest.mark.slow
def test_another_reader_reads_the_stored_replies_again_in_a_run_of_its_own(here: Path, monkeypatch: Any) -> None:
    data = write_cases(here / "data.jsonl", 4)

    def run_with(url: str, parser: int) -> tuple[Path, list[Any]]:
        monkeypatch.setattr("ragpipe.engine.runs.run_identity.PARSER", parser)
        assert main(arguments(data, here / "out", url, metrics="chunk_faithfulness")) == 0
        folder = (here / "out" / "torture" / "latest").resolve()
        return folder, pq.read_table(folder / "iteration-1" / "scores.parquet")["value"].to_pylist()

    with serving() as server:
        with monkeypatch.context() as older:
            older.setattr(
                "ragpipe.judging.case_judge.read_answer", lambda text, answer, _: (YesNo(verdict="NO", text=text), ())
            )
            before, no = run_with(server.url, PARSER - 1)
        asked = len(server.log)
        after, values = run_with(server.url, PARSER)
        assert len(server.log) == asked, "the second run takes every reply from the store"
    assert asked == 4 * 3, "a reader that knows no YES goes through all chunks"
    assert before.name != after.name
    assert before.parent == after.parent
    assert no == [0.0] * 4
    assert 1.0 in values, "the replies do say YES somewhere"
    assert [json.loads((run / "manifest.json").read_text())["identity"]["parser"] for run in (before, after)] == [
        PARSER - 1, PARSER,
    ]  # fmt: skip
