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
from urllib.parse import quote

from markupsafe import Markup

from ragpipe.core.errors import DataError
from ragpipe.core.text import on_one_line, printable
from ragpipe.extras.view.listed_run import Counters, GatesVerdict, ListedRun, MainScore, RunState, rough_duration
from ragpipe.extras.view.run_changes import RunChange
from ragpipe.extras.view.run_files import Sweep, opened_below
from ragpipe.extras.view.run_index import Listing
from ragpipe.report.page_file import Page, core_script, core_style, json_block, page_environment
from ragpipe.report.styled_text import decimal, money, plural, whole
from ragpipe.store.progress import ProgressState

_PAGE_TITLE = re.compile(r"<title>([^<]*?)(?: · ragpipe)?</title>")


def index_document(root: Path, listing: Listing, changes: Mapping[str, RunChange | None], revision: str) -> dict[str, Any]:
    """All that the page shows.

    Args:
        root: the output folder.
        listing: its runs.
        changes: the difference of each run that has a run before.
        revision: what the page compares with that of `progress`, to know that it is old.
    """
    sweeps = {job: sweep for sweep in listing.sweeps for job in sweep.jobs}
    rows = [
        run_row(run, changes.get(run.key), has_before=run.key in changes, sweep=sweeps.get(run.key)) for run in listing.runs
    ]
    return {
        "revision": revision,
        "folder": on_one_line(str(root)),
        "error": listing.error,
        "unread": listing.unread,
        "rows": rows,
        "sweeps": [sweep_row(sweep) for sweep in listing.sweeps],
        "comparisons": [
            [comparison_words(listing.comparisons[key], key), run_address(key, "compare.html")]
            for key in sorted(listing.comparisons)
        ],
        "history": history_lines(listing.runs, changes),
    }


def comparison_words(root: Path, key: str) -> str:
    """What a comparison compares, from the title of its page; its key where that has none."""
    try:
        with opened_below(root, ["compare.html"]) as file:
            match = _PAGE_TITLE.search(file.read(4096).decode("utf-8", "replace"))
    except (DataError, OSError):
        match = None
    name = key.rsplit("/", 2)[0]
    return on_one_line(f"{name}: {unescape(match[1])}" if match else key)


