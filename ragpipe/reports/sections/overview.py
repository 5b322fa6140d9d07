"""The frame of a report: what was evaluated, the notices before the sections, and the terminal's last lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ragpipe.reports.metrics_view import iterations_text
from ragpipe.reports.model import PAGES, TERMINAL, Note, Prose, Strong, Verbatim
from ragpipe.reports.number_format import whole
from ragpipe.reports.progress_line import duration
from ragpipe.reports.report_data import ReportData
from ragpipe.schema.run_warning import warning_texts
from ragpipe.scoring.gates.calibration import NO_CALIBRATION


def summary_line(metrics: Mapping[str, Any]) -> str:
    """`101 cases on 40 questions, 3 methods, iteration 1`."""
    methods = metrics["by"].get("method") or {}
    several = f", {len(methods)} methods" if len(methods) > 1 else ""
    cases, questions = whole(metrics["n_cases"]), whole(metrics["n_samples"])
    return f"{cases} cases on {questions} questions{several}, {iterations_text(metrics)}"


def notices(data: ReportData) -> Iterator[Note]:
    """What to know of the judge, and the warnings of the run."""
    if note := data.metrics["judge"].get("note"):
        yield Note(("The judge: ", Prose(note)))
    if data.cost["used"]["uses"]:
        yield from _calibration(data.metrics)
    for text in warning_texts(data.metrics):
        yield Note(Verbatim(text), "warning")


def _calibration(metrics: Mapping[str, Any]) -> Iterator[Note]:
    """Which scores of the judge are calibrated against human labels, with the reason where a calibration was named."""
    states = metrics.get("calibration", {})
    if metrics["judge"]["calibrated"] and not states:
        return
    if not any(state["calibrated"] is not None or state["why"] != NO_CALIBRATION for state in states.values()):
        lead = Strong("The judge is not calibrated against human labels:")
        yield Note((lead, " how often its verdicts are right is not known."), shown_in=PAGES)
        return
    words = {True: "calibrated", False: "failed its calibration", None: "not calibrated"}
    for name, state in states.items():
        verdict = f" {words[state['calibrated']]}: "
        text = (Strong("Against human labels:"), " ", Verbatim(name), verdict, Prose(state["why"]))
        yield Note(text, "good" if state["calibrated"] else "plain")


def closing_lines(data: ReportData) -> Iterator[Note]:
    """What the terminal says last: time, signature, folder and the next useful command."""
    if data.judging_seconds:
        yield Note(judging_time(data.judging_seconds), shown_in=TERMINAL)
    yield Note(Verbatim(data.metrics["signature"]), shown_in=TERMINAL)
    if data.folder:
        yield Note(f"results: {data.folder}", shown_in=TERMINAL)
    if data.next_command:
        yield Note(f"next:    {data.next_command}", shown_in=TERMINAL)


def judging_time(seconds: Mapping[int, float]) -> str:
    """`time: 12:34 of judging`; with several iterations also each one's: `time: 12:34 of judging (6:10, 6:24)`."""
    each = f" ({', '.join(map(duration, seconds.values()))})" if len(seconds) > 1 else ""
    return f"time: {duration(sum(seconds.values()))} of judging{each}"
