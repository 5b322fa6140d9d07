"""`task=explain`: the whole chain behind one figure, from the score to the claim, the evidence, the prompt and the reply."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from ragpipe.core.errors import ConfigError, DataError, Problem
from ragpipe.core.safe_text import on_one_line
from ragpipe.core.validation import ConfigOrigins, NoOrigins, validated
from ragpipe.engine.finished_run import FinishedRun, open_run
from ragpipe.engine.question_order import in_call_order
from ragpipe.metrics.shared.multi_reference import mean_of_references
from ragpipe.reports.console import Console
from ragpipe.reports.explanation import CaseExplanation, explanation_lines
from ragpipe.reports.question_table import question_table
from ragpipe.schema.sample import OUTPUT_KEY, Case, CaseKey
from ragpipe.schema.settings import Settings
from ragpipe.scoring.composites import OVERALL
from ragpipe.scoring.settings import ScoringSettings
from ragpipe.stages.case_reader import CaseReader
from ragpipe.stages.load_dataset import references_of
from ragpipe.store.run.run_tables import query_rows

KEYS = ("case", "method", "repeat", "metric", "iteration", "messages")


class ExplainSettings(Settings):
    """Which figure. `metric` is the name of a metric, of one of its scores or of a composite, null for all; without a `method`
    a question that several answered is shown as a table of all of them; `repeat` is the output that is meant where the method
    gave several. `messages` prints the prompts as they were sent."""

    case: str = Field(min_length=1, description="Id of the sample.")
    method: str | None = Field(
        default=None, description="Method whose output is explained. null: a table, where several methods answered."
    )
    repeat: int = Field(
        default=1, ge=1, description="Number of the output, from 1, where the method gave several for the sample."
    )
    metric: str | None = Field(
        default=None, description="Name of a metric, of one of its scores or of a composite. null: all."
    )
    iteration: int = Field(default=1, ge=1, description="Number of the iteration, from 1.")
    messages: bool = Field(default=True, description="Whether the prompts are printed as they were sent.")


@dataclass(frozen=True)
class Wanted:
    """A finished run and what to explain of it."""

    finished: FinishedRun
    settings: ExplainSettings

    @property
    def plugins(self) -> list[str]:
        return self.finished.plugins

    @property
    def log_level(self) -> str:
        return self.finished.log_level


def validate(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> Wanted:
    """Raises ConfigError and DataError."""
    origins, problems = origins or NoOrigins(), list[Problem]()
    section = {key: plain[key] for key in KEYS if key in plain}
    settings = validated(ExplainSettings, section, "", origins, problems)
    if settings is None:
        raise ConfigError("task=explain needs to know what to explain", problems)
    return Wanted(open_run(plain, origins, allowed=(), task="explain", task_keys=KEYS), settings)


def run(wanted: Wanted, console: Console) -> int:
    """Print the chain; of a question that several methods answered, and no method named, a table of all of them. Returns 0.
    Raises DataError for a case or a metric that the run does not have."""
    if records := _methods(wanted):
        heads, lines = question_table(records, _scores(wanted))
        console.say(f"question {wanted.settings.case}: {on_one_line(records[0]['question'], 2000)}")
        console.folded(heads, lines)
        console.say("the chain behind the figures of one of them: add method=NAME")
        return 0
    for line in explanation_lines(explain(wanted)):
        console.say(line)
    return 0


def explain(wanted: Wanted) -> CaseExplanation:
    """Everything that the run folder says of the wanted figures."""
    finished, settings = wanted.finished, wanted.settings
    folder, config = finished.folder, finished.config
    if settings.iteration not in folder.iterations():
        raise _absent("iteration", str(settings.iteration), [str(i) for i in folder.iterations()])
    case = _case(wanted)
    metrics = _metrics(wanted)
    iteration = folder.iteration(settings.iteration)
    key = {name: getattr(case.output, name) for name in OUTPUT_KEY}
    scores = [row for row in query_rows(iteration.scores, **key) if row["metric"] in metrics]
    asked = [row for row in query_rows(iteration.judge_inputs, **key) if row["metric"] in metrics]
    record = next(iter(query_rows(iteration.records, **key)), {})
    specs = {spec.name: spec for metric in config.metrics.values() for spec in metric.scores()}
    arithmetic = {}
    for row in scores:
        if row["value"] is not None:
            metric, details = config.metrics[row["metric"]], json.loads(row["details"] or "{}")
            how = mean_of_references(details) or metric.explain_value(row["score_name"], row["value"], details)
            arithmetic[row["score_name"]] = how or ""
    measured = dict.fromkeys(row["metric"] for row in scores if row["status"] == "ok")
    notes = {name: list(config.metrics[name].notes(case)) for name in measured}
    return CaseExplanation(
        case=case,
        scores=scores,
        asked=in_call_order(config, case, asked, references_of(folder.samples)),
        record=record,
        specs=specs,
        arithmetic=arithmetic,
        scoring=config.scoring,
        messages=settings.messages,
        notes=notes,
    )


def _methods(wanted: Wanted) -> list[dict[str, Any]]:
    """The records of the question where none of its several methods is named; empty otherwise."""
    folder, settings = wanted.finished.folder, wanted.settings
    if settings.method is not None or settings.iteration not in folder.iterations():
        return []
    found = list(query_rows(folder.iteration(settings.iteration).records, sample_id=settings.case))
    return found if len({row["method"] for row in found}) > 1 else []


def _scores(wanted: Wanted) -> list[str]:
    """The scores of the table: those of the metrics that are asked for, and what is made of them."""
    config, chosen = wanted.finished.config, _metrics(wanted)
    specs = [spec for name, metric in config.metrics.items() if name in chosen for spec in metric.scores()]
    return [*(spec.name for spec in config.scoring.all_specs(specs)), OVERALL.name]


def _case(wanted: Wanted) -> Case:
    folder, settings = wanted.finished.folder, wanted.settings
    reader = CaseReader(folder.samples, folder.outputs, settings.iteration)
    try:
        keys = [key for block in range(reader.blocks) for key in reader.keys(block)]
        return reader.case_at(_row_of(settings, keys))
    finally:
        reader.close()


def _row_of(settings: ExplainSettings, keys: Sequence[CaseKey]) -> int:
    """Which of a run's cases is explained. Raises DataError for one that the run does not have."""
    methods: dict[str, dict[int, int]] = {}
    for row, key in enumerate(keys):
        if key.sample_id == settings.case:
            methods.setdefault(key.method, {})[key.repeat] = row
    if not methods:
        raise _absent("case", settings.case, list(dict.fromkeys(key.sample_id for key in keys)))
    method = settings.method or (next(iter(methods)) if len(methods) == 1 else "none")
    if method not in methods:
        raise _absent("method", method, list(methods))
    if settings.repeat not in methods[method]:
        raise _absent("repeat", str(settings.repeat), list(map(str, methods[method])))
    return methods[method][settings.repeat]


