"""The settings of `runner=ray`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from ragpipe.core.secrets import is_secret_name
from ragpipe.runs.settings import AnyRunner

INSTALL = "pip install 'ray>=2.52'"
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/@\[\]]+):[0-9]{1,5}")
Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class RaySettings(AnyRunner):
    """Tasks of Ray compute what asks no server, on this machine or a cluster; calls leave from one process."""

    implementation: ClassVar[str] = "ragpipe.extras.ray.runner:open_ray_runner"
    kind: Literal["ray"] = Field(
        default="ray",
        description="Tasks of Ray compute what asks no server, on this machine or a cluster; calls leave from one process.",
    )
    workers: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="Slices at once. null: one per core that this process may use; in a cluster as many as fit when the run starts.",
    )
    slice: int = Field(default=250, ge=1, description="The most cases that a worker gets at once, and does again if it dies.")
    address: str | None = Field(
        default=None,
        description="Where the cluster of Ray is, as HOST:PORT; this machine must be one of its nodes. null: a cluster on this machine, for this run.",
    )
    num_gpus: float = Field(default=0.0, ge=0, allow_inf_nan=False, description="GPUs of Ray that a slice holds.")
    env_vars: list[Name] = Field(
        default_factory=list,
        description="Names of environment variables, never their values, that workers of a cluster get from this process; no keys.",
    )

    @field_validator("address")
    @classmethod
    def _host_and_port(cls, address: str | None) -> str | None:
        if address is not None and not _ADDRESS.fullmatch(address):
            raise ValueError("HOST:PORT of a cluster of Ray, as `ray start --head` prints it, without ray:// before it")
        return address

    @field_validator("env_vars")
    @classmethod
    def _no_keys(cls, names: list[str]) -> list[str]:
        if secret := next(filter(is_secret_name, names), None):
            raise ValueError(f"variables without secrets: workers ask no server, and {secret} stays with the process that does")
        return names

    def missing(self) -> Iterator[tuple[str, str, str, str]]:
        spec = find_spec("ray")
        if spec is None or spec.origin is None:  # without origin: a folder of this name
            yield "runner.kind", "ray, without its package", "a runner that is installed", INSTALL
        for name in self.env_vars:
            if name not in os.environ:
                yield "runner.env_vars", f"{name}, which is not set", "variables of this environment", f"export {name}"

    def stays_here(self, *, computes: bool, shares_store: bool) -> str | None:
        if computes and not self.num_gpus:
            return "a model that computes here takes all cores by itself, and batches across cases"
        if computes and self.address is not None and not shares_store:
            return "workers on several machines need one call store: set store.url"
        return None
