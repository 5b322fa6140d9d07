"""What fits into a cluster, and what tells a run folder from another, without Ray."""

import os
import socket
import sys
from types import SimpleNamespace

import pytest

from ragpipe.core.errors import ConfigError
from ragpipe.extras.ray.process import join_cluster, slices_at_once, waits_for
from ragpipe.extras.ray.settings import RaySettings
from ragpipe.extras.ray.tasks import NO_FOLDER, digest_of_tables


def node(alive=True, **resources):
    return {"Alive": alive, "Resources": resources}


NODES = [node(CPU=4.0, GPU=1.0), node(CPU=7.5, disk=2.0), node(alive=False, CPU=64.0), node()]


def test_slices_fit_by_what_they_hold_in_nodes_that_live():
    assert slices_at_once(NODES, RaySettings()) == 4 + 7
    assert slices_at_once(NODES, RaySettings(num_gpus=0.5)) == 2


def test_what_no_node_has_is_said():
    assert waits_for(NODES, RaySettings(address="head:6379")) is None
    assert waits_for(NODES, RaySettings(address="head:6379", num_gpus=2)) == ("no node of head:6379 has CPU 1, GPU 2: slices wait for one")


def test_a_folder_is_told_by_its_configuration_and_tables(tmp_path):
    def written(name, **changed):
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


def refusal(settings, folder):
    with pytest.raises(ConfigError) as caught:
        join_cluster(settings, 4, folder)
    (problem,) = caught.value.problems
    return problem


def install(monkeypatch, **attributes):
    """Ray as far as a run that is refused uses it; what such a run leaves in the environment is taken away again."""
    for name in ("RAY_USAGE_STATS_ENABLED", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_TOKEN"):
        monkeypatch.setenv(name, "")
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(**attributes))


def test_a_cluster_that_this_process_cannot_join(tmp_path, monkeypatch):
    def init(**_):
        raise RuntimeError("Version mismatch:\n  the cluster has Ray 2.9")

    install(monkeypatch, init=init)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        problem = refusal(RaySettings(address=address), tmp_path)
    assert problem.found == f"{address}: Version mismatch: the cluster has Ray 2.9"
    assert problem.fix == "start this run on a node of the cluster, with the Ray, the Python and the token of the other nodes"
