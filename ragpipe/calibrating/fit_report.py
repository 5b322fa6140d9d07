"""What a fit of the embedded judge found, in sentences."""

from __future__ import annotations

from collections.abc import Iterator

from ragpipe.calibrating.embedded_fit import EmbeddedFit
from ragpipe.calibrating.judge_fit import FEWEST_LABELS, IN_USE

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
