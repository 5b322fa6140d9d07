"""The embedded judge's threshold and overlap weights fitted to people's labels of a run, and the judge section that says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ragpipe.calibrating.embedded_candidates import candidates_of, values_of
from ragpipe.calibrating.judge_fit import IN_USE, JudgeFit, fit_judge
from ragpipe.calibrating.judged_cases import labelled_cases
from ragpipe.calibrating.score_calibration import DRAWN_AT_RANDOM, ScoreEvidence, reference_of, verdicts_of
from ragpipe.judging.heuristic.settings import HeuristicSettings
from ragpipe.metrics.base import Metric
from ragpipe.schema.sample import Case
from ragpipe.store.run.run_folder import RunFolder


@dataclass(frozen=True)
class EmbeddedFit:
    """The settings that were chosen, and what they were found to gain."""

    settings: HeuristicSettings
    fit: JudgeFit


def fit_embedded_judge(
    folder: RunFolder, metric: Metric, evidence: ScoreEvidence, settings: HeuristicSettings
) -> EmbeddedFit:
    """Threshold and weights for one score: each candidate judges the labelled cases anew, without a call.

    `folder` is the run with the cases, `metric` gives the score, `evidence` are its labels and judgements, `settings` the
    embedded judge of the run. Cases without a verdict of people, and cases that some candidate gives no value, are left out. Raises DataError.
    """
    people = reference_of(evidence.labels, evidence.spec, evidence.bound_to.threshold)
    keys = [case.key for case in evidence.labels.cases]
    at_random = [case.part in DRAWN_AT_RANDOM for case in evidence.labels.cases]
    chosen = np.flatnonzero(~np.isnan(people.verdicts) & np.array(at_random))
    by_key = {case.key[:3]: case for case in labelled_cases(folder, [keys[place] for place in chosen])}
    cases: Sequence[Case] = [by_key[keys[place]] for place in chosen]
    candidates = candidates_of(settings)
    values = values_of(metric, evidence.spec.name, cases, candidates)
    verdicts = np.stack(
        [verdicts_of(column, evidence.spec, evidence.bound_to.threshold) for column in values.T], axis=1
    )
    known = ~np.isnan(verdicts).any(axis=1)
    lengths = np.array([len(case.answer) for case in cases], dtype=np.float64)
    fit = fit_judge(
        people.verdicts[chosen][known],
        verdicts[known],
        lengths[known],
        evidence.judged.questions[chosen][known],
    )
    return EmbeddedFit(candidates[fit.chosen if fit.is_advised else IN_USE], fit)


def judge_section(settings: HeuristicSettings, run_id: str, score: str) -> str:
    """The fitted judge as an option of the group `judge`."""
    import yaml

    head = (
        f"# The embedded judge with threshold and weights fitted to people's labels of {score} in run {run_id}.\n"
        "# Save it as conf/judge/NAME.yaml beside your experiments and use it: judge=NAME\n"
        "# The labels that it was fitted to say too much good of it: calibrate it on labels of other answers.\n"
    )
    plain: str = yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    return head + plain
