"""Which gates of a run become alerts."""

from typing import Any

import pytest

from ragpipe.reports.alert_lines import alerted_gates

DEFAULT = ("failed", "unmeasured", "drop")


@pytest.mark.parametrize(
    ("gate", "kinds", "is_alert"),
    [
        ({"min": 0.85}, DEFAULT, True),
        ({"min": 0.85, "too_few": True}, DEFAULT, False),
        ({"min": 0.85, "too_few": True}, ("inconclusive",), True),
        ({"min": 1, "too_few": True}, DEFAULT, True),
        ({"max": 0, "too_few": True}, DEFAULT, True),
        ({"max": 0.2, "too_few": True}, DEFAULT, False),
        ({"min": 0.85, "verdict": "inconclusive"}, DEFAULT, False),
        ({"min": 0.85, "verdict": "not_enough_evidence", "too_few": True}, DEFAULT, True),
        ({"min": 0.85, "outcome": "passed", "verdict": "passed"}, DEFAULT, False),
    ],
)
def test_a_mean_of_fewer_than_five_questions_is_no_alert(
    gate: dict[str, Any], kinds: tuple[str, ...], is_alert: bool
) -> None:
    """A limit that allows no case at all counts cases: one is enough."""
    few = {"too_few": True} if gate.pop("too_few", False) else {}
    whole = {"verdict": "failed", "outcome": "warned", "interval": {"low": 0.0, "high": 0.7, **few}, **gate}
    assert bool(alerted_gates([whole], kinds)) is is_alert
