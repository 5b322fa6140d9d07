"""A run over a file of recorded replies (`store.recorded`): nothing is asked, nothing enters the call store, what is missing is named."""

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ragpipe.cli.command_line import main
from ragpipe.core.resources import data_path
from ragpipe.store.recorded_replies import write_recorded_file
from ragpipe.testing.openai_server import OpenAIServer, serving
from tests.support.finished_runs import FinishedRuns
from tests.support.harness import arguments, write_cases

pytestmark = pytest.mark.slow
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
        common = arguments(self.root / data, self.root / out, self.server.url, metrics="correctness")
        recorded = [f"store.recorded={self.file}", f"judge.note='{NOTE}'", "judge.endpoint=recorded", "transport=stored"]
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
def recording(here: Path, capsys: Any) -> Iterator[Recording]:
    """Four cases that a server judged once. Its log is empty again."""
    data = write_cases(here / "data.jsonl", CASES)
    file = here / "recorded.jsonl"
    with serving() as server:
        words = arguments(data, here / "live", server.url, metrics="correctness")
        assert main([*words, "judge.endpoint=recorded"]) == 0
        write_recorded_file(file, inputs_of((here / "live" / "torture" / "latest").resolve()), recorded="2026-11-24")
        server.log.clear()
        yield Recording(file, server, here, capsys)
    assert server.log == [], "nothing was asked over the recording"


def test_a_recording_answers_everything_and_its_note_is_shown(recording: Recording) -> None:
    shown = recording.run("report.formats=[terminal,markdown,html]")
    assert f"no new call to {recording.metrics()['judge']['label']}: all {CASES} replies are stored" in shown
    assert f"The judge: {NOTE}" in " ".join(shown.split())
    for page in ("report.md", "report.html"):
        assert NOTE in (recording.folder() / page).read_text()
    scores = recording.metrics()["overall"]["scores"]
    assert scores == recording.metrics("live")["overall"]["scores"]
    assert (scores["correctness"]["n_ok"], recording.metrics()["judge"]["note"]) == (CASES, NOTE)
    assert {row["paid_by"] for row in inputs_of(recording.folder())} == {"recording-2026-11-24/1"}
    cost = json.loads((recording.folder() / "iteration-1" / "cost.json").read_text())
    assert (cost["spent"]["replies"], cost["saved"]["replies"], cost["wasted"]["replies"]) == (0, CASES, 0)


def test_the_call_store_stays_empty_and_two_runs_have_the_same_tables(recording: Recording) -> None:
    recording.file.chmod(0o444)
    for out in ("replayed", "again"):
        recording.run(out=out)
        with closing(sqlite3.connect(recording.root / out / ".store" / "calls.sqlite")) as db:
            assert db.execute("SELECT (SELECT COUNT(*) FROM calls), (SELECT COUNT(*) FROM payments)").fetchone() == (0, 0)
    first, second = (json.loads((recording.folder(out) / "seal.json").read_text())["files"] for out in ("replayed", "again"))
    table = "iteration-1/judge_inputs.parquet"
    assert first[table] == second[table]
    assert main(["task=verify", f"run={recording.folder()}"]) == 0


def test_a_changed_case_is_named_with_what_to_do(recording: Recording) -> None:
    lines = (recording.root / "data.jsonl").read_text().replace("What does case 2 say?", "What did case 2 say?")
    (recording.root / "other.jsonl").write_text(lines)
    shown = recording.run(data="other.jsonl", expected=4)
    assert "judge=llm judge.model=... transport=live" in " ".join(shown.split())
    (missing,) = (row for row in inputs_of(recording.folder()) if row["status"] == "missing_reply")
    assert missing["message"].startswith("no stored reply for q00002")


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("content", [None, "", "no JSON"])
def test_a_file_that_cannot_be_used_ends_the_start_and_leaves_nothing(recording: Recording, content: str | None) -> None:
    recording.file.unlink()
    if content is not None:
        recording.file.write_text(content)
    shown = recording.run(expected=2)
    assert "store.recorded" in shown
    assert "the recorded replies cannot be used" in shown
    assert not [*(recording.root / "replayed").glob("torture/*")]


RECORDING = data_path("package:demo/judge_replies.jsonl")
JUDGED = {"faithfulness", "answer_relevance", "context_relevance", "citation", "groundedness", "correctness"}
ASK_AGAIN = "a template, an answer type or a case was changed: record anew (benchmarks/record_demo.py) or take the change back"


@pytest.fixture(scope="module")
def folder(finished_runs: FinishedRuns) -> Path:
    return finished_runs.of("+experiment=quickstart_llm", "report.formats=[markdown,html]").latest()


def document(folder: Path, name: str) -> dict[str, Any]:
    return json.loads((folder / "iteration-1" / name).read_text(encoding="utf-8"))


def test_the_shipped_recording_answers_all_and_nothing_else(folder: Path) -> None:
    rows = inputs_of(folder)
    assert Counter(row["status"] for row in rows) == {"ok": len(rows)}, ASK_AGAIN
    assert {row["metric"] for row in rows} == JUDGED
    cost = document(folder, "cost.json")
    assert (cost["spent"]["replies"], cost["saved"]["replies"]) == (0, len({row["key"] for row in rows}))
    with closing(sqlite3.connect(folder.parents[1] / ".store" / "calls.sqlite")) as store:
        assert store.execute("SELECT COUNT(*) FROM calls").fetchone() == (0,)
    header, *lines = map(json.loads, RECORDING.read_text(encoding="utf-8").split("\n")[:-1])
    assert {line["key"] for line in lines} == {row["key"] for row in inputs_of(folder)}
    assert header["replies"] == len(lines) <= 600
    assert RECORDING.stat().st_size <= 400_000
    assert "reader/llm-2026-11-22@recorded (uncalibrated)" in document(folder, "metrics.json")["signature"]
    for page in ("report.md", "report.html"):
        text = (folder / page).read_text(encoding="utf-8")
        assert "recorded on 2026-11-22 from a large language model" in text
        assert re.search("not calibrated", text, re.IGNORECASE)
