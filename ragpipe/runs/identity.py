"""What names a run: everything that can change a number, and nothing else.

The user's code behind scores and answers, identified by the sha256 of its source: edited code makes another run.

Hashed are, for a metric, the module of its class and those of its bases and of the answer types that these modules name;
for a judge in this process, the modules of its settings and of its class; for a Python system, the module of its callable and the
module that defines it. What these import is not hashed.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from ragpipe.core.digest import changed_keys, sha256, short_value
from ragpipe.core.settings import Settings
from ragpipe.core.source_hashes import SourceHashes, hash_modules, is_users, users_modules
from ragpipe.core.version import FORMAT, __version__
from ragpipe.data.dataset import Dataset, open_dataset
from ragpipe.data.system_settings import AnySystem, LiveSystem
from ragpipe.judge.answer_parsing import PARSER
from ragpipe.judge.answer_type import Answer
from ragpipe.judge.question import IMPLEMENTATION, AnyJudge
from ragpipe.metrics.base import Metric
from ragpipe.metrics.from_config import class_path
from ragpipe.runs.settings import RunConfig

if TYPE_CHECKING:
    from ragpipe.data.index_manifest import IndexManifest


@dataclass(frozen=True)
class RunData:
    """The data set of a run, and the manifest of its system's index; None where the configuration names none."""

    dataset: Dataset
    index: IndexManifest | None

    @classmethod
    def of(cls, config: RunConfig) -> RunData:
        """The files found and checked, no record read. Raises DataError."""
        dataset, path = open_dataset(config.dataset, Path.cwd(), config.cache), config.system.index_manifest
        if path is None:
            return cls(dataset, None)
        from ragpipe.data.index_manifest import IndexManifest

        return cls(dataset, IndexManifest(path, Path.cwd(), config.cache))

    @cached_property
    def digest(self) -> str:
        """The digest of the data set; with an index manifest, of both."""
        return sha256([self.dataset.digest, self.index.digest]) if self.index else self.dataset.digest


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
    """The order of keys of each mapping with unsorted ones: a judge may see it item by item, and the digest sorts keys."""
    mappings = {name: list(value) for name, value in values.items() if isinstance(value, dict)}
    return {name: ", ".join(keys) for name, keys in mappings.items() if keys != sorted(keys)}


def identity_of_dataset(config: RunConfig, data: str, sources: Sources) -> dict[str, Any]:
    """The identity of a run of a data set: `data` is its digest, `sources` are the hashes of the code behind each
    method of its system."""
    return run_identity(with_sources(config.identity(), sources), list(config.metrics.values()), data=data, judge=config.judge)


def metric_signatures(config: RunConfig) -> dict[str, str]:
    """What the run's signature says of each metric: its version, its templates, the embedder it asks, and for a class from
    outside ragpipe the hash of its source."""
    embedder = getattr(config.embedder, "label", None)
    return {metric.name: _metric_signature(metric, embedder) for metric in config.metrics.values()}


def judge_signature(config: RunConfig) -> str:
    """What the run's signature says of the judge: its label, and for one from outside ragpipe the hash of its source."""
    sources = config.judge.sources().sources
    return f"{config.judge.label} source:{sha256(sources)[:8]}" if sources else config.judge.label


def _metric_signature(metric: Metric, embedder: str | None) -> str:
    parts = [f"v{metric.version}"]
    parts += [f"{step}:{prompt.version}@{prompt.sha256[:8]}" for step, prompt in metric.prompts().items()]
    parts += [f"{step}.examples:{graded.version}@{graded.sha256[:8]}" for step, graded in metric.graded_examples.items()]
    if metric.needs_embedder and embedder:
        parts.append(f"embedder:{embedder}")
    if sources := metric_sources(type(metric)).sources:
        parts.append(f"source:{sha256(sources)[:8]}")
    return " ".join(parts)


