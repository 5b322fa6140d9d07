"""What a check of the judge for drift means for the scores of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def drift_line(check: Mapping[str, Any]) -> str | None:
    """A warning where the judge has drifted; None where it has not."""
    if not check["alarm"]:
        return None
    return (
        f"the judge has drifted: {check['drifted']:,} of {check['verdicts']:,} verdicts about the canary set are no longer those of its "
        f"baseline of {check['baseline']['made_at'][:10]}"
    )
