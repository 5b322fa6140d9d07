"""The `runner` section: which processes measure the cases of a run."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Annotated, Literal

from pydantic import Field, field_validator

from ragpipe.core.extras import install_command
from ragpipe.schema.settings import Settings

_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/@\[\]]+):[0-9]{1,5}")
_KEYS = {
    "auto": frozenset({"workers", "slice"}),
    "processes": frozenset({"workers", "slice"}),
    "ray": frozenset({"workers", "slice", "address", "num_cpus", "num_gpus", "resources", "env_vars"}),
}
"""By kind the keys that it reads. `runner=local` reads none and refuses none: it must be one word that tries any experiment here."""
Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class RunnerSettings(Settings):
    """Which processes measure the cases. No figure depends on it."""

    kind: Literal["auto", "local", "processes", "ray"] = Field(
        default="auto",
        description=(
            "local: one process does everything. processes: several on this machine read and measure the cases. "
            "ray: tasks of Ray measure them, on this machine or a cluster. auto: several processes where no server is asked, there are "
            "many cases, and at least two cores are idle."
        ),
    )
    workers: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="Processes. null: one per core that this process may use; in a cluster of Ray as many as fit when the run starts.",
    )
    slice: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description=(
            "The most cases that a process gets at once, and does again if it dies. null: 250; 1,000 where every metric is computed "
            "without a judge and each process gets several such slices."
        ),
    )
    address: str | None = Field(
        default=None,
        description="Where the cluster of Ray is, as HOST:PORT; this machine must be one of its nodes. null: a cluster on this machine, for this run.",
    )
    num_cpus: float = Field(
        default=1.0, gt=0, allow_inf_nan=False, description="Cores of Ray that a slice holds, above 0."
    )
    num_gpus: float = Field(default=0.0, ge=0, allow_inf_nan=False, description="GPUs of Ray that a slice holds.")
    resources: dict[str, Annotated[float, Field(gt=0, allow_inf_nan=False)]] = Field(
        default_factory=dict, description="Resources with names of your own that a slice holds, in a cluster of Ray."
    )
    env_vars: list[Name] = Field(
        default_factory=list,
        description="Names of environment variables, never their values, that workers of a cluster get from this process.",
    )

    @field_validator("address")
    @classmethod
    def _host_and_port(cls, address: str | None) -> str | None:
        if address is not None and not _ADDRESS.fullmatch(address):
            raise ValueError("HOST:PORT of a cluster of Ray, as `ray start --head` prints it, without ray:// before it")
        return address

    def unused(self) -> Iterator[tuple[str, str, str, str]]:
        """What is set for another kind than the chosen one, as `missing` gives it. A default says nothing, wherever it is written."""
        for name, field in type(self).model_fields.items():
            value, default = getattr(self, name), field.get_default(call_default_factory=True)
            if name == "kind" or name in _KEYS.get(self.kind, {name}) or value == default:
                continue
            kinds = [f"runner={kind}" for kind, names in _KEYS.items() if name in names]
            shown = f"{json.dumps(value)}, which runner={self.kind} does not use"
            other = "runner=processes" if "runner=processes" in kinds else kinds[-1]
            fix = f"leave it out (runner.{name}={json.dumps(default)}), or write {other}"
            yield f"runner.{name}", shown, f"no such key, or {' or '.join(kinds)}", fix

    def missing(self) -> Iterator[tuple[str, str, str, str]]:
        """What this start lacks for it: key, what was found, what was expected, how to fix it."""
        if self.kind != "ray":
            return
        spec = find_spec("ray")
        if spec is None or spec.origin is None:  # without origin: a folder of this name
            yield "runner.kind", "ray, without its package", "a runner that is installed", install_command("ray")
        for name in self.env_vars:
            if name not in os.environ:
                yield "runner.env_vars", f"{name}, which is not set", "variables of this environment", f"export {name}"
