"""The settings of `runner`: addresses and variables that can be used, and what a start lacks."""

import importlib.machinery
import shlex
import tomllib
from pathlib import Path

import pytest
from pydantic import ValidationError

from ragpipe.extras.ray import settings as ray_settings
from ragpipe.extras.ray.settings import INSTALL, RaySettings


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
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert shlex.split(INSTALL) == ["pip", "install", *project["optional-dependencies"]["ray"]]
