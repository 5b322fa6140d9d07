"""The journal: append-only JSON lines, one per finished piece of work, after a header line with the version.

A killed process leaves at most one torn line, the last. No other line is ever changed or dropped.
"""

from __future__ import annotations

import errno
import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn, Self

from ragpipe.core.errors import DataError, Problem
from ragpipe.core.strict_json import check_json
from ragpipe.core.version import __version__
from ragpipe.schema.format_version import FORMAT, format_mismatch
from ragpipe.store.files.atomic import atomic_write, json_bytes, output_error, sync
from ragpipe.store.files.filesystem import is_regular_file

HEADER = json_bytes({"format": FORMAT, "ragpipe": __version__}) + b"\n"
SYNC_S = 1.0

Entry = dict[str, Any]
_NONE: Mapping[str, type] = {}
_KINDS = {str: "text", bool: "true or false", int: "whole number", float: "number with a point", dict: "object"}
_FIX = "correct the line, or move the file away: its cases are then done again, from the call store where it has them"


def journal_lines(entries: Iterable[Mapping[str, Any]]) -> bytes:
    """A line per entry, as a journal has them. Raises ValueError for NaN and infinities, TypeError for what is not JSON."""
    return b"".join(json_bytes(entry) + b"\n" for entry in entries)


def entries_of(lines: bytes) -> list[dict[str, Any]]:
    """The entries of `journal_lines`."""
    return [_DECODER.decode(line) for line in lines.decode("utf-8").split("\n")[:-1]]


def last_lines(lines: bytes, count: int) -> bytes:
    """The last `count` of `journal_lines`, or all where there are no more."""
    start = len(lines)
    for _ in range(count):
        if start <= 0:
            break
        start = lines.rfind(b"\n", 0, start - 1) + 1
    return lines[start:]


def has_entries(path: Path) -> bool:
    """Whether a journal has more than its header; False where there is none."""
    return path.is_file() and path.stat().st_size > len(HEADER)


class Journal:
    """An open journal: `entries` are those read at opening, `notices` what the user should know about them.

    Only one process writes at a time: the folder's lock ensures it. A line is handed to the operating system at once (a
    killed process loses none) and synced at most once a second in the background (a power cut loses that much).
    """

    def __init__(self, path: Path, descriptor: int, entries: list[Entry], notices: list[str]):
        self.path, self.entries, self.notices = path, entries, notices
        self._descriptor = descriptor
        self._size = os.fstat(descriptor).st_size
        self._last_sync = time.monotonic()
        self._sync: threading.Thread | None = None
        self._sync_error: OSError | None = None
        self._broken = self._closed = False

    @classmethod
    def open(
        cls, path: Path, *, keep: Callable[[Entry], bool] | None = None, form: Mapping[str, type] = _NONE
    ) -> Journal:
        """Open or start a journal. With `keep`, only the entries that it accepts stay in memory.

        `form` is what every entry has: field names with the types of their values. An entry without them, or with a lone
        surrogate, is a bad line. A torn last line is dropped with a notice, after its bytes were saved in `<name>.torn`. Raises DataError, naming
        file and line, for every bad line; FormatMismatch for a journal of another format; OutputError when it cannot be opened.
        """
        path = Path(path)
        notices: list[str] = []
        try:
            if path.is_symlink():
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                atomic_write(path, HEADER)
            entries, good, tail = _read(path, keep, form)
            if tail:
                _drop_torn_line(path, good, tail, notices)
            if not good:
                atomic_write(path, HEADER)
            flags = os.O_WRONLY | os.O_APPEND | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
            return cls(path, os.open(path, flags), entries, notices)
        except OSError as error:
            raise output_error(path, error, "open") from error

    def append(self, entry: Entry) -> None:
        """Write one line: `append_all`."""
        self.append_all([entry])

    def append_all(self, entries: Iterable[Entry]) -> None:
        """Write a line per entry. Raises as `journal_lines`, and OutputError: see `append_lines`."""
        self.append_lines(journal_lines(entries))

    def append_lines(self, lines: bytes) -> None:
        """Write lines (`journal_lines`). Raises OutputError: the journal then has none of them, ends with a whole line and can be
        appended to again."""
        if self._closed or self._broken:
            raise ValueError(f"the journal {self.path} is closed")
        if self._sync_error:
            error, self._sync_error = self._sync_error, None
            raise output_error(self.path, error) from error
        written = 0
        try:
            if not os.fstat(self._descriptor).st_nlink:  # deleted during the run: the line would be lost
                raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.path))
            while written < len(lines):
                written += os.write(self._descriptor, lines[written:])
        except OSError as error:
            # remove lines that were only written in part (disk full): the next one must not follow them
            if written:
                try:
                    os.ftruncate(self._descriptor, self._size)
                except OSError:
                    self._broken = True  # the line is torn, as after a kill, and stays the last one
            raise output_error(self.path, error) from error
        self._size += len(lines)
        if time.monotonic() - self._last_sync > SYNC_S:
            self._sync_in_background()

    def close(self) -> None:
        """Sync and close; a second time does nothing. Raises OutputError."""
        if self._closed:
            return
        self._closed = True
        if self._sync:
            self._sync.join()
        try:
            try:
                sync(self._descriptor, self.path)
            finally:
                os.close(self._descriptor)
        except OSError as error:
            raise output_error(self.path, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _sync_in_background(self) -> None:
        if self._sync and self._sync.is_alive():
            return
        self._last_sync = time.monotonic()
        self._sync = threading.Thread(target=self._sync_now, name="ragpipe-journal", daemon=True)
        self._sync.start()

    def _sync_now(self) -> None:
        try:
            sync(self._descriptor, self.path)
        except OSError as error:
            self._sync_error = error


def read_entries(
    path: Path, *, keep: Callable[[Entry], bool] | None = None, form: Mapping[str, type] = _NONE
) -> list[Entry]:
    """The entries of a journal as `Journal.open` reads them, without changing it; none where there is no file.

    A torn last line is skipped. Raises DataError, FormatMismatch, OutputError as `Journal.open`.
    """
    try:
        return _read(path, keep, form)[0] if is_regular_file(path) else []
    except OSError as error:
        raise output_error(path, error, "read") from error


def _read(path: Path, keep: Callable[[Entry], bool] | None, form: Mapping[str, type]) -> tuple[list[Entry], int, bytes]:
    """Entries, length of the complete lines in bytes, and the torn line after them. Raises DataError for all bad lines."""
    entries: list[Entry] = []
    problems: list[Problem] = []
    good, tail = 0, b""
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):  # cut at b"\n" only: splitlines() cuts at U+2028 and others too
            if not line.endswith(b"\n"):
                tail = line
                break
            good += len(line)
            entry = _entry(path, number, line, problems, strict=bool(form))
            if number == 1:
                _check_header(path, entry)
            elif entry is not None and _has_form(path, number, entry, form, problems) and (keep is None or keep(entry)):
                entries.append(entry)
    if problems:
        raise DataError(f"the journal {path} cannot be continued", problems)
    return entries, good, tail


