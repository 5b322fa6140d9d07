"""Whether the judge still gives the verdicts that it gave: the newest check for drift."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ragpipe.reports.model import Note, Section, Table, TableColumn, TableRow, Verbatim
from ragpipe.reports.number_format import decimal, whole
from ragpipe.reports.report_data import ReportData

_NOTE = (
    "as in the baseline: verdicts about the canary set (task=drift) that are what all ten replies of the baseline said. drifted: another verdict "
    "in all six replies of the check. McNemar's p compares flips to wrong with flips to right; it decides nothing."
)


def drift_section(data: ReportData) -> Section | None:
    """One row with what the check found, and which models answered then and now; None for a run whose judge was not checked."""
    if data.drift is None:
        return None
    check, baseline = data.drift["check"], data.drift["baseline"]
    heads = ("checked", "verdicts", "as in the baseline", "drifted", "to wrong", "to right", "other", "McNemar p")
    columns = tuple(TableColumn(head, is_text=place == 0) for place, head in enumerate(heads))
    flips, p, share = check["flips"], check["mcnemar_p"], check["exact_match"]
    row = TableRow(
        (
            _day(check["ended_at"]),
            whole(check["verdicts"]),
            "-" if share is None else f"{100 * share:.1f}%",
            whole(check["drifted"]),
            *(whole(flips[name]) for name in ("to_wrong", "to_right", "other")),
            "-" if p is None else decimal(p, 3),
        )
    )
    models = (
        Note((f"baseline of {_day(baseline['ended_at'])}, answered by ", Verbatim(served_words(baseline["served"])))),
        Note(("the check, answered by ", Verbatim(served_words(check["served"])))),
    )
    alarm = (
        (Note("the judge has drifted: some verdicts are no longer those of its baseline", kind="warning"),)
        if check["alarm"]
        else ()
    )
    blocks = (*alarm, Table(columns, (row,)), *models, Note(_NOTE))
    return Section("drift", "Drift of the judge", blocks, folded=not check["alarm"])


def _day(time: str) -> str:
    return time[:16].replace("T", " ") + " UTC"


def served_words(served: Iterable[Mapping[str, Any]]) -> str:
    """Which models and fingerprints answered, and how often."""
    parts = [
        f"{row['model'] or 'a model without a name'}"
        + (f" ({row['fingerprint']})" if row["fingerprint"] else "")
        + f" {row['calls']:,}"
        for row in served
    ]
    return ", ".join(parts)
