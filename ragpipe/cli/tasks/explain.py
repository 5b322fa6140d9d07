"""`task=explain`: the whole chain behind one score: the claim, the evidence, the prompt and the reply."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from typing import Annotated, Any

from pydantic import Field

from ragpipe.core.errors import DataError, Problem
from ragpipe.core.sample import OUTPUT_KEY, Case, Corpus
from ragpipe.core.settings import ConfigOrigins, Settings
from ragpipe.core.text import on_one_line
from ragpipe.judge.case_judge import CaseJudge
from ragpipe.metrics.shared.multi_reference import mean_of_references
from ragpipe.report.console import Console
from ragpipe.report.explanation import CaseExplanation, explanation_lines, question_table
from ragpipe.report.model import Table
from ragpipe.report.terminal import print_table
from ragpipe.runs.event_loop import run_async
from ragpipe.runs.finished_run import FinishedRunKeys, FinishedRunTask, open_finished_run
from ragpipe.runs.judge_access import member_configs, open_replay
from ragpipe.runs.load_dataset import references_of
from ragpipe.runs.measured_cases import CaseReader
from ragpipe.runs.settings import RunConfig
from ragpipe.score.normalisation import OVERALL
from ragpipe.store.recorded_replies import RecordedRowReplies
from ragpipe.store.run_folder import RunFolder
from ragpipe.store.run_tables import numbered_rows, query_rows, read_columns


class ExplainSettings(Settings):
    """Which score. `metric` is the name of a metric, of one of its scores or of a composite, null for all; without a `method`
    a question that several answered is shown as a table of all of them; `repeat` chooses the output where the method gave
    several. `messages` prints the prompts as they were sent, and the replies."""

    case: str = Field(min_length=1, description="Id of the sample.")
    method: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="Method whose output is meant. null: all of them."
    )
    metric: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="Name of a metric, of one of its scores or of a composite. null: all."
    )
    repeat: int = Field(
        default=1, ge=1, description="Number of the output, from 1, where the method gave several for the sample."
    )
    iteration: int = Field(default=1, ge=1, description="Number of the iteration, from 1.")
    messages: bool = Field(default=False, description="Whether the prompts are printed as they were sent, and the replies.")


class Keys(FinishedRunKeys, ExplainSettings):
    pass


def validate(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> FinishedRunTask[ExplainSettings]:
    """The run, and what to explain of it. Raises ConfigError and DataError."""
    title = "task=explain needs to know what to explain"
    return open_finished_run(plain, origins, ExplainSettings, task="explain", title=title)


def run(task: FinishedRunTask[ExplainSettings], console: Console) -> int:
    """Print the chain; for a question that several methods answered, with no method named, a table of all of them. Returns 0.
    Raises DataError for a case or a metric that the run does not have."""
    folder, settings, records = task.finished.folder, task.settings, list[dict[str, Any]]()
    if settings.method is None and settings.iteration in folder.iterations():
        records = list(query_rows(folder.iteration(settings.iteration).records, sample_id=settings.case))
    if len({row["method"] for row in records}) > 1:
        columns, lines = question_table(records, _score_names(task))
        console.say(f"question {settings.case}: {on_one_line(records[0]['question'], 2000)}")
        for name, record in zip(columns[1:], records, strict=True):
            console.say(f"{name}: {on_one_line(record['system_error'] or record['answer'] or '', 2000)}")
        print_table(Table.of(columns, lines), console)
        console.say("what is behind the figures of one of them: add method=NAME")
        return 0
    for line in explanation_lines(explain_case(task)):
        console.say(line, is_prose=not line.startswith("  | "))
    return 0


def explain_case(task: FinishedRunTask[ExplainSettings]) -> CaseExplanation:
    """Everything that the run folder says of the chosen scores of one case. Raises DataError for what the run does not have."""
    settings, folder, config = task.settings, task.finished.folder, task.finished.config
    if settings.iteration not in folder.iterations():
        raise _not_in_run("iteration", str(settings.iteration), [str(number) for number in folder.iterations()])
    with closing(CaseReader(folder.samples, folder.outputs, settings.iteration)) as reader:
        case = reader.case_at(_row_of(folder, settings))
    metrics = _chosen_metrics(task)
    iteration = folder.iteration(settings.iteration)
    key = {name: getattr(case.output, name) for name in OUTPUT_KEY}
    scores = [row for row in query_rows(iteration.scores, **key) if row["metric"] in metrics]
    asked = [row for row in query_rows(iteration.judge_inputs, **key) if row["metric"] in metrics]
    measured = dict.fromkeys(row["metric"] for row in scores if row["status"] == "ok")
    arithmetic = {}
    for row in scores:
        if row["value"] is not None:
            metric, details = config.metrics[row["metric"]], json.loads(row["details"] or "{}")
            words = mean_of_references(details) or metric.explain_value(row["score_name"], row["value"], details)
            arithmetic[row["score_name"]] = words or ""
    return CaseExplanation(
        case=case,
        scores=scores,
        asked=in_call_order(config, case, asked, references_of(folder.samples)),
        record=next(iter(query_rows(iteration.records, **key)), {}),
        specs={spec.name: spec for metric in config.metrics.values() for spec in metric.scores()},
        arithmetic=arithmetic,
        scoring=config.scoring,
        messages=settings.messages,
        is_whole=len(metrics) > 1,
        notes={name: [*_order_notes(config), *config.metrics[name].notes(case)] for name in measured},
    )


def _order_notes(config: RunConfig) -> list[str]:
    """What the numbers in a raw reply are, where the judge was shown items in a drawn order."""
    seeds = {
        f"{section}.shuffle_seed": getattr(its.judge, "shuffle_seed", None)
        for name, its in member_configs(config).items()
        for section in [f"jury.members.{name}" if name else "judge"]
    }
    return [
        f"items were shown in an order drawn by {key}={seed}: numbers in a raw reply are those of its prompt, numbers here those "
        "of the data"
        for key, seed in seeds.items()
        if seed is not None
    ]


def _score_names(task: FinishedRunTask[ExplainSettings]) -> list[str]:
    """The scores of the table: those of the chosen metrics, and the composites made of them."""
    config, chosen = task.finished.config, _chosen_metrics(task)
    specs = {name: metric.scores() for name, metric in config.metrics.items()}
    every = config.scoring.all_specs([spec for scores in specs.values() for spec in scores])
    shown = config.scoring.all_specs([spec for name in specs if name in chosen for spec in specs[name]])
    overall = [OVERALL] if config.scoring.shows_overall([spec.name for spec in every]) else []
    return [spec.name for spec in (*shown, *overall)]


def _row_of(folder: RunFolder, settings: ExplainSettings) -> int:
    """Which of a run's cases is explained: its row of the outputs. Raises DataError for one that the run does not have."""
    outputs = numbered_rows(folder.outputs, OUTPUT_KEY, sample_id=settings.case)
    methods: dict[str, dict[int, int]] = {}
    for row, key in outputs.items():
        methods.setdefault(key["method"], {})[key["repeat"]] = row
    if not methods:
        ids = read_columns(folder.outputs, ["sample_id"])["sample_id"].to_pylist()
        raise _not_in_run("case", settings.case, list(dict.fromkeys(ids)))
    method = settings.method or (next(iter(methods)) if len(methods) == 1 else "none")
    if method not in methods:
        raise _not_in_run("method", method, list(methods))
    if settings.repeat not in methods[method]:
        raise _not_in_run("repeat", str(settings.repeat), list(map(str, methods[method])))
    return methods[method][settings.repeat]


