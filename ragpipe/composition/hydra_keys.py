"""What a configuration may say about Hydra itself: how a sweep is started and where its launcher keeps its files.

Everything else of Hydra's section could run code (`job_logging`, `callbacks`), change the process (`job.chdir`,
`job.env_set`) or write somewhere (`run.dir`), and ragpipe has keys of its own for what a user may need. It is refused
where it is set, and `FORCED` whatever is set.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

GROUPS = ("hydra/launcher", "hydra/sweeper")
"""Groups of Hydra's of which another option may be chosen, by a word or in a defaults list."""

_NO_LOGGING = {"version": 1, "root": None, "disable_existing_loggers": False}
FORCED: Mapping[str, Any] = {
    "hydra.hydra_logging": _NO_LOGGING,
    "hydra.job_logging": _NO_LOGGING,
    "hydra.verbose": False,
    "hydra.callbacks": {},
    "hydra.searchpath": [],
    "hydra.run.dir": ".",
    "hydra.output_subdir": None,
    "hydra.job.name": "ragpipe",
    "hydra.job.chdir": False,
    "hydra.job.env_set": {},
    "hydra.job.env_copy": [],
}
"""What these keys are in every composition, whatever was set."""

_LAUNCHER = frozenset(
    {
        # joblib
        "n_jobs",
        "verbose",
        "timeout",
        "batch_size",
        "max_nbytes",
        # Slurm
        "timeout_min",
        "cpus_per_task",
        "gpus_per_node",
        "tasks_per_node",
        "mem_gb",
        "nodes",
        "name",
        "partition",
        "qos",
        "account",
        "array_parallelism",
        "max_num_timeout",
        "signal_delay_s",
        "constraint",
        "exclude",
        "gres",
        "cpus_per_gpu",
        "gpus_per_task",
        "mem_per_gpu",
        "mem_per_cpu",
        "stderr_to_stdout",
    }
)
_SWEEPER = frozenset({"max_batch_size", "params", "n_trials", "n_jobs", "direction", "study_name", "max_failure_rate"})
_FROM_FILES = {"launcher": _LAUNCHER, "sweeper": _SWEEPER}
_JOB = re.compile(r"\$\{hydra[.:]job\.(num|id)\}")
_PARAMETER = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")
_EXPECTED = (
    "nothing of hydra but hydra/launcher, hydra/sweeper, their parameters, hydra.sweep.dir and hydra.sweep.subdir"
)
_INSTEAD = {
    "hydra.searchpath": "--config-dir=DIR",
    "hydra.run.dir": "output_dir=DIR",
    "hydra.output_subdir": "output_dir=DIR",
    "hydra.verbose": "log_level=debug",
    "hydra.job_logging": "log_level=debug",
    "hydra.hydra_logging": "log_level=debug",
    "hydra.job.env_set": "set the variable in the shell",
    "hydra.job.chdir": "start in that folder",
    "hydra.mode": "-m",
}


def is_hydra(key: str) -> bool:
    """Whether a key or a group of the command line is one of Hydra's own."""
    return re.match(r"hydra([./@:]|\Z)", key) is not None


def group_refused(group: str) -> bool:
    """Whether a group (`hydra/job_logging`) is one of Hydra's whose options are not to be chosen."""
    return is_hydra(group) and group.partition("@")[0] not in GROUPS


def key_fault(key: str, value: Any, *, typed: bool) -> tuple[str, str, str] | None:
    """What is wrong with a key of Hydra's section: found, expected, how to fix it. None when it may be set.

    `typed` is what stands on the command line: a parameter of a launcher or a sweeper that is named there may be any. A file
    may set those that start nothing and name no file.
    """
    parts = key.split(".")
    section, name = (parts[1], parts[2]) if len(parts) > 2 else ("", "")
    if parts[1:] in (["sweep", "dir"], ["sweep", "subdir"]):
        return _folder_fault(parts[2], value)
    if section in _FROM_FILES:
        allowed = (typed and _PARAMETER.match(name)) or name in _FROM_FILES[section]
        if not allowed:
            names = ", ".join(sorted(_FROM_FILES[section]))
            return (
                f"the parameter {name!r} of hydra.{section} in a file",
                f"one of {names}",
                f"write {key}=... as a word",
            )
        if (section, name) == ("sweeper", "params"):
            return _sweep_fault(parts[3:], value)
        if len(parts) > 3 or not _is_plain(value, interpolated=typed):
            return "a mapping or an interpolation", "a number, true or false, a text, or a list of them", ""
        return None
    instead = next((text for start, text in _INSTEAD.items() if f"{key}.".startswith(f"{start}.")), "")
    return "a key of Hydra's own", _EXPECTED, f"{instead} instead" if "=" in instead else instead


def _folder_fault(part: str, value: Any) -> tuple[str, str, str] | None:
    if not isinstance(value, str) or not value or "\0" in value:
        return f"{value!r}"[:80], "the name of a folder", ""
    if part == "subdir":
        path = PurePosixPath(_JOB.sub("0", value))
        if "${" in str(path) or path.is_absolute() or ".." in path.parts:
            return f"{value!r}"[:80], "a folder below hydra.sweep.dir, such as ${hydra.job.num}", ""
    return None


def _sweep_fault(path: list[str], value: Any) -> tuple[str, str, str] | None:
    """`hydra.sweeper.params`: words of the command line under other names."""
    if isinstance(value, Mapping) and not path:
        faults = (_sweep_fault([str(name)], item) for name, item in value.items())
        return next((fault for fault in faults if fault), None)
    name = ".".join(path).lstrip("+~")
    if is_hydra(name):
        return f"the key {name!r} in hydra.sweeper.params", "keys of the configuration", ""
    return None if _is_plain(value, interpolated=False) else ("a mapping or an interpolation", "a plain value", "")


def _is_plain(value: Any, *, interpolated: bool) -> bool:
    if isinstance(value, list):
        return all(_is_plain(item, interpolated=interpolated) and not isinstance(item, list) for item in value)
    return (
        value is None
        or isinstance(value, bool | int | float)
        or (isinstance(value, str) and (interpolated or "${" not in value))
    )
