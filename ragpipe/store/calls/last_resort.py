"""The last ditch: what was paid for and cannot be stored (a full disk, a store that was deleted or damaged) goes into a file of the
system's temporary folder, from which `task=store action=import` takes it."""

from __future__ import annotations

import os
import shlex
import tempfile
import threading
from pathlib import Path

from ragpipe.core.errors import DataError, OutputError, Problem
from ragpipe.schema.call import Call
from ragpipe.store.calls.row_export import line_of_call, line_of_payment
from ragpipe.store.calls.spend import PaymentEntry


class LastResortFile:
    """The file of one store, made with the first line. Safe in threads; never raises."""

    def __init__(self) -> None:
        self.file: Path | None = None
        self._lock = threading.Lock()

    def call(self, call: Call) -> bool:
        """Keep a call; False where not even that can be written."""
        return self._write(line_of_call(call))

    def payment(self, payment: PaymentEntry) -> bool:
        """Keep a payment; False where not even that can be written."""
        return self._write(line_of_payment(payment))

    def told(self, error: OutputError | DataError) -> OutputError | DataError:
        """The error with where that file is and how to take it in, where there is one."""
        if self.file is None or str(self.file) in str(error):
            return error
        words = f"task=store action=import from={shlex.quote(str(self.file))}"
        kept = "what was paid for and could not be stored"
        found: OutputError | DataError
        if isinstance(error, DataError):
            here = Problem(str(self.file), "replies", kept, "these rows in a call store", f"`{words}` takes them in")
            found = type(error)(error.title, [*error.problems, here])
        else:
            found = type(error)(f"{error} {kept.capitalize()} is kept in {self.file}: `{words}` takes it in.")
        found.__cause__ = error.__cause__
        return found

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
