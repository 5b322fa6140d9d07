"""What a configuration may say about Hydra itself: how a sweep is started and where its launcher keeps its files.

Everything else of Hydra's section could run code (`job_logging`, `callbacks`), change the process (`job.chdir`,
`job.env_set`) or write somewhere (`run.dir`), and ragpipe has keys of its own for what a user may need. It is refused
where it is set: in a file when Hydra opens it, in a word before Hydra gets it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from hydra.core.override_parser.types import Override

from ragpipe.composition.interpolations import interpolation_fault
from ragpipe.core.errors import Problem
from ragpipe.core.yaml_files import lines_in

_GROUPS = ("hydra/launcher", "hydra/sweeper")
_IN_FILES = {
    "launcher": (
        "n_jobs", "verbose", "timeout", "batch_size", "max_nbytes",  # joblib; then Slurm
        "timeout_min", "cpus_per_task", "gpus_per_node", "tasks_per_node", "mem_gb", "nodes", "name", "partition", "qos", "account",
        "array_parallelism", "max_num_timeout", "signal_delay_s", "constraint", "exclude", "gres", "cpus_per_gpu", "gpus_per_task",
        "mem_per_gpu", "mem_per_cpu", "stderr_to_stdout",
    ),
    "sweeper": ("max_batch_size", "params", "n_trials", "n_jobs", "direction", "study_name", "max_failure_rate"),
}  # fmt: skip
"""The parameters that a file may set: they start nothing and name no file. A word may set any other, too."""
JOB = re.compile(r"\$\{hydra[.:]job\.(num|id)\}")
_EXPECTED = (
    "nothing of hydra but hydra/launcher, hydra/sweeper, their parameters, hydra.sweep.dir and hydra.sweep.subdir"
)
_INSTEAD = {
    "searchpath": "--config-dir=DIR",
    "run": "output_dir=DIR",
    "output_subdir": "output_dir=DIR",
    "mode": "-m",
    "job": "a command of the shell",
    "verbose": "log_level=debug",
    "job_logging": "log_level=debug",
    "hydra_logging": "log_level=debug",
}


def is_hydra(key: str) -> bool:
    """Whether a key, a group or a package is Hydra's own, in any of the forms that Hydra takes: `[hydra].job`, `_global_.hydra`."""
    return next((part for part in re.split(r"[./@:\[\]]+", key) if part not in ("", "_global_")), "") == "hydra"


def word_faults(override: Override, where: str) -> list[Problem]:
    """What a word of the command line, or of a sweeper, sets in Hydra's section and may not."""
    key, package = override.key_or_group, override.package or ""
    if not is_hydra(key) and not is_hydra(package):
        return []
    if "/" in key or package:
        if key in _GROUPS and not package:
            return []
        expected = "hydra/launcher=NAME or hydra/sweeper=NAME"
        return [Problem(where, key, "a group or a package of Hydra's own", expected, "log_level=debug for more lines")]
    if override.is_delete():
        return [Problem(where, key, "a key of Hydra's own, removed", "keys of the configuration")]
    value = "" if override.is_sweep_override() else override.value()
    fault = _fault(key, getattr(value, "text", value), typed=True)
    return [Problem(where, key, *fault)] if fault else []


