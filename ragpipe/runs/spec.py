"""What one run is: its configuration, where its cases come from, its identity, and its folder.

What each task does differently about its run: who may answer its questions, and what it has cost before.

| task                        | answers come from                        | asks a judge | spend and prices    |
|-----------------------------|------------------------------------------|--------------|---------------------|
| evaluate                    | call store, then the judge               | yes          | call store, today's |
| rejudge                     | the run's replies, call store, the judge | yes          | call store, today's |
| rejudge, mode=stored        | the run's replies, call store            | no           | call store, today's |
| rescore                     | the run's replies                        | no           | call store, today's |
| verify                      | the run's replies                        | no           | as sealed           |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ragpipe.core.score import ScoreSpec
from ragpipe.core.usage import Price, Usage
from ragpipe.judge.session import JudgeSession
from ragpipe.judge.settings import JudgeSettings
from ragpipe.metrics.base import Metric
from ragpipe.runs.case_sources import CaseSource
from ragpipe.runs.finished_run import FinishedRun
from ragpipe.runs.identity import run_id
from ragpipe.runs.judge_access import open_judge, open_replay, recorded_replies, store_place, usable_replies
from ragpipe.runs.manifest import TIMES
from ragpipe.runs.scoring_files import NO_FILES, ScoringFiles, resolved_for_dataset
from ragpipe.runs.settings import RunConfig
from ragpipe.store.call_store import StoredCalls
from ragpipe.store.recorded_replies import FallbackStore
from ragpipe.store.run_folder import RunFolder


@dataclass(frozen=True)
class RunSpec:
    """One run. The digest of `identity` is its id; `made_from` is the manifest of the run whose frozen cases these are, None
    for a run of a data set: only such a run becomes `latest`. `scoring_files` is what its scoring names beside it."""

    config: RunConfig
    source: CaseSource
    identity: dict[str, Any]
    folder: RunFolder
    made_from: Mapping[str, Any] | None = None
    scoring_files: ScoringFiles = NO_FILES

    @classmethod
    def of_dataset(cls, config: RunConfig, source: CaseSource, identity_of: Callable[[RunConfig], dict[str, Any]]) -> RunSpec:
        """A run of a data set, in its folder under `output_dir`. Raises ConfigError for the files of its scoring."""
        config, scoring_files = resolved_for_dataset(config, identity_of)
        identity = identity_of(config)
        folder = RunFolder.at(Path(config.output_dir), config.name, run_id(identity))
        return cls(config, source, identity, folder, scoring_files=scoring_files)

    @classmethod
    def of_finished_run(cls, finished: FinishedRun, source: CaseSource) -> RunSpec:
        """A run over the frozen cases of a finished run, in a folder beside it; the finished run itself where the overrides
        change nothing."""
        identity = finished.identity()
        folder = finished.folder_of(run_id(identity))
        return cls(finished.config, source, identity, folder, finished.manifest, finished.scoring_files)

    @classmethod
    def of_changed_cases(cls, finished: FinishedRun, source: CaseSource, **changes: Any) -> RunSpec:
        """A run over cases made from those of a finished run, with `changes` to its configuration. It has no gates, which are about
        the system and all of its cases, and its report is written and not printed."""
        config = finished.config
        formats = [name for name in config.report.formats if name != "terminal"]
        config = config.model_copy(
            update={
                "scoring": config.scoring.model_copy(update={"gates": {}}),
                "report": config.report.model_copy(update={"formats": formats}),
                **changes,
            }
        )
        manifest = {**finished.manifest, "data": {**finished.manifest["data"], "digest": source.digest}}
        return cls.of_finished_run(replace(finished, config=config, manifest=manifest), source)

    @property
    def run_id(self) -> str:
        """The id of the run, whatever its folder is called."""
        return run_id(self.identity)

    @property
    def metrics(self) -> list[Metric]:
        """The metrics in the order of the configuration."""
        return list(self.config.metrics.values())

    @property
    def score_specs(self) -> list[ScoreSpec]:
        """The scores that the metrics declare, in the order of the tables."""
        return [spec for metric in self.metrics for spec in metric.score_specs]

    @property
    def iterations(self) -> range:
        """The numbers of the iterations, from 1."""
        return range(1, self.config.iterations + 1)

    @property
    def is_own_source(self) -> bool:
        """Whether this is the run that its cases come from: a task over a run that changes nothing of it."""
        return self.made_from is not None and self.made_from["run_id"] == self.run_id


OpenedSession = AbstractAsyncContextManager[JudgeSession]


class EvaluatePolicy:
    """`task=evaluate`: the judge answers what the call store does not. The other policies change parts of this one."""

    asks_judge = True
    """Whether a question without a reply goes to a judge: then the plan is printed first, and refused over `judge.max_calls`. If not,
    a run with failures is as finished as it can be."""
    reads_call_store = True
    """Whether replies of the call store count: a start may find one that was missing before."""
    uses_call_store = True
    """Whether the call store is looked at for anything, so that its format must be this one."""
    seals_run = True
    """Whether the run is sealed at its end. One that is only made to be compared is not."""

    def open_session(self, config: RunConfig, run_id: str, warn: Callable[[str], None]) -> OpenedSession:
        """The judge session of one iteration."""
        return open_judge(config, run_id, warn=warn)

    def recorded_replies(self) -> Sequence[Path]:
        """Tables of judge inputs whose replies need not be asked for again."""
        return ()

    def recorded_spend(self, iteration: int) -> Usage | None:
        """What the iteration has cost, where that is known without the call store."""
        return None

    def recorded_rates(self, iteration: int) -> Mapping[str, Price] | None:
        """The prices of the iteration's replies; None for those of now."""
        return None

    def recorded_times(self) -> Mapping[str, Any]:
        """When the run was made and how long it took, as a manifest has it; empty for a run that is made now."""
        return {}


