"""The `scoring` section: weights, thresholds, slices. Changing any of them asks no judge."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Annotated, Any, Literal

import numpy as np
import yaml
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator

from ragpipe.core.resources import conf_dir
from ragpipe.core.score import ScoreSpec
from ragpipe.core.settings import NotInIdentity, Settings
from ragpipe.core.yaml_files import FastLoader
from ragpipe.score.conditions import ANY_SCORE, DetailCondition, Rule, ScoreCondition
from ragpipe.score.diagnosis import Diagnosis, Items
from ragpipe.score.dimensions import LISTS, check_fields, field_fault
from ragpipe.score.gate_settings import OPERATIONS, Gate
from ragpipe.score.normalisation import OVERALL, TOLERANCE, Column, Composite, Weight, specs_of

DEFAULT = "default"
NOT_LOW = -1

Bands = NDArray[np.int8]


class LowScoreBand(Settings):
    """Values up to `up_to`, in the native scale, that are in no band before it (from `up_to`, where lower is better).

    Without `up_to`: all others that did not pass. `advice` is what to try. `low: false` makes it a reading of values that
    are no fault: such bands come last, are counted, and none of their cases is a low one.
    """

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$", description="Name of the band: lower-case letters, digits and '_'.")
    up_to: Annotated[float, Field(allow_inf_nan=False)] | None = Field(
        default=None,
        description=(
            "Last value of the band, in the score's own scale (first value, where lower is better). null: all "
            "further values that did not pass."
        ),
    )
    advice: list[str] = Field(default_factory=list, description="What to try, one sentence each. Default: none.")
    low: bool = Field(
        default=True, description="Whether the band's cases are low ones. false: the band only names values that are no fault."
    )


class LowScoreSettings(Settings):
    """How `low_scores.json` is made.

    `bands` maps a score to its bands, the worst first; null leaves the score out. `default` is for every other score
    that is judged passed or failed, and goes by `score` (0 worst, 1 best) among the cases that did not pass. `by` are
    the fields in which low cases may cluster.
    """

    bands: dict[str, list[LowScoreBand] | None] = Field(
        default_factory=dict,
        description=(
            "Bands of each score, the worst first; null leaves the score out. `default` is for all other scores "
            "that can pass or fail."
        ),
    )
    by: list[str] = Field(default_factory=list, description="Fields of a case in which low cases may cluster.")

    @field_validator("bands")
    @classmethod
    def _ordered(cls, bands: dict[str, list[LowScoreBand] | None]) -> dict[str, list[LowScoreBand] | None]:
        for score, score_bands in bands.items():
            if problem := _band_problem(score, score_bands or []):
                raise ValueError(problem)
        return bands

    _known_fields = field_validator("by")(check_fields)

    def of(self, spec: ScoreSpec, *, judged: bool) -> list[LowScoreBand] | None:
        """The bands of a score; None when it is left out. `judged` says whether it ever passes or fails."""
        if spec.name in self.bands:
            return self.bands[spec.name]
        return self.bands.get(DEFAULT) if judged and spec.low is not None else None

    def band_of(self, spec: ScoreSpec, column: Column) -> Bands:
        """For each case the number of its band, or NOT_LOW. Not for scores that are left out."""
        score_bands = self.bands.get(spec.name)
        bands = score_bands if score_bands is not None else self.bands.get(DEFAULT) or []
        values = column.scores if score_bands is None else column.values
        upwards = score_bands is None or spec.higher_is_better
        band_numbers = np.full(len(values), NOT_LOW, dtype=np.int8)
        failed = column.passed == 0
        for place, band in reversed(list(enumerate(bands))):
            if band.up_to is None:
                inside = failed
            else:
                with np.errstate(invalid="ignore"):
                    inside = values <= band.up_to + TOLERANCE if upwards else values >= band.up_to - TOLERANCE
                inside &= failed if score_bands is None else ~np.isnan(values)
            band_numbers[inside] = place
        return band_numbers


def _band_problem(score: str, bands: Sequence[LowScoreBand]) -> str | None:
    """What is wrong with the names and the order of a score's bands; None when nothing is."""
    names = [band.name for band in bands]
    if len(set(names)) < len(names):
        return f"every band of {score} under a name of its own, found {', '.join(names)}"
    if any(later.low and not band.low for band, later in pairwise(bands)):
        return f"the bands of {score} with `low: false` after all others: they are the best values"
    ends = [band.up_to for band in bands]
    if None in ends[:-1]:
        return f"the band of {score} without `up_to` as the last one: it takes all that is left"
    steps = [after > before for before, after in pairwise([end for end in ends if end is not None])]
    if len(set(ends)) < len(ends) or len(set(steps)) > 1:
        return f"the bands of {score} from the worst on: `up_to` rising (falling, where lower is better)"
    return None