def file_faults(content: Any, package: str, text: str, where: str) -> list[Problem]:
    """What a file sets in Hydra's section, or chooses of its groups, and may not.

    `content` is the file as plain data, `package` where its header places it, `text` and `where` give the lines.
    """
    if not isinstance(content, dict):
        return []
    lines, package = lines_in(text), ".".join(p for p in re.split(r"[.\[\]]+", package) if p not in ("", "_global_"))
    section = {k: v for k, v in content.items() if k != "defaults"} if is_hydra(package) else content.get("hydra", {})
    problems = []
    listed = content.get("defaults")
    for item in listed if isinstance(listed, list) else ():
        name = str(next(iter(item), "") if isinstance(item, dict) else item)
        group, at, placed = (name.split() or [""])[-1].strip("/").partition("@")
        allowed = "/".join(group.split("/")[:2]) in _GROUPS and not at
        fault = interpolation_fault(str(item)) if "${" in str(item) else None
        if is_hydra(package) or (is_hydra(group) and not allowed) or is_hydra(placed.rpartition(":")[2]):
            expected = "options of ragpipe's groups, of hydra/launcher or of hydra/sweeper"
            fault = repr(name), expected, "remove the line"
        if fault:
            line = next((number for number, row in enumerate(text.splitlines(), 1) if name in row), 1)
            problems.append(Problem(f"{where}:{line}", "defaults", *fault))
    for key, value in _leaves(section, package if is_hydra(package) else "hydra"):
        if fault := _fault(key, value, typed=False):
            in_file = key.removeprefix(f"{package}.") if package else key
            line = next((lines[part] for part in _upwards(in_file) if part in lines), 1)
            problems.append(Problem(f"{where}:{line}", key, *fault))
    return problems


FIXED = {
    "hydra_logging": {"version": 1, "root": None, "disable_existing_loggers": False},
    "job_logging": {"version": 1, "root": None, "disable_existing_loggers": False},
    "verbose": False,
    "callbacks": {},
    "searchpath": [],
    "run": {"dir": "."},
    "output_subdir": None,
}
"""What these parts of Hydra's section are in every composition; `job.chdir`, `job.env_set` and `job.env_copy` change nothing."""


def section_fault(section: Mapping[str, Any]) -> str | None:
    """The part of a composed section of Hydra's that is not what it is in every composition, however it came there."""
    job = {name: section["job"][name] for name in ("chdir", "env_set", "env_copy")}
    changed = [key for key, value in FIXED.items() if section[key] != value]
    return changed[0] if changed else None if job == {"chdir": False, "env_set": {}, "env_copy": []} else "job"


def _fault(key: str, value: Any, *, typed: bool) -> tuple[str, str, str] | None:
    """What is wrong with a key of Hydra's section: what, expected, how to fix it. None when it may be set."""
    _, section, name, *rest = [*key.split("."), "", ""]
    what = f"{value!r}"[:80]
    if section == "sweep" and name in ("dir", "subdir"):
        if not isinstance(value, str) or not value or "\0" in value:
            return what, "the name of a folder", ""
        base, expected = (
            ("${output_dir}/", "output_dir: ${output_dir}/NAME") if name == "dir" else ("", "hydra.sweep.dir")
        )
        inside = JOB.sub("0", value).removeprefix(base)
        if (typed and name == "dir") or (value.startswith(base) and not re.search(r"\$\{|^/|(^|/)\.\.(/|$)", inside)):
            return None
        return what, f"a folder below {expected}", f"write {key}=... as a word for a folder elsewhere" if base else ""
    if section not in _IN_FILES:
        return "a key of Hydra's own", _EXPECTED, f"{_INSTEAD[section]} instead" if section in _INSTEAD else ""
    if not (typed and re.match(r"[A-Za-z]", name)) and name not in _IN_FILES[section]:
        what = f"the parameter {name!r} of hydra.{section}"
        return what, f"one of {', '.join(_IN_FILES[section])}", f"write {key}=... as a word"
    param = ".".join(filter(None, rest)) if (section, name) == ("sweeper", "params") else ""
    if is_hydra(param.lstrip("+~")):
        return f"the key {param!r} in hydra.sweeper.params", "keys of the configuration", ""
    items = value if isinstance(value, list) else [value]
    if (not param and any(rest)) or any(isinstance(item, Mapping | list) for item in items):
        return "a mapping", "a number, true or false, a text, or a list of them", ""
    if not typed and any("${" in str(item) for item in items):
        return "an interpolation", "a number, true or false, a text, or a list of them", ""
    return None


def _leaves(value: Any, key: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _leaves(item, f"{key}.{name}")
    else:
        yield key, value


def _upwards(key: str) -> Iterator[str]:
    """`a.b.c`, `a.b`, `a`."""
    while key:
        yield key
        key = key.rpartition(".")[0]
