"""`manifest.json`: what a run is, what it was made with, and how far it is."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import ragpipe
from ragpipe.config import RunConfig
from ragpipe.errors import DataError, Problem, RagpipeError
from ragpipe.resources import code_digest
from ragpipe.stages.seal import unseal
from ragpipe.store.folder import RunFolder
from ragpipe.store.unchanged import json_unless_same, write_unless_same
from ragpipe.yaml_lines import FastDumper

FORMAT = 1
_PACKAGES = ("aiohttp", "hydra-core", "litellm", "numpy", "omegaconf", "pyarrow", "pydantic", "scipy")


def read_manifest(folder: RunFolder) -> dict[str, Any]:
    """The manifest of a run folder, empty when there is none. Raises DataError for a broken or newer one."""
    if not folder.manifest.is_file():
        return {}
    try:
        found = json.loads(folder.manifest.read_text(encoding="utf-8"))
        if not isinstance(found, dict) or int(found["format"]) > FORMAT:
            raise ValueError(f"format {found.get('format') if isinstance(found, dict) else '?'}")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        mend = "use the ragpipe that wrote it, or remove the folder: its replies stay in the call store"
        raise DataError("a run folder cannot be read", [
            Problem(str(folder.manifest), "manifest", str(error), f"a manifest of format {FORMAT} or older", mend)
        ]) from error  # fmt: skip
    return found


def new_manifest(
    config: RunConfig, identity: Mapping[str, Any], *, run_id: str, data: Mapping[str, Any], prices: Mapping[str, Any],
    made_from: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    """A manifest before anything is done. `made_from` is the run whose frozen cases these are."""
    return {
        "format": FORMAT,
        "run_id": run_id,
        "made_from": made_from,
        "name": config.name,
        "created_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "ragpipe": ragpipe.__version__,
        "code": code_digest(),
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in _PACKAGES}},
        "data": dict(data),
        "prompts": {p.signature: p.sha256 for m in config.metrics.values() for p in m.prompts().values()},
        "prices": dict(prices),
        "identity": dict(identity),
        "iterations": {},
    }


def write_manifest(folder: RunFolder, manifest: Mapping[str, Any]) -> None:
    """Write it, unless it already says so."""
    json_unless_same(folder.manifest, manifest)


def write_config(folder: RunFolder, config: RunConfig) -> None:
    """`config.yaml`, unless it already says so; its seal waits for the end of this start, which may be killed."""
    text = config_text(config)
    if folder.config.is_file() and folder.config.read_bytes() != text.encode("utf-8", "backslashreplace"):
        unseal(folder, "config.yaml")
    write_unless_same(folder.config, text)


def previous(folder: RunFolder) -> dict[str, Any]:
    """The manifest of the newest other run of the same name, empty when there is none that can be read."""
    try:
        other = RunFolder.find(folder.latest)
        return {} if other.root.name == folder.root.name else read_manifest(other)
    except RagpipeError:
        return {}


def rewritten_prompts(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Templates that kept their version's name and changed their text between two runs, with both hashes."""
    known = {signature.partition("@")[0]: sha for signature, sha in before.get("prompts", {}).items()}
    found = []
    for signature, sha in now["prompts"].items():
        name = signature.partition("@")[0]
        if known.get(name, sha) != sha:
            found.append(
                f"the template {name} has another text than in run {before['run_id']}: {known[name][:12]} -> {sha[:12]}; "
                "a version that has been used should keep its text: save the edit as a new version"
            )
    return found


def copy_prompts(config: RunConfig, folder: Path) -> None:
    """The templates that this run uses, byte for byte, with what they include: prompts travel with a run."""
    for metric in config.metrics.values():
        for prompt in metric.prompts().values():
            for name, text in prompt.sources.items():
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                write_unless_same(path, text)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"


def config_text(config: RunConfig) -> str:
    """The composed configuration as YAML: what `config.yaml` holds. Holds names of environment variables, no values."""
    import yaml

    plain = config.model_dump(mode="json", by_alias=True, exclude={"metrics"})
    plain["metrics"] = {}
    for name, metric in config.metrics.items():
        kind, prompts = type(metric), metric.prompts()
        section: dict[str, Any] = {"class": f"{kind.__module__}.{kind.__qualname__}"}
        if prompts:
            section["prompts"] = {step: prompt.version for step, prompt in prompts.items()}
        plain["metrics"][name] = section | metric.model_dump(mode="json", exclude={"name", *metric.step_names()})
    head = "# The configuration of this run, composed and checked. Made by ragpipe; editing it changes nothing.\n"
    text: str = yaml.dump(plain, Dumper=FastDumper, sort_keys=False, allow_unicode=True, width=120)
    return head + text
