"""How far an iteration of a run is, as the manifest says."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

JUDGED = "judged"
"""Judged, but not scored and sealed yet."""

INCOMPLETE = "incomplete"
"""Judged, but some calls failed for a transient reason."""

COMPLETE = "complete"
"""Judged, scored and sealed."""

JUDGING_DONE = (JUDGED, COMPLETE)
"""The states in which no question of an iteration is left to ask."""


def all_in_state(states: Mapping[str, str], iterations: Iterable[int], allowed: Collection[str]) -> bool:
    """Whether each of these iterations is in one of the allowed states. `states` is by number, as in the manifest."""
    return all(states.get(str(number)) in allowed for number in iterations)