def run_identity(sections: Mapping[str, Any], metrics: Sequence[Metric], *, data: str, judge: AnyJudge) -> dict[str, Any]:
    """The identity of a run as plain JSON; its digest is the `run_id`. `data` is the digest of the data's content."""
    return {
        **sections,
        "ragpipe": __version__,
        "format": FORMAT,
        "parser": PARSER,
        "data": data,
        "judge_identity": judge.identity_of_judge(),
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


_NAMED = 2  # prompts that are named
_DIGEST = re.compile(r"(?:sha256:)?[0-9a-f]{12,64}")
_OF_METRIC = re.compile(r"metrics\.([^.]+)\.(prompts|source|files)\.(.+)")
_JUDGE = ("judge", "judge_identity")  # the second says what the first one does, in the form of its keys


def run_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What makes `new` another run than `old`, one phrase each: other metrics (`metrics +correctness -rubric`), the templates that
    differ (`2 prompts (a.grade, b.verify)`), code and files, then the rest. Both are identities of runs."""
    before, after = _metric_names(old), _metric_names(new)
    added, removed = [name for name in after if name not in before], [name for name in before if name not in after]
    metrics = " ".join(["metrics", *(f"+{name}" for name in added), *(f"-{name}" for name in removed)])
    prompts, code, rest = list[str](), dict[str, None](), list[str]()
    judges = [_judge_name(identity) for identity in (old, new)]
    has_other_kind = all(judges) and judges[0][:1] != judges[1][:1]
    if has_other_kind:
        rest.append(f"judge: {judges[0][1]} -> {judges[1][1]}")
    changes = list(changed_keys(old, new))
    keys = {key for key, _, _ in changes}
    for key, was, now in changes:
        if key == "metric_order" or (key.startswith("metrics.") and key.split(".")[1] in {*added, *removed}):
            continue
        section, _, rest_of_key = key.partition(".")
        if section in _JUDGE and (has_other_kind or (section == _JUDGE[1] and f"judge.{rest_of_key}" in keys)):
            continue
        if found := _OF_METRIC.fullmatch(key):
            if found[2] == "prompts":
                prompts.append(f"{found[1]}.{found[3]}")
            else:
                code[f"code of metric {found[1]}" if found[2] == "source" else f"files of metric {found[1]}"] = None
        elif key.startswith("system.") and ".source." in f".{key}":
            code["code of the system"] = None
        elif section == _JUDGE[1] and IMPLEMENTATION in key:
            code["code of the judge"] = None
        else:
            rest.append(_phrase(key, was, now))
    if not (added or removed) and "metric_order" in keys:
        rest.append("other order of metrics")
    shown = ", ".join([*prompts[:_NAMED], *(["..."] if len(prompts) > _NAMED else [])])
    if prompts:
        rest = [f"{len(prompts)} prompt{'' if len(prompts) == 1 else 's'} ({shown})", *code, *rest]
    else:
        rest = [*code, *rest]
    return [metrics, *rest] if added or removed else rest


def _metric_names(identity: Mapping[str, Any]) -> list[str]:
    """The metrics of an identity, in their order; none where the identity has another form."""
    metrics = identity.get("metrics")
    return list(metrics) if isinstance(metrics, Mapping) else []


def _judge_name(identity: Mapping[str, Any]) -> tuple[str, ...]:
    """By what the judge of an identity goes (its rules, its model or its kind), and its name; empty where there is none."""
    judge = identity.get("judge_identity")
    names = ((key, str(judge[key])) for key in ("rules", "model", "kind") if key in judge) if judge else ()
    return next(iter(names), ())


def _phrase(key: str, was: object, now: object) -> str:
    """`judge.model: a -> b`; of digests only that they are others."""
    if key == "data" or any(isinstance(value, str) and _DIGEST.fullmatch(value) for value in (was, now)):
        return f"other {key}"
    return f"{key}: {short_value(was)} -> {short_value(now)}"


Sources = Mapping[str, Mapping[str, str]]
"""By method, the hashes of the modules behind it."""

_OF_NO_ANSWER = frozenset({"prices"})
"""Keys of the system's identity that change no answer."""


def method_identities(system: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What makes each method of a live system the method that it is, by name, from the system's part of an identity. A method
    is the same whether it is asked alone or beside others."""
    methods = system.get("methods")
    if methods is None:
        methods = {system["method"]: system} if "method" in system else {}
    left_out = _OF_NO_ANSWER | {"method"}
    return {
        str(name): {key: value for key, value in identity.items() if key not in left_out} for name, identity in methods.items()
    }


def with_sources(sections: Mapping[str, Any], sources: Sources) -> dict[str, Any]:
    """The sections of an identity, with the hashes of each method's source in the system's section where there are any."""
    system = dict(sections["system"])
    if methods := system.get("methods"):
        system["methods"] = {
            name: {**identity, "source": dict(sources[name])} if sources.get(name) else identity
            for name, identity in methods.items()
        }
    elif source := sources.get(system.get("method", "")):
        system["source"] = dict(source)
    return {**sections, "system": system}


def sources_of(system: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """The hashes of each method's source, from the system's part of an identity."""
    return {name: identity["source"] for name, identity in method_identities(system).items() if "source" in identity}


def system_versions(system: Mapping[str, Any], versions: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """What the run's signature says of each method: the versions that its outputs name, and for a Python system its source."""
    by_method = {method: list(names) for method, names in versions.items()}
    for method, source in sources_of(system).items():
        by_method.setdefault(method, []).append(f"source:{sha256(source)[:8]}")
    return by_method


def tables_digest(identity: Mapping[str, Any]) -> str:
    """Names the content of the frozen tables: prices change none of it."""
    system = {key: value for key, value in identity["system"].items() if key not in _OF_NO_ANSWER}
    return sha256([identity["dataset"], system, *_beside_the_system(identity)])


def kept_methods(previous: Mapping[str, Any], identity: Mapping[str, Any], by_version: frozenset[str]) -> list[str]:
    """The methods whose outputs in another run (`previous`, its identity) are those that this run would collect.

    The hash of a method's source does not count for the methods `by_version`, whose version alone says what they are.
    """
    if previous["dataset"] != identity["dataset"] or _beside_the_system(previous) != _beside_the_system(identity):
        return []
    before, now = method_identities(previous["system"]), method_identities(identity["system"])
    kept = []
    for name, method in now.items():
        left_out = {"source"} if name in by_version else set()
        if name in before and _without(before[name], left_out) == _without(method, left_out):
            kept.append(name)
    return kept


def _beside_the_system(identity: Mapping[str, Any]) -> list[Any]:
    return [identity["data"], identity["ragpipe"], identity["format"]]


def _without(mapping: Mapping[str, Any], left_out: set[str]) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if key not in left_out}


class SystemSources(NamedTuple):
    """As `SourceHashes`, by method."""

    sources: dict[str, dict[str, str]]
    notes: tuple[str, ...] = ()


def metric_sources(kind: type[Metric]) -> SourceHashes:
    """The hashes of the modules behind a metric's class; none for a shipped class."""
    queue = users_modules(kind)
    modules = dict[str, None]()
    while queue:
        if (name := queue.pop(0)) not in modules:
            modules[name] = None
            queue += _answer_modules(name)
    return hash_modules(modules)


def system_sources(settings: AnySystem, plugins: Iterable[str]) -> SystemSources:
    """The hashes of the code behind each method of a live system: see `callable_sources`."""
    by_method, notes = dict[str, dict[str, str]](), dict[str, None]()
    for method in settings.each_method() if isinstance(settings, LiveSystem) else ():
        hashes = callable_sources(method, plugins)
        notes |= dict.fromkeys(hashes.notes)
        if hashes.sources:
            by_method[method.method] = hashes.sources
    return SystemSources(by_method, tuple(notes))


def callable_sources(settings: LiveSystem, plugins: Iterable[str]) -> SourceHashes:
    """The hash of the module of a system's `code`, and of the module that defines it where that is another one of the user's
    `plugins`; none where its version alone counts. The module must be imported already."""
    if settings.by_version:
        return SourceHashes({})
    name, _, attribute = settings.code.partition(":")
    function = attrgetter(attribute)(sys.modules[name])
    while isinstance(function, partial):
        function = function.func
    if inspect.isroutine(function):
        function = inspect.unwrap(function)
    defining_module = str(getattr(function, "__module__", None) or name)
    plugin_roots = {plugin.partition(".")[0] for plugin in plugins}
    if defining_module.partition(".")[0] in plugin_roots:
        return hash_modules([name, defining_module])
    return hash_modules([name])


def _answer_modules(name: str) -> Iterator[str]:
    for value in list(vars(sys.modules.get(name, ModuleType(name))).values()):
        if inspect.isclass(value) and issubclass(value, Answer) and is_users(value.__module__):
            yield value.__module__
