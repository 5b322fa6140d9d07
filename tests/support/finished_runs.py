"""Finished runs for tests that read, damage or score a run again: one start per command and suite, and copies of its folder.

Everything in a run's folder is relative to it, so a copy is as good as the run. What is kept is read-only by agreement: a test
that writes takes a copy.
"""

import contextlib
import fcntl
import io
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from ragpipe.cli.command_line import main
from ragpipe.core.digest import sha256


@dataclass(frozen=True)
class FinishedRun:
    """What a command left in an empty folder."""

    outputs: Path
    """Its output folder, to be read."""
    printed: str
    """What it said, on 200 columns."""

    def latest(self) -> Path:
        (link,) = self.outputs.glob("*/latest")
        return link.resolve()

    def copy_outputs(self, place: Path) -> None:
        """Copy the output folder to `place/outputs`, where the same command finds its run."""
        shutil.copytree(self.outputs, place / "outputs", symlinks=True)


@dataclass(frozen=True)
class FinishedRuns:
    """The finished runs by their commands. They stand in a folder that all processes of the suite share."""

    folder: Path

    def of(self, *words: str, code: int = 0) -> FinishedRun:
        """The run of the command of these words, which ends with this exit code; started where it has not been yet."""
        place = self.made(sha256([*words, code]), lambda here: _start(here, words, code))
        return FinishedRun(place / "outputs", (place / "printed.txt").read_text(encoding="utf-8"))

    def made(self, name: str, make: Callable[[Path], object]) -> Path:
        """The folder of this name, which one process fills by `make`, while the others wait for it."""
        place = self.folder / name
        place.mkdir(parents=True, exist_ok=True)
        with open(place / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (place / "made").exists():
                shutil.rmtree(place / "here", ignore_errors=True)
                (place / "here").mkdir()
                make(place / "here")
                (place / "made").touch()
        return place / "here"


def _start(here: Path, words: tuple[str, ...], code: int) -> None:
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        patch.chdir(here)
        patch.setenv("COLUMNS", "200")
        assert main(list(words)) == code, said.getvalue()
    (here / "printed.txt").write_text(said.getvalue(), encoding="utf-8")
