"""Settings of a judge that follow people's verdicts better than those in use, if the labels can show that at all.

Verdicts in, a choice out: what the settings mean is not known here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ragpipe.calibrating.people_labels import labelled_cases
from ragpipe.calibrating.score_calibration import DRAWN_AT_RANDOM, ScoreEvidence, reference_of, verdicts_of
from ragpipe.core.errors import JudgeError, Skipped
from ragpipe.judging.heuristic.heuristic_judge import HeuristicJudge
from ragpipe.judging.heuristic.settings import HeuristicSettings, OverlapWeights
from ragpipe.judging.vector_replies import Floats as Vector
from ragpipe.judging.vector_replies import TokenMatch
from ragpipe.metrics.base import Metric, run_skip_reason
from ragpipe.prompting.prompt import Prompt
from ragpipe.schema.judge_answers.answer_type import Answer
from ragpipe.schema.sample import Case
from ragpipe.stats.agreement_coefficients import cohen_kappa
from ragpipe.stats.jackknife import Kept, jackknife_error, questions_of
from ragpipe.stats.kappa_verdict import FEWEST_OUTSIDE, outside_largest_class
from ragpipe.stats.student_t import t_quantile
from ragpipe.store.run.run_folder import RunFolder

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
Choice = Callable[[Floats, Floats, Whole], int]

FEWEST_LABELS = 40
SURE = 0.99
"""The level of the gain's interval. At .95 one of 50 equally good candidates was advised in 5 to 7 of 100 samples."""
_FOLDS = 5
_REPEATS = 5
IN_USE = 0
"""The column of the settings in use."""


@dataclass(frozen=True, slots=True)
class KappaGain:
    """Kappa of a rule on questions that it was not fitted to, less kappa of another rule on the same cases. `is_sure`: it is
    above 0 beyond noise."""

    kappa: float | None
    gain: float | None
    is_sure: bool


@dataclass(frozen=True, slots=True)
class JudgeFit:
    """Settings fitted to `n` labels of `clusters` questions.

    `chosen` is the column of the candidate that was chosen by all labels, `IN_USE` where none is better by a standard error.
    `in_use` is kappa of the settings in use; `fitted` the choice on questions that it has not seen, against these; `length`
    the length of the answer on questions that its limit has not seen; `over_length` the better of both judges (the fitted one
    where it is advised) against that. `reason` says why there is no fit: `few_labels`, `few_outside_largest_class`.
    """

    n: int
    clusters: int
    chosen: int = IN_USE
    in_use: float | None = None
    fitted: KappaGain | None = None
    length: float | None = None
    over_length: KappaGain | None = None
    reason: str | None = None

    @property
    def is_advised(self) -> bool:
        """Whether to take the fitted settings: there are some, and on unseen questions they agree better beyond noise."""
        return self.fitted is not None and self.fitted.is_sure and self.chosen != IN_USE


def fit_judge(
    labels: Floats,
    verdicts: Floats,
    lengths: Floats,
    questions: Whole | None = None,
    *,
    seed: int = 0,
    level: float = SURE,
) -> JudgeFit:
    """The candidate whose verdicts agree best with people's, and whether it does so on questions that it has not seen.

    Args:
        labels: people's verdicts, 1 and 0, one per case.
        verdicts: the verdicts of each candidate, a column each; the first are those of the settings in use.
        lengths: characters of the answers.
        questions: the number of each case's question; None where all are independent.
        seed: of the folds.
        level: how sure a gain has to be.

    Chosen is the candidate with the highest kappa, where its lead over the settings in use is more than the jackknife error of
    that lead (the rule of one standard error, Breiman et al. 1984), else the settings in use. For the gain the questions are put
    into five folds, five times anew; each case gets the verdict of what is chosen by the other folds. Sure is a gain whose
    mean over the five less t(G-1) times its jackknife error over the G questions is above 0. On 412 answers of
    RAGTruth, where the default is as good as any candidate, it was advised in none of 200 samples of 60 and 100 labels; from a
    threshold that costs .23 of kappa in .07 of samples of 60 labels and .13 of 100, with a true gain of .20; among 5 or 50
    candidates that are equally good in .01 to .03.
    """
    codes, groups = questions_of(len(labels), questions)
    if len(labels) < FEWEST_LABELS:
        return JudgeFit(len(labels), groups, reason="few_labels")
    if outside_largest_class(labels) < FEWEST_OUTSIDE:
        return JudgeFit(len(labels), groups, reason="few_outside_largest_class")
    now = verdicts[:, [IN_USE]]
    fitted = _out_of_fold(labels, verdicts, codes, groups, seed, choose)
    by_length = _length_verdicts(lengths)
    length = _out_of_fold(labels, by_length, codes, groups, seed, best_of)
    gain = _gain(labels, fitted, now, codes, groups, level)
    chosen = choose(labels, verdicts, codes)
    better = fitted if gain.is_sure and chosen != IN_USE else now
    return JudgeFit(
        n=len(labels),
        clusters=groups,
        chosen=chosen,
        in_use=_mean_kappa(labels, now),
        fitted=gain,
        length=_mean_kappa(labels, length),
        over_length=_gain(labels, better, length, codes, groups, level),
    )


