"""What a run came to: its exit code, and what another start of it could still change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ragpipe.config.settings import RunConfig
from ragpipe.core.errors import TRANSIENT, Incomplete
from ragpipe.engine.iteration_states import INCOMPLETE
from ragpipe.metrics.base import Computed
from ragpipe.reports.console import Console
from ragpipe.reports.missing_replies import MISSING_REPLY, MISSING_REPLY_FIX, error_kinds, transient_errors
from ragpipe.scoring.gates.gate_rules import exit_code
from ragpipe.stages.collected_outputs import system_failures
from ragpipe.store.run.run_folder import RunFolder
from ragpipe.store.run.run_tables import read_json

UNASKED = (
    "this task asks nobody; the command of the evaluation asks for them (or, over its folder, task=rejudge with its judge named: "
    "judge=llm judge.model=...), then start this one again"
)


class RunOutcome:
    """What the files of a scored run say. `asks` says whether its judge may be asked, `live` whether its outputs were
    collected from a live system."""

    def __init__(self, config: RunConfig, console: Console, folder: RunFolder, *, asks: bool, live: bool):
        self._config, self._console, self._folder, self._asks, self._live = config, console, folder, asks, live
        self._metrics = list(config.metrics.values())
        self._specs = [spec for metric in self._metrics for spec in metric.scores()]

    def code(self, states: Mapping[str, str]) -> int:
        """The exit code: 0, 3 when a gate blocks, 4 when judgements or outputs are missing beyond the coverage floor. What another start may still change is said first: a gate over half the replies says little."""
        wanted = range(1, self._config.iterations + 1)
        low = any(self._low(iteration) for iteration in wanted)
        if incomplete := any(states.get(str(iteration)) == INCOMPLETE for iteration in wanted):
            self._warn_of_the_rest(wanted)
        failed = self._unanswered()
        if low or failed:
            self._console.resume = self._words_to_resume(wanted, failed=failed, incomplete=incomplete)
        if incomplete and low:
            return Incomplete.exit_code
        blocked = exit_code(read_json(self._folder.gates))
        return blocked or (Incomplete.exit_code if low or failed else 0)

    def _words_to_resume(self, wanted: Iterable[int], *, failed: bool, incomplete: bool) -> tuple[str, ...] | None:
        """What this command needs so that another start can change the result. What failed for good, in the system or
        in the judge, is asked again by `retry_errors` alone; what failed for a passing reason is asked again anyway. None
        where no start of it changes anything: the failures come from the data, or the replies are not in the store."""
        if not self._asks:
            return None
        judged = {spec.name for metric in self._metrics if not isinstance(metric, Computed) for spec in metric.scores()}
        kinds = {kind for iteration in wanted for kind in error_kinds(self._figures(iteration), judged)}
        if failed or (kinds - TRANSIENT and not incomplete):
            return ("retry_errors=true",)
        return () if incomplete and kinds != {MISSING_REPLY} else None

    def _unanswered(self) -> bool:
        """Whether the live system of this run failed on more cases than the coverage floor leaves; says so."""
        if not self._live:
            return False
        found, floor = system_failures(self._folder.outputs), self._config.scoring.coverage_floor
        if found.failed <= (1 - floor) * found.cases + 1e-9:
            return False
        self._console.warn(
            f"the system under test answered too few cases: it failed on {found.failed:,} of {found.cases:,} "
            f"(scoring.coverage_floor={floor:g}), first {found.first}. retry_errors=true asks it again for these alone"
        )
        return True

    def _warn_of_the_rest(self, iterations: Iterable[int]) -> None:
        """What another start would ask, and which: over stored replies alone the same command asks nobody."""
        kinds = {kind for iteration in iterations for kind in transient_errors(self._figures(iteration))}
        if MISSING_REPLY in kinds:
            self._console.warn(f"questions without a stored reply were not asked: {MISSING_REPLY_FIX}")
        if kinds != {MISSING_REPLY}:
            again = "the same command asks for them again" if self._asks else UNASKED
            self._console.warn(f"some calls failed for a passing reason: {again}")

    def _figures(self, iteration: int) -> dict[str, Any]:
        found: dict[str, Any] = read_json(self._folder.iteration(iteration).metrics)
        return found

    def _low(self, iteration: int) -> bool:
        """Whether too many judgements of some score failed. What is made of several scores adds no failure of its own; what
        the system or the data set lacks is in the coverage, but no start of this run can change it."""
        scores, floor = self._figures(iteration)["overall"]["scores"], self._config.scoring.coverage_floor
        measured = [scores[spec.name] for spec in self._specs]
        return any(score["n_ok"] < floor * (score["n_ok"] + score.get("n_error", 0)) for score in measured)
