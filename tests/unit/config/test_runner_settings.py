"""The settings of `runner`: addresses and variables that can be used, and what a start lacks."""

import importlib.machinery

import pytest
from pydantic import ValidationError

from ragpipe.config import runner_settings
from ragpipe.config.runner_settings import RunnerSettings
from ragpipe.core.extras import install_command


@pytest.mark.parametrize("address", ["127.0.0.1:6379", "head:6379", "ray-head.rag.svc.cluster.local:6379", "[::1]:6379"])
def test_an_address_is_a_host_and_a_port(address: str) -> None:
    assert RunnerSettings(kind="ray", address=address).address == address


@pytest.mark.parametrize("address", ["ray://head:10001", "auto", "local", "head", ":6379", "user@head:6379", "head:port", ""])
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(ValidationError, match="HOST:PORT of a cluster of Ray"):
        RunnerSettings(kind="ray", address=address)


@pytest.mark.parametrize("name", ["KEY=value", "", "1NAME", "MY-NAME", "$NAME"])
def test_a_variable_is_named_and_has_no_value_here(name: str) -> None:
    with pytest.raises(ValidationError):
        RunnerSettings(kind="ray", env_vars=[name])


@pytest.mark.parametrize("name", ["OPENAI_API_KEY", "PGPASSWORD", "HF_TOKEN"])
def test_a_key_is_not_passed_on(name: str) -> None:
    with pytest.raises(ValidationError, match=f"{name} stays with the process"):
        RunnerSettings(kind="ray", env_vars=["HF_HOME", name])


@pytest.mark.parametrize("wrong", [{"num_cpus": 0}, {"num_gpus": -1}, {"resources": {"disk": 0}}, {"num_cpus": float("inf")}])
def test_what_a_slice_needs_is_positive(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        RunnerSettings.model_validate({"kind": "ray", **wrong})


@pytest.mark.parametrize("spec", [None, importlib.machinery.ModuleSpec("ray", None)])  # absent, or a folder of this name
def test_ray_and_the_variables_to_pass_on_must_be_here(
    monkeypatch: pytest.MonkeyPatch, spec: importlib.machinery.ModuleSpec | None
) -> None:
    monkeypatch.setattr(runner_settings, "find_spec", lambda _: spec)
    monkeypatch.setenv("HERE", "1")
    monkeypatch.delenv("NOT_HERE", raising=False)
    settings = RunnerSettings(kind="ray", env_vars=["HERE", "NOT_HERE"])
    assert list(settings.missing()) == [
        ("runner.kind", "ray, without its package", "a runner that is installed", install_command("ray")),
        ("runner.env_vars", "NOT_HERE, which is not set", "variables of this environment", "export NOT_HERE"),
    ]
    assert list(RunnerSettings(kind="local", env_vars=["NOT_HERE"]).missing()) == []
