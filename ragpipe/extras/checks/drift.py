"""`task=drift`: asks the judge the canary set again, and says whether it still gives the verdicts of its baseline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragpipe.config.run_validation import validate_without_metrics
from ragpipe.config.settings import RunConfig
from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.validation import ConfigOrigins, NoOrigins
from ragpipe.engine.judge_access import refuse_other_addresses
from ragpipe.extras.checks.canary_set import read_canaries
from ragpipe.extras.checks.drift_check import check_drift
from ragpipe.extras.checks.drift_text import say_drift
from ragpipe.judging.settings import JudgeSettings
from ragpipe.reports.console import Console

_TITLE = "task=drift cannot start; nothing was asked"
DRIFTED = 3
"""The exit code where the judge has drifted."""


def validate(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> RunConfig:
    """Check the judge and the canary set. Raises ConfigError."""
    origins = origins or NoOrigins()
    config = validate_without_metrics({**plain, "dataset": {"name": "canaries", "path": "canaries"}}, origins)
    if not isinstance(config.judge, JudgeSettings) or config.transport.kind != "live":
        key = "transport" if isinstance(config.judge, JudgeSettings) else "judge"
        actual = "stored" if key == "transport" else config.judge.label
        expected = "a language model that is asked: stored and computed replies do not drift"
        problem = Problem(origins.location(key), key, actual, expected, "judge=llm judge.model=... transport=live")
        raise ConfigError(_TITLE, [problem])
    read_canaries(config.drift.canaries)
    return config


def run(config: RunConfig, console: Console) -> int:
    """Make the baseline, or check against it. Returns 0, or 3 where the judge has drifted. Raises as `check_drift`."""
    refuse_other_addresses(config)
    outcome = check_drift(config, console)
    say_drift(outcome.kind, outcome.document, outcome.baseline, config.judge.label, console)
    console.say(f"written: {outcome.path}")
    return DRIFTED if outcome.alarm else 0
