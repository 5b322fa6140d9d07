"""The words of `python -m ragpipe FILE`, checked before anything is written: their keys, and the option for the file."""

from __future__ import annotations

from collections.abc import Sequence

import yaml

from ragpipe.config.settings import RUN_KEYS
from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.registry import option_files, option_folders
from ragpipe.core.validation import did_you_mean
from ragpipe.datasets.recognition import NATIVE
from ragpipe.starting.start_folder import StartFolder

_TITLE = "nothing was written and nothing was started"


def check_words(words: Sequence[str]) -> None:
    """Raises ConfigError for words whose first name is no section, key or group of a run; with `task=` they may be of another
    task and are left to it."""
    if any(word.startswith("task=") for word in words):
        return
    groups = {path.name for folder in option_folders() for path in folder.iterdir() if path.is_dir()}
    known = sorted({*RUN_KEYS, *groups, "hydra"})
    problems = []
    for word in words:
        key = word.partition("=")[0].lstrip("+~").partition("@")[0].strip()
        first = key.partition("/")[0].partition(".")[0]
        if "=" in word and first not in known:
            near = did_you_mean(first, known)
            fix = near.replace("?", f"{key[len(first) :]}?") if near and " or " not in near else near
            problems.append(Problem("command line", key, "an unknown key", f"one of {', '.join(known)}", fix))
    if problems:
        raise ConfigError(_TITLE, problems)


def check_option(option: str, key: str = "dataset") -> None:
    """Raises ConfigError for an option of `dataset` that is not shipped; `key` is the word that named it."""
    known = list(option_files("dataset"))
    if option not in known:
        problem = Problem("command line", key, repr(option), f"one of {', '.join(known)}", did_you_mean(option, known))
        raise ConfigError("there is no such option; nothing was written", [problem])


def check_same_option(option: str, folder: StartFolder, source: str) -> None:
    """Raises ConfigError where `dataset=` names an option that is not shipped, or not the one by which a folder that was
    written before reads its file."""
    if not option or option == folder.name:
        return
    check_option(option)
    written = _option_of(folder)
    if written != option:
        how = f"dataset={written}" if written else "a mapping of its own"
        fix = f"remove {folder.root}/ and start again, or task=init from={source} as={option} dir=OTHER"
        found = f"{option!r}, and {folder.root}/ was written for this file with {how}"
        raise ConfigError(_TITLE, [Problem("command line", "dataset", found, "the mapping of the folder", fix)])


def _option_of(folder: StartFolder) -> str:
    """The shipped option that the folder's mapping is based on; empty for a guessed one, or one that cannot be read."""
    try:
        keys = yaml.safe_load((folder.root / folder.mapping).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return ""
    keys = keys if isinstance(keys, dict) else {}
    bases = [base for base in keys.get("defaults") or [] if base != "_self_"]
    return str(bases[0]) if bases else "" if "fields" in keys else NATIVE
