"""What each task does differently about its run: who may answer its questions, and what it has cost before.

| task                        | answers come from                        | asks a judge | announces a plan | spend and prices |
|-----------------------------|------------------------------------------|--------------|------------------|------------------|
| evaluate                    | call store, then the judge               | yes          | yes              | call store, today's |
| rejudge                     | the run's replies, call store, the judge | yes          | yes              | call store, today's |
| rejudge, mode=stored        | the run's replies, call store            | no           | no               | call store, today's |
| rescore                     | the run's replies                        | no           | no               | call store, today's |
| verify                      | the run's replies                        | no           | no               | as sealed |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from ragpipe.config.settings import RunConfig
from ragpipe.engine.judge_access import open_judge, open_replay, recorded_replies, store_place, usable_replies
from ragpipe.engine.runs.finished_run import FinishedRun
from ragpipe.judging.session import JudgeSession
from ragpipe.judging.settings import JudgeSettings
from ragpipe.schema.price_rates import Rates
from ragpipe.schema.usage import Usage
from ragpipe.store.calls.call_store import StoredCalls
from ragpipe.store.calls.recorded_replies import FallbackStore

OpenedSession = AbstractAsyncContextManager[JudgeSession]


class EvaluatePolicy:
    """`task=evaluate`: the judge answers what the call store does not. The other policies change parts of this one."""

    asks_judge = True
    """Whether a question without a reply goes to a judge. If not, a run with failures is as finished as it can be."""
    reads_call_store = True
    """Whether replies of the call store count: a start may find one that was missing before."""
    uses_call_store = True
    """Whether the call store is looked at for anything, so that its format must be this one."""
    announces_plan = True
    """Whether the plan is printed before anything is spent, and refused over `judge.max_calls`."""
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

    def recorded_rates(self, iteration: int) -> Mapping[str, Rates] | None:
        """The prices of the iteration's replies; None for those of now."""
        return None


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
    announces_plan = False

    def open_session(self, config: RunConfig, run_id: str, warn: Callable[[str], None]) -> OpenedSession:
        if not isinstance(config.judge, JudgeSettings):  # the embedded judge needs no network
            return super().open_session(config, run_id, warn)
        recorded = recorded_replies(config)
        stored = usable_replies(config, StoredCalls(store_place(config), run_id=run_id), recorded)
        return open_replay(config, FallbackStore(self._finished.replies(), stored))


class RescorePolicy(EvaluatePolicy):
    """`task=rescore`: the run's own replies answer; a question without one ends the run with `fix` as what to do."""

    asks_judge = False
    reads_call_store = False
    announces_plan = False

    def __init__(self, finished: FinishedRun, *, fix: str):
        self._finished, self._fix = finished, fix

    def open_session(self, config: RunConfig, run_id: str, warn: Callable[[str], None]) -> OpenedSession:
        return open_replay(config, self._finished.replies(), fix=self._fix)


class VerifyPolicy(RescorePolicy):
    """`task=verify`: as for a re-scoring, in a scratch folder, with the spend and the prices that were sealed."""

    uses_call_store = False
    seals_run = False

    def __init__(
        self,
        finished: FinishedRun,
        *,
        fix: str,
        spend: Callable[[int], Usage],
        rates: Mapping[int, Mapping[str, Rates]],
    ):
        super().__init__(finished, fix=fix)
        self._spend, self._rates = spend, rates

    def recorded_spend(self, iteration: int) -> Usage | None:
        return self._spend(iteration)

    def recorded_rates(self, iteration: int) -> Mapping[str, Rates] | None:
        return self._rates.get(iteration, {})
