"""The system's part of a run's identity, method by method: what of a run's outputs another run may keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragpipe.core.digest import sha256

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
        str(name): {key: value for key, value in identity.items() if key not in left_out}
        for name, identity in methods.items()
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