Threshold = Annotated[float, Field(allow_inf_nan=False)]

_DOMINANT = 0.6
_GATE_WEIGHT = 0.05

RuleName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]


class ScoringSettings(Settings):
    """How values become scores, passes, one overall score, and gates.

    `weights` maps a score name to its share in `overall_score`; `thresholds` a score name to the value from which a case
    passes, in the native scale (None: never judged passed or failed), or to such values by method. `passes_with` names scores that pass exactly when all
    the listed ones do. `composites` are further scores made of others, `gates` what the run must reach, `failure_modes` and
    `diagnosis` rules on cases (`conditions.py`), each under a name of the user's; null takes one away. `failure_items`
    says what is counted of a failure mode beside its cases. `slices` are breakdowns beside the usual ones: a field,
    `meta.<key>`, or several joined by `*`. A score with a coverage below `coverage_floor` gets a warning,
    and a gate on it fails. `inconclusive` says what an inconclusive critical gate does; with `accept_uncalibrated` a judge
    that was not calibrated against human labels may pass a critical gate; `calibration` names what it agrees with. `level` is the confidence level of every interval.
    `low_scores` is about `low_scores.json`; `wanted_cases` says how many questions of a category a data set should have.

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
        default_factory=dict, description=("Weight of each score in `overall_score`, 0 or more. They are divided by their sum.")
    )
    thresholds: dict[str, Threshold | dict[str, Threshold | None] | None] = Field(
        default_factory=dict,
        description=(
            "Value from which a case passes (to which, where lower is better), by score name, in the score's own "
            "scale; or such values by method, for a score made in one of several ways. null: neither passed nor failed."
        ),
    )
    passes_with: dict[str, Annotated[list[str], Field(min_length=1)]] = Field(
        default_factory=dict, description="Scores that pass exactly when all the listed scores pass, by score name."
    )
    composites: dict[str, Composite | None] = Field(
        default_factory=dict, description="Further scores that are weighted means of others, by name. null takes one away."
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
    level: float = Field(default=0.95, gt=0.5, lt=1, description="Confidence level of every interval, above 0.5 and below 1.")
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
        default_factory=dict, description="What is wrong with a case and what to try, by name. null takes one away."
    )
    low_scores: LowScoreSettings = Field(default_factory=LowScoreSettings, description="What `low_scores.json` lists.")
    wanted_cases: Annotated[dict[str, Annotated[int, Field(ge=0)]], NotInIdentity] = Field(
        default_factory=dict,
        description="Questions that a data set should have of each category; `task=plan` says what is missing. Default: none.",
    )

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

    @property
    def weighed(self) -> list[str]:
        """The scores that count in the overall score."""
        return [name for name, weight in self.weights.items() if weight > 0]

    def active_composites(self) -> dict[str, Composite]:
        """The composites that were not taken away, by name."""
        return {name: composite for name, composite in self.composites.items() if composite is not None}

    def parts(self, names: Collection[str]) -> dict[str, dict[str, list[str]]]:
        """Of each composite, and of the overall score, of which a run with the scores `names` has a part: `measured` and `absent`
        parts. One with absent parts is not quite what its name says, and one with a single part of several is not shown at all."""
        parts_of = {name: composite.parts for name, composite in self.active_composites().items()}
        parts_of[OVERALL.name] = self.weighed
        return {
            name: {"measured": measured, "absent": [part for part in parts if part not in names]}
            for name, parts in parts_of.items()
            if (measured := [part for part in parts if part in names])
        }

    def shows_overall(self, names: Collection[str]) -> bool:
        """Whether a run with the scores `names` has an overall score to show: the mean of a single part is that part."""
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
        baseline, or on a figure of the system, is about no single case."""
        by_score: dict[str, list[Gate]] = {}
        for gate in self.active_gates().values():
            if gate.score not in (None, OVERALL.name, *OPERATIONS) and gate.tier == "critical" and gate.against is None:
                by_score.setdefault(str(gate.score), []).append(gate)
        return by_score

    def threshold(self, spec: ScoreSpec) -> float | None:
        """From which value on a case passes by this score, in its native scale; None where the method that gives it has none."""
        found = self.thresholds.get(spec.name)
        return found.get(spec.method) if isinstance(found, dict) else found

    def passes(self, spec: ScoreSpec) -> bool:
        """Whether cases pass or fail by this score."""
        return self.threshold(spec) is not None or spec.name in self.passes_with

    def missing_dependencies(self, names: Collection[str]) -> dict[str, list[str]]:
        """Of a run with the scores `names` those that are never judged, with the scores of `passes_with` that it lacks."""
        missing: dict[str, list[str]] = {}
        for name in self.passing_order():
            gone = [one for one in self.passes_with[name] if one not in names or (one != name and one in missing)]
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
            f"{name} neither passes nor misses its threshold: scoring.passes_with.{name} asks for {', '.join(gone)}, which this run "
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
        if not isinstance(leaf, DetailCondition | ScoreCondition) or getattr(leaf, "status", None) is not None:
            return []
        scores = list(names) if ANY_SCORE in leaf.score else [name for name in leaf.score if name in names][:1]
        if getattr(leaf, "passed", None) is None:
            return scores
        return scores + [part for name in scores for part in self.deciding_scores(name) if part in names]

    def warnings(self, specs: Sequence[ScoreSpec] | None = None) -> list[str]:
        """What is allowed but likely not meant. With the `specs` of the run's metrics also the gates that will have no
        evidence: to be known before anything is spent."""
        warnings = []
        if specs is not None:
            names = [spec.name for spec in self.all_specs(specs)]
            warnings = [*self._gates_without_score(names), *self.unjudged_warnings(names), *self._gates_off_scale(specs)]
        return [*warnings, *self.weight_warnings(self.weighed if specs is None else [spec.name for spec in specs])]

    def weight_warnings(self, measured: Collection[str]) -> list[str]:
        """Warnings about the weights in a run with the scores `measured`: one that was chosen decides nearly all of what is measured,
        or one with a critical gate nearly nothing. Of the shipped weights reports say which were measured (`2 of 8 parts`)."""
        warnings = []
        shares, is_chosen = self.weight_shares(), self.weights != shipped()["weights"]
        given = {name: self.weights[name] for name in self.weighed if name in measured and is_chosen}
        for name, weight in given.items():
            if (share := weight / math.fsum(given.values())) > _DOMINANT and self.shows_overall(measured):
                warnings.append(
                    f"scoring.weights.{name} is {weight:g}, {share:.0%} of the weights that the run measures: overall_score says "
                    f"little else (over {_DOMINANT:.0%})"
                )
        for name in self.case_gates():
            if name in shares and shares[name] < _GATE_WEIGHT:
                warnings.append(
                    f"scoring.weights.{name} is {self.weights[name]:g}, {shares[name]:.1%} of all weights (under "
                    f"{_GATE_WEIGHT:.0%}), but a critical gate is on {name}: a case may fail the gate with a high overall_score"
                )
        return warnings

    def _gates_without_score(self, names: Collection[str]) -> list[str]:
        known = {None, *OPERATIONS, *names, *([OVERALL.name] if self.shows_overall(names) else [])}
        return [
            f"scoring.gates.{name}: this run does not give {gate.score}, so the gate will have no evidence: switch the "
            f"metric on, or take the gate away with scoring.gates.{name}=null"
            for name, gate in self.active_gates().items()
            if gate.score not in known and gate.tier != "diagnostic" and gate.without_cases == "fail"
        ]

    def _gates_off_scale(self, specs: Sequence[ScoreSpec]) -> list[str]:
        """Fixed limits on a score whose method has another scale than the one that has a threshold."""
        by_method = {
            spec.name: spec.method
            for spec in specs
            if isinstance(self.thresholds.get(spec.name), dict) and self.threshold(spec) is None
        }
        return [
            f"scoring.gates.{name}: a fixed limit on {gate.score}, whose values by method {by_method[gate.score]} are on a scale "
            "of their own: set it by what a good system reaches, or use against and max_drop"
            for name, gate in self.active_gates().items()
            if gate.score in by_method and (gate.min, gate.max) != (None, None)
        ]