class RejudgePolicy(EvaluatePolicy):
    """`task=rejudge`: replies of the finished run come first, then those of the call store, then the judge.

    An embedder is asked only where the user names it, as the judge is; the packaged one has no address.
    """

    def __init__(self, finished: FinishedRun):
        self._finished = finished

    def open_session(self, config: RunConfig, run_id: str, warn: Callable[[str], None]) -> OpenedSession:
        replies = self._finished.replies(failures="permanent")
        embeds = "embedder" in self._finished.overrides or getattr(config.embedder, "is_packaged", False)
        return open_judge(config, run_id, known=replies, warn=warn, embeds=embeds)

    def recorded_replies(self) -> Sequence[Path]:
        return self._finished.judge_inputs()


class StoredRejudgePolicy(RejudgePolicy):
    """`task=rejudge rejudge.mode=stored`: no network; the replies of the run and of the call store answer."""

    asks_judge = False

    def open_session(self, config: RunConfig, run_id: str, warn: Callable[[str], None]) -> OpenedSession:
        if not isinstance(config.judge, JudgeSettings):  # the rules judge needs no network
            return super().open_session(config, run_id, warn)
        recorded = recorded_replies(config)
        stored = usable_replies(config, StoredCalls(store_place(config), run_id=run_id), recorded)
        return open_replay(config, FallbackStore(self._finished.replies(), stored))


class RescorePolicy(EvaluatePolicy):
    """`task=rescore`: the run's own replies answer; a question without one ends the run with `fix` as what to do."""

    asks_judge = False
    reads_call_store = False

    def __init__(self, finished: FinishedRun, *, fix: str):
        self._finished, self._fix = finished, fix

    def open_session(self, config: RunConfig, run_id: str, warn: Callable[[str], None]) -> OpenedSession:
        return open_replay(config, self._finished.replies(), fix=self._fix)


class VerifyPolicy(RescorePolicy):
    """`task=verify`: as for a re-scoring, in a scratch folder, with the spend and the prices that were sealed."""

    uses_call_store = False
    seals_run = False

    def __init__(
        self, finished: FinishedRun, *, fix: str, spend: Callable[[int], Usage], rates: Mapping[int, Mapping[str, Price]]
    ):
        super().__init__(finished, fix=fix)
        self._spend, self._rates = spend, rates
        self._times = {key: finished.manifest[key] for key in TIMES if key in finished.manifest}

    def recorded_times(self) -> Mapping[str, Any]:
        return self._times

    def recorded_spend(self, iteration: int) -> Usage | None:
        return self._spend(iteration)

    def recorded_rates(self, iteration: int) -> Mapping[str, Price] | None:
        return self._rates.get(iteration, {})
