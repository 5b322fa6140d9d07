"""What a configuration may say about Hydra itself: how a sweep is started, and nothing else.

All else could run code (`job_logging`, `callbacks`), change the process (`job.chdir`, `job.env_set`) or write somewhere
(`run.dir`). It is refused where it is set: in a file when Hydra opens it, in a word before Hydra gets it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from hydra.core.override_parser.types import Override

from ragpipe.composition.interpolations import interpolation_fault
from ragpipe.core.errors import Problem
from ragpipe.core.yaml_files import lines_in

_JOBLIB = "n_jobs|verbose|timeout|batch_size|max_nbytes"
_SLURM = (
    "timeout_min|cpus_per_task|gpus_per_node|tasks_per_node|mem_gb|nodes|name|partition|qos|account|array_parallelism|max_num_timeout|"
    "signal_delay_s|constraint|exclude|gres|cpus_per_gpu|gpus_per_task|mem_per_gpu|mem_per_cpu|stderr_to_stdout"
)
_SWEEPER = "max_batch_size|params|n_trials|n_jobs|direction|study_name|max_failure_rate"
_PARAM = r"|sweeper\.params\.(?!.*\bhydra\b).+"
_IN_FILES = re.compile(rf"hydra\.(launcher\.({_JOBLIB}|{_SLURM})|sweeper\.({_SWEEPER}){_PARAM})")
"""The keys that a file may set: they start nothing and name no file."""
_AS_WORDS = re.compile(rf"hydra\.((launcher|sweeper)\.[A-Za-z]\w*|sweep\.dir{_PARAM})")
_GROUPS = ("hydra/launcher", "hydra/sweeper")
_EXPECTED = "nothing of hydra but hydra/launcher, hydra/sweeper and their parameters; hydra.sweep.dir as a word"
_FIX = "ragpipe's own are -m, output_dir, log_level and --config-dir"


def is_hydra(key: str) -> bool:
    """Whether a key, a group or a package is Hydra's own, in any of the forms that Hydra takes: `[hydra].job`, `_global_.hydra`."""
    return next((part for part in re.split(r"[./@:\[\]]+", key) if part not in ("", "_global_")), "") == "hydra"


def word_faults(override: Override, where: str) -> list[Problem]:
    """What a word of the command line, or of a sweeper, sets in Hydra's section and may not."""
    key, package = override.key_or_group, override.package or ""
    if not (is_hydra(key) or is_hydra(package)) or (key in _GROUPS and not package):
        return []
    value = "" if override.is_sweep_override() else override.value()
    fault = _key_fault(key, value, _AS_WORDS)
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
    keys = [(key, _key_fault(key, value, _IN_FILES)) for key, value in _leaves(content.get("hydra", {}), "hydra")]
    return [Problem(f"{where}:{lines.get(key, 1)}", key, *fault) for key, fault in (*items, *keys) if fault]


def _item_fault(item: Any) -> tuple[str, str, str] | None:
    """What is wrong with an item of a defaults list."""
    group, value = next(iter(item.items())) if isinstance(item, dict) and len(item) == 1 else (item, "")
    if not all(isinstance(name, str) for name in (group, *(value if isinstance(value, list) else [value or ""]))):
        return f"{item!r}"[:80], "NAME, GROUP: NAME or GROUP: [NAME, ...]", ""
    if re.search(r"\bhydra\b", str(item)) and (group.split() or [""])[-1].lstrip("/") not in _GROUPS:
        return repr(group), "options of ragpipe's groups, of hydra/launcher or of hydra/sweeper", "remove the line"
    return interpolation_fault(str(item))


def _key_fault(key: str, value: Any, allowed: re.Pattern[str]) -> tuple[str, str, str] | None:
    """What is wrong with a key of Hydra's section: found, expected, fix. None when it may be set."""
    if not allowed.fullmatch(key):
        as_word = allowed is _IN_FILES and _AS_WORDS.fullmatch(key)
        return "a key of Hydra's own", _EXPECTED, f"write {key}=... as a word" if as_word else _FIX
    items = value if isinstance(value, list) else [value]
    if any(isinstance(item, Mapping | list) or (allowed is _IN_FILES and "${" in str(item)) for item in items):
        return "a mapping or an interpolation", "a number, true or false, a text, or a list of them", ""
    return None


def _leaves(value: Any, key: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _leaves(item, f"{key}.{name}")
    else:
        yield key, value
