"""Folders and stores of another format: refused by name by every task, without a call and without a trace in them."""

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import ragpipe
from ragpipe.cli.command_line import main
from ragpipe.core.errors import FormatMismatch
from ragpipe.core.version import FORMAT
from ragpipe.testing.openai_server import OpenAIServer, serving
from tests.support.harness import arguments, write_cases
from tests.support.place import output_of

pytestmark = pytest.mark.slow  # whole runs, several per test
OTHERS = (1, FORMAT + 1, None, str(FORMAT))
"""Older, newer, none, and what only looks like the number."""


@dataclass
class Bench:
    """A finished run by a language model, its call store with a log beside it, and the words that made both."""

    root: Path
    server: OpenAIServer
    words: list[str]
    run: Path

    @property
    def store(self) -> Path:
        return self.root / "out" / ".store" / "calls.sqlite"

    def judge(self) -> list[str]:
        return [word for word in self.words if word.startswith("judge")]

    def tree(self) -> dict[str, Any]:
        found = {}
        for path in sorted((self.root / "out").rglob("*")):
            state = path.lstat()
            content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
            found[str(path)] = (content, state.st_mtime_ns, state.st_ino, state.st_mode)
        return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, OpenAIServer]]:
    root = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch, serving() as server:
        patch.chdir(root)
        patch.setenv("RAGPIPE_TEST_KEY", "sk-sentinel-4242")
        data = write_cases(root / "data.jsonl", 2)
        assert main(arguments(data, root / "out", server.url, metrics="correctness")) == 0
        words = ["task=store", f"output_dir={root / 'out'}", "action=export", f"to={root / 'calls.jsonl'}"]
        assert main(words) == 0
        yield root, server


