"""A run over a file of recorded replies (`store.recorded`): nothing is asked, nothing enters the call store, what is missing is named."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ragpipe.cli import main
from ragpipe.store.calls.recorded_replies import write_recorded_file
from ragpipe.testing.openai_server import OpenAIServer, serving
from tests.support.harness import arguments, write_cases

pytestmark = pytest.mark.slow  # whole runs, several per test

CASES = 4
NOTE = "recorded on a Tuesday from a server of this test"


@dataclass
class Recording:
    """The file of a recording, and the words of a run over it."""

    file: Path
    server: OpenAIServer
    root: Path
    capsys: Any

    def run(self, *words: str, out: str = "replayed", data: str = "data.jsonl", expected: int = 0) -> str:
        """Evaluate over the recording; gives what was printed."""
        common = arguments(self.root / data, self.root / out, self.server.url, metrics="correctness")
        recorded = [
            f"store.recorded={self.file}",
            f"judge.note='{NOTE}'",
            "judge.endpoint=recorded",
            "transport=stored",
        ]
        self.capsys.readouterr()
        assert main([*common, *recorded, *words]) == expected
        return "".join(self.capsys.readouterr())

    def folder(self, out: str = "replayed") -> Path:
        return (self.root / out / "torture" / "latest").resolve()

    def metrics(self, out: str = "replayed") -> dict[str, Any]:
        return json.loads((self.folder(out) / "iteration-1" / "metrics.json").read_text())


def inputs_of(folder: Path) -> list[dict[str, Any]]:
    return pq.read_table(folder / "iteration-1" / "judge_inputs.parquet").to_pylist()


@pytest.fixture
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Iterator[Recording]:
    """Four cases that a server judged once. Its log is empty again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAGPIPE_TEST_KEY", "sk-sentinel-4242")
    data = write_cases(tmp_path / "data.jsonl", CASES)
    file = tmp_path / "recorded.jsonl"
    with serving() as server:
        words = arguments(data, tmp_path / "live", server.url, metrics="correctness")
        assert main([*words, "judge.endpoint=recorded"]) == 0
        write_recorded_file(
            file, inputs_of((tmp_path / "live" / "torture" / "latest").resolve()), recorded="2026-11-24"
        )
        server.log.clear()
        yield Recording(file, server, tmp_path, capsys)
    assert server.log == [], "nothing was asked over the recording"


def test_a_recording_answers_everything_and_its_note_is_shown(recording: Recording) -> None:
    shown = recording.run("report.formats=[terminal,markdown,html]")
    assert f"no new call to {recording.metrics()['judge']['label']}: all {CASES} replies are stored" in shown
    assert f"judge: {NOTE}" in shown
    for page in ("report.md", "report.html"):
        assert NOTE in (recording.folder() / page).read_text()
    scores = recording.metrics()["overall"]["scores"]
    assert scores == recording.metrics("live")["overall"]["scores"]
    assert scores["correctness"]["n_ok"] == CASES
    assert recording.metrics()["judge"]["note"] == NOTE
    assert {row["paid_by"] for row in inputs_of(recording.folder())} == {"recording-2026-11-24/1"}
    cost = json.loads((recording.folder() / "iteration-1" / "cost.json").read_text())
    assert (cost["spent"]["replies"], cost["saved"]["replies"], cost["wasted"]["replies"]) == (0, CASES, 0)


def test_the_call_store_stays_empty_and_two_runs_have_the_same_tables(recording: Recording) -> None:
    recording.file.chmod(0o444)
    for out in ("replayed", "again"):
        recording.run(out=out)
        with closing(sqlite3.connect(recording.root / out / ".store" / "calls.sqlite")) as db:
            assert db.execute("SELECT (SELECT COUNT(*) FROM calls), (SELECT COUNT(*) FROM payments)").fetchone() == (
                0,
                0,
            )
    first, second = (json.loads((recording.folder(out) / "seal.json").read_text()) for out in ("replayed", "again"))
    assert first["tables"] == second["tables"]
    assert main(["task=verify", f"run={recording.folder()}"]) == 0


def test_a_changed_case_is_named_with_what_to_do(recording: Recording) -> None:
    lines = (recording.root / "data.jsonl").read_text().replace("What does case 2 say?", "What did case 2 say?")
    (recording.root / "other.jsonl").write_text(lines)
    shown = recording.run("report.detail=full", data="other.jsonl", expected=4)
    assert "missing_reply 1" in shown
    assert "judge=llm judge.model=... transport=live" in " ".join(shown.split())
    (missing,) = (row for row in inputs_of(recording.folder()) if row["status"] == "missing_reply")
    assert missing["message"].startswith("no stored reply for q00002")


@pytest.mark.thorough
def test_a_killed_run_goes_on_over_the_recording(recording: Recording) -> None:
    recording.run()
    iteration = recording.folder() / "iteration-1"
    (iteration / "judge_inputs.parquet").unlink()
    shown = recording.run()
    assert f"no new call to {recording.metrics()['judge']['label']}" in shown
    assert len(inputs_of(recording.folder())) == CASES


def test_another_score_of_a_finished_run_needs_no_recording(recording: Recording) -> None:
    recording.run()
    recording.file.unlink()
    words = ["scoring.thresholds.correctness=2", f"output_dir={recording.root / 'replayed'}"]
    assert main(["task=rescore", f"run={recording.folder()}", *words]) == 0
    assert NOTE in "".join(recording.capsys.readouterr())


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("content", [None, "", "no JSON"])
def test_a_file_that_cannot_be_used_ends_the_start_and_leaves_nothing(
    recording: Recording, content: str | None
) -> None:
    recording.file.unlink()
    if content is not None:
        recording.file.write_text(content)
    shown = recording.run(expected=2)
    assert "store.recorded" in shown
    assert "the recorded replies cannot be used" in shown
    assert not [*(recording.root / "replayed").glob("torture/*")]
