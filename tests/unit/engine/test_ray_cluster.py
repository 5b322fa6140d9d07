"""What fits into a cluster, and what tells a run folder from another, without Ray."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ragpipe.config.runner_settings import RunnerSettings
from ragpipe.engine.ray_cluster import slices_at_once, waits_for
from ragpipe.engine.ray_tasks import NO_FOLDER, digest_of_tables


def node(alive: bool = True, **resources: float) -> dict[str, Any]:
    return {"Alive": alive, "Resources": resources}


NODES = [node(CPU=4.0, GPU=1.0), node(CPU=7.5, disk=2.0), node(alive=False, CPU=64.0), node()]


def test_slices_fit_by_what_they_hold_in_nodes_that_live() -> None:
    assert slices_at_once(NODES, RunnerSettings()) == 4 + 7
    assert slices_at_once(NODES, RunnerSettings(num_cpus=2.5)) == 1 + 3
    assert slices_at_once(NODES, RunnerSettings(num_gpus=0.5)) == 2
    assert slices_at_once(NODES, RunnerSettings(num_cpus=0.5, resources={"disk": 1.0})) == 2


def test_what_no_node_has_is_said() -> None:
    assert waits_for(NODES, RunnerSettings(address="head:6379")) is None
    assert waits_for(NODES, RunnerSettings(address="head:6379", num_gpus=2)) == (
        "no node of head:6379 has CPU 1, GPU 2: slices wait for one"
    )


def test_a_folder_is_told_by_its_configuration_and_tables(tmp_path: Path) -> None:
    def written(name: str, **changed: bytes) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        contents = {"config": b"name: x", "samples": bytes(100_000), "outputs": b"o", **changed}
        for stem, content in contents.items():
            (folder / (stem + (".yaml" if stem == "config" else ".parquet"))).write_bytes(content)
        return folder

    first, same = written("first"), written("same")
    os.utime(same / "samples.parquet", (0, 0))
    assert digest_of_tables(first) == digest_of_tables(same)
    others = [written("a", config=b"name: y"), written("b", samples=bytes(99_999)), written("c", outputs=b"p")]
    assert len({digest_of_tables(folder) for folder in (first, *others)}) == 4
    (first / "outputs.parquet").unlink()
    assert digest_of_tables(first) == digest_of_tables(tmp_path / "none") == NO_FOLDER
