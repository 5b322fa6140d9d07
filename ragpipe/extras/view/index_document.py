"""The content of the page over all runs as one JSON object: what `index.json` and the static folder hold."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from html import unescape
from pathlib import Path
from typing import Any

from markupsafe import Markup

from ragpipe.core.errors import DataError
from ragpipe.core.text import on_one_line, printable
from ragpipe.extras.view.listed_run import Counters, GatesVerdict, ListedRun, MainScore, rough_duration
from ragpipe.extras.view.page_bar import comparison_with, run_address
from ragpipe.extras.view.run_changes import RunChange, runs_before
from ragpipe.extras.view.run_files import Sweep, opened_below
from ragpipe.extras.view.run_index import Listing
from ragpipe.report.history_chart import HistoryLine, HistoryPoint
from ragpipe.report.page_file import Page, core_script, core_style, json_block, page_environment
from ragpipe.report.styled_text import decimal, money, plural, whole
from ragpipe.store.progress import ProgressState

_PAGE_TITLE = re.compile(r"<title>([^<]*?)(?: · ragpipe)?</title>")


def index_document(root: Path, listing: Listing, changes: Mapping[str, RunChange | None], revision: str) -> dict[str, Any]:
    """All that the page over the output folder `root` shows. `changes` is the difference of each run that has a previous run,
    `revision` what the page compares with that of `progress`, to know that it is old."""
    sweeps = {job: sweep for sweep in listing.sweeps for job in sweep.jobs}
    befores = runs_before(listing.runs)
    rows: list[dict[str, Any]] = []
    for run in listing.runs:
        row = run_row(run, changes.get(run.key), has_before=run.key in changes, sweep=sweeps.get(run.key))
        link, command = comparison_with(listing, run, root, befores)
        rows.append({**row, "compare": [run_address(link) if link else "", printable(command)]})
    pages = {
        f"{key}/compare.html": (listing.comparisons[key], "compare.html", f"{key.rsplit('/', 2)[0]}: ")
        for key in sorted(listing.comparisons)
    } | {key: (path.parent, path.name, "") for key, path in sorted(listing.pages.items())}
    return {
        "revision": revision,
        "folder": on_one_line(str(root)),
        "error": listing.error,
        "unread": listing.unread,
        "rows": rows,
        "sweeps": [sweep_row(sweep) for sweep in listing.sweeps],
        "comparisons": [[page_words(*page), run_address(address)] for address, page in pages.items()],
        "history": history_lines(listing.runs, changes),
    }


def page_words(root: Path, file: str, lead: str = "") -> str:
    """What a page is of, from its title; its name where that has none."""
    try:
        with opened_below(root, [file]) as content:
            match = _PAGE_TITLE.search(content.read(4096).decode("utf-8", "replace"))
    except (DataError, OSError):
        match = None
    return on_one_line(f"{lead}{unescape(match[1])}" if match else f"{root.name}/{file}")


def progress_document(listing: Listing, revision: str) -> dict[str, Any]:
    """What the page asks for each second: runs that are not finished, and whether anything else has changed."""
    live = {
        run.key: {
            "state": run.status.state,
            "reason": on_one_line(run.status.reason),
            "resume": printable(run.status.resume),
            "live": live_words(run),
        }
        for run in listing.runs
        if run.is_unfinished
    }
    return {"revision": revision, "live": live, "states": Counter(run.status.state for run in listing.runs)}


_TEMPLATES = Path(__file__).resolve().parent / "templates"
_PIECES = ("dom", "blocks", "address", "keys", "filters", "share")
_WITHOUT_SCRIPT = 200
"""Runs that stand on the page without its script."""


def index_page(document: Mapping[str, Any], *, is_live: bool) -> Page:
    """What the page is made of. `document` is its content (`index_document`); `is_live` says whether a server is behind it:
    runs that go on need one."""
    template = page_environment(_TEMPLATES).get_template("view.html.jinja")
    body = template.render(document=document, is_live=is_live, rows=document["rows"][:_WITHOUT_SCRIPT])
    script = core_script(_PIECES) + "".join(_file(name) for name in ("run_rows.js", "live.js", "view.js"))
    title, style = f"runs of {document['folder']} · ragpipe", core_style() + _file("view.css")
    blocks = [json_block("index", {**document, "isLive": is_live})]
    return Page(title, Markup(body), style, script, blocks, connects=is_live)


def _file(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


_WORDS = 200  # characters of a text on a row
_NOUNS = {"collecting": "output"}
_LINKS = {"report.html": "report", "report.md": "Markdown"}
KINDS = {"blocked": "bad", "warned": "warn", "passed": "good", "none": ""}
"""The colour of a verdict; its words stand beside it."""


def run_row(run: ListedRun, change: RunChange | None, *, has_before: bool, sweep: Sweep | None) -> dict[str, Any]:
    """What the page shows of a run. `change` is its difference to the previous run, None where it is not known yet;
    `has_before` says whether there is one. `sweep` is the sweep that it is a job of."""
    row: dict[str, Any] = {
        "key": run.key,
        "name": _text(run.name),
        "id": _text(run.run_id),
        "when": run.created.astimezone(UTC).strftime("%Y-%m-%d %H:%M"),
        "state": run.status.state,
        "reason": _text(run.status.reason),
        "links": [
            *([_LINKS[file], run_address(run.key, file)] for file in run.files),
            *([page.name, run_address(run.key, page.path)] for page in run.pages),
        ],
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
        pooled = f", mean of {len(run.main.methods)} methods" if len(run.main.methods) > 1 else ""
        row |= {"score": _text(run.main.name) + pooled, "overall": score_words(run.main), "mean": run.main.mean}
    if has_before:
        row["change"] = ["…", "", ""] if change is None else [change.words, change.state, change.before]
    if sweep is not None:
        row["sweep"] = sweep.key
    if run.is_unfinished:
        row["live"] = live_words(run)
    return row


def sweep_row(sweep: Sweep) -> dict[str, Any]:
    """What the page shows of a sweep: its words with several values, and where its table is."""
    values = [word for word in sweep.words if "," in word] or list(sweep.words)
    return {"key": sweep.key, "words": _text(" ".join(values)), "link": run_address(sweep.key, sweep.file)}


def score_words(score: MainScore) -> str:
    """`0.77 [0.70, 0.82]`; under 5 answers no interval."""
    if score.low is None or score.high is None:
        return decimal(score.mean, 2)
    return f"{decimal(score.mean, 2)} [{decimal(score.low, 2)}, {decimal(score.high, 2)}]"


def _verdict(verdict: GatesVerdict) -> dict[str, Any]:
    sentences = [_text(sentence) for sentence in verdict.sentences[:5]]
    return {"words": verdict.words, "kind": KINDS[verdict.outcome], "sentences": sentences}


def live_words(run: ListedRun) -> dict[str, Any]:
    """What the page shows of a run that is going on, has stalled or was stopped: figures in the order of the page, its newest cases."""
    status = run.status
    counters = status.counters or Counters(None, 0, 0)
    state, total = counters.state, max(0, counters.total)
    groups = sorted(state.error_groups.items(), key=lambda item: (-item[1], item[0])) if state else []
    live: dict[str, Any] = {
        "phase": counters.phase,
        "done": f"{whole(counters.done)} of {plural(total, _NOUNS.get(counters.phase, 'case'))}" if total else "",
        "share": round(min(1.0, max(0.0, counters.done / total)), 4) if total else None,
        "figures": list(_figures(state, is_gone=status.is_gone)) if state else [],
        "errors": [[_text(name), whole(n)] for name, n in groups[:8]],
        "cases": run.cases,
    }
    if status.state == "running" and state and state.seconds_left is not None:
        live["left"] = f"{rough_duration(state.seconds_left)} left"
    return live


def _figures(state: ProgressState, *, is_gone: bool) -> Iterator[list[str]]:
    """[name, value] of what is counted; what nothing has been counted of is left out, but for the calls themselves."""
    calls = state.calls
    yield from (["sent", whole(calls.sent)], ["answered", whole(calls.answered)])
    if not is_gone:
        yield ["in flight", whole(calls.in_flight)]
    more = (
        ("waiting", 0 if is_gone else calls.waiting),
        ("requests without a reply", calls.failed),
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


def _text(text: str) -> str:
    return on_one_line(text, _WORDS)


NAMES_MAX = 6
RUNS_MAX = 60


def history_lines(runs: Sequence[ListedRun], changes: Mapping[str, RunChange | None]) -> list[dict[str, Any]]:
    """A line for each of the newest names with two runs or more: `runs` is newest first. At most `RUNS_MAX` runs each."""
    by_name: dict[str, list[ListedRun]] = {}
    for run in runs:
        if run.main is not None and not run.is_unfinished and not run.selftest:
            by_name.setdefault(run.name, []).append(run)
    lines: list[dict[str, Any]] = []
    for name, of_name in by_name.items():
        score = of_name[0].main.name if of_name[0].main else ""
        shown = [run for run in of_name if run.main and run.main.name == score][:RUNS_MAX]
        if len(shown) > 1 and len(lines) < NAMES_MAX:
            lines.append(_line(name, list(reversed(shown)), changes))
    return lines


def _line(name: str, runs: Sequence[ListedRun], changes: Mapping[str, RunChange | None]) -> dict[str, Any]:
    points = [_point(run, run.main, changes.get(run.key)) for run in runs if run.main is not None]
    newest = next(run.main for run in reversed(runs) if run.main is not None)
    line = HistoryLine(newest.name, points, newest.scale, newest.noise)
    return {
        "name": on_one_line(name),
        "score": on_one_line(newest.name),
        "newest": score_words(newest),
        "words": line.words,
        "from": runs[0].created.strftime("%Y-%m-%d"),
        "to": runs[-1].created.strftime("%Y-%m-%d"),
        "svg": line.drawing(),
    }


def _point(run: ListedRun, score: MainScore, change: RunChange | None) -> HistoryPoint:
    words = f"{on_one_line(run.run_id)}, {run.created:%Y-%m-%d %H:%M}: {score_words(score)}"
    if change is not None:
        words += f"; {change.words} {change.state} against {change.before.rpartition('/')[2]}"
    link = run_address(run.key, "report.html") if "report.html" in run.files else ""
    return HistoryPoint(score.mean, score.low, score.high, run.series, change.state if change else "", words, link)
