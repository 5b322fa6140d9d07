"""A run as the page has it: one JSON object with every text made here, so that the script only lays it out."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from ragpipe.core.safe_text import on_one_line, printable
from ragpipe.extras.view.folder_scan import Sweep
from ragpipe.extras.view.listed_run import GatesVerdict, ListedRun, MainScore
from ragpipe.extras.view.run_changes import RunChange
from ragpipe.extras.view.run_state import Counters, RunState, rough_duration
from ragpipe.reports.number_format import decimal, money, plural, whole
from ragpipe.store.run.progress_state import ProgressState

_WORDS = 200  # characters of a text on a row
_NOUNS = {"collecting": "output"}
KINDS = {"blocked": "bad", "warned": "warn", "passed": "good", "none": ""}
"""The colour of a verdict; its words stand beside it."""


def run_address(key: str, file: str) -> str:
    """The address of a file of a run, from the page's own: the same on the server and in a static folder."""
    return f"runs/{quote(key, safe='/')}/{file}"


def run_row(run: ListedRun, change: RunChange | None, *, has_before: bool, sweep: Sweep | None) -> dict[str, Any]:
    """What the page shows of a run.

    Args:
        run: the run.
        change: its difference to the run before; None where it is not known yet.
        has_before: whether there is a run before.
        sweep: the sweep that it is a job of.
    """
    row: dict[str, Any] = {
        "key": run.key,
        "name": _text(run.name),
        "id": _text(run.run_id),
        "when": _when(run.created),
        "state": run.status.state,
        "reason": _text(run.status.reason),
        "links": [[_link_word(file), run_address(run.key, file)] for file in run.files],
        "judge": _text(run.judge),
        "data": _text(run.data),
        "cost": run.cost,
        "resume": printable(run.status.resume),
        "score": "",  # of a run without figures
        "overall": "",
        "comparable": run.main is not None and not run.is_unfinished,
        "search": _text(" ".join((run.name, run.run_id, run.judge, run.data, run.status.state))).lower(),
    }
    if run.n_cases is not None:
        row["cases"] = plural(run.n_cases, "case")
    if run.verdict is not None:
        row["verdict"] = _verdict(run.verdict)
    if run.main is not None:
        row |= {"score": _text(run.main.name), "overall": score_words(run.main), "mean": run.main.mean}
    if has_before:
        row["change"] = ["…", "", ""] if change is None else [change.words, change.state, change.before]
    if sweep is not None:
        row["sweep"] = sweep.key
    if run.is_unfinished:
        row["live"] = live_words(run.status)
    return row


def sweep_row(sweep: Sweep) -> dict[str, Any]:
    """What the page shows of a sweep: its words with several values, and where its table is."""
    values = [word for word in sweep.words if "," in word] or list(sweep.words)
    return {"key": sweep.key, "words": _text(" ".join(values)), "link": run_address(sweep.key, "comparison.md")}


def score_words(score: MainScore) -> str:
    """`0.77 [0.70, 0.82]`; under 5 answers no interval."""
    if score.low is None or score.high is None:
        return decimal(score.mean, 2)
    return f"{decimal(score.mean, 2)} [{decimal(score.low, 2)}, {decimal(score.high, 2)}]"


def _verdict(verdict: GatesVerdict) -> dict[str, Any]:
    sentences = [on_one_line(sentence, _WORDS) for sentence in verdict.sentences[:5]]
    return {"words": verdict.words, "kind": KINDS[verdict.outcome], "sentences": sentences}


def live_words(status: RunState) -> dict[str, Any]:
    """What the page shows of a run that is going on, has stalled or was stopped: figures in the order of the page."""
    counters = status.counters or Counters(None, 0, 0)
    state, total = counters.state, max(0, counters.total)
    live: dict[str, Any] = {
        "phase": counters.phase,
        "done": f"{whole(counters.done)} of {plural(total, _NOUNS.get(counters.phase, 'case'))}" if total else "",
        "share": round(min(1.0, max(0.0, counters.done / total)), 4) if total else None,
        "figures": list(_figures(state, is_gone=status.is_gone)) if state else [],
        "errors": [[_text(name), whole(n)] for name, n in _largest(state.error_groups)] if state else [],
    }
    if status.state == "running" and state and state.seconds_left is not None:
        live["left"] = f"{rough_duration(state.seconds_left)} left"
    return live


def _figures(state: ProgressState, *, is_gone: bool) -> Iterator[list[str]]:
    """[name, value] of what is counted; what nothing has been counted of is left out, but for the calls themselves. Of a process
    that is gone nothing is in flight, waits or has a rate."""
    calls = state.calls
    yield from (["sent", whole(calls.sent)], ["answered", whole(calls.answered)])
    if not is_gone:
        yield ["in flight", whole(calls.in_flight)]
    more = (
        ("waiting", 0 if is_gone else calls.waiting),
        ("failed requests", calls.failed),
        ("texts computed here", state.texts.embedded),
        ("cases resumed", state.cases.resumed),
        ("cases with an error", state.errors),
        ("tokens", state.tokens),
    )
    yield from ([name, whole(count)] for name, count in more if count)
    if calls.sent:
        if not is_gone:
            yield ["answers per second", f"{state.rate_per_second:.1f}"]
        yield ["cost", money(state.usd)]
    if state.waiting_until is not None and not is_gone:
        seconds = datetime.fromisoformat(state.waiting_until).timestamp() - time.time()
        words = f"waits {rough_duration(max(0.0, seconds))}"
        yield ["provider", words + (f" ({_text(state.waiting_for)})" if state.waiting_for else "")]


def _largest(groups: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(groups.items(), key=lambda item: (-item[1], item[0]))[:8]


def _link_word(file: str) -> str:
    return {"report.html": "report", "report.md": "text"}[file]


def _when(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M")


def _text(text: str) -> str:
    return on_one_line(text, _WORDS)
