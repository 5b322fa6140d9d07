"""What a configuration may say about Hydra itself: how a sweep is started.

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
_EXPECTED = "nothing of hydra but hydra/launcher, hydra/sweeper and their parameters; hydra.sweep.dir as a word"
_FIX = "ragpipe's own are -m, output_dir, log_level and --config-dir"
_PLAIN = "a number, true or false, a text, or a list of them"


def is_hydra(key: str) -> bool:
    """Whether a key, a group or a package is Hydra's own, in any of the forms that Hydra takes: `[hydra].job`, `_global_.hydra`."""
    return next((part for part in re.split(r"[./@:\[\]]+", key) if part not in ("", "_global_")), "") == "hydra"


def word_faults(override: Override, where: str) -> list[Problem]:
    """What a word of the command line, or of a sweeper, sets in Hydra's section and may not."""
    key, package = override.key_or_group, override.package
    if (not is_hydra(key) and not is_hydra(package or "")) or (key in _GROUPS and not package):
        return []
    if "/" in key or package or override.is_delete():
        return [Problem(where, key, "a part of Hydra's own", _EXPECTED, _FIX)]
    value = "" if override.is_sweep_override() else override.value()
    fault = _fault(key, getattr(value, "text", value), typed=True)
    return [Problem(where, key, *fault)] if fault else []


def file_faults(content: Any, package: str, text: str, where: str) -> list[Problem]:
    """What a file sets in Hydra's section, or chooses of its groups, and may not. Hydra takes more forms of a package than one: a
    file may only set keys below `hydra:`.

    `content` is the file as plain data, `package` where its header places it, `text` and `where` give the lines.
    """
    if re.search(r"\bhydra\b", package):
        line = text.count("\n", 0, text.find("@package")) + 1
        return [Problem(f"{where}:{line}", "@package", package, "a package that is not Hydra's own", _FIX)]
    if not isinstance(content, dict):
        return []
    listed, lines = content.get("defaults"), lines_in(text)
    items = [(f"defaults.{n}", _item_fault(item)) for n, item in enumerate(listed if isinstance(listed, list) else ())]
    keys = [(key, _fault(key, value, typed=False)) for key, value in _leaves(content.get("hydra", {}), "hydra")]
    return [Problem(f"{where}:{lines.get(key, 1)}", key, *fault) for key, fault in (*items, *keys) if fault]


def _item_fault(item: Any) -> tuple[str, str, str] | None:
    """What is wrong with an item of a defaults list."""
    group, value = next(iter(item.items())) if isinstance(item, dict) and len(item) == 1 else (item, "")
    options = value if isinstance(value, list) else [value or ""]
    if not isinstance(group, str) or not all(isinstance(option, str) for option in options):
        return f"{item!r}"[:80], "NAME, GROUP: NAME or GROUP: [NAME, ...]", ""
    name = group.split()[-1].lstrip("/") if group.split() else ""
    if re.search(r"\bhydra\b", name) and name not in _GROUPS:
        return repr(group), "options of ragpipe's groups, of hydra/launcher or of hydra/sweeper", "remove the line"
    return interpolation_fault(str(item)) if "${" in str(item) else None


def _fault(key: str, value: Any, *, typed: bool) -> tuple[str, str, str] | None:
    """What is wrong with a key of Hydra's section: what, expected, how to fix it. None when it may be set."""
    _, section, name, *rest = [*key.split("."), "", ""]
    if typed and key == "hydra.sweep.dir" and isinstance(value, str) and value and "\0" not in value:
        return None
    if section not in _IN_FILES:
        return "a key of Hydra's own", _EXPECTED, _FIX
    if not (typed and re.match(r"[A-Za-z]", name)) and name not in _IN_FILES[section]:
        what = f"the parameter {name!r} of hydra.{section}"
        return what, f"one of {', '.join(_IN_FILES[section])}", f"write {key}=... as a word"
    param = ".".join(filter(None, rest)) if (section, name) == ("sweeper", "params") else ""
    if is_hydra(param.lstrip("+~")):
        return f"the key {param!r} in hydra.sweeper.params", "keys of the configuration", ""
    items = value if isinstance(value, list) else [value]
    if (not param and any(rest)) or any(isinstance(item, Mapping | list) for item in items):
        return "a mapping", _PLAIN, ""
    if not typed and any("${" in str(item) for item in items):
        return "an interpolation", _PLAIN, ""
    return None


def _leaves(value: Any, key: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _leaves(item, f"{key}.{name}")
    else:
        yield key, value
