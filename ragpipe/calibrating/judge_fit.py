"""Settings of a judge that follow people's verdicts better than those in use, if the labels can show that at all.

Verdicts in, a choice out: what the settings mean is not known here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ragpipe.stats.agreement_coefficients import cohen_kappa
from ragpipe.stats.jackknife import Kept, jackknife_error, questions_of
from ragpipe.stats.kappa_verdict import FEWEST_OUTSIDE, outside_largest_class
from ragpipe.stats.student_t import t_quantile

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
    """The mean kappa of the columns of `rule`, less that of `other`."""

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