def progress_document(listing: Listing, revision: str) -> dict[str, Any]:
    """What the page asks for each second: runs that are not finished, and whether anything else has changed."""
    live = {
        run.key: {
            "state": run.status.state,
            "reason": on_one_line(run.status.reason),
            "resume": printable(run.status.resume),
            "live": live_words(run.status),
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
    """What the page is made of.

    Args:
        document: its content (`index_document`).
        is_live: whether a server stands behind it: runs that go on need one.
    """
    template = page_environment(_TEMPLATES).get_template("view.html.jinja")
    body = template.render(document=document, is_live=is_live, rows=document["rows"][:_WITHOUT_SCRIPT])
    script = core_script(_PIECES) + "".join(_file(name) for name in ("run_rows.js", "live.js", "view.js"))
    blocks = [json_block("index", {**document, "isLive": is_live})]
    return Page(
        f"runs of {document['folder']} · ragpipe",
        Markup(body),
        core_style() + _file("view.css"),
        script,
        blocks,
        connects=is_live,
    )


def _file(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


_WORDS = 200  # characters of a text on a row
_NOUNS = {"collecting": "output"}
_LINKS = {"report.html": "report", "report.md": "text"}
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
        "when": run.created.astimezone(UTC).strftime("%Y-%m-%d %H:%M"),
        "state": run.status.state,
        "reason": _text(run.status.reason),
        "links": [[_LINKS[file], run_address(run.key, file)] for file in run.files],
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
    groups = sorted(state.error_groups.items(), key=lambda item: (-item[1], item[0])) if state else []
    live: dict[str, Any] = {
        "phase": counters.phase,
        "done": f"{whole(counters.done)} of {plural(total, _NOUNS.get(counters.phase, 'case'))}" if total else "",
        "share": round(min(1.0, max(0.0, counters.done / total)), 4) if total else None,
        "figures": list(_figures(state, is_gone=status.is_gone)) if state else [],
        "errors": [[_text(name), whole(n)] for name, n in groups[:8]],
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
WIDTH, HEIGHT = 720, 96  # of the drawing, in its own units
_PAD = 12
Node = list[Any]
_SHAPES = {"better": "M-6 5L0 -6L6 5Z", "worse": "M-6 -5L0 6L6 -5Z"}
_DOT = "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0Z"


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
    scores = [run.main for run in runs if run.main is not None]
    newest, words = scores[-1], []
    low, high = _axis(scores)
    parts = len(_stretches(runs))
    if parts > 1:
        words.append(f"broken where judge, prompts, metrics, scoring or samples changed ({plural(parts, 'part')})")
    if newest.noise is not None:
        words.append(f"grey: within the judge's noise of the newest run (±{newest.noise:.3f})")
    return {
        "name": on_one_line(name),
        "score": on_one_line(newest.name),
        "newest": score_words(newest),
        "words": f"{plural(len(runs), 'run')}; {decimal(low, 2)} to {decimal(high, 2)} from bottom to top"
        + "".join(f"; {word}" for word in words),
        "from": runs[0].created.strftime("%Y-%m-%d"),
        "to": runs[-1].created.strftime("%Y-%m-%d"),
        "svg": _drawing(runs, scores, changes, (low, high)),
    }


def _axis(scores: Sequence[MainScore]) -> tuple[float, float]:
    """The ends of the axis: all means and intervals with a margin, at least a tenth of the scale, never beyond the scale."""
    values = [value for score in scores for value in (score.mean, score.low, score.high) if value is not None]
    low, high = min(values), max(values)
    bottom, top = scores[-1].scale
    span = (top - bottom) if top is not None and bottom is not None else abs(high) or 1.0
    margin = max(0.05 * (high - low), (0.1 * span - (high - low)) / 2, 0.0) or 0.05
    low, high = low - margin, high + margin
    return (low if bottom is None else max(low, bottom)), (high if top is None else min(high, top))


def _stretches(runs: Sequence[ListedRun]) -> list[list[int]]:
    """The places of runs one after another that were measured in the same way."""
    stretches: list[list[int]] = []
    for place, run in enumerate(runs):
        if stretches and runs[place - 1].series == run.series:
            stretches[-1].append(place)
        else:
            stretches.append([place])
    return stretches


def _drawing(
    runs: Sequence[ListedRun], scores: Sequence[MainScore], changes: Mapping[str, RunChange | None], axis: tuple[float, float]
) -> Node:
    low, high = axis

    def x(place: int) -> str:
        return f"{_PAD + (WIDTH - 2 * _PAD) * place / (len(runs) - 1):.1f}"

    def y(value: float) -> float:
        share = (value - low) / ((high - low) or 1.0)
        return _PAD + (HEIGHT - 2 * _PAD) * (1 - max(0.0, min(1.0, share)))

    stretches, nodes = _stretches(runs), list[Node]()
    if (noise := scores[-1].noise) is not None:
        top, bottom, newest = y(scores[-1].mean + noise), y(scores[-1].mean - noise), stretches[-1]
        left = float(x(newest[0])) - _PAD / 2
        box = {
            "x": f"{left:.1f}",
            "y": f"{top:.1f}",
            "width": f"{WIDTH - _PAD / 2 - left:.1f}",
            "height": f"{bottom - top:.1f}",
        }
        nodes.append(["rect", {"class": "band", **box}, []])
    for stretch in stretches:
        path = "L".join(f"{x(place)} {y(scores[place].mean):.1f}" for place in stretch)
        nodes.append(["path", {"class": "way", "d": f"M{path}"}, []])
    for place, (run, score) in enumerate(zip(runs, scores, strict=True)):
        if score.low is not None and score.high is not None:
            ends = {"x1": x(place), "x2": x(place), "y1": f"{y(score.low):.1f}", "y2": f"{y(score.high):.1f}"}
            nodes.append(["line", {"class": "whisker", **ends}, []])
        nodes.append(_mark(run, score, changes.get(run.key), f"translate({x(place)} {y(score.mean):.1f})"))
    return [
        "svg",
        {"viewBox": f"0 0 {WIDTH} {HEIGHT}", "role": "group", "aria-label": f"{scores[-1].name} over {len(runs)} runs"},
        nodes,
    ]


def _mark(run: ListedRun, score: MainScore, change: RunChange | None, place: str) -> Node:
    """The point of a run: a triangle up for better and down for worse than the run before, else a dot; a link to the report."""
    state = change.state if change else ""
    words = f"{on_one_line(run.run_id)}, {run.created:%Y-%m-%d %H:%M}: {score_words(score)}"
    if change is not None:
        words += f"; {change.words} {state} against {change.before.rpartition('/')[2]}"
    shape: Node = [
        "path",
        {"class": f"run {state}", "d": _SHAPES.get(state, _DOT), "transform": place},
        [["title", {}, [words]]],
    ]
    if "report.html" not in run.files:
        return shape
    return ["a", {"href": run_address(run.key, "report.html"), "aria-label": words}, [shape]]
