"""A file for what was paid for and cannot be stored: the disk is full, or the store was deleted or damaged.

It is in the system's temporary folder; `task=store action=import` takes it in.
"""

from __future__ import annotations

import os
import shlex
import tempfile
import threading
from pathlib import Path

from ragpipe.core.errors import DataError, OutputError, Problem
from ragpipe.schema.call import Call
from ragpipe.store.calls.ledger_rows import PaymentEntry
from ragpipe.store.calls.transfer import line_of_call, line_of_payment

_CONTENT = "what was paid for and could not be stored"


class LastResortFile:
    """The file of one store, made with its first line. Safe in threads; never raises.

    `setting` is the word of the command line that names the store; empty where the default or `store.path` does. `host` names this host
    where the processes of a run may be on several; empty where they are on one.
    """

    def __init__(self, setting: str = "", host: str = "") -> None:
        self._setting = f" {shlex.quote(setting)}" if setting else ""
        self._on_host = f" on the host {host}" if host else ""
        self._is_told = False
        self.file: Path | None = None
        self._lock = threading.Lock()

    def add_call(self, call: Call) -> bool:
        """Keep a call; False where even this cannot be written."""
        return self._write(line_of_call(call))

    def add_payment(self, payment: PaymentEntry) -> bool:
        """Keep a payment; False where even this cannot be written."""
        return self._write(line_of_payment(payment))

    def with_location(self, error: OutputError | DataError) -> OutputError | DataError:
        """The error with the place of the file and the command that takes it in; unchanged where there is no file."""
        if self.file is None or str(self.file) in str(error):
            return error
        command = self._command()
        located: OutputError | DataError
        if isinstance(error, DataError):
            problem = Problem(
                str(self.file), "replies", _CONTENT, "these rows in a call store", f"`{command}` takes them in"
            )
            located = type(error)(error.title, [*error.problems, problem])
        else:
            located = type(error)(f"{error} {_CONTENT.capitalize()} is kept in {self.file}: `{command}` takes it in.")
        located.__cause__ = error.__cause__
        return located

    def take_notice(self) -> str | None:
        """Where the file is and how it is taken in, for the user; None where there is no file, or this was asked for before. Each
        process of a run has a file of its own, and the run ends with the error of only one."""
        with self._lock:
            if self.file is None or self._is_told:
                return None
            self._is_told = True
        return f"{_CONTENT} is kept in {self.file}{self._on_host}: `{self._command()}` takes it in"

    def _command(self) -> str:
        return f"task=store action=import from={shlex.quote(str(self.file))}{self._setting}"

    def _write(self, line: bytes) -> bool:
        with self._lock:
            try:
                if self.file is None:
                    descriptor, name = tempfile.mkstemp(prefix="ragpipe-replies-", suffix=".jsonl")
                    self.file = Path(name)
                else:
                    descriptor = os.open(self.file, os.O_WRONLY | os.O_APPEND)
                with open(descriptor, "ab") as file:
                    file.write(line)
                return True
            except OSError:
                return False