def _metrics(wanted: Wanted) -> set[str]:
    """Names of the metrics to explain."""
    metrics, name = wanted.finished.config.metrics, wanted.settings.metric
    if name is None:
        return set(metrics)
    owners = {spec.name: {own} for own, metric in metrics.items() for spec in metric.scores()}
    known = {name: {name} for name in metrics} | _parts(wanted.finished.config.scoring, owners)
    found = {**owners, **known}
    if name not in found:
        raise _absent("metric", name, list(found))
    return found[name]


def _parts(scoring: ScoringSettings, owners: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """For each composite the metrics that give its parts."""
    weights = {name: one.weights for name, one in scoring.composites.items() if one} | {
        OVERALL.name: scoring.effective()
    }
    return {name: {own for part in parts for own in owners.get(part, ())} for name, parts in weights.items()}


def _absent(key: str, found: str, known: list[str]) -> DataError:
    close = difflib.get_close_matches(found, known, n=3)
    listed = ", ".join(known[:10]) + (f" and {len(known) - 10:,} more" if len(known) > 10 else "")
    return DataError(
        "there is nothing to explain",
        [
            Problem(
                "the run",
                key,
                found,
                f"one of {listed}",
                f"did you mean {', '.join(close)}?" if close else f"pass {key}=...",
            )
        ],
    )
