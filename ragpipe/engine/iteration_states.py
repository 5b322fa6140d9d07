"""How far an iteration of a run is, as the manifest says."""

from __future__ import annotations

JUDGED = "judged"
"""Judged, but not scored and sealed yet."""

INCOMPLETE = "incomplete"
"""Judged, but some calls failed for a transient reason."""

COMPLETE = "complete"
"""Judged, scored and sealed."""
