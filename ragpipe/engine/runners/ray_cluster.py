"""The cluster of Ray that a run uses: one of its own on this machine, or one that is there."""

from __future__ import annotations

import math
import os
import secrets
import socket
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from ragpipe.config.runner_settings import RunnerSettings
from ragpipe.core.errors import ConfigError, Problem

_CONNECT_S = 10.0
_OBJECTS = 256 << 20
"""Bytes that a cluster of our own may hold of what came of slices and was not fetched yet; more goes to its folder."""
_SILENT = {
    "include_dashboard": False,
    "log_to_driver": False,
    "configure_logging": False,
    "logging_level": "ERROR",
}


def join_cluster(settings: RunnerSettings, cores: int, folder: Path) -> tuple[Any, int]:
    """Start a cluster or join the one that the settings name. Returns Ray, and how many slices are measured at once.

    Args:
        settings: the runner.
        cores: cores that the run may use on this machine.
        folder: for the files of a cluster of our own.

    Raises ConfigError for a cluster that cannot be used.
    """
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # read when Ray is imported
    if settings.address is None:
        ray = _started(settings, cores, folder)
        width = settings.workers or cores
        if not slices_at_once(ray.nodes(), settings):
            has = {name: value for name, value in ray.nodes()[0]["Resources"].items() if name in ("CPU", "GPU")}
            fix = "lower runner.num_gpus or runner.resources, or name a cluster that has as much: runner.address=HOST:PORT"
            raise _unusable("runner", f"{_shown(has)} on this machine", f"{_shown(_needed(settings))} for a slice", fix)
        return ray, width
    ray = _joined(settings.address)
    return ray, settings.workers or max(1, slices_at_once(ray.nodes(), settings))


def waits_for(nodes: Iterable[Mapping[str, Any]], settings: RunnerSettings) -> str | None:
    """What slices wait for where no node of a cluster has enough for one; None where one has."""
    if slices_at_once(nodes, settings):
        return None
    return f"no node of {settings.address} has {_shown(_needed(settings))}: slices wait for one"


def _started(settings: RunnerSettings, cores: int, folder: Path) -> Any:
    """A new cluster on this machine. Its ports are open to others, so every connection must show a token that only this user
    can read: Ray would write it into the home."""
    token = folder / "token"
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32))
    os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=str(token))
    os.environ.pop("RAY_AUTH_TOKEN", None)
    ray: Any = import_module("ray")
    slots = math.ceil((settings.workers or 1) * settings.num_cpus)
    ray.init(
        address="local",
        num_cpus=max(cores, slots),
        object_store_memory=_OBJECTS,
        _temp_dir=str(folder),
        **_SILENT,
    )
    return ray


def _joined(address: str) -> Any:
    """The cluster at an address. Ray itself waits for minutes where nobody listens."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
    except (OSError, OverflowError) as error:
        fix = "start it (`ray start --head` prints its address), or leave runner.address out for a cluster on this machine"
        expected = "HOST:PORT of a cluster of Ray that runs"
        raise _unusable("runner.address", f"{address}: {error}", expected, fix) from error
    ray: Any = import_module("ray")
    try:
        ray.init(address=address, **{key: value for key, value in _SILENT.items() if key != "include_dashboard"})
    except Exception as error:  # other versions of Ray or Python, another token, no node on this machine
        expected = (
            "a cluster with this Ray, this Python and this token (RAY_AUTH_TOKEN_PATH), of which this machine is a node"
        )
        fix = "start this run on a node of the cluster, with the Ray, the Python and the token of the other nodes"
        raise _unusable("runner.address", f"{address}: {' '.join(str(error).split())}", expected, fix) from error
    return ray


def _unusable(key: str, state: str, expected: str, fix: str) -> ConfigError:
    return ConfigError("runner=ray cannot measure the cases", [Problem("runner=ray", key, state, expected, fix)])


def _needed(settings: RunnerSettings) -> dict[str, float]:
    """What a slice holds of a node."""
    needed = {"CPU": settings.num_cpus, "GPU": settings.num_gpus, **settings.resources}
    return {name: value for name, value in needed.items() if value > 0}


def slices_at_once(nodes: Iterable[Mapping[str, Any]], settings: RunnerSettings) -> int:
    """How many slices fit into the nodes that live."""
    needed = _needed(settings)
    return sum(
        int(min(node["Resources"].get(name, 0.0) / value for name, value in needed.items()))
        for node in nodes
        if node["Alive"]
    )


def _shown(resources: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in resources.items())
