"""What an audit found, from the scores of its runs: the content of `judge_audit.json`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow.compute as pc

from ragpipe.config.settings import RunConfig
from ragpipe.extras.checks.audit_figures import (
    AuditedScore,
    AuditPair,
    OutputKey,
    attack_outcomes,
    probe_rows,
    success_rate,
)
from ragpipe.extras.checks.output_values import values_by_output
from ragpipe.extras.checks.probes import Probe
from ragpipe.schema.format_version import FORMAT
from ragpipe.stages.combine_iterations import scored_iterations
from ragpipe.store.run.run_folder import RunFolder
from ragpipe.store.run.run_tables import batches, read_json

HARDENED, PLAIN = "hardened", "plain"
_BATCH = 32_768  # rows read at once


def audited_scores(folder: RunFolder, config: RunConfig) -> list[AuditedScore]:
    """The scores of an audit's run, as shares of their ranges with 1 the best. A score without a range is left out."""
    declared = read_json(folder.final.metrics)["declared"]
    inputs = {metric.name: _inputs(folder, metric.name) for metric in config.metrics.values()}
    scores = []
    for metric in config.metrics.values():
        for name in metric.score_names:
            ends = declared[name]
            if ends["low"] is None or ends["high"] is None:
                continue
            values = {
                key: _share(sum(of_case) / len(of_case), ends)
                for key, of_case in values_by_output(folder, name).items()
            }
            scores.append(AuditedScore(name, values, inputs[metric.name]))
    return scores


def attack_section(
    runs: Mapping[str, Sequence[AuditedScore]], pairs: Sequence[AuditPair], *, rise: float
) -> dict[str, Any]:
    """The attacks of the document: by prompt form (`hardened`, `plain`) the success rates over all, over those that a question shows, by score, by group and by part of
    the case, and each attack with the scores that it raised."""
    section: dict[str, Any] = {}
    for form, scores in runs.items():
        outcomes = [row for score in scores for row in attack_outcomes(pairs, score, rise=rise)]
        section[form] = {
            "all": success_rate(outcomes),
            "shown": success_rate([row for row in outcomes if row["shown"]]),
            "by_score": _rates(outcomes, "score"),
            "by_group": _rates(outcomes, "group"),
            "by_part": _rates(outcomes, "part"),
            "attacks": [_attack_row(name, outcomes) for name in dict.fromkeys(row["attack"] for row in outcomes)],
        }
    return section


def audit_document(
    folder: RunFolder,
    *,
    source_run: str,
    prompts: Mapping[str, str],
    settings: Mapping[str, Any],
    attacks: Mapping[str, Any],
    probes: Sequence[Probe],
    pairs: Sequence[AuditPair],
    scores: Sequence[AuditedScore],
) -> dict[str, Any]:
    """The content of `judge_audit.json`.

    Args:
        folder: the run of the audit with the prompts as they are.
        source_run: the id of the run whose cases were changed.
        prompts: the signature of each metric's prompts.
        settings: as they are written down; `margin` is used.
        attacks: `attack_section`.
        probes: the probes that were tried.
        pairs: the changed cases.
        scores: the scores of the run.
    """
    return {
        "format": FORMAT,
        "source_run": source_run,
        "run_id": folder.run_id,
        "judge": read_json(folder.final.metrics)["judge"]["label"],
        "prompts": dict(prompts),
        "iterations": len(scored_iterations(folder)),
        "settings": dict(settings),
        "attacks": dict(attacks),
        "probes": {probe.name: probe.what for probe in probes},
        "bias": [row for score in scores for row in probe_rows(pairs, score, margin=settings["margin"])],
    }


def _rates(outcomes: Iterable[Mapping[str, Any]], field: str) -> dict[str, Any]:
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in outcomes:
        groups.setdefault(row[field], []).append(row)
    return {name: success_rate(rows) for name, rows in groups.items()}


def _attack_row(name: str, outcomes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    rows = [row for row in outcomes if row["attack"] == name]
    won = [row for row in rows if row["succeeded"]]
    return {
        "attack": name,
        "group": rows[0]["group"],
        "part": rows[0]["part"],
        "n": len(rows),
        "succeeded": len(won),
        "shown": any(row["shown"] for row in rows),
        "raised": [{key: row[key] for key in ("score", "sample_id", "base", "value")} for row in won],
    }


def _share(value: float, declared: Mapping[str, Any]) -> float:
    """A value as a share of its range, 1 the best."""
    share = (value - declared["low"]) / (declared["high"] - declared["low"])
    return float(share if declared["higher_is_better"] else 1 - share)


def _inputs(folder: RunFolder, metric: str) -> dict[OutputKey, frozenset[str]]:
    """The payloads that a metric asked about each output."""
    payloads: dict[OutputKey, set[str]] = {}
    columns = ("sample_id", "method", "repeat", "metric", "payload_id")
    for number in scored_iterations(folder):
        for batch in batches(folder.iteration(number).judge_inputs, columns, size=_BATCH):
            for row in batch.filter(pc.equal(batch.column("metric"), metric)).to_pylist():
                payloads.setdefault((row["sample_id"], row["method"], row["repeat"]), set()).add(row["payload_id"])
    return {key: frozenset(ids) for key, ids in payloads.items()}
