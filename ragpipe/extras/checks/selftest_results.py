"""What a self-test found, from the scores of its run: `selftest.json`, and one row per mutant in `mutants.parquet`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from ragpipe.config.settings import RunConfig
from ragpipe.extras.checks.expectations import Expectation
from ragpipe.extras.checks.mutant_draw import Mutant
from ragpipe.extras.checks.mutant_outcomes import (
    CaseFloor,
    MutantOutcome,
    MutantOutput,
    OutputKey,
    case_floor,
    score_outcomes,
)
from ragpipe.extras.checks.mutations import MUTATIONS
from ragpipe.extras.checks.output_values import values_by_output
from ragpipe.extras.checks.selftest_figures import rows_by_any_score, score_rows
from ragpipe.metrics.base import computed_scores
from ragpipe.schema.format_version import FORMAT
from ragpipe.stages.combine_iterations import scored_iterations
from ragpipe.store.run.run_folder import RunFolder
from ragpipe.store.run.run_tables import read_json

MUTANTS = pa.schema(
    [
        pa.field(name, kind, metadata={"description": text})
        for name, kind, text in (
            ("sample_id", pa.string(), "id of the sample"),
            ("method", pa.string(), "method of the original output"),
            ("repeat", pa.int64(), "number of the output, from 1"),
            ("mutation", pa.string(), "how it was changed"),
            ("mutant_method", pa.string(), "method of the mutant: <method>~<mutation>"),
            ("before", pa.string(), "what the original says at the changed place"),
            ("after", pa.string(), "what the mutant says there"),
            ("in_reference", pa.bool_(), "whether what was changed stands in a reference answer"),
        )
    ]
)
_BATCH = 32_768  # rows read at once


def mutants_table(mutants: Sequence[Mutant]) -> pa.Table:
    """One row per mutant: where it comes from, and the two texts that differ."""
    rows = [
        {
            "sample_id": mutant.original.sample.id,
            "method": mutant.original.output.method,
            "repeat": mutant.original.output.repeat,
            "mutation": mutant.mutation,
            "mutant_method": mutant.method,
            "before": mutant.edit.before,
            "after": mutant.edit.after,
            "in_reference": mutant.edit.in_reference,
        }
        for mutant in mutants
    ]
    return pa.Table.from_pylist(rows, schema=MUTANTS)


def selftest_document(
    folder: RunFolder,
    config: RunConfig,
    mutants: Sequence[Mutant],
    expectations: Mapping[str, Expectation],
    *,
    source_run: str,
    settings: Mapping[str, Any],
) -> dict[str, Any]:
    """The content of `selftest.json`.

    Args:
        folder: the run over originals and mutants, scored.
        config: its configuration.
        mutants: the mutants.
        expectations: what is expected, by mutation.
        source_run: the id of the run whose cases were mutated.
        settings: n, seed and tolerance, as they are written down; `tolerance` is used.

    Raises DataError for a table of the run that cannot be read.
    """
    final = read_json(folder.final.metrics)
    outputs = [_output_of(mutant) for mutant in mutants]
    outcomes: list[MutantOutcome] = []
    floors: dict[str, CaseFloor] = {}
    for name, declared in final["declared"].items():
        if declared["low"] is None or declared["high"] is None:
            continue
        values = values_by_output(folder, name)
        span = declared["high"] - declared["low"]
        floors[name] = case_floor(values, span=span, tolerance=settings["tolerance"])
        outcomes += score_outcomes(name, values, outputs, declared, expectations, floors[name])
    order = {mutation.name: place for place, mutation in enumerate(MUTATIONS)}
    outcomes.sort(key=lambda outcome: order[outcome.mutant.mutation])
    tried = {outcome.score for outcome in outcomes}
    return {
        "format": FORMAT,
        "source_run": source_run,
        "run_id": folder.run_id,
        "judge": final["judge"]["label"],
        "iterations": len(scored_iterations(folder)),
        "settings": dict(settings),
        "mutations": _mutation_rows(mutants),
        "computed_scores": sorted(tried & computed_scores(config.metrics.values())),
        "noise_floor": {name: {"limit": f.limit, "source": f.source} for name, f in floors.items() if name in tried},
        "caught_by_any": rows_by_any_score(outcomes),
        "scores": score_rows(outcomes),
        "missed": _missed_rows(outcomes, {_output_of(mutant).mutant: mutant for mutant in mutants}),
    }


def _output_of(mutant: Mutant) -> MutantOutput:
    sample_id, method, repeat = mutant.original.key[:3]
    return MutantOutput(
        mutant.mutation, (sample_id, method, repeat), (sample_id, mutant.method, repeat), mutant.edit.in_reference
    )


def _mutation_rows(mutants: Sequence[Mutant]) -> list[dict[str, Any]]:
    """What each mutation does, and how many mutants of how many questions there are; also where it applied to no case."""
    rows = []
    for mutation in MUTATIONS:
        samples = [mutant.original.sample.id for mutant in mutants if mutant.mutation == mutation.name]
        rows.append(
            {"name": mutation.name, "what": mutation.what, "mutants": len(samples), "questions": len(set(samples))}
        )
    return rows


def _missed_rows(outcomes: Sequence[MutantOutcome], mutants: Mapping[OutputKey, Mutant]) -> list[dict[str, Any]]:
    """One entry per mutant that some score missed, with the scores that did; scores that were to stay and moved are among them."""
    rows: dict[OutputKey, dict[str, Any]] = {}
    for outcome in outcomes:
        if outcome.status != "missed":
            continue
        mutant = mutants[outcome.mutant.mutant]
        row = rows.setdefault(
            outcome.mutant.mutant,
            {
                "mutation": mutant.mutation,
                **dict(zip(("sample_id", "method", "repeat"), outcome.mutant.original, strict=True)),
                "mutant_method": mutant.method,
                "before": mutant.edit.before,
                "after": mutant.edit.after,
                "scores": {},
            },
        )
        row["scores"][outcome.score] = {
            "expected": outcome.expected,
            "value": outcome.value,
            "mutant_value": outcome.mutant_value,
        }
    return list(rows.values())