def best_of(labels: Floats, verdicts: Floats, codes: Whole) -> int:
    """The column with the highest kappa, the first of equal ones."""
    return int(np.argmax(_kappas(labels, verdicts)))


def choose(labels: Floats, verdicts: Floats, codes: Whole) -> int:
    """The best column where it leads the first by more than the jackknife error of the lead, else the first."""
    best = best_of(labels, verdicts, codes)
    pair = verdicts[:, [IN_USE, best]]

    def lead(kept: Kept) -> float:
        kappas = _kappas(labels[kept], pair[kept])
        return float(kappas[1] - kappas[0])

    dense, groups = questions_of(len(labels), codes)
    error, _ = jackknife_error(lead, dense, groups)
    everything = np.ones(len(labels), dtype=np.bool_)
    return best if error is not None and lead(everything) > error else IN_USE


def _out_of_fold(labels: Floats, verdicts: Floats, codes: Whole, groups: int, seed: int, choice: Choice) -> Floats:
    """For each case (a row) the verdict of what the other folds choose, a column per repetition."""
    rng = np.random.default_rng(seed)
    predicted = np.empty((len(labels), _REPEATS))
    for repeat in range(_REPEATS):
        fold = (rng.permutation(groups) % _FOLDS)[codes]
        for number in range(_FOLDS):
            tested = fold == number
            column = choice(labels[~tested], verdicts[~tested], codes[~tested])
            predicted[tested, repeat] = verdicts[tested, column]
    return predicted


def _gain(labels: Floats, rule: Floats, other: Floats, codes: Whole, groups: int, level: float) -> KappaGain:
    def gain_of(kept: Kept) -> float | None:
        first, second = _mean_kappa(labels[kept], rule[kept]), _mean_kappa(labels[kept], other[kept])
        return None if first is None or second is None else first - second

    gain = gain_of(np.ones(len(labels), dtype=np.bool_))
    error, reason = jackknife_error(gain_of, codes, groups)
    is_sure = (
        gain is not None and error is not None and reason is None and gain - t_quantile(level, groups - 1) * error > 0
    )
    return KappaGain(_mean_kappa(labels, rule), gain, is_sure)


def _mean_kappa(labels: Floats, verdicts: Floats) -> float | None:
    kappas = [cohen_kappa(labels, column).value for column in verdicts.T]
    known = [kappa for kappa in kappas if kappa is not None]
    return sum(known) / len(known) if len(known) == len(kappas) else None


def _kappas(labels: Floats, verdicts: Floats) -> Floats:
    """Cohen's kappa of 0/1 labels with each column; 0 where both are of one class throughout."""
    agreed = np.mean(verdicts == labels[:, None], axis=0)
    share, shares = float(np.mean(labels)), np.mean(verdicts, axis=0)
    by_chance = share * shares + (1 - share) * (1 - shares)
    room = 1 - by_chance
    return np.where(room > 0, (agreed - by_chance) / np.where(room > 0, room, 1.0), 0.0)


def _length_verdicts(lengths: Floats) -> Floats:
    """Passed up to each length that occurs, and passed from it on: a column per rule."""
    limits = np.unique(lengths)
    return np.concatenate([lengths[:, None] <= limits, lengths[:, None] >= limits], axis=1).astype(np.float64)


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
        people.verdicts[chosen][known], verdicts[known], lengths[known], evidence.judged.questions[chosen][known]
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