@pytest.fixture
def bench(made: tuple[Path, OpenAIServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Bench:
    root, server = made
    monkeypatch.chdir(tmp_path)
    shutil.copytree(root / "out", tmp_path / "out", symlinks=True)
    for name in ("data.jsonl", "calls.jsonl"):
        shutil.copy(root / name, tmp_path / name)
    words = arguments(tmp_path / "data.jsonl", tmp_path / "out", server.url, metrics="correctness")
    capsys.readouterr()
    return Bench(tmp_path, server, words, (tmp_path / "out" / "torture" / "latest").resolve())


def give_format(run: Path, number: object) -> None:
    """Let a run say that it has another format; None: no format at all."""
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["format"] = number
    if number is None:
        del manifest["format"]
    (run / "manifest.json").write_text(json.dumps(manifest))


def age(store: Path, number: int = 0) -> None:
    """The store as another ragpipe keeps it: another number in the header, and of before there was one the tables of then;
    the last changes stand in the log, as a killed process leaves them."""
    with closing(sqlite3.connect(store, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode=delete")
        db.execute(f"PRAGMA user_version={number}")
        if number == 0:
            db.execute("DELETE FROM meta")
            db.execute("INSERT INTO meta VALUES ('version', '2')")
        db.execute("PRAGMA journal_mode=wal")
        db.execute("INSERT INTO meta VALUES ('last', 'in the log')")
        saved = {path: path.read_bytes() for path in store.parent.glob("calls.sqlite*") if not path.name.endswith("-shm")}
    for path, content in saved.items():
        path.write_bytes(content)
    assert (store.with_name("calls.sqlite-wal")).stat().st_size > 0


def refused(bench: Bench, words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The message of a start that must end with exit 2, no request and no change anywhere below the output folder."""
    before, asked = bench.tree(), len(bench.server.log)
    said = output_of(words, 2, capsys)
    assert (bench.tree(), len(bench.server.log)) == (before, asked)
    return said.err


FOLDER_TASKS = {
    "rescore": ["task=rescore", "scoring.thresholds.correctness=5"],
    "replay": ["task=rejudge", "judge.seed=5"], "verify": ["task=verify"], "explain": ["task=explain", "case=q00000"],
    "export": ["task=export"], "prune": ["task=store", "action=prune", "dry_run=false"],
}  # fmt: skip


@pytest.mark.thorough(tried=2)
@pytest.mark.parametrize("task", FOLDER_TASKS)
def test_every_task_over_a_run_refuses_one_of_another_format(bench: Bench, task: str, capsys: pytest.CaptureFixture[str]) -> None:
    give_format(bench.run, 1)
    words = [*FOLDER_TASKS[task], f"run={bench.run}", f"output_dir={bench.root / 'out'}"]
    words += bench.judge() if "rejudge" in words[0] else []
    said = refused(bench, words, capsys)
    assert f"{bench.run / 'manifest.json'}: format" in said
    assert f"format 1, made by ragpipe {ragpipe.__version__} code " in said
    assert f"format {FORMAT}, that of ragpipe {ragpipe.__version__}" in said
    assert "start the run's command again" in said


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("number", OTHERS)
def test_the_command_of_a_run_does_not_resume_one_of_another_format(bench, number: object, capsys) -> None:
    give_format(bench.run, number)
    (bench.run / "report.md").unlink()  # a resumed run would write it anew
    for words in (bench.words, [*bench.words, "iterations=2"], [*bench.words, "retry_errors=true"]):
        assert ("no format number" if number is None else f"format {number}") in refused(bench, words, capsys)
    with pytest.raises(FormatMismatch, match=r"manifest\.json"):
        ragpipe.load(bench.run)


def test_runs_of_another_format_are_named_and_the_others_listed(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    """One of two: it has a line of its own, and nothing of it but its number is read. All of them: exit 2."""
    assert main([*bench.words, "scoring.thresholds.correctness=5"]) == 0
    give_format(bench.run, 1)
    (bench.run / "iteration-1" / "metrics.json").write_text("no longer read")
    other = (bench.run.parent / "latest").resolve()
    said = output_of(["task=runs", f"output_dir={bench.root / 'out'}"], 0, capsys).out
    assert f"{bench.run} is refused: format 1, made by ragpipe {ragpipe.__version__}" in said
    listed = {line.split("`")[1]: line for line in (bench.run.parent / "runs.md").read_text().splitlines() if line.startswith("| `")}
    assert "refused: format 1" in listed[bench.run.name]
    assert "complete" in listed[other.name]
    give_format(other, FORMAT + 1)
    assert main(["task=runs", f"output_dir={bench.root / 'out'}"]) == 0
    assert [line.count("is refused") for line in capsys.readouterr().out.splitlines()] == [1, 1]


def test_a_new_run_beside_one_of_another_format_takes_nothing_from_it(bench: Bench) -> None:
    give_format(bench.run, 1)
    before = {name: state for name, state in bench.tree().items() if name.startswith(str(bench.run))}
    assert main([*bench.words, "scoring.thresholds.correctness=5"]) == 0
    assert {name: state for name, state in bench.tree().items() if name.startswith(str(bench.run))} == before
    made_of = (bench.run.parent / "latest").resolve() / "outputs.parquet"
    assert made_of.stat().st_ino != (bench.run / "outputs.parquet").stat().st_ino  # not linked: written anew


STORE_TASKS = {
    "evaluate again": [],
    "evaluate anew": ["scoring.thresholds.correctness=5"],
    "plan": ["task=plan"],
    "rescore": ["task=rescore", "scoring.thresholds.correctness=5"],
    "replay": ["task=rejudge", "judge.seed=5"],
    "stats": ["task=store"],
    "prune": ["task=store", "action=prune", "unused=true", "dry_run=false"],
    "export": ["task=store", "action=export", "to=exported.jsonl"],
    "import": ["task=store", "action=import", "from=calls.jsonl"],
}


@pytest.mark.thorough(tried=2)
@pytest.mark.parametrize("task", STORE_TASKS)
def test_every_task_that_looks_into_the_store_refuses_one_of_another_format(bench, task: str, capsys) -> None:
    age(bench.store)
    words = STORE_TASKS[task]
    if not words or not words[0].startswith("task=") or words[0] == "task=plan":
        words = [*bench.words, *words]
    else:
        words = [*words, f"output_dir={bench.root / 'out'}"]
        words += [f"run={bench.run}"] if "task=store" not in words else []
        words += bench.judge() if "task=rejudge" in words else []
    said = refused(bench, words, capsys)
    assert f"{bench.store}: format" in said
    assert "no format number, it does not say which ragpipe made it" in said
    assert "store.path=" in said
    assert not (bench.root / "exported.jsonl").exists()


def test_stores_and_exports_of_another_format_say_which(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [json.loads(line) for line in (bench.root / "calls.jsonl").read_text().splitlines()]
    assert {row["format"] for row in rows} == {FORMAT}
    for number in (1, None):
        changed = [{**row, "format": number} for row in rows]
        (bench.root / "other.jsonl").write_text("".join(json.dumps(row) + "\n" for row in changed))
        words = ["task=store", "action=import", "from=other.jsonl", f"output_dir={bench.root / 'out'}"]
        assert "other.jsonl: format" in refused(bench, words, capsys)
    age(bench.store, FORMAT + 1)
    assert f"format {FORMAT + 1}, made by ragpipe {ragpipe.__version__}" in refused(bench, bench.words, capsys)
