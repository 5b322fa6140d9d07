"""What the command line makes of an error that ended a job."""

from enum import Enum
from typing import NoReturn

import pytest
from pydantic_core import SchemaError, SchemaValidator

from ragpipe.cli.command_line import report
from ragpipe.core.errors import OutputError, SignalReceived


def test_causes_that_go_round_in_a_circle_end(capsys: pytest.CaptureFixture[str]) -> None:
    """`raise error.orig from error`, where `error` was raised from `orig`, makes such causes."""
    lost, wrapped = ConnectionError("connection refused"), RuntimeError("the driver's error in a library's")
    wrapped.__cause__, lost.__cause__ = lost, wrapped
    error = OutputError("cannot use the call store")
    error.__cause__ = lost
    assert report(error).code == 6
    assert capsys.readouterr().err == "cannot use the call store\n"


def test_an_interrupt_behind_an_error_is_reported_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    error = ValueError("no clean-up possible")
    error.__context__ = KeyboardInterrupt()
    assert report(error).code == 130
    assert capsys.readouterr().err == "interrupted\n"


class _Interrupted(Enum):
    A = 1

    @property
    def value(self) -> NoReturn:
        raise SignalReceived(15)


def test_a_signal_while_pydantic_builds_a_schema(capsys: pytest.CaptureFixture[str]) -> None:
    """Its error has neither cause nor context: the signal is a word of its text."""
    with pytest.raises(SchemaError) as raised:
        SchemaValidator({"type": "enum", "cls": _Interrupted, "members": [_Interrupted.A]})
    assert report(raised.value).code == 143
    assert capsys.readouterr().err == "terminated\n"
