"""A folder with a data set, the server of a judge, and whole runs of one command over both: what they ask, say and leave."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ragpipe.cli.command_line import main
from ragpipe.testing.openai_server import OpenAIServer


@dataclass
class Place:
    """`words` is the command of the run, whose output folder is `root/out`."""

    server: OpenAIServer
    words: list[str]
    root: Path
    capsys: pytest.CaptureFixture[str]
    said: str = ""
    """What the last start printed."""

    def run(self, *more: str, expected: int | None = 0) -> int:
        """How many requests the run took; None expects no exit code."""
        before = len(self.server.log)
        self._start([*self.words, *more], expected)
        return len(self.server.log) - before

    def task(self, *words: str, expected: int = 0) -> str:
        self._start([*words, f"output_dir={self.root / 'out'}"], expected)
        return self.said

    def _start(self, words: list[str], expected: int | None) -> None:
        code = main(words)
        shown = self.capsys.readouterr()
        self.said = shown.out + shown.err
        assert expected in (None, code), self.said

    @property
    def file(self) -> Path:
        return self.root / "out" / ".store" / "calls.sqlite"

    @property
    def folder(self) -> Path:
        return (self.root / "out" / "torture" / "latest").resolve()

    def json(self, name: str) -> dict[str, Any]:
        return json.loads((self.folder / name).read_text())


def output_of(words: list[str], code: int, capture: pytest.CaptureFixture[str]) -> Any:
    """What a start prints on either stream, which must end with this code."""
    capture.readouterr()
    assert main(words) == code
    return capture.readouterr()
