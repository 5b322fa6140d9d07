"""How the iterations of one run are scored: with which prices, spend, calibration and signature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragpipe.core.usage import Price, Usage
from ragpipe.report.settings import run_signature
from ragpipe.runs.budget import CarriedSpend, applied_rates, are_same_rates, configured_rates
from ragpipe.runs.calibration_states import (
    ScoringSources,
    calibration_states,
    calibration_words,
    judge_calibrated,
    judge_description,
)
from ragpipe.runs.collected_outputs import output_versions
from ragpipe.runs.combine_iterations import combine_iterations, is_combined
from ragpipe.runs.identity import judge_signature, metric_signatures, system_versions
from ragpipe.runs.judge_access import store_place
from ragpipe.runs.manifest import unseal
from ragpipe.runs.score_iteration import ScoreInputs, score_iteration
from ragpipe.runs.spec import EvaluatePolicy, RunSpec
from ragpipe.store.call_store import paid_by
from ragpipe.store.progress import mark_phase
from ragpipe.store.run_tables import count_rows


class RunScoring:
    """Scores the judged iterations of a run. `carried_spend` is what earlier starts have paid."""

    def __init__(self, spec: RunSpec, policy: EvaluatePolicy):
        self._spec, self._policy = spec, policy
        self._config, self._folder = spec.config, spec.folder
        self.carried_spend = CarriedSpend(spec.folder, store_place(spec.config), spec.run_id)

    def score(self, iteration: int, manifest: Mapping[str, Any]) -> None:
        """Score one judged iteration."""
        prices = self._config.system.prices
        folder = self._folder.iteration(iteration)
        states = calibration_states(
            folder.root, self._folder.calibration, self._spec.identity, self._spec.score_specs, self._config.scoring
        )
        inputs = ScoreInputs(
            folder.root,
            samples=self._folder.samples,
            outputs=self._folder.outputs,
            specs=self._spec.score_specs,
            settings=self._config.scoring,
            signature=run_signature(
                version=str(self._spec.identity["ragpipe"]),  # a later one that verifies the run gives it the same words
                dataset=self._spec.source.name,
                dataset_digest=self._spec.source.digest,
                judge=judge_signature(self._config),
                calibration=calibration_words(states),
                metrics=metric_signatures(self._config),
                scoring=self._config.scoring.identity(),
                n=count_rows(self._folder.outputs),
                iteration=iteration,
                versions=system_versions(self._spec.identity.get("system", {}), output_versions(self._folder.outputs)),
            ),
            judge=judge_description(self._config, judge_calibrated(states)),
            spent=self.spent(iteration),
            run_id=self._spec.run_id,
            rates=self._rates(iteration),
            system_price=prices.of("system", "system.prices") if prices else None,
            sources=ScoringSources(manifest, self._folder),
            calibration=states,
        )
        mark_phase(folder.progress, "scoring")
        score_iteration(inputs)
        mark_phase(folder.progress, "done")

    def combine(self, iterations: Sequence[int], manifest: Mapping[str, Any], *, anew: bool) -> bool:
        """Combine the scored iterations into `final/` and decide the gates, where that is not done yet or one was scored `anew`.
        Returns whether it was to be done."""
        if not anew and is_combined(self._folder, iterations):
            return False
        unseal(self._folder, "final/", "gates.json")
        combine_iterations(self._folder, iterations, self._config.scoring, ScoringSources(manifest, self._folder))
        return True

    def has_current_prices(self, iteration: int) -> bool:
        """Whether the iteration's costs were computed with these prices: they are in no identity, and apply when read."""
        applied = applied_rates(self._folder, iteration)
        return applied is not None and are_same_rates(applied, self._rates(iteration))

    def spent(self, iteration: int) -> Usage:
        """What an iteration has cost in all its starts."""
        recorded = self._policy.recorded_spend(iteration)
        if recorded is not None:
            return recorded
        if self._spec.is_own_source:
            return self.carried_spend.spend_of(iteration)
        return paid_by(store_place(self._config), self._spec.run_id, iteration)

    def spent_so_far(self) -> Usage:
        """What all iterations have cost in all starts; nothing for a task that asks no judge."""
        return Usage.sum(self.spent(number) for number in self._spec.iterations if self._policy.asks_judge)

    def _rates(self, iteration: int) -> Mapping[str, Price]:
        recorded = self._policy.recorded_rates(iteration)
        return configured_rates(self._config) if recorded is None else recorded