_IN_FILES = ("weights", "thresholds", "diagnosis", "low_scores")
"""Sections with a folder and a file of their own; `failure_modes/default.yaml` has two sections."""
_BY_KEY = ("composites", "failure_items", "diagnosis", "low_scores")
"""Sections whose entries are mappings of settings: those are filled in key by key. An entry of the others is one rule."""


@lru_cache(maxsize=1)
def shipped() -> dict[str, dict[str, Any]]:
    """The shipped sections that others are filled in from."""
    sections = {**_read("default"), **_read("failure_modes/default")}
    sections |= {name: _read(f"{name}/default") for name in _IN_FILES}
    return {name: sections[name] for name in (*_IN_FILES, "passes_with", "composites", "failure_modes", "failure_items")}


def _read(option: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.load(
        (conf_dir() / "scoring" / f"{option}.yaml").read_text(encoding="utf-8"), Loader=FastLoader
    )
    return content


def filled(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A scoring section with what it does not name taken from the shipped one."""
    sections = dict(settings)
    for name, default in shipped().items():
        section = settings.get(name, {})
        if isinstance(section, Mapping):
            sections[name] = {**default, **section}
            for key, value in section.items() if name in _BY_KEY else ():
                if isinstance(value, dict) and isinstance(default.get(key), dict):
                    sections[name][key] = {**default[key], **value}
    return sections