def _chosen_metrics(task: FinishedRunTask[ExplainSettings]) -> set[str]:
    config, name = task.finished.config, task.settings.metric
    if name is None:
        return set(config.metrics)
    by_score = {spec.name: {metric.name} for metric in config.metrics.values() for spec in metric.scores()}
    by_metric = {metric: {metric} for metric in config.metrics}
    weights = {name: composite.weights for name, composite in config.scoring.composites.items() if composite}
    weights[OVERALL.name] = config.scoring.weight_shares()
    composites = {name: {metric for score in parts for metric in by_score.get(score, ())} for name, parts in weights.items()}
    known = by_score | by_metric | composites
    if name not in known:
        raise _not_in_run("metric", name, list(known))
    return known[name]


def _not_in_run(key: str, value: str, known: list[str]) -> DataError:
    close = difflib.get_close_matches(value, known, n=3)
    listed = ", ".join(known[:10]) + (f" and {len(known) - 10:,} more" if len(known) > 10 else "")
    fix = f"did you mean {', '.join(close)}?" if close else f"pass {key}=..."
    return DataError("there is nothing to explain", [Problem("the run", key, value, f"one of {listed}", fix)])


_QUESTION = ("metric", "step", "turn", "payload_id")

Row = Mapping[str, Any]


def in_call_order(config: RunConfig, case: Case, rows: Sequence[Row], corpus: Corpus) -> list[Row]:
    """The rows of `judge_inputs` about one case and iteration, metric by metric, each metric's as it asks them: a chain by
    rank, a fan-out by index. `corpus` are the references of the run.

    No row says when it was asked, and times would not give the order either: questions that fan out are answered in any
    order. So the metrics run once more over these replies. What they do not ask then (the replies were not kept, or a
    metric stops at an error) comes last, in the order of the table.
    """
    metrics = {name: position for position, name in enumerate(config.metrics)}
    positions = run_async(_call_positions(config, case, rows, corpus))
    last = len(positions)
    return sorted(
        rows, key=lambda row: (metrics[row["metric"]], positions.get(tuple(str(row[column]) for column in _QUESTION), last))
    )


async def _call_positions(config: RunConfig, case: Case, rows: Sequence[Row], corpus: Corpus) -> dict[tuple[str, ...], int]:
    """The position at which each question is first asked."""
    positions: dict[tuple[str, ...], int] = {}
    async with open_replay(config, RecordedRowReplies(rows)) as session:
        session.corpus = corpus
        for name in {row["metric"] for row in rows}:
            judge = CaseJudge(session, case.key, name)
            with suppress(Exception):  # whatever ended the metric here ended it in the run, and is in its score
                await config.metrics[name].measure(case, judge)
            for use in judge.uses:
                positions.setdefault((use.metric, use.step, use.turn, use.payload.id), len(positions))
    return positions
