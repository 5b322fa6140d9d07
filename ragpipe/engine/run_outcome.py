"""How a run ended: its exit code, and what another start of it could still change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragpipe.core.errors import TRANSIENT, Incomplete
from ragpipe.engine.iteration_states import INCOMPLETE
from ragpipe.engine.run_spec import RunSpec
from ragpipe.metrics.base import Computed
from ragpipe.reports.console import Console
from ragpipe.reports.missing_replies import MISSING_REPLY, MISSING_REPLY_FIX, error_kinds, transient_errors
from ragpipe.scoring.gates.gate_rules import exit_code
from ragpipe.stages.collected_outputs import system_failures
from ragpipe.store.run.run_tables import read_json
from ragpipe.systems.settings import RecordedSystem

ASK_ELSEWHERE = (
    "this task asks no judge; the command of the evaluation asks for them (or, over its folder, task=rejudge with its "
    "judge named: judge=llm judge.model=...), then start this one again"
)
_EPSILON = 1e-9  # for rounding errors of the coverage floor


class RunOutcome:
    """`asks_judge` says whether the task of this run asks a judge."""

    def __init__(self, spec: RunSpec, console: Console, *, asks_judge: bool):
        self._spec, self._console, self._asks_judge = spec, console, asks_judge
        self._config, self._folder = spec.config, spec.folder

    def exit_code(self, states: Mapping[str, str]) -> int:
        """0, 3 when a gate blocks, 4 when judgements or outputs are missing beyond the coverage floor.

        What another start may still change is printed first: a gate over half of the replies says little.
        """
        low = any(self._is_below_floor(iteration) for iteration in self._spec.iterations)
        if incomplete := any(states.get(str(iteration)) == INCOMPLETE for iteration in self._spec.iterations):
            self._warn_of_transient_failures()
        failed = self._system_failed()
        if low or failed:
            self._console.resume = self._words_to_resume(failed=failed, incomplete=incomplete)
        if incomplete and low:
            return Incomplete.exit_code
        blocked = exit_code(read_json(self._folder.gates))
        return blocked or (Incomplete.exit_code if low or failed else 0)

    def _words_to_resume(self, *, failed: bool, incomplete: bool) -> tuple[str, ...] | None:
        """The words that this command needs so that another start can change the result.

        Permanent failures, of the system or of the judge, are asked again by `retry_errors` alone; transient ones are asked
        again anyway. None where no start of this command changes anything: the failures come from the data, or the replies
        are not in the store.
        """
        if not self._asks_judge:
            return None
        kinds = self._error_kinds_of_judge()
        if failed or (kinds - TRANSIENT and not incomplete):
            return ("retry_errors=true",)
        return () if incomplete and kinds != {MISSING_REPLY} else None

    def _error_kinds_of_judge(self) -> set[str]:
        """The kinds of errors of all scores that a judge decides."""
        judging = [metric for metric in self._spec.metrics if not isinstance(metric, Computed)]
        names = {spec.name for metric in judging for spec in metric.scores()}
        return {kind for number in self._spec.iterations for kind in error_kinds(self._metrics_of(number), names)}

    def _system_failed(self) -> bool:
        """Whether the live system of this run failed on more cases than the coverage floor allows; prints it."""
        if self._spec.made_from is not None or isinstance(self._config.system, RecordedSystem):
            return False
        failures, floor = system_failures(self._folder.outputs), self._config.scoring.coverage_floor
        if failures.failed <= (1 - floor) * failures.cases + _EPSILON:
            return False
        self._console.warn(
            f"the system under test answered too few cases: it failed on {failures.failed:,} of {failures.cases:,} "
            f"(scoring.coverage_floor={floor:g}), first {failures.first}. retry_errors=true asks it again for these alone"
        )
        return True

    def _warn_of_transient_failures(self) -> None:
        """Which questions are open, and what asks them: over stored replies alone the same command asks nothing."""
        kinds = {kind for iteration in self._spec.iterations for kind in transient_errors(self._metrics_of(iteration))}
        if MISSING_REPLY in kinds:
            self._console.warn(f"questions without a stored reply were not asked: {MISSING_REPLY_FIX}")
        if kinds != {MISSING_REPLY}:
            remedy = "the same command asks for them again" if self._asks_judge else ASK_ELSEWHERE
            self._console.warn(f"some calls failed for a transient reason: {remedy}")

    def _is_below_floor(self, iteration: int) -> bool:
        """Whether too many judgements of some score failed. Composites add no failure of their own; what the system or the
        data set lacks is in the coverage, but no start of this run can change it."""
        scores, floor = self._metrics_of(iteration)["overall"]["scores"], self._config.scoring.coverage_floor
        declared = [scores[spec.name] for spec in self._spec.score_specs]
        return any(score["n_ok"] < floor * (score["n_ok"] + score.get("n_error", 0)) for score in declared)

    def _metrics_of(self, iteration: int) -> dict[str, Any]:
        metrics: dict[str, Any] = read_json(self._folder.iteration(iteration).metrics)
        return metrics