A = TypeVar("A", bound=Answer)
OVERLAPS = ("recall", "window", "bigrams", "lcs")
THRESHOLDS = tuple(round(0.15 + 0.05 * step, 2) for step in range(11))
"""0.15 to 0.65."""


def candidates_of(settings: HeuristicSettings) -> list[HeuristicSettings]:
    """The settings to try, those in use first: every threshold with all four overlaps, with one of them, and with any three."""
    tried = [settings]
    for size in (4, 1, 3):
        for names in combinations(OVERLAPS, size):
            weights = None if size == 4 else OverlapWeights(**{name: float(name in names) for name in OVERLAPS})
            tried += [settings.model_copy(update={"overlap_weights": weights, "threshold": t}) for t in THRESHOLDS]
    return list(dict.fromkeys(tried))


def values_of(metric: Metric, score: str, cases: Sequence[Case], candidates: Sequence[HeuristicSettings]) -> Floats:
    """The value of a score of each case (a row) by each candidate (a column); NaN where there is none."""
    return asyncio.run(_values(metric, score, cases, [_EmbeddedJudge(settings) for settings in candidates]))


async def _values(metric: Metric, score: str, cases: Sequence[Case], judges: Sequence[_EmbeddedJudge]) -> Floats:
    values = np.full((len(cases), len(judges)), np.nan)
    for row, case in enumerate(cases):
        if run_skip_reason(metric, case, embedder=False) is None:
            for column, judge in enumerate(judges):
                values[row, column] = await _value(metric, score, case, judge)
    return values


async def _value(metric: Metric, score: str, case: Case, judge: _EmbeddedJudge) -> float:
    try:
        measured = await metric.measure(case, judge)
    except (Skipped, JudgeError):
        return np.nan
    results = [measured] if not isinstance(measured, Sequence) else measured
    values = [result.value for result in results if (result.name or metric.name) == score]
    return np.nan if not values or values[0] is None else values[0]


class _EmbeddedJudge:
    """The embedded judge as a metric sees it."""

    def __init__(self, settings: HeuristicSettings):
        self._judge = HeuristicJudge(settings)

    async def __call__(self, prompt: Prompt, answer: type[A], /, **values: Any) -> A:
        return self._judge.answer(prompt, answer, values)

    async def embed(self, texts: Sequence[str], /) -> list[Vector]:
        raise Skipped("no_embedder")

    def was_truncated(self, text: str, /) -> bool:
        return False

    async def match(self, encoder: Any, candidate: str, reference: str, /, *, idf: bool = False) -> TokenMatch:
        raise Skipped("no_embedder")


_REASONS = {
    "few_labels": f"fewer than {FEWEST_LABELS} labels with a verdict; 50 to 100 are enough",
    "few_outside_largest_class": "fewer than 5 labels are outside the largest class",
}


def fit_lines(score: str, fitted: EmbeddedFit) -> Iterator[str]:
    """Whether to take the fitted settings, and how they and those in use stand to the length of the answer."""
    fit = fitted.fit
    if fit.reason is not None or fit.fitted is None:
        yield f"fit of {score}: none. {_REASONS.get(fit.reason or '', fit.reason)} ({fit.n} here)"
        return
    labels = f"{fit.n:,} labels of {fit.clusters:,} questions"
    if fit.is_advised:
        settings = fitted.settings
        weights = settings.overlap_weights
        which = (
            ", ".join(f"{name} {value:g}" for name, value in weights.model_dump().items()) if weights else "all alike"
        )
        yield (
            f"fit of {score}: take threshold {settings.threshold:g}, overlap weights {which}. On unseen questions kappa "
            f"{_number(fit.fitted.kappa)} instead of {_number(fit.in_use)} ({labels})"
        )
    elif fit.chosen == IN_USE:
        yield f"fit of {score}: keep the settings in use, kappa {_number(fit.in_use)}: no other is better by a standard error ({labels})"
    else:
        yield (
            f"fit of {score}: keep the settings in use, kappa {_number(fit.in_use)}. Fitted ones reach {_number(fit.fitted.kappa)} on "
            f"unseen questions, which may be chance ({labels})"
        )
    if fit.over_length is not None:
        better = "better" if fit.over_length.is_sure else "not surely better"
        yield f"fit of {score}: {better} than the length of the answer alone, kappa {_number(fit.length)}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
