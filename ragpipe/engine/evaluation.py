"""One run in its folder: freeze the inputs, plan, judge every iteration, score, report. Every task that judges is one."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from ragpipe.config.settings import RunConfig
from ragpipe.core.version import __version__
from ragpipe.engine.carried_spend import CarriedSpend
from ragpipe.engine.case_sources import CaseSource
from ragpipe.engine.completion_notice import completion_notice
from ragpipe.engine.event_loop import SignalHandlers, run_async
from ragpipe.engine.frozen_inputs import (
    inputs_error,
    is_readable_table,
    remove_unstarted,
    restore_frozen,
    table_digests,
)
from ragpipe.engine.iteration_states import COMPLETE, INCOMPLETE, JUDGED
from ragpipe.engine.judge_access import case_window, judge_description, open_judge, scoring_warnings, store_path
from ragpipe.engine.manifest import (
    check_formats,
    checked_manifest,
    copy_prompts,
    new_manifest,
    previous_manifest,
    read_manifest,
    rewritten_prompt_warnings,
    unreadable_previous,
    write_config,
    write_manifest,
)
from ragpipe.engine.plan_summary import (
    changed_line,
    check_call_budget,
    missing_embedder_line,
    plan_line,
    plan_remaining,
    reference_lines,
    report_gaps,
    resumed_lines,
)
from ragpipe.engine.run_identity import identity_differences, metric_signatures, run_id, system_versions
from ragpipe.engine.run_list import write_run_list as write_runs
from ragpipe.engine.run_outcome import RunOutcome
from ragpipe.engine.run_prices import Prices
from ragpipe.engine.user_code import metric_sources
from ragpipe.judging.session import JudgeSession
from ragpipe.judging.transports.provider_state import ProviderRegistry
from ragpipe.metrics.base import Computed
from ragpipe.reports.console import Console
from ragpipe.reports.missing_replies import MISSING_REPLY, transient_errors
from ragpipe.reports.signature import run_signature
from ragpipe.schema.price_rates import Rates
from ragpipe.schema.score import ScoreSpec
from ragpipe.schema.usage import Usage
from ragpipe.stages.case_reader import CaseReader
from ragpipe.stages.collected_outputs import output_versions
from ragpipe.stages.combine_iterations import combine_iterations, is_combined, scored_iterations
from ragpipe.stages.judge_cases import JudgeStage, JudgingProgress
from ragpipe.stages.load_dataset import block_limits, references_of
from ragpipe.stages.resume import settled_cases
from ragpipe.stages.score_iteration import score_iteration
from ragpipe.stages.seal_run import damaged_seal_warning, seal_run, unseal
from ragpipe.stages.write_reports import write_reports
from ragpipe.store.calls.spend import paid_by
from ragpipe.store.files.atomic import sweep_below
from ragpipe.store.run.folder_lock import FolderLock
from ragpipe.store.run.progress_file import ProgressView
from ragpipe.store.run.run_folder import RunFolder
from ragpipe.store.run.run_tables import count_rows, read_json
from ragpipe.store.run.wall_clock import WallClock
from ragpipe.systems.settings import RecordedSystem

OpenSession = Callable[[], AbstractAsyncContextManager[JudgeSession]]
Asks = Literal["judge", "store", "nobody"]
_SETTLED = (JUDGED, COMPLETE)


class Evaluation:
    """One run.

    `identity` names it: its digest is the run's id. `folder` is where it stands, by default under `output_dir`. `open_session` opens the judge,
    by default the configured one behind the call store. `made_from` is the manifest of the run whose frozen cases these
    are, None for a run of a data set: only such a run becomes `latest`. `plan` prints what is about to be spent, and
    refuses too much; `prices` are those of each iteration's replies, by default those of now; `known` are judge_inputs whose replies count as stored in it. `spent` says what an iteration has cost this run's own processes, by default from the call store.
    `asks` says who may answer what the run has no reply to: its judge, the call store alone, or nobody. `asked` counts this
    start's calls to the judge.
    """

    def __init__(
        self,
        config: RunConfig,
        console: Console,
        inputs: CaseSource,
        identity: dict[str, Any],
        *,
        folder: RunFolder | None = None,
        open_session: OpenSession | None = None,
        made_from: Mapping[str, Any] | None = None,
        plan: bool = True,
        known: Sequence[Path] = (),
        spent: Callable[[int], Usage] | None = None,
        asks: Asks = "judge",
        prices: Mapping[int, Mapping[str, Rates]] | None = None,
    ):
        self.config, self.console, self.inputs, self.identity = config, console, inputs, identity
        self.metrics = list(config.metrics.values())
        self.specs: list[ScoreSpec] = [spec for metric in self.metrics for spec in metric.scores()]
        self.run_id = run_id(identity)
        self.folder = folder or RunFolder.at(Path(config.output_dir), config.name, self.run_id)
        self._prices = Prices(config, self.folder, prices)
        self._open_session, self._made_from, self._plan, self._spent = open_session, made_from, plan, spent
        self._known, self._asks = known, asks
        self._carried_spend = CarriedSpend(self.folder, store_path(config), self.run_id)
        self.asked = 0
        self._made: list[int] = []  # iterations that this start judged or scored
        self._start = ProviderRegistry()  # questions asked against `max_calls`, and what was learnt of the judge
        self._collected = False

    def evaluate(self) -> int:
        """Do what is still to be done, under the folder's lock. Returns the exit code: 0, 3 when a gate blocks, 4 when
        judgements failed beyond the coverage floor. Raises what stopped the run."""
        self._check_formats()
        for warning in scoring_warnings(self.config):
            self.console.warn(warning)
        for metric in self.metrics:
            for note in metric_sources(type(metric)).notes:
                self.console.warn(note)
        if line := missing_embedder_line(self.config):
            self.console.warn(line)
        if self._nothing_to_do():
            self.console.folder = self.folder.root
            manifest = read_manifest(self.folder)
            self._say_complete(manifest)
            return self._ending(manifest["iterations"])
        self.folder.create()
        self.console.folder = self.folder.root
        with FolderLock(self.folder.root) as lock:
            for notice in lock.notices:
                self.console.warn(notice)
            sweep_below(self.folder.root)
            try:
                return self._run()
            except Exception as error:
                if cause := inputs_error(self.folder, error):
                    raise cause from error
                raise
            finally:
                remove_unstarted(self.folder)  # under the lock: without it, the folder may be another process's

    def _check_formats(self) -> None:
        """Before anything is made or asked: what has another format is not even locked."""
        if self._spent is None:
            check_formats(self.folder, store_path(self.config))
        else:  # in a scratch folder, with a bill of its own: the call store is not looked at
            read_manifest(self.folder)

    @property
    def _over_itself(self) -> bool:
        """Whether this is a task over a run that changes nothing of it."""
        return self._made_from is not None and self._made_from["run_id"] == self.run_id

    def _nothing_to_do(self) -> bool:
        """A finished run that a task leads back to is not touched: not even its reports are written anew. Nor is one that is
        incomplete, where nobody is there to answer the rest."""
        if not self._over_itself or (self.config.retry_errors and self._asks == "judge"):
            return False
        finished = (COMPLETE,) if self._asks == "judge" else (COMPLETE, INCOMPLETE)
        states, wanted = read_manifest(self.folder).get("iterations", {}), range(1, self.config.iterations + 1)
        scored = scored_iterations(self.folder)
        if not all(states.get(str(i)) in finished and i in scored for i in wanted) or not self.folder.gates.is_file():
            return False
        if not all(self._prices.stand(i) for i in wanted):
            return False
        return self._asks != "store" or not any(MISSING_REPLY in transient_errors(self._figures(i)) for i in wanted)

    def _run(self) -> int:
        fresh = not self.folder.manifest.exists()
        manifest = self._compose(fresh)
        for iteration in range(1, self.config.iterations + 1):
            self._iterate(manifest, iteration)
        scored = scored_iterations(self.folder)
        if self._made:
            manifest["ended_at"] = datetime.now(UTC).isoformat(timespec="seconds")
        if final := bool(self._made) or not is_combined(self.folder, scored):
            combine_iterations(self.folder, scored, self.config.scoring)
        written = [path.relative_to(self.folder.root).as_posix() for path in self._report(scored[-1])]
        if said := damaged_seal_warning(self.folder):
            self.console.warn(said)
        seal_run(
            self.folder,
            manifest,
            iterations=self._made,
            inputs=fresh or self._collected,
            final=final,
            written=written if self._over_itself else [*written, "config.yaml"],
        )
        states: dict[str, str] = manifest["iterations"]
        if not (self._made or self._collected):
            self._say_complete(manifest)
        states.update({number: COMPLETE for number in map(str, self._made) if states[number] == JUDGED})
        write_manifest(self.folder, manifest)
        self._carried_spend.end()
        write_runs(self.folder.root.parent)
        return self._ending(states)

    def _compose(self, fresh: bool) -> dict[str, Any]:
        """The frozen inputs: nothing is spent before they stand, and nothing is left behind when they cannot."""
        manifest = checked_manifest(self.folder, self.run_id) if not fresh else {}
        before: Mapping[str, Any] = (self._made_from or previous_manifest(self.folder)) if fresh else {}
        if not manifest:
            for line in identity_differences(before["identity"], self.identity) if before else ():
                self.console.say(f"differs from run {before['run_id']}: {line}")
            if other := unreadable_previous(self.folder):
                self.console.say(other)
            self.inputs.write(self.folder, self.identity)
            data: dict[str, Any] = {
                "name": self.inputs.name,
                "digest": self.inputs.digest,
                "tables": self.inputs.tables_digest(self.identity),
                "blocks": block_limits(),
                "frozen": table_digests(self.folder),
            }
            if found := output_versions(self.folder.outputs):
                data["versions"] = found
            if self.inputs.collected_at:
                data["collected_at"] = self.inputs.collected_at
            manifest = new_manifest(
                self.config,
                self.identity,
                run_id=self.run_id,
                data=data,
                source_run=self._made_from["run_id"] if self._made_from else None,
            )
            manifest["iterations"] = self.inputs.adopt_judged(self.folder)
        else:
            self._forget_lost(manifest["iterations"])
            quick = self._settled(manifest, COMPLETE) and not self.config.retry_errors
            restore_frozen(self.folder, manifest, self.inputs, self.console.warn, quick=quick)
            if self.config.retry_errors and self.inputs.retry_failures(self.folder):
                manifest["iterations"] = {}  # judged again; what did not change costs nothing
                manifest["data"] |= {"collected_at": self.inputs.collected_at, "frozen": table_digests(self.folder)}
        # Also where a start that collected again was killed: no iteration was judged on other outputs since.
        self._collected = not {COMPLETE, INCOMPLETE} & set(manifest["iterations"].values())
        if not self._settled(manifest):
            self._check_plan(manifest["iterations"])
        if not self._over_itself:  # a task over a run leaves it as it was described
            write_config(self.folder, self.config)
        copy_prompts(self.config, self.folder.prompts)
        if fresh:
            for line in rewritten_prompt_warnings(before, manifest):
                self.console.warn(line)
        write_manifest(self.folder, manifest)
        if self._made_from is None:
            self.folder.point_latest()
        return manifest

    def _forget_lost(self, states: dict[str, str]) -> None:
        """An iteration whose tables are gone or cannot be opened is judged again: the plan is to say so, and what it asks."""
        for name in [name for name, state in states.items() if state in _SETTLED]:
            folder = self.folder.iteration(int(name))
            if lost := [path.name for path in (folder.scores, folder.judge_inputs) if not is_readable_table(path)]:
                del states[name]
                self.console.warn(
                    f"iteration {name}: {' and '.join(lost)} missing or damaged; its cases are done again over the stored replies"
                )

    def _settled(self, manifest: Mapping[str, Any], *states: str) -> bool:
        """Whether every iteration is in one of these states; by default, judged to its end."""
        wanted, numbers = states or _SETTLED, range(1, self.config.iterations + 1)
        return all(manifest["iterations"].get(str(number)) in wanted for number in numbers)

    def _check_plan(self, states: Mapping[str, str]) -> None:
        """One line before the first paid call; a plan over `judge.max_calls` is refused."""
        if not self._plan or all(isinstance(metric, Computed) for metric in self.metrics):
            return
        reader = CaseReader(self.folder.samples, self.folder.outputs)
        open_ones = [n for n in range(1, self.config.iterations + 1) if states.get(str(n)) not in _SETTLED]
        done = {number: settled_cases(self.folder.iteration(number), reader, number) for number in open_ones}
        plan = plan_remaining(self.config, reader, self.run_id, rough=True, known=self._known, done=done)
        reader.close()
        for line in resumed_lines(plan):
            self.console.warn(line)
        report_gaps(plan, self.console)
        for line in reference_lines(plan):
            self.console.say(line)
        self.console.say(plan_line(plan, self.config))
        check_call_budget(plan, self.config)

    def _iterate(self, manifest: dict[str, Any], iteration: int) -> None:
        """Judge and score one iteration, unless that is done."""
        folder = self.folder.iteration(iteration).create()
        states: dict[str, str] = manifest["iterations"]
        scored = all(path.is_file() for path in (folder.records, folder.metrics, folder.cost))
        if states.get(name := str(iteration)) not in _SETTLED or self.config.retry_errors:
            if states.get(name) == COMPLETE:  # its tables may change now: the figures beside them are not to be trusted
                states[name] = JUDGED
                write_manifest(self.folder, manifest)
            unseal(self.folder, f"iteration-{name}/")
            if self._over_itself:
                self._carried_spend.begin(iteration)
            state = run_async(self._judge(iteration))
            self.inputs.check_unchanged()
            if state.changed:
                self.console.warn(changed_line(state.changed, state.first_changed))
            states[name] = INCOMPLETE if state.transient else JUDGED
            write_manifest(self.folder, manifest)
        # What scoring reads and how it scores are part of the identity: a finished iteration is scored anew for prices alone.
        if states[name] != COMPLETE or not scored or not self._prices.stand(iteration):
            self._made.append(iteration)
            self._score(manifest, iteration)

    def _score(self, manifest: Mapping[str, Any], iteration: int) -> None:
        score_iteration(
            self.folder.iteration(iteration).root,
            samples=self.folder.samples,
            outputs=self.folder.outputs,
            specs=self.specs,
            settings=self.config.scoring,
            signature=self._signature(iteration),
            judge=judge_description(self.config),
            spent=self._paid(iteration),
            run_id=self.run_id,
            rates=self._prices.of(iteration),
            system_price=self.config.system.prices.usd if self.config.system.prices else None,
        )

    def _paid(self, iteration: int) -> Usage:
        if self._spent:
            return self._spent(iteration)
        if self._over_itself:
            return self._carried_spend.of(iteration)
        return paid_by(store_path(self.config), self.run_id, iteration)

    def _report(self, newest: int) -> list[Path]:
        """The report shows the newest iteration. Returns the files."""
        return write_reports(
            self.folder.iteration(newest).root,
            target=self.folder.root,
            settings=self.config.report,
            console=self.console,
            shown_folder=str(self.folder.root),
            next_command=shlex.join(["less", str(self.folder.report)]),
        )

    def _signature(self, iteration: int) -> str:
        judge = judge_description(self.config)
        return run_signature(
            version=__version__,
            dataset=self.inputs.name,
            dataset_digest=self.inputs.digest,
            judge=judge["label"],
            calibrated=judge["calibrated"],
            metrics=metric_signatures(self.config),
            scoring=self.config.scoring.identity(),
            n=count_rows(self.folder.outputs),
            iteration=iteration,
            versions=system_versions(self.identity, output_versions(self.folder.outputs)),
        )

    async def _judge(self, iteration: int) -> JudgingProgress:
        reader = CaseReader(self.folder.samples, self.folder.outputs, iteration)
        folder = self.folder.iteration(iteration)
        view = ProgressView(folder.progress, name=self.inputs.name, iteration=iteration, total=reader.count)
        clock = WallClock(folder.wall)
        opened = (
            self._open_session() if self._open_session else open_judge(self.config, self.run_id, warn=self.console.warn)
        )
        try:
            async with opened as session:
                session.share_provider_state(self._start)
                session.corpus = references_of(self.folder.samples)
                with self.console.progress(cases=reader.count) as shown:

                    def update(state: JudgingProgress) -> None:
                        clock.tick()
                        usage = session.usage
                        shown.update(
                            cases=state.done,
                            calls=usage.asked,
                            tokens=usage.spend.tokens,
                            cost_usd=usage.spend.usd,
                            errors=state.errors,
                            resumed=state.resumed,
                        )

                    stage = JudgeStage(
                        cases=reader,
                        metrics=self.metrics,
                        session=session,
                        folder=folder,
                        view=view,
                        window=case_window(self.config),
                        keep_messages=self.config.keep_messages,
                        on_metric_error=self.config.on_metric_error,
                        on_change=update,
                        on_notice=self.console.warn,
                        retry_errors=self.config.retry_errors,
                    )
                    with SignalHandlers(stage, self.console.warn):
                        state = await stage.run()
                self.asked += session.usage.asked
                return state
        finally:
            clock.write()
            reader.close()

    def _say_complete(self, manifest: Mapping[str, Any]) -> None:
        """What to know of a start that found everything done."""
        for line in completion_notice(self.config, manifest) if self._asks == "judge" else ():
            self.console.say(line)

    def _ending(self, states: Mapping[str, str]) -> int:
        """The exit code, and what is said with it."""
        live = self._made_from is None and not isinstance(self.config.system, RecordedSystem)
        return RunOutcome(self.config, self.console, self.folder, asks=self._asks == "judge", live=live).code(states)

    def _figures(self, iteration: int) -> dict[str, Any]:
        found: dict[str, Any] = read_json(self.folder.iteration(iteration).metrics)
        return found
