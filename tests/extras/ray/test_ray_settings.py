"""What is around Ray, without it: the settings of `runner`, what fits into a cluster, what tells a run folder from another, and
messages about measured slices."""

import importlib.machinery
import json
import os
import shlex
import socket
import sys
import tomllib
from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from ragpipe.core.errors import ConfigError, RagpipeError
from ragpipe.extras.ray import settings as ray_settings
from ragpipe.extras.ray.messages import HEAD, WorkerFailure, failure_message, measured_message, measured_of
from ragpipe.extras.ray.process import join_cluster, slices_at_once, waits_for
from ragpipe.extras.ray.settings import INSTALL, RaySettings
from ragpipe.extras.ray.tasks import NO_FOLDER, digest_of_tables
from ragpipe.runs.case_measuring import MeasuredSlice, Slice
from ragpipe.runs.table_rows import PackedInputs
from ragpipe.store.table_rows import SCORES, table_from
from tests.support.pages import ROOT


@pytest.mark.parametrize("address", ["127.0.0.1:6379", "head:6379", "ray-head.rag.svc.cluster.local:6379", "[::1]:6379"])
def test_an_address_is_a_host_and_a_port(address):
    assert RaySettings(address=address).address == address


@pytest.mark.parametrize(("settings", "says"), [
    *(({"address": address}, "HOST:PORT of a cluster of Ray") for address in (
        "ray://head:10001", "auto", "local", "head", ":6379", "user@head:6379", "head:port", "",
    )),
    *(({"env_vars": [name]}, "env_vars") for name in ("KEY=value", "", "1NAME", "MY-NAME", "$NAME")),
    *(({"env_vars": ["HF_HOME", name]}, f"{name} stays with the process") for name in ("OPENAI_API_KEY", "PGPASSWORD", "HF_TOKEN")),
    ({"num_gpus": -1}, "num_gpus"),
])  # fmt: skip
def test_what_cannot_be_used_is_refused(settings, says):
    with pytest.raises(ValidationError, match=says):
        RaySettings(**settings)


@pytest.mark.parametrize("spec", [None, importlib.machinery.ModuleSpec("ray", None)])  # absent, or a folder of this name
def test_ray_and_the_variables_to_pass_on_must_be_here(monkeypatch, spec):
    monkeypatch.setattr(ray_settings, "find_spec", lambda _: spec)
    monkeypatch.setenv("HERE", "1")
    monkeypatch.delenv("NOT_HERE", raising=False)
    settings = RaySettings(env_vars=["HERE", "NOT_HERE"])
    assert list(settings.missing()) == [
        ("runner.kind", "ray, without its package", "a runner that is installed", INSTALL),
        ("runner.env_vars", "NOT_HERE, which is not set", "variables of this environment", "export NOT_HERE"),
    ]


def test_the_command_that_installs_is_the_extra_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert shlex.split(INSTALL) == ["pip", "install", *project["optional-dependencies"]["ray"]]


def test_slices_fit_by_what_they_hold_in_nodes_that_live_and_what_no_node_has_is_said():
    alive = [{"CPU": 4.0, "GPU": 1.0}, {"CPU": 7.5, "disk": 2.0}, {}]
    nodes = [{"Alive": False, "Resources": {"CPU": 64.0}}, *({"Alive": True, "Resources": held} for held in alive)]
    assert slices_at_once(nodes, RaySettings()) == 4 + 7
    assert slices_at_once(nodes, RaySettings(num_gpus=0.5)) == 2
    assert waits_for(nodes, RaySettings(address="head:6379")) is None
    told = waits_for(nodes, RaySettings(address="head:6379", num_gpus=2))
    assert told == "no node of head:6379 has CPU 1, GPU 2: slices wait for one"


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


def test_a_cluster_that_this_process_cannot_join(tmp_path, monkeypatch):
    def init(**_):
        raise RuntimeError("Version mismatch:\n  the cluster has Ray 2.9")

    for name in ("RAY_USAGE_STATS_ENABLED", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_TOKEN"):
        monkeypatch.setenv(name, "")  # what such a run leaves in the environment is taken away again
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=init))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(ConfigError) as caught:
            join_cluster(RaySettings(address=address), 4, tmp_path)
    (problem,) = caught.value.problems
    assert problem.found == f"{address}: Version mismatch: the cluster has Ray 2.9"
    assert problem.fix == "start this run on a node of the cluster, with the Ray, the Python and the token of the other nodes"


ROW = {
    "sample_id": "a", "method": "m", "repeat": 1, "iteration": 1, "metric": "x", "score_name": "x", "value": 0.1,
    "status": "ok", "reason": None, "details": None, "calls": ["k"],
}  # fmt: skip
TABLE = table_from({name: [ROW[name]] * 3 for name in SCORES.names}, SCORES)
LINES = '{"sample_id": "é"}\n{"sample_id": "\u2028"}\n'.encode()


def arrived(message):
    size, rest = HEAD.unpack_from(message)
    values, content = message[HEAD.size : HEAD.size + size], message[HEAD.size + size :]
    assert len(content) == rest
    return measured_of(json.loads(values), content)


@pytest.mark.parametrize("asked", [[], [PackedInputs((), 0, b"ab"), PackedInputs((("x", 1),), 4, b"c")]])
def test_a_slice_arrives_as_it_was_measured(asked):
    sent = MeasuredSlice(2, LINES, 1, [["timeout", "other"]], TABLE, asked)
    assert arrived(measured_message(sent, Slice(0, 0, 2))) == sent


def test_a_failure_keeps_its_exit_code():
    error = RagpipeError("no key")
    error.exit_code = 2
    with pytest.raises(WorkerFailure, match="no key") as caught:
        arrived(failure_message(error, Slice(0, 0, 2)))
    assert caught.value.exit_code == 2
    with pytest.raises(WorkerFailure, match="rows 0 to 1 of block 0: ZeroDivisionError: boom"):
        arrived(failure_message(ZeroDivisionError("boom"), Slice(0, 0, 2)))
