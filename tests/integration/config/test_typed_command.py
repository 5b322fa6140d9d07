"""The command to go on is the one that was typed: they differ in the folder that plugins are found in."""

import sys

import pytest

from ragpipe import cli
from ragpipe.core.errors import Interrupted
from ragpipe.core.version import __version__


@pytest.mark.parametrize(
    ("program", "command"),
    [
        ("/home/me/venv/bin/ragpipe", "ragpipe"),
        ("ragpipe.exe", "ragpipe"),
        ("/home/me/venv/lib/ragpipe/__main__.py", "python -m ragpipe"),
        ("/usr/bin/pytest", "python -m ragpipe"),
    ],
)
def test_the_command_to_go_on_is_as_it_was_typed(
    program: str, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise Interrupted("interrupted", 2)

    monkeypatch.setattr(sys, "argv", [program])
    monkeypatch.setattr(cli, "_start", interrupted)
    assert cli.main(["+experiment=my", "name=two words"]) == 130
    assert f"to go on where it stopped: {command} +experiment=my 'name=two words'\n" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["-V", "--version"])
def test_the_version(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([option]) == 0
    assert capsys.readouterr().out == f"ragpipe {__version__}\n"
