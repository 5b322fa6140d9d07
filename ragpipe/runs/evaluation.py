"""One run in its folder: freeze the inputs, plan, judge every iteration, score, report. Every task that judges is one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ragpipe.judge.budget import BudgetUsedUp
from ragpipe.judge.provider_state import ProviderRegistry
from ragpipe.report.console import Console
from ragpipe.runs.alert_file import alert_baseline, write_alerts
from ragpipe.runs.case_sources import CaseSource
from ragpipe.runs.ended_run import completion_notice, note_end
from ragpipe.runs.iteration_judging import judge_iteration
from ragpipe.runs.judge_access import make_named_store, store_place
from ragpipe.runs.manifest import (
    COMPLETE,
    INCOMPLETE,
    JUDGED,
    JUDGING_DONE,
    all_in_state,
    check_formats,
    read_manifest,
    scored_iterations,
    seal_run,
    unseal,
    write_manifest,
)
from ragpipe.runs.outcome import RunOutcome, check_publishing, lacks_replies, may_still_change, note_reply_times, publish_run
from ragpipe.runs.plan_notices import start_warnings
from ragpipe.runs.run_inputs import RunInputs, inputs_error, prepare_inputs, remove_unstarted
from ragpipe.runs.run_list import write_run_list
from ragpipe.runs.scoring import RunScoring
from ragpipe.runs.settings import RunConfig
from ragpipe.runs.spec import EvaluatePolicy, RunSpec
from ragpipe.runs.write_reports import write_reports
from ragpipe.store.files import sweep_below
from ragpipe.store.folder_lock import FolderLock
from ragpipe.store.progress import judged_seconds


def evaluate(
    config: RunConfig, source: CaseSource, identity_of: Callable[[RunConfig], dict[str, Any]], console: Console
) -> int:
    """Evaluate a data set, and note how it ended. Returns the exit code; raises as `Evaluation.run`."""
    alert_baseline(config)
    spec = RunSpec.of_dataset(config, source, identity_of)
    evaluation = Evaluation(spec, EvaluatePolicy(), console)
    code = evaluation.run()
    note_end(spec.config, spec.folder, code, evaluation.warnings)
    return code


class Evaluation:
    """One start of one run: does what is still to be done of it. `policy` is what the task does differently; `before_result` is
    called when all figures are written, before they are printed. `calls` counts this start's calls to the judge."""

    def __init__(
        self, spec: RunSpec, policy: EvaluatePolicy, console: Console, *, before_result: Callable[[], None] = lambda: None
    ):
        self._before_result = before_result
        self._spec, self._policy, self._console = spec, policy, console
        self._config, self._folder, self._source = spec.config, spec.folder, spec.source
        self._lock = FolderLock(spec.folder.root)
        self._scoring = RunScoring(spec, policy)
        self._providers = ProviderRegistry()  # calls against `judge.max_calls`, and what was learnt of the judge
        self._began, self._began_at = time.monotonic(), time.time()
        self._scored: list[int] = []  # the iterations that this start judged or scored
        self._used_up: BudgetUsedUp | None = None  # why no iteration was judged after the last one
        self.calls = 0
        self.warnings: list[str] = []  # of the scoring, the metrics and the judge

    def run(self) -> int:
        """Do what is still to be done, under the folder's lock. Returns the exit code: 0, 3 when a gate blocks, 4 when
        judgements failed beyond the coverage floor. Raises what stopped the run."""
        # before anything is made or asked: a folder of another format is not even locked
        if self._policy.uses_call_store:
            check_formats(self._folder, store_place(self._config))
        else:
            read_manifest(self._folder)
        check_publishing(self._config)
        self.warnings = start_warnings(self._spec)
        for warning in self.warnings:
            self._console.warn(warning)
        if self._is_finished():
            self._console.folder = self._folder.root
            manifest = read_manifest(self._folder)
            for line in self._notice(manifest):
                self._console.say(line)
            self._before_result()
            publish_run(self._config, self._folder, self._console)
            return self._exit_code(manifest["iterations"])
        if self._policy.uses_call_store:
            make_named_store(self._config)
        self._folder.create()
        self._console.folder = self._folder.root
        with self._lock as lock:
            self._began_at = time.time()  # under the lock: what an earlier start stored while this one waited is older
            for notice in lock.notices:
                self._console.warn(notice)
            sweep_below(self._folder.root)
            try:
                code = self._run_stages()
                publish_run(self._config, self._folder, self._console)
                return code
            except Exception as error:
                if cause := inputs_error(self._folder, error):
                    raise cause from error
                raise
            finally:
                remove_unstarted(self._folder)  # under the lock: without it, the folder may be another process's

    def _is_finished(self) -> bool:
        """Whether nothing changes: not even reports are written again. Failures that nothing here could answer are finished too."""
        if not self._spec.is_own_source or (self._config.retry_errors and self._policy.asks_judge):
            return False
        if not (self._has_results() and all(self._scoring.has_current_prices(number) for number in self._spec.iterations)):
            return False
        if self._policy.asks_judge or not self._policy.reads_call_store:
            return True
        return not lacks_replies(self._folder, self._spec.iterations)

    def _has_results(self) -> bool:
        """Whether every iteration is scored, in a state that this task does not change, and the gates are decided."""
        final_states = (COMPLETE,) if self._policy.asks_judge else (COMPLETE, INCOMPLETE)
        states = read_manifest(self._folder).get("iterations", {})
        is_final = all_in_state(states, self._spec.iterations, final_states)
        is_scored = set(self._spec.iterations) <= set(scored_iterations(self._folder))
        return is_final and is_scored and self._folder.gates.is_file()

    def _run_stages(self) -> int:
        earlier = sum(judged_seconds(self._folder.iteration(number).wall) or 0.0 for number in self._spec.iterations)
        inputs = prepare_inputs(self._spec, self._policy, self._console)
        manifest = inputs.manifest
        for iteration in self._spec.iterations:
            if self._used_up is None:
                self._run_iteration(inputs, iteration)
        scored = scored_iterations(self._folder)
        if self._scored:
            manifest["ended_at"] = datetime.now(UTC).isoformat(timespec="seconds")
            manifest["duration_s"] = round(earlier + time.monotonic() - self._began, 1)
            manifest |= self._policy.recorded_times()
            write_manifest(self._folder, manifest)  # reports show it
        combined = self._scoring.combine(scored, manifest, anew=bool(self._scored))
        notice = () if self._scored or inputs.are_new else self._notice(manifest)
        self._before_result()
        reports = write_reports(
            self._folder.iteration(scored[-1]).root,
            target=self._folder.root,
            settings=self._config.report,
            console=self._console,
            shown_folder=str(self._folder.root),
            notice=notice,
        )
        if self._policy.seals_run:
            self._seal(inputs, reports, combined=combined)
        states: dict[str, str] = manifest["iterations"]
        states.update({number: COMPLETE for number in map(str, self._scored) if states[number] == JUDGED})
        write_manifest(self._folder, manifest)
        self._scoring.carried_spend.clear_notes()
        write_run_list(self._folder.root.parent)
        code = self._exit_code(states)
        if self._spec.made_from is None and not may_still_change(code, states):
            write_alerts(self._folder, self._config, self._console)
        return code

    def _run_iteration(self, inputs: RunInputs, iteration: int) -> None:
        manifest = inputs.manifest
        folder = self._folder.iteration(iteration).create()
        states, number = manifest["iterations"], str(iteration)
        is_scored = all(path.is_file() for path in (folder.records, folder.metrics, folder.low_scores, folder.cost))
        if states.get(number) not in JUDGING_DONE or self._config.retry_errors:
            self._judge(inputs, iteration)
        # What scoring reads and how it scores are part of the identity: only new prices score a complete iteration again.
        if states[number] != COMPLETE or not is_scored or not self._scoring.has_current_prices(iteration):
            self._scored.append(iteration)
            unseal(self._folder, f"iteration-{number}/")
            self._scoring.score(iteration, manifest)

    def _judge(self, inputs: RunInputs, iteration: int) -> None:
        manifest = inputs.manifest
        states, number = manifest["iterations"], str(iteration)
        if states.get(number) == COMPLETE:  # its tables may change now: the scores beside them are not to be trusted
            states[number] = JUDGED
            write_manifest(self._folder, manifest)
        unseal(self._folder, f"iteration-{number}/")
        if self._spec.is_own_source:
            self._scoring.carried_spend.note_before(iteration)
        judged = judge_iteration(
            self._spec,
            self._policy,
            iteration,
            self._providers,
            self._console,
            check=self._check,
            known=inputs.known,
            began_at=self._began_at,
            spent=self._scoring.spent_so_far(),
        )
        self.calls += judged.calls
        self._used_up = judged.used_up
        self._check()
        states[number] = INCOMPLETE if judged.progress.transient else JUDGED
        note_reply_times(
            self._config,
            self._folder.iteration(iteration),
            manifest,
            source=self._spec.made_from,
            reads_store=self._policy.uses_call_store,
        )
        write_manifest(self._folder, manifest)
        if states[number] == JUDGED and not judged.progress.contradicted:
            self._folder.iteration(iteration).journal.unlink(missing_ok=True)  # the tables have all of it

    def _check(self) -> None:
        """Raises OutputError when the data is not what it was, or the folder is another process's."""
        self._source.check_unchanged()
        self._lock.check_held()

    def _seal(self, inputs: RunInputs, reports: list[Path], *, combined: bool) -> None:
        written = [path.relative_to(self._folder.root).as_posix() for path in reports]
        if not self._spec.is_own_source:
            written.append("config.yaml")
        seal_run(
            self._folder,
            inputs.manifest,
            iterations=self._scored,
            inputs_are_new=inputs.are_new,
            combined=combined,
            written=written,
        )

    def _notice(self, manifest: Mapping[str, Any]) -> Sequence[str]:
        return completion_notice(self._config, manifest) if self._policy.asks_judge else ()

    def _exit_code(self, states: Mapping[str, str]) -> int:
        outcome = RunOutcome(self._spec, self._console, asks_judge=self._policy.asks_judge, used_up=self._used_up)
        return outcome.exit_code(states)
