"""What names a run: everything that can change a number, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragpipe.config.settings import RunConfig
from ragpipe.core.digest import sha256
from ragpipe.core.flat_keys import changed_keys, short_value
from ragpipe.core.version import __version__
from ragpipe.engine.runs.system_identity import Sources, with_sources
from ragpipe.engine.runs.user_code import metric_sources
from ragpipe.judging.replies.answer_parsing import PARSER
from ragpipe.metrics.base import Metric
from ragpipe.metrics.from_config import class_path
from ragpipe.schema.format_version import FORMAT
from ragpipe.schema.settings import Settings


def metric_identity(metric: Metric) -> dict[str, Any]:
    """Class, version, parameters, and the hashes of prompts' texts, graded examples and other files (not their version names); of a class from
    outside ragpipe also the hashes of its source."""
    steps = metric.step_names()
    parameters = metric.model_dump(mode="json", exclude={"name", *steps})
    values = {name: getattr(metric, name) for name in parameters}
    parameters |= {name: value.identity() for name, value in values.items() if isinstance(value, Settings)}
    if graded := metric.graded_examples:
        parameters["examples"] |= {step: examples.sha256 for step, examples in graded.items()}
    optional = {
        "files": dict(metric.files()),
        "source": metric_sources(type(metric)).sources,
        "order": _unsorted_mappings(values),
    }
    return {
        **{name: value for name, value in optional.items() if value},
        "class": class_path(type(metric)),
        "version": metric.version,
        "parameters": parameters,
        "prompts": {step: prompt.sha256 for step, prompt in metric.prompts().items()},
    }


def _unsorted_mappings(values: Mapping[str, Any]) -> dict[str, str]:
    """The order of keys of each mapping whose keys are not sorted: a mapping may be shown to the judge item by item, and the
    digest sorts keys."""
    mappings = {name: list(value) for name, value in values.items() if isinstance(value, dict)}
    return {name: ", ".join(keys) for name, keys in mappings.items() if keys != sorted(keys)}


def identity_of_dataset(config: RunConfig, data: str, sources: Sources) -> dict[str, Any]:
    """The identity of a run of a data set: `data` is its digest, `sources` are the hashes of the code behind each
    method of its system."""
    return run_identity(
        with_sources(config.identity(), sources),
        list(config.metrics.values()),
        data=data,
        judge=config.judge.identity_of_judge(),
    )


def metric_signatures(config: RunConfig) -> dict[str, str]:
    """What the run's signature says of each metric: its version, its templates, the embedder it asks, and for a class from
    outside ragpipe the hash of its source."""
    embedder = getattr(config.embedder, "label", None)
    return {metric.name: _metric_signature(metric, embedder) for metric in config.metrics.values()}


def _metric_signature(metric: Metric, embedder: str | None) -> str:
    parts = [f"v{metric.version}"]
    parts += [f"{step}:{prompt.version}@{prompt.sha256[:8]}" for step, prompt in metric.prompts().items()]
    parts += [
        f"{step}.examples:{graded.version}@{graded.sha256[:8]}" for step, graded in metric.graded_examples.items()
    ]
    if metric.needs_embedder and embedder:
        parts.append(f"embedder:{embedder}")
    if sources := metric_sources(type(metric)).sources:
        parts.append(f"source:{sha256(sources)[:8]}")
    return " ".join(parts)


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
        # the order of metrics orders the rows, and decides which metric pays for a shared reply
        "metric_order": ", ".join(metric.name for metric in metrics),
    }


def run_id(identity: Mapping[str, Any]) -> str:
    """The first 12 hex digits of the identity's sha256: the name of the run's folder."""
    return sha256(dict(identity))[:12]


def identity_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What differs between two identities, one line per key: `judge.model: a -> b`."""
    return [f"{key}: {short_value(before)} -> {short_value(after)}" for key, before, after in changed_keys(old, new)]
