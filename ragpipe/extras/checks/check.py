"""What all checks over a finished run share: their settings, the judging, rates with intervals, the document and its page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.settings import ConfigOrigins, NoOrigins
from ragpipe.core.version import FORMAT
from ragpipe.metrics.base import Metric
from ragpipe.report.console import Console
from ragpipe.report.markdown import render_sections
from ragpipe.report.model import EVERYWHERE, PAGES, TERMINAL, Cell, Note, Report, Section, Table, TableRow, Verbatim
from ragpipe.report.styled_text import percent_with_interval, whole
from ragpipe.report.terminal import print_report
from ragpipe.runs.combine_iterations import scored_iterations
from ragpipe.runs.evaluation import Evaluation
from ragpipe.runs.finished_run import FinishedRun, FinishedRunTask, SettingsT, open_run, task_settings, unnamed_judge
from ragpipe.runs.manifest import seal_added
from ragpipe.runs.settings import RunConfig
from ragpipe.runs.spec import RejudgePolicy, RunSpec
from ragpipe.stats.intervals import Interval, estimate_rate
from ragpipe.store.files import json_unless_same, write_unless_same
from ragpipe.store.folder_lock import FolderLock
from ragpipe.store.run_folder import RunFolder, make_folder
from ragpipe.store.run_tables import read_json

_STATES = {"not_noticed": "NOT NOTICED", "biased": "BIASED"}


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
    sections: Callable[[Mapping[str, Any]], Sequence[Section]],
    console: Console,
    **figures: Any,
) -> None:
    """Print what a check found in its run `folder`, and write and seal its document and its page: of a self-test there, of others beside
    the calibration of the finished run.

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
    paths = [home.root / f"{stem}.json", home.root / f"{stem}.md"]
    with FolderLock(home.root):
        make_folder(paths[0].parent)
        json_unless_same(paths[0], document)
        write_unless_same(paths[1], render_sections(title, page))
        seal_added(home, paths)
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
    cells = [
        TableRow(_result_cells(row), shown_in=PAGES if is_plain else EVERYWHERE)
        for row, is_plain in zip(rows, plain, strict=True)
    ]
    heads = ("change", "score", "expected", "found", "% [95%]", "shift", "")
    left_out = (Note("computed scores that did what they must are not listed here", shown_in=TERMINAL),) if any(plain) else ()
    made = Section("changes", "Changes", (Table.of(("change", "what is done", "cases"), done, texts=2, shown_in=PAGES),))
    return [
        *([made] if done else []),
        Section("results", "Results", (Table.of(heads, cells, texts=3), Note(said), *left_out, *notes)),
    ]


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
