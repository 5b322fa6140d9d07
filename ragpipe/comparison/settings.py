"""The `compare` section: which cases are compared, what may differ, and which effects matter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from ragpipe.core.settings import Settings

Part = Literal["data", "judge", "embedder", "prompts", "parser", "metrics"]
"""What two runs must share unless it is accepted."""
SMALLEST_SHARE, SMALLEST_CHANGE = 0.05, 0.1
"""The smallest differences that matter: as a share of a score's scale, and without a scale of the base's mean."""
SMALLEST_RISE = 0.02
"""The smallest difference in the rate of a failure mode that matters."""
FALSE_SLICES = 0.05
"""Largest expected share of false ones among the slices that differ."""
Effect = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class CompareSettings(Settings):
    """How two runs, or two methods of a run, are compared.

    `accept` names what may differ. A difference within the smallest effect counts as none: `smallest_effect` by score, in
    the score's own scale; for failure modes `SMALLEST_RISE`, for all others `SMALLEST_SHARE` of the scale, and where there is none
    (latency, cost, counts) `SMALLEST_CHANGE` of the base's mean. `level` is that of intervals and verdicts.
    """

    kind: Literal["runs", "methods"] = Field(
        default="runs", description="runs: `candidate` against `base`, each a run. methods: the methods of the run `run`."
    )
    base_method: str | None = Field(
        default=None, description="Method of the base that is compared. null: all; between the methods of a run, the first one."
    )
    accept: list[Part] = Field(
        default_factory=list,
        description="What may differ: data (shared cases alone are compared), judge, embedder, prompts, parser, metrics.",
    )
    smallest_effect: dict[str, Effect] = Field(
        default_factory=dict,
        description="Smallest difference that matters, by score, in the score's own scale. Failure modes, latency_ms and cost_usd too.",
    )
    level: float = Field(default=0.95, gt=0.5, lt=1, description="Confidence level of the intervals and verdicts.")
    preference: bool = Field(
        default=False,
        description="Whether a judge is asked first which of two answers is better, in a run of its own. false: what was asked before counts.",
    )

    def smallest(self, name: str, declared: Mapping[str, Any], means: tuple[float, float]) -> float:
        """The smallest difference of a score that matters, in its own scale, above 0. `means` are those of base and candidate:
        without a scale it is a share of the base's, or of the candidate's where that is 0."""
        if name in self.smallest_effect:
            return self.smallest_effect[name]
        if "smallest_effect" in declared:
            return float(declared["smallest_effect"])
        if declared["low"] is not None and declared["high"] is not None:
            return SMALLEST_SHARE * float(declared["high"] - declared["low"])
        return SMALLEST_CHANGE * (abs(means[0]) or abs(means[1]) or 1.0)
