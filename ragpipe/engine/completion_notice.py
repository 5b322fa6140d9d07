"""What a start says that found its run complete: since when, how old the outputs are, and the words that ask again."""

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
    """One line, and a second where this command can ask somebody again: with which words more. None for a run that has an
    iteration that is not complete: its warnings say what the same command asks."""
    if any(manifest["iterations"].get(str(number)) != COMPLETE for number in range(1, config.iterations + 1)):
        return []
    now = now or datetime.now(UTC)
    first = f"complete since {_local(manifest.get('ended_at', manifest['created_at']))}, nothing was asked"
    if collected := manifest["data"].get("collected_at"):
        first += f"; outputs collected {time_ago(now - datetime.fromisoformat(collected))}"
    ways = []
    if (word := _asks_system(config, manifest)) is not None:
        ways.append(f"to ask the system again: {word}")
    if (word := _asks_judge(config, manifest)) is not None:
        ways.append(f"to judge again: {word}")
    return [first, "; ".join(ways)] if ways else [first]


def _asks_system(config: RunConfig, manifest: Mapping[str, Any]) -> str | None:
    """None where the outputs are recorded, or another run's."""
    system = config.system
    if isinstance(system, RecordedSystem) or manifest["source_run"] is not None:
        return None
    return shlex.join([f"system.version={next_name(system.version)}"])


def _asks_judge(config: RunConfig, manifest: Mapping[str, Any]) -> str | None:
    """None where no judge is asked, or an embedded one, which would say the same. A run of another run's cases has as many
    iterations as that one: there it is a new season."""
    judge = config.judge
    asks = any(not isinstance(metric, Computed) for metric in config.metrics.values())
    if not (asks and isinstance(judge, JudgeSettings) and config.transport.kind == "live"):
        return None
    if manifest["source_run"] is not None:
        return shlex.join([f"judge.season={next_name(judge.season)}"])
    return f"iterations={max(map(int, manifest['iterations'])) + 1}"


def next_name(name: str) -> str:
    """Another name than this one: its number raised, else with a 2."""
    if found := _ENDS_IN_NUMBER.match(name):
        return f"{found[1]}{int(found[2]) + 1:0{len(found[2])}d}"
    return f"{name}-2" if name else "2"


def time_ago(span: timedelta) -> str:
    """`12 s ago`, `3 min ago`, `5 h ago`, `4 days ago`; a clock that was put back says `0 s ago`."""
    seconds = max(0, int(span.total_seconds()))
    for limit, unit, name in ((120, 1, "s"), (120 * 60, 60, "min"), (48 * 3600, 3600, "h")):
        if seconds < limit:
            return f"{seconds // unit} {name} ago"
    return f"{seconds // 86400} days ago"


def _local(time: str) -> str:
    return datetime.fromisoformat(time).astimezone().strftime("%Y-%m-%d %H:%M")
