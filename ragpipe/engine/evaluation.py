"""One run in its folder: freeze the inputs, plan, judge every iteration, score, report. Every task that judges is one."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ragpipe.core.errors import Incomplete, OutputError
from ragpipe.engine.alert_file import write_alerts
from ragpipe.engine.event_loop import run_async
from ragpipe.engine.iteration_judging import judge_iteration, note_reply_times
from ragpipe.engine.judge_access import judge_description, make_named_store, scoring_warnings, store_place
from ragpipe.engine.open_budget import CarriedSpend
from ragpipe.engine.plans.plan_summary import changed_line, missing_embedder_line
from ragpipe.engine.run_inputs import RunInputs, embedded_lines, prepare_inputs
from ragpipe.engine.run_outcome import RunOutcome, completion_notice
from ragpipe.engine.run_policies import EvaluatePolicy
from ragpipe.engine.run_prices import applied_rates, configured_rates, rate_changes
from ragpipe.engine.run_spec import RunSpec
from ragpipe.engine.runs.manifest import (
    COMPLETE,
    INCOMPLETE,
    JUDGED,
    JUDGING_DONE,
    all_in_state,
    check_formats,
    read_manifest,
    write_manifest,
)
from ragpipe.engine.runs.run_identity import metric_signatures, system_versions
from ragpipe.engine.runs.run_list import write_run_list
from ragpipe.engine.runs.user_code import metric_sources
from ragpipe.engine.sources.frozen_inputs import inputs_error, remove_unstarted
from ragpipe.judging.limits.budget import BudgetUsedUp
from ragpipe.judging.transports.provider_state import ProviderRegistry
from ragpipe.reports.console import Console
from ragpipe.reports.sections.diagnosis_section import MISSING_REPLY, transient_errors
from ragpipe.reports.signature import run_signature
from ragpipe.schema.price_rates import Rates
from ragpipe.schema.usage import Usage
from ragpipe.stages.calibration_states import ScoringSources, calibration_states, calibration_words, judge_calibrated
from ragpipe.stages.collected_outputs import output_versions
from ragpipe.stages.combine_iterations import combine_iterations, is_combined, scored_iterations
from ragpipe.stages.score_iteration import ScoreInputs, score_iteration
from ragpipe.stages.seal_run import seal_run, sealed_tables, unseal
from ragpipe.stages.write_reports import write_reports
from ragpipe.store.calls.spend import paid_by
from ragpipe.store.files.atomic import sweep_below
from ragpipe.store.places import objects
from ragpipe.store.run.folder_lock import FolderLock
from ragpipe.store.run.progress_file import mark_phase
from ragpipe.store.run.run_folder import RunFolder
from ragpipe.store.run.run_tables import count_rows, read_json


class Evaluation:
    """One start of one run: does what is still to be done of it. `policy` is what the task does differently; `before_result` is
    called when all figures are written, before they are printed. `calls` counts this start's calls to the judge."""

    def __init__(
        self,
        spec: RunSpec,
        policy: EvaluatePolicy,
        console: Console,
        *,
        before_result: Callable[[], None] = lambda: None,
    ):
        self._before_result = before_result
        self._spec, self._policy, self._console = spec, policy, console
        self._config, self._folder, self._source = spec.config, spec.folder, spec.source
        self._lock = FolderLock(spec.folder.root)
        self._carried_spend = CarriedSpend(spec.folder, store_place(spec.config), spec.run_id)
        self._providers = ProviderRegistry()  # calls against `judge.max_calls`, and what was learnt of the judge
        self._began, self._began_at = time.monotonic(), time.time()
        self._scored: list[int] = []  # the iterations that this start judged or scored
        self._used_up: BudgetUsedUp | None = None  # why no iteration was judged after the last one
        self.calls = 0

    def run(self) -> int:
        """Do what is still to be done, under the folder's lock. Returns the exit code: 0, 3 when a gate blocks, 4 when
        judgements failed beyond the coverage floor. Raises what stopped the run."""
        # before anything is made or asked: a folder of another format is not even locked
        if self._policy.uses_call_store:
            check_formats(self._folder, store_place(self._config))
        else:
            read_manifest(self._folder)
        if (address := self._config.publish) is not None:
            objects("task", "publish").check_target(address)
        for warning in self._warnings():
            self._console.warn(warning)
        if self._is_finished():
            self._console.folder = self._folder.root
            manifest = read_manifest(self._folder)
            self._say_complete(manifest)
            self._before_result()
            self._publish()
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
                self._publish()
                return code
            except Exception as error:
                if cause := inputs_error(self._folder, error):
                    raise cause from error
                raise
            finally:
                remove_unstarted(self._folder)  # under the lock: without it, the folder may be another process's

    def _warnings(self) -> list[str]:
        calibration = self._spec.scoring_files.calibration_of(self._folder)
        is_finished = self._spec.made_from is not None
        warnings = scoring_warnings(self._config, self._spec.identity, calibration, are_answers_known=is_finished)
        for metric in self._spec.metrics:
            warnings += metric_sources(type(metric)).notes
        if line := missing_embedder_line(self._config):
            warnings.append(line)
        return warnings if is_finished else [*warnings, *embedded_lines(self._config)]

    def _is_finished(self) -> bool:
        """Whether this is a task over a finished run that changes nothing: then not even its reports are written again.

        A run with failures is finished too, where no judge and no new reply of the call store could answer them.
        """
        if not self._spec.is_own_source or (self._config.retry_errors and self._policy.asks_judge):
            return False
        if not (self._has_results() and all(self._has_current_prices(number) for number in self._spec.iterations)):
            return False
        if self._policy.asks_judge or not self._policy.reads_call_store:
            return True
        return not any(MISSING_REPLY in transient_errors(self._metrics_of(number)) for number in self._spec.iterations)

    def _has_results(self) -> bool:
        """Whether every iteration is scored, in a state that this task does not change, and the gates are decided."""
        final_states = (COMPLETE,) if self._policy.asks_judge else (COMPLETE, INCOMPLETE)
        states = read_manifest(self._folder).get("iterations", {})
        is_final = all_in_state(states, self._spec.iterations, final_states)
        is_scored = set(self._spec.iterations) <= set(scored_iterations(self._folder))
        return is_final and is_scored and self._folder.gates.is_file()

    def _run_stages(self) -> int:
        inputs = prepare_inputs(self._spec, self._policy, self._console)
        manifest = inputs.manifest
        try:
            for iteration in self._spec.iterations:
                if self._used_up is None:
                    self._run_iteration(inputs, iteration)
        finally:
            if inputs.known is not None:
                inputs.known.close()
        scored = scored_iterations(self._folder)
        if self._scored:
            manifest["ended_at"] = datetime.now(UTC).isoformat(timespec="seconds")
        combined = bool(self._scored) or not is_combined(self._folder, scored)
        if combined:
            unseal(self._folder, "final/", "gates.json")
            combine_iterations(self._folder, scored, self._config.scoring, self._sources(manifest))
        if not (self._scored or inputs.are_new):
            self._say_complete(manifest)
        self._before_result()
        reports = self._write_reports(scored[-1])
        if self._policy.seals_run:
            self._seal(inputs, reports, combined=combined)
        states: dict[str, str] = manifest["iterations"]
        states.update({number: COMPLETE for number in map(str, self._scored) if states[number] == JUDGED})
        write_manifest(self._folder, manifest)
        self._carried_spend.clear_notes()
        write_run_list(self._folder.root.parent)
        code = self._exit_code(states)
        if self._spec.made_from is None and not (code == Incomplete.exit_code and INCOMPLETE in states.values()):
            write_alerts(self._folder, self._config, self._console)  # another start would change them
        return code

    def _run_iteration(self, inputs: RunInputs, iteration: int) -> None:
        """Judge and score one iteration, unless that is done."""
        manifest = inputs.manifest
        folder = self._folder.iteration(iteration).create()
        states, number = manifest["iterations"], str(iteration)
        is_scored = all(path.is_file() for path in (folder.records, folder.metrics, folder.low_scores, folder.cost))
        if states.get(number) not in JUDGING_DONE or self._config.retry_errors:
            self._judge(inputs, iteration)
        # What scoring reads and how it scores are part of the identity: only new prices score a complete iteration again.
        if states[number] != COMPLETE or not is_scored or not self._has_current_prices(iteration):
            self._scored.append(iteration)
            unseal(self._folder, f"iteration-{number}/")
            mark_phase(folder.progress, "scoring")
            score_iteration(self._score_inputs(iteration, manifest))
            mark_phase(folder.progress, "done")

    def _judge(self, inputs: RunInputs, iteration: int) -> None:
        manifest = inputs.manifest
        states, number = manifest["iterations"], str(iteration)
        if states.get(number) == COMPLETE:  # its tables may change now: the scores beside them are not to be trusted
            states[number] = JUDGED
            write_manifest(self._folder, manifest)
        unseal(self._folder, f"iteration-{number}/")
        if self._spec.is_own_source:
            self._carried_spend.note_before(iteration)
        judged = run_async(
            judge_iteration(
                self._spec,
                self._policy,
                iteration,
                self._providers,
                self._console,
                check=self._check,
                known=inputs.known,
                planned_calls=inputs.planned_calls,
                began=self._began,
                began_at=self._began_at,
            )
        )
        self.calls += judged.calls
        self._used_up = judged.used_up
        self._check()
        if judged.progress.changed:
            self._console.warn(changed_line(judged.progress.changed, judged.progress.first_changed))
        states[number] = INCOMPLETE if judged.progress.transient else JUDGED
        note_reply_times(
            self._config,
            self._folder.iteration(iteration),
            manifest,
            source=self._spec.made_from,
            reads_store=self._policy.uses_call_store,
        )
        write_manifest(self._folder, manifest)

    def _check(self) -> None:
        """Raises OutputError when the data is not what it was, or the folder is another process's."""
        self._source.check_unchanged()
        self._lock.check_held()

    def _sources(self, manifest: Mapping[str, Any]) -> ScoringSources:
        return ScoringSources(manifest, self._folder)

    def _score_inputs(self, iteration: int, manifest: Mapping[str, Any]) -> ScoreInputs:
        prices = self._config.system.prices
        states = self._calibration(iteration)
        return ScoreInputs(
            self._folder.iteration(iteration).root,
            samples=self._folder.samples,
            outputs=self._folder.outputs,
            specs=self._spec.score_specs,
            settings=self._config.scoring,
            signature=self._signature(iteration, states),
            judge=judge_description(self._config, judge_calibrated(states)),
            spent=self._spend(iteration),
            run_id=self._spec.run_id,
            rates=self._rates(iteration),
            system_price=prices.usd if prices else None,
            sources=self._sources(manifest),
            calibration=states,
        )

    def _spend(self, iteration: int) -> Usage:
        """What this run's processes have paid for the iteration."""
        recorded = self._policy.recorded_spend(iteration)
        if recorded is not None:
            return recorded
        if self._spec.is_own_source:
            return self._carried_spend.spend_of(iteration)
        return paid_by(store_place(self._config), self._spec.run_id, iteration)

    def _rates(self, iteration: int) -> Mapping[str, Rates]:
        recorded = self._policy.recorded_rates(iteration)
        return configured_rates(self._config) if recorded is None else recorded

    def _has_current_prices(self, iteration: int) -> bool:
        """Whether the iteration's costs were computed with these prices: they are in no identity, and apply when read."""
        applied = applied_rates(self._folder, iteration)
        return applied is not None and not rate_changes(applied, self._rates(iteration))

    def _calibration(self, iteration: int) -> dict[str, dict[str, Any]]:
        """By score that asked the judge whether it is calibrated here."""
        return calibration_states(
            self._folder.iteration(iteration).root,
            self._folder.calibration,
            self._spec.identity,
            self._spec.score_specs,
            self._config.scoring,
        )

    def _signature(self, iteration: int, states: Mapping[str, Mapping[str, Any]]) -> str:
        return run_signature(
            version=str(self._spec.identity["ragpipe"]),  # a later one that verifies the run gives it the same words
            dataset=self._source.name,
            dataset_digest=self._source.digest,
            judge=self._config.judge.label,
            calibration=calibration_words(states),
            metrics=metric_signatures(self._config),
            scoring=self._config.scoring.identity(),
            n=count_rows(self._folder.outputs),
            iteration=iteration,
            versions=system_versions(self._spec.identity.get("system", {}), output_versions(self._folder.outputs)),
        )

    def _write_reports(self, newest: int) -> list[Path]:
        """The reports show the newest iteration. Returns the files."""
        return write_reports(
            self._folder.iteration(newest).root,
            target=self._folder.root,
            settings=self._config.report,
            console=self._console,
            shown_folder=str(self._folder.root),
            next_command=shlex.join(["less", str(self._folder.report)]),
        )

    def _seal(self, inputs: RunInputs, reports: list[Path], *, combined: bool) -> None:
        written = [path.relative_to(self._folder.root).as_posix() for path in reports]
        if not self._spec.is_own_source:
            written.append("config.yaml")
        beside = (
            RunFolder(self._folder.root.parent / run_id) for run_id in inputs.manifest.get("measured_in", {}).values()
        )
        runs = [run for run in (self._source.linked_from, *beside) if run is not None]
        seal_run(
            self._folder,
            inputs.manifest,
            iterations=self._scored,
            inputs_are_new=inputs.are_new,
            combined=combined,
            written=written,
            linked={name: seal for run in runs for name, seal in sealed_tables(run).items()},
        )

    def _publish(self) -> None:
        """Copy the sealed run to where `publish` says. Raises OutputError: the run itself is whole then."""
        if (address := self._config.publish) is None:
            return
        try:
            self._console.say(objects("task", "publish").publish_run(self._folder, address).line())
        except OutputError as error:
            again = shlex.join(["task=publish", f"run={self._folder.root}", f"publish={address}"])
            raise OutputError(
                f"{error}\nthe run is whole: {self._folder.root}; {again} sends what is missing"
            ) from error

    def _say_complete(self, manifest: Mapping[str, Any]) -> None:
        """What to know when a start found everything done."""
        for line in completion_notice(self._config, manifest) if self._policy.asks_judge else ():
            self._console.say(line)

    def _exit_code(self, states: Mapping[str, str]) -> int:
        """The exit code, with the warnings that explain it."""
        outcome = RunOutcome(self._spec, self._console, asks_judge=self._policy.asks_judge, used_up=self._used_up)
        return outcome.exit_code(states)

    def _metrics_of(self, iteration: int) -> dict[str, Any]:
        metrics: dict[str, Any] = read_json(self._folder.iteration(iteration).metrics)
        return metrics
