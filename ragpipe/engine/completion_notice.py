"""What a start says when its run is complete already: since when, how old the outputs are, and how to ask again."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from ragpipe.config.settings import RunConfig
from ragpipe.engine.iteration_states import COMPLETE
from ragpipe.judging.settings import JudgeSettings
from ragpipe.metrics.base import Computed
from ragpipe.systems.settings import RecordedSystem

_ENDS_IN_NUMBER = re.compile(r"(.*?)(\d{1,9})\Z", re.DOTALL)


def completion_notice(config: RunConfig, manifest: Mapping[str, Any], now: datetime | None = None) -> list[str]:
    """One line, and a second with the words to add so that this command asks the system or the judge again. No line for a
    run with an iteration that is not complete: its warnings say what the same command asks."""
    if any(manifest["iterations"].get(str(number)) != COMPLETE for number in range(1, config.iterations + 1)):
        return []
    now = now or datetime.now(UTC)
    first = f"complete since {_local(manifest.get('ended_at', manifest['created_at']))}, nothing was asked"
    if collected := manifest["data"].get("collected_at"):
        first += f"; outputs collected {time_ago(now - datetime.fromisoformat(collected))}"
    options = []
    if word := _word_to_ask_system(config, manifest):
        options.append(f"to ask the system again: {word}")
    if word := _word_to_judge_again(config, manifest):
        options.append(f"to judge again: {word}")
    return [first, "; ".join(options)] if options else [first]


def _word_to_ask_system(config: RunConfig, manifest: Mapping[str, Any]) -> str | None:
    """None where the outputs are recorded, or come from another run."""
    system = config.system
    if isinstance(system, RecordedSystem) or manifest["source_run"] is not None:
        return None
    return shlex.join([f"system.version={next_name(system.version)}"])


def _word_to_judge_again(config: RunConfig, manifest: Mapping[str, Any]) -> str | None:
    """None where no judge is asked, or an embedded one, which would say the same. A run over another run's cases has as many
    iterations as that run: it gets a new season instead of a new iteration."""
    judge = config.judge
    asks = any(not isinstance(metric, Computed) for metric in config.metrics.values())
    if not (asks and isinstance(judge, JudgeSettings) and config.transport.asks):
        return None
    if manifest["source_run"] is not None:
        return shlex.join([f"judge.season={next_name(judge.season)}"])
    return f"iterations={max(map(int, manifest['iterations'])) + 1}"


def next_name(name: str) -> str:
    """The name with its last number raised by one; with a 2 at the end where it has no number."""
    if match := _ENDS_IN_NUMBER.match(name):
        return f"{match[1]}{int(match[2]) + 1:0{len(match[2])}d}"
    return f"{name}-2" if name else "2"


def time_ago(age: timedelta) -> str:
    """`12 s ago`, `3 min ago`, `5 h ago`, `4 days ago`; `0 s ago` for a negative age (the clock was set back)."""
    seconds = max(0, int(age.total_seconds()))
    for limit, unit, name in ((120, 1, "s"), (120 * 60, 60, "min"), (48 * 3600, 3600, "h")):
        if seconds < limit:
            return f"{seconds // unit} {name} ago"
    return f"{seconds // 86400} days ago"


def _local(time: str) -> str:
    return datetime.fromisoformat(time).astimezone().strftime("%Y-%m-%d %H:%M")
