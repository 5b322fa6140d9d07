"""Comparisons of two runs that a person ticked: the page of `task=compare`, made in a thread, one at a time, kept in a temporary folder."""

from __future__ import annotations

import shlex
import shutil
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args
from urllib.parse import quote

from ragpipe.comparing.settings import CompareSettings, Part
from ragpipe.core.digest import sha256
from ragpipe.core.errors import RagpipeError
from ragpipe.engine.runs.comparison_files import compared_runs
from ragpipe.extras.view.listed_run import ListedRun
from ragpipe.reports.compare.compare_page import compare_page
from ragpipe.store.files.page_writer import write_page
from ragpipe.store.run.run_folder import RunFolder

KEPT = 20
"""Pages that are kept."""


STRICT = "strict"
"""In an address: nothing that makes figures incomparable may differ."""


def compared_address(base: str, candidate: str, accept: str = STRICT) -> str:
    """The address of a comparison of two runs by their keys."""
    return f"/compare/{accept}/{quote(base, safe='/')}/to/{quote(candidate, safe='/')}/"


def accepted_parts(word: str) -> tuple[Part, ...] | None:
    """The parts that an address accepts; None for a word that is none."""
    parts = () if word == STRICT else tuple(word.split(","))
    known = get_args(Part)
    return tuple(part for part in known if part in parts) if set(parts) <= set(known) else None


@dataclass
class ComparedPage:
    """A comparison that is being made, or was. `file` is its page; `refusal` says in lines why there is none,
    `offers` what would have to be accepted for one."""

    base: ListedRun
    candidate: ListedRun
    accept: Sequence[Part]
    ended: threading.Event
    file: Path | None = None
    refusal: Sequence[str] = ()
    offers: Sequence[Part] = ()

    @property
    def accepting(self) -> str:
        """The address of the comparison that accepts what is offered, from the address of this one; empty for none."""
        word = ",".join([*self.accept, *self.offers])
        return compared_address(self.base.key, self.candidate.key, word) if self.offers else ""

    @property
    def command(self) -> str:
        """The same comparison on the command line, which keeps it."""
        words = [f"base={self.base.root}", f"candidate={self.candidate.root}"]
        if parts := [*self.accept, *(part for part in self.offers if part not in self.accept)]:
            words.append(f"compare.accept=[{','.join(parts)}]")
        return f"python -m ragpipe task=compare {shlex.join(words)}"


class ComparedPages:
    """The comparisons of one server. Nothing is written into the output folder."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="ragpipe-view-", ignore_cleanup_errors=True)
        self._pages: OrderedDict[str, ComparedPage] = OrderedDict()
        self._turn = threading.Lock()

    def close(self) -> None:
        """Remove the pages."""
        self._folder.cleanup()

    def page(self, base: ListedRun, candidate: ListedRun, accept: Sequence[Part] = ()) -> ComparedPage:
        """The comparison of two runs, begun if it is new or a run has changed since. `accept` is what may differ."""
        key = sha256([[run.key, run.mark] for run in (base, candidate)] + [list(accept)])[:32]
        if key not in self._pages:
            page = self._pages[key] = ComparedPage(base, candidate, accept, threading.Event())
            target = Path(self._folder.name) / key / "compare.html"
            threading.Thread(target=self._make, args=(page, target), name="ragpipe-view-compare", daemon=True).start()
        self._pages.move_to_end(key)
        while len(self._pages) > KEPT:
            old, _ = self._pages.popitem(last=False)
            shutil.rmtree(Path(self._folder.name) / old, ignore_errors=True)
        return self._pages[key]

    def _make(self, page: ComparedPage, target: Path) -> None:
        try:
            with self._turn:
                target.parent.mkdir()
                _write_comparison_page(target, page)
            page.file = target
        except RagpipeError as error:
            page.refusal = str(error).splitlines()
            page.offers = _offered_parts(error)
        except Exception as error:  # a damaged run folder: said on the page, and the server goes on
            page.refusal = [f"the comparison failed: {type(error).__name__}: {error}"]
        finally:
            page.ended.set()


def _write_comparison_page(target: Path, page: ComparedPage) -> None:
    """Raises ConfigError for runs that cannot be compared, and DataError."""
    settings = CompareSettings(accept=list(page.accept))
    with compared_runs(RunFolder(page.base.root), [RunFolder(page.candidate.root)], settings) as compared:
        write_page(target, compare_page(compared.document, compared.base, compared.candidates, compared.comparisons))


def _offered_parts(error: RagpipeError) -> tuple[Part, ...]:
    """The parts that have to be accepted for these two runs to be compared, where that is all that is wrong."""
    problems = getattr(error, "problems", ())
    parts = {problem.key.partition(":")[0] for problem in problems}
    known = get_args(Part)
    return tuple(part for part in known if part in parts) if parts and parts <= set(known) else ()
