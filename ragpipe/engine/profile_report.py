"""A profile of a data set in the terminal: what looks wrong first, then a line for each field."""

from __future__ import annotations

from ragpipe.core.safe_text import on_one_line
from ragpipe.profiling.data_profile import DataProfile
from ragpipe.profiling.profile_rows import HEADS, profile_rows
from ragpipe.reports.console import Console
from ragpipe.scoring.pointer_checks import Pointers

FURTHER = ("meta.", "expected.", "usage.", "tags", "subcategory", "contexts[].score", "contexts[].doc_type")
"""Fields that a table of many leaves for `plan.out`, beside rare ones; their names are below it."""
FEW = 20
"""Fields up to which the table has them all."""


def print_findings(profile: DataProfile, pointers: Pointers, console: Console) -> None:
    """Print warnings, then what is good to know."""
    findings = profile.findings()
    for text in [*(str(f) for f in findings if f.is_warning), *pointers.warnings()]:
        console.warn(on_one_line(text, 1000))
    for text in [*(str(f) for f in findings if not f.is_warning), *pointers.notes()]:
        console.say(on_one_line(text, 1000))


def print_fields(profile: DataProfile, console: Console) -> None:
    """Print the table of the fields, and the names of those that it leaves out."""
    rows = profile_rows(profile)
    further = [row for row in rows if row.is_rare or row.field.startswith(FURTHER)] if len(rows) > FEW else []
    console.table(HEADS, [row[:3] for row in rows if row not in further], left=(0, 1, 2))
    if further:
        console.say(f"and {', '.join(row.field for row in further)}: plan.out=plan.json")
