"""Whether the judge still gives the verdicts that it gave: the newest check for drift."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ragpipe.reports.model import Note, Section, Table, TableColumn, TableRow, Verbatim
from ragpipe.reports.number_format import decimal, whole
from ragpipe.reports.report_data import ReportData

_NOTE = (
    "as in the baseline: verdicts about the canary set (task=drift) that are what all ten replies of the baseline said. right: by the grades "
    "of the set. drifted: another verdict in all six replies of the check. McNemar's p compares flips to wrong with flips to right; it decides nothing."
)


def drift_section(data: ReportData) -> Section | None:
    """What the newest check found, with a warning where the judge has drifted; None for a run whose judge was not checked."""
    if "check" not in data.drift:
        return None
    section = check_section(data.drift["check"], data.drift["baseline"])
    if not data.drift["check"]["alarm"]:
        return section
    alarm = Note("the judge has drifted: some verdicts are no longer those of its baseline", kind="warning")
    return Section(section.name, section.title, (alarm, *section.parts))


def check_section(check: Mapping[str, Any], baseline: Mapping[str, Any]) -> Section:
    """One row with what a check found, and which models answered then and now."""
    heads = ("checked", "as in the baseline", "right", "drifted", "to wrong", "to right", "other", "McNemar p")
    cells = (
        _day(check["ended_at"]),
        _share(check["matched"], check["verdicts"]),
        _share(check["right"], check["graded"]),
        *map(whole, (check["drifted"], *check["flips"].values())),
        "-" if check["mcnemar_p"] is None else decimal(check["mcnemar_p"], 3),
    )
    columns = tuple(TableColumn(head, is_text=place == 0) for place, head in enumerate(heads))
    models = (
        Note((f"baseline of {_day(baseline['ended_at'])}, answered by ", Verbatim(served_words(baseline["served"])))),
        Note(("the check, answered by ", Verbatim(served_words(check["served"])))),
    )
    parts = (Table(columns, (TableRow(cells),)), *models, Note(_NOTE))
    return Section("drift", "Drift of the judge", parts, folded=not check["alarm"])


def _share(count: int, total: int) -> str:
    return f"{count:,} of {total:,} ({count / total:.1%})" if total else "0 of 0"


def _day(time: str) -> str:
    return time[:16].replace("T", " ") + " UTC"


def served_words(served: Iterable[Mapping[str, Any]]) -> str:
    """Which models and fingerprints answered, and how often."""
    return ", ".join(
        f"{row['model'] or 'a model without a name'}"
        + (f" ({row['fingerprint']})" if row["fingerprint"] else "")
        + f" {row['calls']:,}"
        for row in served
    )
