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
def test_an_address_is_a_host_and_a_port(address: str) -> None:
    assert RaySettings(address=address).address == address


@pytest.mark.parametrize("address", ["ray://head:10001", "auto", "local", "head", ":6379", "user@head:6379", "head:port", ""])
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(ValidationError, match="HOST:PORT of a cluster of Ray"):
        RaySettings(address=address)


@pytest.mark.parametrize("name", ["KEY=value", "", "1NAME", "MY-NAME", "$NAME"])
def test_a_variable_is_named_and_has_no_value_here(name: str) -> None:
    with pytest.raises(ValidationError):
        RaySettings(env_vars=[name])


@pytest.mark.parametrize("name", ["OPENAI_API_KEY", "PGPASSWORD", "HF_TOKEN"])
def test_a_key_is_not_passed_on(name: str) -> None:
    with pytest.raises(ValidationError, match=f"{name} stays with the process"):
        RaySettings(env_vars=["HF_HOME", name])


def test_a_slice_needs_no_less_than_no_gpu() -> None:
    with pytest.raises(ValidationError):
        RaySettings(num_gpus=-1)


@pytest.mark.parametrize("spec", [None, importlib.machinery.ModuleSpec("ray", None)])  # absent, or a folder of this name
def test_ray_and_the_variables_to_pass_on_must_be_here(monkeypatch, spec: importlib.machinery.ModuleSpec | None) -> None:
    monkeypatch.setattr(ray_settings, "find_spec", lambda _: spec)
    monkeypatch.setenv("HERE", "1")
    monkeypatch.delenv("NOT_HERE", raising=False)
    settings = RaySettings(env_vars=["HERE", "NOT_HERE"])
    assert list(settings.missing()) == [
        ("runner.kind", "ray, without its package", "a runner that is installed", INSTALL),
        ("runner.env_vars", "NOT_HERE, which is not set", "variables of this environment", "export NOT_HERE"),
    ]


def test_the_command_that_installs_is_the_extra_of_the_package() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert shlex.split(INSTALL) == ["pip", "install", *project["optional-dependencies"]["ray"]]
