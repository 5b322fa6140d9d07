"""How a start ends: its exit code, the folder of `task=init`, and the command that goes on."""

import sys
from pathlib import Path

import pytest

from ragpipe.cli import command_line
from ragpipe.cli.command_line import compose, main, report
from ragpipe.cli.tasks import init
from ragpipe.core import errors
from ragpipe.core.errors import Interrupted

CODES = [
    (errors.ConfigError("x"), 2), (errors.DataError("x"), 2), (errors.Incomplete("x"), 4), (errors.ProviderUnusable("x"), 5),
    (errors.OutputError("x"), 6), (errors.FolderLocked("x"), 6), (errors.Interrupted("x"), 130), (errors.Interrupted("x", 15), 143),
    (errors.Interrupted("x", 1), 129), (errors.SignalReceived(15), 143), (errors.SignalReceived(1), 129), (KeyboardInterrupt(), 130),
    (ZeroDivisionError("x"), 1), (PermissionError(13, "no", "f"), 6),
    (FileNotFoundError(2, "no", "f"), 6), (MemoryError(), 6), (RuntimeError("can't start new thread"), 6),
]  # fmt: skip


@pytest.mark.parametrize(("error", "code"), CODES, ids=[repr(row[0]) for row in CODES])
def test_each_error_has_its_code(error: BaseException, code: int, capfd: pytest.CaptureFixture[str]) -> None:
    assert report(error).code == code
    assert ("this is a bug" in capfd.readouterr().err) is (code == 1)


@pytest.mark.thorough
@pytest.mark.slow
def test_the_worst_code_counts_and_an_interrupt_starts_no_more(here, monkeypatch, capfd) -> None:
    ends = {"a": errors.Incomplete("a"), "b": ZeroDivisionError("b"), "c": None, "d": errors.Interrupted("d"), "e": None}
    ran: list[str] = []

    def run(config: init.InitSettings, console: object) -> int:
        ran.append(config.dir)
        error = ends[config.dir]
        if error is not None:
            raise error
        return 3

    monkeypatch.setattr(init, "run", run)
    assert main(["-m", "task=init", "dir=a,b,c"]) == 1
    assert ran == ["a", "b", "c"]
    assert main(["-m", "task=init", "dir=c,a"]) == 4  # 4 is worse than the 3 of c
    ran.clear()
    capfd.readouterr()
    assert main(["-m", "task=init", "dir=a,d,e"]) == 130
    assert ran == ["a", "d"]
    assert "not started" in capfd.readouterr().out
    assert list(here.iterdir()) == []


@pytest.mark.slow
def test_what_is_written_composes_as_it_is_and_with_a_language_model(here: Path) -> None:
    assert main(["task=init", "dir=my"]) == 0
    config = compose(["+experiment=my"], config_dir="my")
    assert (config.name, config.dataset.name, sorted(config.metrics)) == ("my", "my", ["faithfulness", "retrieval"])
    other = compose(["+experiment=my", "judge=my"], config_dir="my")
    assert (other.judge.model, other.judge.api_key_env) == ("openai/gpt-4o-mini-2024-07-18", "OPENAI_API_KEY")


@pytest.mark.parametrize(("program", "command"), [
    ("/home/me/venv/bin/ragpipe", "ragpipe"), ("ragpipe.exe", "ragpipe"),
    ("/home/me/venv/lib/ragpipe/__main__.py", "python -m ragpipe"), ("/usr/bin/pytest", "python -m ragpipe"),
])  # fmt: skip
def test_the_command_to_go_on_is_as_it_was_typed(program: str, command: str, monkeypatch, capsys) -> None:
    def interrupted(*_: object) -> None:
        raise Interrupted("interrupted", 2)

    monkeypatch.setattr(sys, "argv", [program])
    monkeypatch.setattr(command_line, "_start", interrupted)
    assert command_line.main(["+experiment=my", "name=two words"]) == 130
    assert f"to go on where it stopped: {command} +experiment=my 'name=two words'\n" in capsys.readouterr().err
