"""What makes a run this run: everything that can change a number, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ragpipe
from ragpipe.digest import sha256
from ragpipe.judging.parsing import PARSER
from ragpipe.metrics.base import Metric
from ragpipe.schema.format import FORMAT


def metric_identity(metric: Metric) -> dict[str, Any]:
    """Class, version, parameters, and the hashes of prompts' texts and other files (not their version names)."""
    steps, files = metric.step_names(), dict(metric.files())
    parameters = metric.model_dump(mode="json", exclude={"name", *steps})
    return ({"files": files} if files else {}) | {
        "class": f"{type(metric).__module__}.{type(metric).__qualname__}",
        "version": metric.version,
        "parameters": parameters,
        "prompts": {step: prompt.sha256 for step, prompt in metric.prompts().items()},
    }


def run_identity(
    sections: Mapping[str, Any], metrics: Sequence[Metric], *, data: str, judge: Mapping[str, Any]
) -> dict[str, Any]:
    """The identity of a run as plain JSON; its digest is the `run_id`. `data` is the digest of the data's content."""
    return {
        **sections,
        "ragpipe": ragpipe.__version__,
        "format": FORMAT,
        "parser": PARSER,
        "data": data,
        "judge_identity": dict(judge),
        "metrics": {metric.name: metric_identity(metric) for metric in metrics},
        "metric_order": ", ".join(
            metric.name for metric in metrics
        ),  # it orders the rows, and says who pays a shared reply
    }


def run_id(identity: Mapping[str, Any]) -> str:
    """First 12 hex digits of the identity's sha256: the name of the run's folder."""
    return sha256(dict(identity))[:12]


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What differs between two identities, one line a key: `judge.model: a -> b`."""
    before, after = dict(_flat(old)), dict(_flat(new))
    lines = []
    for key in sorted(before.keys() | after.keys()):
        if before.get(key, _ABSENT) != after.get(key, _ABSENT):
            lines.append(f"{key}: {_short(before.get(key, _ABSENT))} -> {_short(after.get(key, _ABSENT))}")
    return lines


_ABSENT = object()


def _short(value: object) -> str:
    text = "(absent)" if value is _ABSENT else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _flat(value: Any, prefix: str = "") -> list[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        return [pair for key, item in value.items() for pair in _flat(item, f"{prefix}.{key}" if prefix else str(key))]
    return [(prefix, value)]
