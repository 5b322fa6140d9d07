"""The `scoring` section: weights, thresholds, slices. Changing any of them asks no judge."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from ragpipe.schema.score import ScoreSpec
from ragpipe.schema.settings import NotInIdentity, Settings
from ragpipe.scoring.composites import OVERALL, Composite, Weight, composite_parts, specs_of
from ragpipe.scoring.default_settings import filled
from ragpipe.scoring.dimensions import DIMENSIONS, LISTS, field_fault, nearest_field
from ragpipe.scoring.gates.gate_settings import Gate
from ragpipe.scoring.low_score_settings import LowScoreSettings
from ragpipe.scoring.rules.conditions import ANY_SCORE, DetailCondition, Rule, ScoreCondition
from ragpipe.scoring.rules.diagnosis import Diagnosis
from ragpipe.scoring.rules.failure_items import Items

__all__ = ["DIMENSIONS", "OVERALL", "ScoringSettings", "nearest_field"]

Threshold = Annotated[float, Field(allow_inf_nan=False)]

_DOMINANT = 0.6
_GATE_WEIGHT = 0.05

RuleName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]


class ScoringSettings(Settings):
    """How values become scores, passes, one overall score, and gates.

    `weights` maps a score name to its share in `overall_score`; `thresholds` a score name to the value from which a case
    passes, in the native scale (None: never judged passed or failed). `passes_with` names scores that pass exactly when all
    the listed ones do. `composites` are further scores made of others, `gates` what the run must reach, `failure_modes` and
    `diagnosis` rules on cases (`rules/conditions.py`), each under a name of the user's; null takes one away. `failure_items`
    says what is counted of a failure mode beside its cases. `slices` are breakdowns beside the usual ones: a field,
    `meta.<key>`, or several joined by `*`. A score with a coverage (`coverage.py`) below `coverage_floor` gets a warning,
    and a gate on it fails. `inconclusive` says what an inconclusive critical gate does; with `accept_uncalibrated` a judge
    that was not calibrated against human labels may pass a critical gate; `calibration` names what it agrees with. `level` is the confidence level of every interval.
    `low_scores` is about `low_scores.json`.

    With `fill_defaults` the sections and entries that are not named are taken from the shipped scoring. It is always False
    once read.
    """

    fill_defaults: Annotated[bool, NotInIdentity] = Field(
        default=True,
        description=(
            "Whether sections and entries that are not named are taken from the shipped scoring. The shipped options "
            "name all of them and set false."
        ),
    )
    weights: dict[str, Weight] = Field(
        default_factory=dict,
        description=("Weight of each score in `overall_score`, 0 or more. They are divided by their sum."),
    )
    thresholds: dict[str, Threshold | None] = Field(
        default_factory=dict,
        description=(
            "Value from which a case passes (to which, where lower is better), by score name, in the score's own "
            "scale. null: neither passed nor failed."
        ),
    )
    passes_with: dict[str, Annotated[list[str], Field(min_length=1)]] = Field(
        default_factory=dict,
        description="Scores that pass exactly when all the listed scores pass, by score name.",
    )
    composites: dict[str, Composite | None] = Field(
        default_factory=dict,
        description="Further scores that are weighted means of others, by name. null takes one away.",
    )
    gates: dict[str, Gate | None] = Field(
        default_factory=dict,
        description="Limits that the run must keep, by a name of your own. null takes one away. Default: none.",
    )
    inconclusive: Literal["warn", "fail"] = Field(
        default="warn", description="What an inconclusive critical gate does. warn: exit code 0; fail: exit code 3."
    )
    accept_uncalibrated: bool = Field(
        default=False,
        description="Whether scores of a judge that is not calibrated against human labels may pass a critical gate.",
    )
    calibration: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description=(
            "`calibration.json` of `task=calibrate`: how far the judge agrees with human labels. It becomes the digest of the "
            "file when it is read. null: none."
        ),
    )
    slices: list[str] = Field(
        default_factory=list,
        description="Breakdowns beside the usual ones: a field, `meta.<key>`, or several joined by `*`. Default: none.",
    )
    coverage_floor: float = Field(
        default=0.95,
        ge=0,
        le=1,
        description="Coverage of a score, 0 to 1, below which it is warned about and a gate on it fails.",
    )
    level: float = Field(
        default=0.95, gt=0.5, lt=1, description="Confidence level of every interval, above 0.5 and below 1."
    )
    failure_modes: dict[RuleName, Rule | None] = Field(
        default_factory=dict,
        description=(
            "Ways in which a case can go wrong, by name: rules of which one condition must hold. null takes one away."
        ),
    )
    failure_items: dict[RuleName, Items | None] = Field(
        default_factory=dict,
        description="Items that are counted for a failure mode beside its cases, by mode. null takes one away.",
    )
    diagnosis: dict[RuleName, Diagnosis | None] = Field(
        default_factory=dict,
        description="What is wrong with a case and what to try, by name. null takes one away.",
    )
    low_scores: LowScoreSettings = Field(default_factory=LowScoreSettings, description="What `low_scores.json` lists.")

    def identity(self) -> dict[str, Any]:
        """As for every section, without a calibration where there is none."""
        fields = super().identity()
        if self.calibration is None:
            del fields["calibration"]
        return fields

    @model_validator(mode="before")
    @classmethod
    def _fill_defaults(cls, settings: Any) -> Any:
        """Fill in the shipped defaults once: what results is complete, also when it is read from a run's config.yaml."""
        if not isinstance(settings, Mapping) or settings.get("fill_defaults", True) is not True:
            return settings
        return {**filled(settings), "fill_defaults": False}

    @field_validator("slices")
    @classmethod
    def _known_fields(cls, slices: list[str]) -> list[str]:
        for name in slices:
            for field in name.split("*"):
                if problem := field_fault(field):
                    raise ValueError(f"{problem} (in slice {name!r})")
            for field in LISTS:
                if name.split("*").count(field) > 1:
                    raise ValueError(f"slice {name!r} crosses `{field}` with itself")
        return slices

    @model_validator(mode="after")
    def _some_weight(self) -> ScoringSettings:
        if not sum(self.weights.values()) > 0:
            raise ValueError("all weights are 0: give at least one score a weight, else there is no overall_score")
        return self

    def weight_shares(self) -> dict[str, float]:
        """The weights as shares of their sum: weights are relative, 2 and 1 are two thirds and one third."""
        total = math.fsum(self.weights.values())
        return {name: weight / total for name, weight in self.weights.items()}

    def active_composites(self) -> dict[str, Composite]:
        """The composites that were not taken away, by name."""
        return {name: composite for name, composite in self.composites.items() if composite is not None}

    def parts(self, names: Collection[str]) -> dict[str, dict[str, list[str]]]:
        """What the composites and the overall score of a run with the scores `names` are made of (see `parts_of`)."""
        parts_of = {name: composite.parts for name, composite in self.active_composites().items()}
        weighed = [name for name, weight in self.weights.items() if weight > 0]
        return composite_parts({**parts_of, OVERALL.name: weighed}, names)

    def shows_overall(self, names: Collection[str]) -> bool:
        """Whether a run with the scores `names` has an overall score to show.

        A mean of a single one of its parts is that part under a name that promises more. With no part it is shown as
        not measured.
        """
        parts = self.parts(names).get(OVERALL.name, {"measured": [], "absent": []})
        return len(parts["measured"]) != 1 or not parts["absent"]

    def counted_items(self) -> dict[str, Items]:
        """What is counted of each failure mode, without what was taken away."""
        return {mode: items for mode, items in self.failure_items.items() if items is not None}

    def active_gates(self) -> dict[str, Gate]:
        """The gates that were not taken away, by name."""
        return {name: gate for name, gate in self.gates.items() if gate is not None}

    def case_gates(self) -> dict[str, list[Gate]]:
        """The critical gates on each score: a case that they are about passes only when that score does. A gate against a
        baseline is about no single case."""
        by_score: dict[str, list[Gate]] = {}
        for gate in self.active_gates().values():
            if gate.score not in (None, OVERALL.name) and gate.tier == "critical" and gate.against is None:
                by_score.setdefault(str(gate.score), []).append(gate)
        return by_score

    def passes(self, spec: ScoreSpec) -> bool:
        """Whether cases pass or fail by this score."""
        return self.thresholds.get(spec.name) is not None or spec.name in self.passes_with

    def missing_dependencies(self, names: Collection[str]) -> dict[str, list[str]]:
        """Of a run with the scores `names` those that are never judged, with the scores of `passes_with` that it lacks."""
        missing: dict[str, list[str]] = {}
        for name in self.passing_order():
            gone = [
                required
                for required in self.passes_with[name]
                if required not in names or (required != name and required in missing)
            ]
            if name in names and gone:
                missing[name] = gone
        return missing

    def passing_order(self) -> list[str]:
        """The scores of `passes_with`, each after those that it passes with."""
        ordered: dict[str, None] = {}

        def add(name: str, above: tuple[str, ...]) -> None:
            for required in self.passes_with[name]:
                if required in self.passes_with and required not in (*above, name):
                    add(required, (*above, name))
            ordered[name] = None

        for name in self.passes_with:
            add(name, ())
        return list(ordered)

    def unjudged_warnings(self, names: Collection[str]) -> list[str]:
        """A warning for each score that this run does not judge because of `missing_dependencies`."""
        return [
            f"{name} is not judged passed or failed: scoring.passes_with.{name} asks for {', '.join(gone)}, which this run "
            "does not give or judge"
            for name, gone in self.missing_dependencies(names).items()
        ]

    def deciding_scores(self, name: str) -> list[str]:
        """The scores that, beside itself, decide whether a case passes by this score; those behind them as well."""
        direct = self.case_gates() if name == OVERALL.name else self.passes_with.get(name, ())
        deciding, open_names = dict.fromkeys(direct), list(direct)
        while open_names:
            required = [part for part in self.passes_with.get(open_names.pop(0), ()) if part not in deciding]
            deciding |= dict.fromkeys(required)
            open_names += required
        return list(deciding)

    def all_specs(self, specs: Sequence[ScoreSpec]) -> list[ScoreSpec]:
        """The scores of a run whose metrics declare `specs`: those, then the composites that have a part among them."""
        return [*specs, *specs_of(self.active_composites(), specs)]

    def rules(self) -> dict[str, Rule]:
        """Every rule that was not taken away, by its key in the configuration."""
        modes = {f"scoring.failure_modes.{name}": rule for name, rule in self.failure_modes.items()}
        diagnoses = {
            f"scoring.diagnosis.{name}.when": diagnosis.when for name, diagnosis in self.diagnosis.items() if diagnosis
        }
        return {key: rule for key, rule in (modes | diagnoses).items() if rule is not None}

    def scores_behind(self, mode: str, names: Collection[str]) -> list[str]:
        """The scores among `names` whose results decide a failure mode; a test of their status alone does not count."""
        rule = self.failure_modes.get(mode)
        leaves = rule.leaves() if rule is not None else ()
        return list(dict.fromkeys(name for leaf in leaves for name in self._scores_of(leaf, names)))

    def _scores_of(self, leaf: object, names: Collection[str]) -> list[str]:
        """The scores among `names` that one condition of a rule asks about, and those that decide whether they pass."""
        if isinstance(leaf, DetailCondition):
            return _first_of(leaf.score, names)
        if not isinstance(leaf, ScoreCondition) or leaf.status is not None:
            return []
        scores = list(names) if ANY_SCORE in leaf.score else _first_of(leaf.score, names)
        if leaf.passed is None:
            return scores
        return scores + [part for name in scores for part in self.deciding_scores(name) if part in names]

    def warnings(self, specs: Sequence[ScoreSpec] | None = None) -> list[str]:
        """What is allowed but likely not meant. With the `specs` of the run's metrics also the gates that will have no
        evidence: to be known before anything is spent."""
        warnings = []
        if specs is not None:
            names = [spec.name for spec in self.all_specs(specs)]
            warnings = [*self._gates_without_score(specs), *self.unjudged_warnings(names)]
        shares = self.weight_shares()
        for name, share in shares.items():
            if share > _DOMINANT:
                warnings.append(
                    f"scoring.weights.{name} is {self.weights[name]:g}, {share:.0%} of all weights: overall_score says little "
                    f"else (over {_DOMINANT:.0%})"
                )
        for name in self.case_gates():
            if name in shares and shares[name] < _GATE_WEIGHT:
                warnings.append(
                    f"scoring.weights.{name} is {self.weights[name]:g}, {shares[name]:.1%} of all weights (under "
                    f"{_GATE_WEIGHT:.0%}), but a critical gate is on {name}: a case may fail the gate with a high overall_score"
                )
        return warnings

    def _gates_without_score(self, specs: Sequence[ScoreSpec]) -> list[str]:
        score_names = {spec.name for spec in self.all_specs(specs)}
        if self.shows_overall(score_names):
            score_names.add(OVERALL.name)
        return [
            f"scoring.gates.{name}: this run does not give {gate.score}, so the gate will have no evidence: switch the "
            f"metric on, or take the gate away with scoring.gates.{name}=null"
            for name, gate in self.active_gates().items()
            if gate.score not in {None, *score_names} and gate.tier != "diagnostic" and gate.without_cases == "fail"
        ]


def _first_of(candidates: Sequence[str], names: Collection[str]) -> list[str]:
    """The first of the candidates that is among `names`, as a list of at most one."""
    return [name for name in candidates if name in names][:1]
