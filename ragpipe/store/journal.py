"""The journal: append-only JSON lines, one per finished piece of work, after a header line with the version. And that of a budget:
what is held for requests under way.

A killed process leaves at most one torn line, the last. No other line is ever changed or dropped.
"""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from ragpipe.core.errors import DataError, Problem
from ragpipe.core.strict_json import check_json, finite_float, refuse_constant
from ragpipe.core.usage import Amount
from ragpipe.core.version import FORMAT, __version__, format_mismatch
from ragpipe.store.files import atomic_write, is_regular_file, json_bytes, output_error, sync

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
    def open(cls, path: Path, *, keep: Callable[[Entry], bool] | None = None, form: Mapping[str, type] = _NONE) -> Journal:
        """Open or start a journal. With `keep`, only the entries that it accepts stay in memory.

        `form` is what every entry has: field names with the types of their values. An entry without them, or with a lone
        surrogate, is a bad line. A torn last line is dropped with a notice. Raises DataError, naming file and line, for every bad line; FormatMismatch for a journal of another format; OutputError when it cannot be opened.
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
            flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
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
        if time.monotonic() - self._last_sync > SYNC_S and not (self._sync and self._sync.is_alive()):
            self._last_sync = time.monotonic()
            self._sync = threading.Thread(target=self._sync_now, name="ragpipe-journal", daemon=True)
            self._sync.start()

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

    def _sync_now(self) -> None:
        try:
            sync(self._descriptor, self.path)
        except OSError as error:
            self._sync_error = error


def read_entries(path: Path, *, keep: Callable[[Entry], bool] | None = None, form: Mapping[str, type] = _NONE) -> list[Entry]:
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


_DECODER = json.JSONDecoder(parse_constant=refuse_constant, parse_float=finite_float)
"""Made once: `json.loads` would make one for each line."""


def _drop_torn_line(path: Path, good: int, tail: bytes, notices: list[str]) -> None:
    """Truncate the journal to its complete lines."""
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.ftruncate(descriptor, good)
        sync(descriptor, path)
    finally:
        os.close(descriptor)
    notices.append(
        f"{path}: the last line was torn (a process died while writing it); its {len(tail)} bytes were dropped. Its work is done again."
    )


_FORM = {"event": str, "hold": int, "name": str, "usd": float, "tokens": int, "calls": int}


class HoldJournal:
    """The holds of one account, over all starts. One process writes at a time: the lock of the run's folder ensures it.

    A request that was under way when its process was killed is in no ledger of payments, and may have been billed all the same.
    So each hold is a line here before its request leaves, and a second line says what became of it; one without a second line
    counts as spent. A request of a batch goes on without its process: its hold has a name, and stays open for the start that
    collects it.

    `carried` is what all earlier starts have spent, `assumed` the part of it that no answer confirms: holds of requests that
    timed out, broke off, or were under way when their process was killed. A line is in the operating system's hands before
    its request is sent: a killed process loses none, a power cut the last second. `named` are the open holds that have a name, each with
    its number; they are part of `carried` and of `assumed`.
    """

    def __init__(self, journal: Journal, carried: Amount, assumed: Amount, named: Mapping[str, tuple[int, Amount]]):
        self._journal = journal
        self.carried, self.assumed, self.named = carried, assumed, named
        self._last = len(named)

    @classmethod
    def open(cls, path: Path, ledger: Amount, *, spent_before: Amount | None = None) -> HoldJournal:
        """Open or begin the journal of an account; `ledger` is what the ledger of payments says that it has spent. With a new
        journal `spent_before` is what counts of it; None: all.

        A start without a budget leaves no holds but payments: whatever the ledger gained beyond the holds of the last start
        is counted too. Raises DataError for a damaged journal, OutputError.
        """
        carried, assumed, open_holds = _summed(path, ledger, ledger if spent_before is None else spent_before)
        named = {name: (number, open_holds[name]) for number, name in enumerate(open_holds, 1)}
        lines = [_line("ledger", 0, ledger), _line("spent", 0, carried), _line("assumed", 0, assumed)]
        lines += [_line("hold", number, amount, name) for name, (number, amount) in named.items()]
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, HEADER + b"".join(json_bytes(line) + b"\n" for line in lines))
        left = sum(open_holds.values(), Amount())
        return cls(Journal.open(path, keep=lambda _: False), carried + left, assumed + left, named)

    def hold(self, amount: Amount, name: str = "") -> int:
        """Write down what a request may cost, before it is sent. Returns the number of the hold. Raises OutputError."""
        self._last += 1
        self._journal.append(_line("hold", self._last, amount, name))
        return self._last

    def settle(self, number: int, cost: Amount) -> None:
        """Write down what the request has cost; nothing where the provider refused it. Raises OutputError."""
        self._journal.append(_line("cost", number, cost))

    def close(self) -> None:
        """Close the file. Raises OutputError."""
        self._journal.close()


def _line(event: str, number: int, amount: Amount, name: str = "") -> dict[str, Any]:
    return {"event": event, "hold": number, "name": name, **amount.as_json()}


def _summed(path: Path, ledger: Amount, spent_before: Amount) -> tuple[Amount, Amount, dict[str, Amount]]:
    """What earlier starts have spent, the part that no answer confirms, both without named open holds, and these."""
    totals = {"ledger": Amount(), "spent": Amount(), "assumed": Amount()}
    is_new, held, answered = True, dict[int, tuple[str, Amount]](), Amount()
    for entry in read_entries(path, form=_FORM):
        event, number, amount = entry["event"], entry["hold"], Amount.from_json(entry)
        if event in totals:
            is_new, totals[event] = False, amount
        elif event == "hold":
            held[number] = entry["name"], amount
        elif event == "cost" and number in held:
            del held[number]
            answered += amount
        else:
            found = f"{event!r} of hold {number}"
            problem = Problem(str(path), "event", found, "hold, or the cost of a hold above it", "remove the line")
            raise DataError(f"the journal {path} cannot be continued", [problem])
    if is_new:
        return spent_before, Amount(), {}
    left, named = Amount(), dict[str, Amount]()
    for name, amount in held.values():
        if name:
            named[name] = named.get(name, Amount()) + amount
        else:
            left += amount
    gained = (ledger - totals["ledger"]).at_least(Amount())
    return totals["spent"] + left + answered.at_least(gained), totals["assumed"] + left, named
