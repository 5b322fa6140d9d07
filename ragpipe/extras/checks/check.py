"""What all checks over a finished run share: their settings, the judging, rates with intervals, the document and its page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.settings import ConfigOrigins, NoOrigins, SettingsT, task_settings
from ragpipe.core.version import FORMAT
from ragpipe.metrics.base import Metric
from ragpipe.report.charts import Marks, MeanRow, ShareRow, axis_limit, mean_table, share_table
from ragpipe.report.console import Console
from ragpipe.report.model import (
    EVERYWHERE,
    MARKDOWN,
    PAGES,
    Cell,
    Chart,
    Note,
    PageLink,
    Report,
    RunVerdict,
    Section,
    Table,
    TableRow,
    Verbatim,
)
from ragpipe.report.section_page import write_sections
from ragpipe.report.styled_text import percent_with_interval, percentage, whole
from ragpipe.report.terminal import print_report
from ragpipe.runs.evaluation import Evaluation
from ragpipe.runs.finished_run import FinishedRun, FinishedRunTask, open_run, unnamed_judge
from ragpipe.runs.manifest import scored_iterations
from ragpipe.runs.settings import RunConfig
from ragpipe.runs.spec import RejudgePolicy, RunSpec
from ragpipe.runs.write_reports import seal_pages
from ragpipe.stats.intervals import Interval, estimate_rate
from ragpipe.store.files import json_unless_same
from ragpipe.store.folder_lock import FolderLock
from ragpipe.store.run_folder import RunFolder, make_folder
from ragpipe.store.run_tables import read_json

MARGIN = 0.05
"""Share of the range within which the interval of a mean shift must lie where a score must not move."""
_STATES = {"not_noticed": "NOT NOTICED", "biased": "BIASED"}
_NOT_LISTED = Note("computed scores that did what they must are not listed here", shown_in=EVERYWHERE - MARKDOWN)


def known_names(names: Sequence[str] | None, known: Iterable[str], kind: str) -> None:
    """Raises ValueError for a name that is not known, and for one that comes twice."""
    if unknown := [name for name in names or () if name not in known]:
        raise ValueError(f"no such {kind}: {', '.join(unknown)}; there are {', '.join(known)}")
    if names is not None and len(set(names)) < len(names):
        raise ValueError(f"name each {kind} once; null takes all")


def open_check(
    settings_class: type[SettingsT],
    plain: Mapping[str, Any],
    origins: ConfigOrigins | None,
    task: str,
    *,
    changeable: Sequence[str] = ("judge", "embedder", "metrics", "report", "iterations"),
    needs_prompts: bool = True,
) -> FinishedRunTask[SettingsT]:
    """The settings of the section `task` and the finished run, with the user's judge over its own, and other sections that are
    `changeable`. `needs_prompts` refuses a run none of whose metrics asks a judge. Raises ConfigError and DataError."""
    origins, title = origins or NoOrigins(), f"task={task} is wrong; nothing was started"
    settings = task_settings(settings_class, plain, origins, title=title, section=task)
    finished = open_run(plain, origins, changeable=changeable, task=task, task_keys=(task,))
    if problem := unnamed_judge(finished, origins, without_a_call="transport=stored"):
        raise ConfigError(title, [problem])
    if needs_prompts and not judged_metrics(finished.config):
        metrics, expected = ", ".join(finished.config.metrics) or "none", "a metric that asks a judge"
        raise ConfigError(title, [Problem(origins.location("metrics"), "metrics", metrics, expected)])
    return FinishedRunTask(finished, settings)


def judged_metrics(config: RunConfig) -> dict[str, Metric]:
    """The metrics with prompts: only what asks a judge can be audited or spot-checked."""
    return {name: metric for name, metric in config.metrics.items() if metric.prompts()}


def judge_cases(spec: RunSpec, finished: FinishedRun, console: Console) -> int:
    """Judge cases as a run of their own, which takes up the replies of the finished one. Returns and raises what an evaluation does."""
    return Evaluation(spec, RejudgePolicy(finished), console).run()


def write_check(
    name: str,
    title: str,
    finished: FinishedRun,
    folder: RunFolder,
    settings: Mapping[str, Any],
    answer: Callable[[Mapping[str, Any]], RunVerdict],
    sections: Callable[[Mapping[str, Any]], Sequence[Section]],
    console: Console,
    **figures: Any,
) -> None:
    """Print what a check found in its run `folder`, and write and seal its document and its pages: of a self-test there, of others beside
    the calibration of the finished run. Pages begin with the `answer`.

    The document says what was checked in which run by which judge. Its figures are `changes` (what was done to how many cases), `results`
    (a row for each change and score: what is expected, `n` cases that count, of how many it was `found`, the state), `cases` (those that
    went otherwise than expected) and what one check has alone.
    """
    document = {
        "format": FORMAT,
        "check": name,
        "source_run": finished.run_id,
        "run_id": folder.run_id,
        "judge": read_json(folder.final.metrics)["judge"]["label"],
        "iterations": len(scored_iterations(folder)),
        "settings": dict(settings),
        **figures,
    }
    page, is_own = sections(document), name == "selftest"
    print_report(Report("", "", "", None, (), tuple(page)), console)
    home, stem = (folder, name) if is_own else (finished.folder, f"calibration/{name}.{folder.run_id}")
    path = home.root / f"{stem}.json"
    reports = {"report": "report.html", "run that was checked": f"../{finished.folder.root.name}/report.html"}
    if not is_own:
        reports = {"report": "../report.html", "run of the check": f"../../{folder.root.name}/report.html"}
    links = tuple(PageLink(*link) for link in reports.items())
    report = Report(title, "", "", answer(document), (), tuple(page), pages=links)
    with FolderLock(home.root):
        make_folder(path.parent)
        json_unless_same(path, document)
        paths = [path, *write_sections(path, report)]
        seal_pages(home, paths, finished.config.report)
    for path in paths:
        console.say(f"written: {path}")


def found_of(row: Mapping[str, Any]) -> str:
    """`17 of 18`."""
    return f"{whole(row['found'])} of {whole(row['n'])}"


def result_sections(document: Mapping[str, Any], said: str, *notes: Note) -> list[Section]:
    """What every check shows: on the page what was done, and a row for each change and score, with `said` on what is counted as found. A
    terminal leaves out computed scores that did on all cases what they must."""
    changes = {row["name"]: (row["what"], whole(row["n"]) if "n" in row else "") for row in document.get("changes", ())}
    order = {name: place for place, name in enumerate(changes)}
    rows = sorted((*document.get("any_score", ()), *document["results"]), key=lambda row: order.get(str(row.get("change")), -1))
    done = [(Verbatim(name), *said_of) for name, said_of in changes.items()]
    plain = [row.get("score") in document.get("computed_scores", ()) and row["found"] == row["n"] for row in rows]
    shown_in = [MARKDOWN if is_plain else EVERYWHERE for is_plain in plain]
    cells = [TableRow(_result_cells(row), shown_in=media) for row, media in zip(rows, shown_in, strict=True)]
    heads = ("change", "score", "expected", "found", "% [95%]", "shift", "")
    left_out = [_NOT_LISTED] if any(plain) else []
    found = Table.of(heads, cells, texts=3).told()
    made = Table.of(("change", "what is done", "cases"), done, texts=2, shown_in=PAGES).told()
    results = Section("results", "Results", (*_charts(rows), found, Note(said), *left_out, *notes))
    return [results, *([Section("changes", "Changes", (made,))] if done else [])]


def _charts(rows: Sequence[Mapping[str, Any]]) -> Iterator[Chart]:
    """The mean shifts on one axis around 0 where rows have any, else how often what is expected was found."""
    shifts = [row for row in rows if row.get("shift") is not None]
    if shifts:
        reach = axis_limit([MARGIN, *(v for row in shifts for v in _ends(row) if v is not None)])
        note = f"The mean shift with its interval, from -{reach:.0%} to +{reach:.0%} of the range; the lines stand at +-{MARGIN:.0%}."
        yield Chart("", mean_table([_shift_row(row, reach) for row in shifts], note, ("change", "shift", "around 0")))
        return
    rows = [row for row in rows if "score" not in row] or rows  # those of any score, where there are such
    if shares := [_share_row(row) for row in rows if row.get("share") is not None]:
        noun = "missed" if any("change" in row for row in rows) else "judged otherwise"
        yield Chart("", share_table(shares, noun), f"Bars: {noun}, of the cases that count.")


def _ends(row: Mapping[str, Any]) -> tuple[float | None, float | None, float | None]:
    interval = row["interval"] or {}
    return row["shift"], interval.get("low"), interval.get("high")


def _shift_row(row: Mapping[str, Any], reach: float) -> MeanRow:
    value, low, high = (None if v is None else 50 + 50 * v / reach for v in _ends(row))
    marks = Marks(value, low, high, (50 - 50 * MARGIN / reach, 50 + 50 * MARGIN / reach))
    _, at, to = _ends(row)
    bounds = "" if at is None or to is None else f"[{100 * at:+.1f}, {100 * to:+.1f}]"
    remark = f"{row['score']}: {_STATES.get(str(row['state']), row['state'])}"
    return MeanRow(row["change"], "", f"{100 * row['shift']:+.1f}%", bounds, "", remark, marks)


def _share_row(row: Mapping[str, Any]) -> ShareRow:
    """What was missed of a change; of two judges how often they disagree."""
    if "change" not in row:
        return ShareRow(row["score"], "", found_of(row), percentage(row["share"]), row["share"], "", "")
    missed, about = 1 - row["share"], f"{row.get('score', 'any score')}: {row.get('expected', 'worse')}"
    return ShareRow(row["change"], "", f"{row['n'] - row['found']:,} of {row['n']:,}", percentage(missed), missed, about, "")


def _result_cells(row: Mapping[str, Any]) -> tuple[Cell, ...]:
    """Shifts are in percent of the range, above 0 where the changed case scores better; between two judges in the score's own units."""
    interval, shift = row["interval"], row.get("mean_change", row.get("shift"))
    moved = f"{row['difference']:+.2f}" if "difference" in row else "-" if shift is None else f"{100 * shift:+.1f}%"
    if "shift" in row and interval:
        moved += f" [{100 * interval['low']:+.1f}, {100 * interval['high']:+.1f}]"
    left_out = sum(row.get(name, 0) for name in ("at_end", "no_value", "one_sided"))
    words = [
        _STATES.get(str(row.get("state")), row.get("state")),
        "" if row.get("kappa") is None else f"kappa {row['kappa']:.2f}",
        f"judge_audit.n={row['n_needed']:,} would decide" if row.get("n_needed") else "",
        f"{left_out:,} left out" if left_out else "",
        "few questions" if interval and interval["too_few"] else "",
    ]
    names = (Verbatim(row.get("change", "as it was")), Verbatim(row["score"]) if "score" in row else "any score")
    rate = percent_with_interval(row) if "share" in row else "-"
    return (*names, row.get("expected", "worse"), found_of(row), rate, moved, ", ".join(filter(None, words)))


def rate_json(hits: Sequence[bool], clusters: Iterable[str]) -> dict[str, Any]:
    """How often something was found: `n`, `found`, `share`, the Wilson `interval` of the share, clustered, and the number of `clusters`."""
    if not hits:
        return {"n": 0, "found": 0, "share": None, "interval": None, "clusters": 0}
    rate = estimate_rate(np.array(hits, dtype=np.float64), cluster_numbers(clusters))
    figures = {"share": rate.value, "interval": interval_json(rate.interval), "clusters": rate.clusters}
    return {"n": len(hits), "found": int(sum(hits)), **figures}


def cluster_numbers(names: Iterable[str]) -> NDArray[np.int64]:
    """A number for each name, the same for the same name: the clusters of an interval."""
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int64)


def interval_json(interval: Interval | None) -> dict[str, Any] | None:
    """An interval as the documents have it."""
    return None if interval is None else {name: getattr(interval, name) for name in ("level", "low", "high", "too_few")}
