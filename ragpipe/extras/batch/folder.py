"""One batch on disk: `batches/<token>/` beside the call store, written before anything is sent.

    body           what is sent, whole
    lines.json     by key: the form in which the question is asked, and the hash of its request
    batch.json     where the batch stands; written last of the three, and again at every step
    results-N      the provider's files of results, as they came
    delivered      the keys whose replies are in the call store, one per line

A batch stands at `intent` (it may or may not exist at the provider), `sent` (it has an id), `collected` (its results are here)
or `done` (every reply is in the call store; only `batch.json` is left). A process that dies leaves a folder from which the next
one goes on.
"""

from __future__ import annotations

import json
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from ragpipe.core.errors import DataError, FolderLocked, Problem
from ragpipe.store.files import atomic_write, json_bytes, make_folders, output_error
from ragpipe.store.folder_lock import FolderLock

State = Literal["intent", "sent", "collected", "done"]


class Line(NamedTuple):
    """How a question is asked in a batch: the output mode, the name of its token limit, whether it has a system message, the
    sha256 of the request."""

    mode: str
    limit_name: str
    system_role: bool
    wire_hash: str


@dataclass(frozen=True, slots=True)
class BatchMark:
    """What `batch.json` says. `judge` is the judge's printable name, `created` is in epoch seconds, `files` counts the files of
    results."""

    token: str
    judge: str
    state: State
    requests: int
    created: float
    id: str | None = None
    files: int = 0


@dataclass
class BatchFolder:
    """The folder of one batch. `lines` are read when they are first asked for."""

    path: Path
    mark: BatchMark
    _lock: FolderLock | None = field(default=None, repr=False)

    @classmethod
    def create(cls, root: Path, token: str, judge: str, lines: Mapping[str, Line], body: bytes) -> Self:
        """Write a new batch below `root`, locked for this process: body first, intent last. Raises OutputError.

        `token` names it (`new_token`), `judge` is the judge's printable name; `lines` say by key how each question is asked.
        """
        path = root / token
        make_folders(path, exist_ok=False)
        folder = cls(path, BatchMark(token, judge, "intent", len(lines), time.time()))
        folder.lock()
        atomic_write(path / "body", body)
        atomic_write(path / "lines.json", json_bytes(lines))
        folder.write(folder.mark)
        return folder

    @classmethod
    def open(cls, path: Path) -> Self | None:
        """A batch of an earlier start; None where its intent was never written: nothing of it was sent. Raises DataError for
        a file of another form."""
        file = path / "batch.json"
        try:
            return cls(path, BatchMark(**json.loads(file.read_bytes())))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise output_error(file, error, "read") from error
        except (ValueError, TypeError):
            raise _unreadable(file, "no description of a batch") from None

    def lock(self) -> bool:
        """Take the folder for this process. False where another live process has it."""
        if self._lock is None:
            lock = FolderLock(self.path)
            try:
                lock.acquire()
            except FolderLocked:
                return False
            self._lock = lock
        return True

    def unlock(self) -> None:
        """Give the folder free."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def reread(self) -> None:
        """Read the mark again, after the lock was taken: its holder may have gone on meanwhile."""
        if (now := type(self).open(self.path)) is not None:
            self.mark = now.mark

    @cached_property
    def lines(self) -> dict[str, Line]:
        """By key, how its question is asked. Raises DataError for a damaged file."""
        file = self.path / "lines.json"
        try:
            return {key: Line(*line) for key, line in json.loads(file.read_bytes()).items()}
        except (OSError, ValueError, TypeError, AttributeError):
            raise _unreadable(file, "no list of questions") from None

    @cached_property
    def delivered(self) -> set[str]:
        """The keys whose replies are in the call store."""
        with suppress(OSError):  # a line that a dying process cut is no key
            return self.lines.keys() & set((self.path / "delivered").read_text("ascii", "replace").split("\n"))
        return set()

    @property
    def open_keys(self) -> set[str]:
        """The keys whose replies are still to be delivered."""
        return self.lines.keys() - self.delivered

    def write(self, mark: BatchMark) -> None:
        """Write where the batch stands. Raises OutputError."""
        atomic_write(self.path / "batch.json", json_bytes(asdict(mark), indent=1))
        self.mark = mark

    def collect(self, files: Iterable[bytes]) -> None:
        """Write the results, and then that they are here. Raises OutputError."""
        number = 0
        for number, data in enumerate(files, 1):
            atomic_write(self.path / f"results-{number}", data)
        self.write(replace(self.mark, state="collected", files=number))

    def results(self) -> Iterator[dict[str, Any]]:
        """The lines of all results; what is no JSON object is passed over."""
        for number in range(1, self.mark.files + 1):
            for line in (self.path / f"results-{number}").read_bytes().split(b"\n"):
                with suppress(ValueError, RecursionError):
                    if isinstance(data := json.loads(line), dict):
                        yield data

    def deliver(self, key: str) -> None:
        """Note that a reply is in the call store. With the last one the batch is done, and its files are removed."""
        if key in self.delivered:
            return
        try:
            with open(self.path / "delivered", "a", encoding="ascii") as file:
                file.write(f"{key}\n")
        except OSError as error:
            raise output_error(self.path / "delivered", error) from error
        self.delivered.add(key)
        if len(self.delivered) < len(self.lines):
            return
        self.write(replace(self.mark, state="done"))
        for name in ("body", "lines.json", "delivered", *(f"results-{n}" for n in range(1, self.mark.files + 1))):
            with suppress(OSError):
                (self.path / name).unlink()

    def discard(self) -> None:
        """Remove the folder: no batch was made of it."""
        self.unlock()
        shutil.rmtree(self.path, ignore_errors=True)


def new_token() -> str:
    """The name of a new batch: the time and a number by chance."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(6)}"


def open_folders(root: Path, judge: str, known: Iterable[str] = ()) -> list[BatchFolder]:
    """The batches of one judge below `root` that are not done, the oldest first, but for those with a known token."""
    try:
        tokens = sorted(entry.name for entry in root.iterdir() if entry.is_dir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise output_error(root, error, "read") from error
    passed = set(known)
    folders = (BatchFolder.open(root / token) for token in tokens if token not in passed)
    return [folder for folder in folders if folder and folder.mark.judge == judge and folder.mark.state != "done"]


def _unreadable(file: Path, found: str) -> DataError:
    fix = (
        f"remove {file.parent} and start again: its questions are then asked anew, and a batch of it that the provider has is "
        "paid for all the same"
    )
    return DataError("a batch on disk cannot be read", [Problem(str(file), "file", found, "a batch of ragpipe", fix)])
