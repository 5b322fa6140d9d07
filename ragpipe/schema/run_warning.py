"""The warnings of `metrics.json`: what to know before relying on its figures, each with its kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

WarningKind = Literal[
    "scoring",
    "verdicts",
    "language",
    "coverage",
    "unfinished",
    "breakdowns",
    "not_recorded",
    "system_errors",
    "shared_questions",
    "overall_score",
    "grades",
    "served_models",
    "jury",
    "ids",
    "silent",
]
"""What a warning is about: settings of the scoring, cases without a verdict, answers in a language without rules, judgements that
did not come out or are missing, fields without a breakdown, parts of the outputs that are not recorded, failures of the system,
methods that were asked different questions, a missing overall score, grades that hardly vary or are not weighted, the models that
answered, what the members of a jury disagree on, ids that lead nowhere, values
of answers that state nothing."""


def warnings_about(kind: WarningKind, texts: Iterable[str]) -> list[dict[str, str]]:
    """Warnings of one kind, as `metrics.json` has them: `kind` and `text`."""
    return [{"kind": kind, "text": text} for text in texts]


def warning_texts(metrics: Mapping[str, Any]) -> list[str]:
    """The texts of the warnings of `metrics.json`."""
    return [warning["text"] for warning in metrics["warnings"]]
