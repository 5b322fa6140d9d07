"""A finished run as it travels: its folder alone, far from the data set and the call store, which are gone."""

import json
import shutil
from pathlib import Path

import pytest

from ragpipe.cli.command_line import main
from ragpipe.testing.openai_server import serving
from tests.support.harness import arguments

KEY = "RAGPIPE_TEST_KEY"
CASES = 10
CHUNKS = 3


def write_data(path: Path, cases: int = CASES) -> Path:
    records = [
        {"id": f"q{i}", "question": f"What does case {i} say?", "category": "even" if i % 2 == 0 else "odd",
         "answer": f"Case {i} says {i * 3} things. It also names word{i}.", "relevant_chunks": [f"c{i}-1"],
         "chunks": [{"id": f"c{i}-{k}", "text": f"Passage {k} of case {i} says {i * 3} things."} for k in range(CHUNKS)]}
        for i in range(cases)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def travelled(here: Path, *words: str) -> Path:
    """The folder of a run of `write_data` by a judge that is gone, too."""
    data = write_data(here / "data.jsonl")
    with pytest.MonkeyPatch.context() as monkeypatch, serving() as server:
        monkeypatch.chdir(here)
        monkeypatch.setenv(KEY, "sk-sentinel-4242")
        metrics = "retrieval,faithfulness,chunk_faithfulness"
        assert main(arguments(data, here / "out", server.url, "report.formats=[markdown]", *words, metrics=metrics)) == 0
    shutil.copytree((here / "out" / "torture" / "latest").resolve(), here / "elsewhere" / "run")
    shutil.rmtree(here / "out")
    data.unlink()
    return here / "elsewhere" / "run"


def content(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Every file of a folder with its inode: what is rewritten with the same bytes differs, too."""
    found = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_ino) for path in found}
