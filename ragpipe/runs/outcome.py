"""How a run ended: its exit code, and what another start of it could still change."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow.compute as pc

from ragpipe.comparison.run_differences import NOTE, drift_file, read_drift_record, reply_times
from ragpipe.core.errors import TRANSIENT, Incomplete, OutputError
from ragpipe.data.system_settings import LiveSystem
from ragpipe.judge.budget import BudgetUsedUp
from ragpipe.judge.settings import JudgeSettings
from ragpipe.metrics.base import Computed
from ragpipe.report.console import Console
from ragpipe.report.diagnosis_section import MISSING_REPLY, MISSING_REPLY_FIX, error_kinds, transient_errors
from ragpipe.runs.collected_outputs import system_failures
from ragpipe.runs.judge_access import store_folder, store_place
from ragpipe.runs.manifest import INCOMPLETE, scored_iterations
from ragpipe.runs.settings import RunConfig
from ragpipe.runs.spec import RunSpec
from ragpipe.score.gate_rules import exit_code
from ragpipe.store.call_store import read_calls
from ragpipe.store.places import objects
from ragpipe.store.run_folder import IterationFolder, RunFolder
from ragpipe.store.run_tables import batches, read_json

ASK_ELSEWHERE = (
    "this task asks no judge; the command of the evaluation asks for them (or, over its folder, task=rejudge with its "
    "judge named: judge=llm judge.model=...), then start this one again"
)
_EPSILON = 1e-9  # for rounding errors of the coverage floor


def lacks_replies(folder: RunFolder, iterations: Sequence[int]) -> bool:
    """Whether a score of a scored iteration has no value because a reply was missing."""
    metrics = (read_json(folder.iteration(number).metrics) for number in iterations)
    return any(MISSING_REPLY in transient_errors(document) for document in metrics)


def may_still_change(code: int, states: Mapping[str, str]) -> bool:
    """Whether another start would ask again for what this one did not get."""
    return code == Incomplete.exit_code and INCOMPLETE in states.values()


def check_publishing(config: RunConfig) -> None:
    """Raises OutputError where the address of `publish` cannot take a run."""
    if config.publish is not None:
        objects("task", "publish").check_target(config.publish)


def publish_run(config: RunConfig, folder: RunFolder, console: Console) -> None:
    """Copy the sealed run to where `publish` says. Raises OutputError: the run itself is whole then."""
    if config.publish is None:
        return
    try:
        console.say(objects("task", "publish").publish_run(folder, config.publish))
    except OutputError as error:
        again = shlex.join(["task=publish", f"run={folder.root}", f"publish={config.publish}"])
        raise OutputError(f"{error}\nthe run is whole: {folder.root}; {again} sends what is missing") from error


class RunOutcome:
    """`asks_judge` says whether the task of this run asks a judge, `used_up` why its budget admitted nothing more."""

    def __init__(self, spec: RunSpec, console: Console, *, asks_judge: bool, used_up: BudgetUsedUp | None = None):
        self._spec, self._console, self._asks_judge, self._used_up = spec, console, asks_judge, used_up
        self._config, self._folder = spec.config, spec.folder
        scored = set(scored_iterations(spec.folder))
        self._iterations = [number for number in spec.iterations if number in scored]

    def exit_code(self, states: Mapping[str, str]) -> int:
        """0, 3 when a gate blocks, 4 when judgements or outputs are missing beyond the coverage floor.

        What another start may still change is printed first: a gate over half of the replies says little.
        """
        low = [words for iteration in self._iterations for words in self._below_floor(iteration)]
        if incomplete := any(states.get(str(iteration)) == INCOMPLETE for iteration in self._iterations):
            self._warn_of_transient_failures()
        failed = self._system_failed()
        if self._used_up is not None:
            return self._end_of_budget(self._used_up)
        if low or failed:
            self._console.resume = self._words_to_resume(failed=failed, incomplete=incomplete)
        if incomplete and low:
            self._say_why(low)
            return Incomplete.exit_code
        blocked = exit_code(read_json(self._folder.gates))
        if low and not blocked:
            self._say_why(low)
        is_empty = not (blocked or low or failed) and self._has_no_answer()
        if is_empty:
            self._console.resume = None
            self._console.warn(
                "exit code 4: no case has an answer, so nothing was measured; see what task=plan says of the data"
            )
        return blocked or (Incomplete.exit_code if low or failed or is_empty else 0)

    def _has_no_answer(self) -> bool:
        """Whether the data has no answer at all, and no score came out: a run that only retrieves has scores."""
        metrics = [self._metrics_of(number) for number in self._iterations]
        if any(score["n_ok"] for one in metrics for score in one["overall"]["scores"].values()):
            return False
        return not any(pc.any(pc.is_valid(part["answer"])).as_py() for part in batches(self._folder.outputs, ["answer"]))

    def _end_of_budget(self, used_up: BudgetUsedUp) -> int:
        """Exit code 4 whatever the coverage: the results are those of a part of the run. Prints what was not judged."""
        self._console.resume = used_up.raised
        judged, open_iterations = len(self._iterations), len(self._spec.iterations) - len(self._iterations)
        counts = [self._metrics_of(number)["overall"]["scores"] for number in self._iterations[-1:]]
        scores = counts[0] if counts else {}
        partial = [
            f"{name} {score['n_ok']:,} of {score['n_ok'] + score.get('n_error', 0):,}"
            for name, score in scores.items()
            if score.get("n_error")
        ]
        coverage = f"; judged: {', '.join(partial)}" if partial else ""
        later = f"; {open_iterations:,} of {judged + open_iterations:,} iterations were not begun" if open_iterations else ""
        self._console.warn(
            f"exit code 4: {used_up}{coverage}{later}. What was judged stands, and the figures are of that part alone"
        )
        return Incomplete.exit_code

    def _words_to_resume(self, *, failed: bool, incomplete: bool) -> tuple[str, ...] | None:
        """The words that this command needs so that another start can change the result."""
        if not self._asks_judge:
            return None
        kinds = self._error_kinds_of_judge()
        if MISSING_REPLY in kinds:  # this start may ask nobody, nor may the same again
            return None
        if failed or (kinds - TRANSIENT and not incomplete):
            return ("retry_errors=true",)
        return () if incomplete else None

    def _error_kinds_of_judge(self) -> set[str]:
        judging = [metric for metric in self._spec.metrics if not isinstance(metric, Computed)]
        names = {spec.name for metric in judging for spec in metric.scores()}
        return {kind for number in self._iterations for kind in error_kinds(self._metrics_of(number), names)}

    def _system_failed(self) -> bool:
        """Whether the live system of this run failed on more cases than the coverage floor allows; prints it."""
        if self._spec.made_from is not None or not isinstance(self._config.system, LiveSystem):
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
        kinds = {kind for iteration in self._iterations for kind in transient_errors(self._metrics_of(iteration))}
        if MISSING_REPLY in kinds:
            self._console.warn(f"questions without a stored reply were not asked: {MISSING_REPLY_FIX}")
        if not kinds or kinds - {MISSING_REPLY, "budget"}:
            remedy = "the same command asks for them again" if self._asks_judge else ASK_ELSEWHERE
            self._console.warn(f"some calls failed for a transient reason: {remedy}")

    def _below_floor(self, iteration: int) -> list[str]:
        """The scores of which too many judgements failed, each with its figures."""
        scores, floor = self._metrics_of(iteration)["overall"]["scores"], self._config.scoring.coverage_floor
        low = []
        for name in (spec.name for spec in self._spec.score_specs):
            n_ok, n_asked = scores[name]["n_ok"], scores[name]["n_ok"] + scores[name].get("n_error", 0)
            if n_ok < floor * n_asked:
                low.append(f"{name} {n_ok:,} of {n_asked:,} ({n_ok / n_asked:.1%})")
        return low

    def _say_why(self, low: Sequence[str]) -> None:
        """Print the rule by which the run ends with code 4, the scores that it is about, and what can be done."""
        more = f" and {len(low) - 1:,} more" if len(low) > 1 else ""
        floor = self._config.scoring.coverage_floor
        rule = f"exit code 4, by scoring.coverage_floor={floor:g}: too few of the judgements asked for came out: {low[0]}{more}"
        self._console.warn(f"{rule}; {self._remedy()}")

    def _remedy(self) -> str:
        words = self._console.resume
        if words:
            return f"{' '.join(words)} asks again"
        if words is not None:
            return "the same command asks again"
        if self._error_kinds_of_judge():
            return MISSING_REPLY_FIX if self._asks_judge else ASK_ELSEWHERE
        return "no new start changes it: the errors come from the data; correct what task=plan and the report name there"

    def _metrics_of(self, iteration: int) -> dict[str, Any]:
        metrics: dict[str, Any] = read_json(self._folder.iteration(iteration).metrics)
        return metrics


def note_reply_times(
    config: RunConfig, folder: IterationFolder, manifest: dict[str, Any], *, source: Mapping[str, Any] | None, reads_store: bool
) -> None:
    """Note in the manifest when the first and the last reply of the judge came that the run rests on, and what its drift file
    says (`NOTE`): only where the judge has a drift file, or there is a `source`, the manifest of the finished run
    whose cases these are. Its replies are those of a run by the same judge, where the call store knows none or may not be read.
    """
    if not isinstance(config.judge, JudgeSettings):
        return
    place, identity = store_place(config), config.judge.identity_of_judge()
    record = read_drift_record(drift_file(store_folder(config), identity)) if reads_store else None
    times: list[str] = []
    if record is not None and folder.judge_inputs.is_file():
        for batch in batches(folder.judge_inputs, ("key", "template"), size=4_096):
            keys = {row["key"] for row in batch.to_pylist() if row["template"] is not None}
            times += [call.created_at for call in read_calls(place, keys).values() if call.created_at]
            times = [min(times), max(times)] if times else []
    if source is not None and source["identity"].get("judge_identity") == identity and not times:
        times = list(reply_times(source))
    noted = manifest.get(NOTE, {})
    if times:
        times += [noted[name] for name in ("first", "last") if name in noted]
        noted |= {"first": min(times), "last": max(times)}
    if record is not None:
        noted |= record.note()
    if noted:
        manifest[NOTE] = noted
