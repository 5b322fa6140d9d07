"""What makes a run this run: everything that can change a number, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ragpipe.config import RunConfig
from ragpipe.core.digest import sha256
from ragpipe.core.version import __version__
from ragpipe.engine.user_code import watched_metric
from ragpipe.judging.answer_parsing import PARSER
from ragpipe.metrics.base import Metric
from ragpipe.schema.format_version import FORMAT
from ragpipe.schema.settings import Settings


def metric_identity(metric: Metric) -> dict[str, Any]:
    """Class, version, parameters, and the hashes of prompts' texts and other files (not their version names); of a class from
    outside of ragpipe also those of its source."""
    steps = metric.step_names()
    parameters = metric.model_dump(mode="json", exclude={"name", *steps})
    values = {name: getattr(metric, name) for name in parameters}
    parameters |= {name: value.identity() for name, value in values.items() if isinstance(value, Settings)}
    mappings = {name: list(value) for name, value in values.items() if isinstance(value, dict)}
    sometimes = {
        "files": dict(metric.files()),
        "source": watched_metric(type(metric)).sources,
        # a mapping may be shown to the judge item by item; the digest sorts keys, and would not tell its order
        "order": {name: ", ".join(keys) for name, keys in mappings.items() if keys != sorted(keys)},
    }
    return {
        **{name: value for name, value in sometimes.items() if value},
        "class": f"{type(metric).__module__}.{type(metric).__qualname__}",
        "version": metric.version,
        "parameters": parameters,
        "prompts": {step: prompt.sha256 for step, prompt in metric.prompts().items()},
    }


def metric_words(config: RunConfig) -> dict[str, str]:
    """What the signature says of each metric: its version, its templates, the embedder it asks, and of a class from outside
    of ragpipe the hash of its source."""
    embedder = getattr(config.embedder, "label", None)
    return {
        m.name: " ".join(
            [
                f"v{m.version}",
                *(f"{step}:{p.version}@{p.sha256[:8]}" for step, p in m.prompts().items()),
                *([f"embedder:{embedder}"] if m.needs_embedder and embedder else []),
                *([f"source:{sha256(source)[:8]}"] if (source := watched_metric(type(m)).sources) else []),
            ]
        )
        for m in config.metrics.values()
    }


def system_words(identity: Mapping[str, Any], versions: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """What the signature says of each method: the versions that its outputs name, and of a Python system its source."""
    found, system = {method: list(names) for method, names in versions.items()}, identity.get("system", {})
    if source := system.get("source"):
        found.setdefault(system["method"], []).append(f"source:{sha256(source)[:8]}")
    return found


def run_identity(
    sections: Mapping[str, Any], metrics: Sequence[Metric], *, data: str, judge: Mapping[str, Any]
) -> dict[str, Any]:
    """The identity of a run as plain JSON; its digest is the `run_id`. `data` is the digest of the data's content."""
    return {
        **sections,
        "ragpipe": __version__,
        "format": FORMAT,
        "parser": PARSER,
        "data": data,
        "judge_identity": dict(judge),
        "metrics": {metric.name: metric_identity(metric) for metric in metrics},
        "metric_order": ", ".join(
            metric.name for metric in metrics
        ),  # it orders the rows, and says who pays a shared reply
    }


def with_source(sections: Mapping[str, Any], sources: Mapping[str, str]) -> dict[str, Any]:
    """The sections with the hashes of the system's source in that of the system, where there are any."""
    return {**sections, "system": {**sections["system"], "source": dict(sources)}} if sources else dict(sections)


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
_DIGEST = re.compile(r"[0-9a-f]{64}")


def _short(value: object) -> str:
    text = "(absent)" if value is _ABSENT else str(value)
    if _DIGEST.fullmatch(text):
        return text[:12]
    return text if len(text) <= 60 else text[:57] + "..."


def _flat(value: Any, prefix: str = "") -> list[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        return [pair for key, item in value.items() for pair in _flat(item, f"{prefix}.{key}" if prefix else str(key))]
    return [(prefix, value)]