def _entry(path: Path, number: int, line: bytes, problems: list[Problem], *, strict: bool) -> Entry | None:
    try:
        entry = _DECODER.decode(line.decode(json.detect_encoding(line), "surrogatepass"))  # as `json.loads` does
        if strict:
            check_json(entry, line.decode("utf-8"))
        if isinstance(entry, dict):
            return entry
        content = f"a JSON {type(entry).__name__}"
    except (ValueError, RecursionError) as error:
        content = f"{line[:80]!r} ({error})"
    problems.append(Problem(f"{path}:{number}", "line", content, "a JSON object", _FIX))
    return None


def _has_form(path: Path, number: int, entry: Entry, form: Mapping[str, type], problems: list[Problem]) -> bool:
    """Whether an entry has the fields of `form`; adds a problem for the first that is absent or of another type."""
    for name, kind in form.items():
        if type(entry.get(name)) is not kind:  # true is an int, too
            value = f"{entry[name]!r:.60}" if name in entry else "it is absent"
            problems.append(Problem(f"{path}:{number}", name, value, f"a JSON {_KINDS[kind]}", _FIX))
            return False
    return True


def _check_header(path: Path, header: Entry | None) -> None:
    if header is not None and (type(header.get("format")) is not int or header["format"] != FORMAT):
        raise format_mismatch(
            "a journal of another format is not continued",
            f"{path}:1",
            header.get("format"),
            header.get("ragpipe"),
            "use the ragpipe that wrote it, or move the file away: its cases are then done again",
        )


def _refuse_constant_name(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is no finite number")
    return value


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant_name, parse_float=_finite)
"""Made once: `json.loads` would make one for each line."""


def _drop_torn_line(path: Path, good: int, tail: bytes, notices: list[str]) -> None:
    """Save a torn last line beside the journal, then truncate the journal to its complete lines."""
    number = 1
    backup = path.with_name(f"{path.name}.torn")
    while backup.exists() or backup.is_symlink():
        number += 1
        backup = path.with_name(f"{path.name}.torn-{number}")
    atomic_write(backup, tail)
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.ftruncate(descriptor, good)
        sync(descriptor, path)
    finally:
        os.close(descriptor)
    notices.append(
        f"{path}: the last line was torn (a process died while writing it); it was dropped and its {len(tail)} bytes "
        f"saved in {backup.name}. Its work is done again."
    )
