"""What a word of the command line may have been meant as that names nothing: a task, an option, a key, a file, an option of
the program, a folder's option; and the words that the chosen task does not know."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Any, get_args

from ragpipe.core.errors import Problem
from ragpipe.core.resources import conf_dir
from ragpipe.core.validation import ConfigOrigins, did_you_mean

_FILES_COMPARED = 5_000  # of a folder, with the name of a file that is not there
_FORMS = {"task": "task={}", "experiment": "+experiment={}", "mode": "+mode={}", "metrics": "metrics=[{}]"} | {
    group: f"{group}={{}}" for group in ("dataset", "system", "judge", "embedder", "transport", "runner", "scoring")
}
_CLOSE = 0.75  # how alike two words must be, from 0 to 1
_OPTIONS = {
    "help": "--help",
    "version": "--version",
    "dry-run": "task=plan",
    "dryrun": "task=plan",
    "multirun": "-m",
    "resume": "the same command again: it goes on where it stopped",
    "config": "--config-dir DIR",
    "config-name": "+experiment=NAME",
    "model": "judge=llm judge.model=PROVIDER/MODEL",
    "output": "output_dir=DIR",
    "verbose": "log_level=debug",
}
"""Options that other programs have, and what does the same here."""


def near_word(word: str) -> str:
    """What a word without `=` may have been meant as: the name of a task, of an option of a group, of a key, or a file. Empty
    where nothing is near."""
    from ragpipe.config.settings import RUN_KEYS

    if word in _OPTIONS:
        return f"did you mean {_OPTIONS[word]}?"
    meanings = {
        form.format(path.stem): path.stem
        for group, form in _FORMS.items()
        for path in sorted((conf_dir() / group).glob("*.yaml"))
    } | {f"{key}=...": key for key in RUN_KEYS}
    if texts := [text for text, name in meanings.items() if name == word]:
        return f"did you mean {' or '.join(texts[:3])}?"
    if near := _near_files(word):
        return near
    if "/" in word or re.search(r"\.\w+$", word):
        return "there is no such file or folder here; a file is evaluated by `python -m ragpipe FILE`"
    names = get_close_matches(word, sorted(set(meanings.values())), 1, _CLOSE)
    texts = [text for text, name in meanings.items() if name in names]
    return f"did you mean {' or '.join(texts[:3])}?" if texts else "--help lists the words"


def near_option(option: str) -> str:
    """What an unknown option (`--dry-run`) may have been meant as; else where they are listed."""
    name = option.lstrip("-").partition("=")[0]
    if name in _OPTIONS:
        return f"did you mean {_OPTIONS[name]}?"
    known = ("--help", "--version", "--multirun", "--config-dir", "--cfg", "--package", "--resolve", "--info")
    near = get_close_matches(f"--{name}", known, 1, _CLOSE)
    return f"did you mean {near[0]}?" if near else "--help lists the options"


def _near_files(word: str) -> str:
    """`did you mean good.jsonl?`: the file of this ending beside a path that does not exist, whose name is nearest; else
    empty."""
    missing = Path(word)
    try:
        beside = list(islice(missing.parent.iterdir(), _FILES_COMPARED)) if missing.parent.is_dir() else []
    except OSError:
        return ""
    near = get_close_matches(missing.stem, [path.stem for path in beside if path.suffix == missing.suffix], 1)
    return f"did you mean {missing.with_stem(near[0])}?" if near else ""


def written_folder(group: str, name: str) -> str:
    """What to do about an option that is not found and that a folder of its own name here holds; empty where none does."""
    is_there = re.fullmatch(r"[\w-]+", name) is not None and (Path(name) / group / f"{name}.yaml").is_file()
    return f"it is in the folder {name}/: add --config-dir {name}" if is_there else ""


def option_meant(group: str, name: str) -> str:
    """What to write in place of an option that is no option at all, but the value of a key: a model as `judge`, a format as
    `report`. Empty for other groups."""
    if group == "judge":
        from ragpipe.judging.model_names import with_provider

        return f"for a language model: judge=llm judge.model={with_provider(name)}"
    if group == "embedder" and ("/" in name or any(char.isdigit() for char in name)):
        return f"for a model behind an API: embedder=litellm embedder.model={name if '/' in name else f'openai/{name}'}"
    if group == "report":
        from ragpipe.reports.settings import ReportFormat

        near = get_close_matches(name, get_args(ReportFormat), 1) or ["html"]
        return f"'report.formats=[terminal,{near[0]}]' chooses among {', '.join(get_args(ReportFormat))}"
    return ""


def unknown_task_words(task: str, plain: Mapping[str, Any], origins: ConfigOrigins) -> list[Problem]:
    """The typed keys that are neither the task's nor a run's: a task reads its own keys and would pass over a misspelt one in
    silence. An evaluation checks all of its keys itself."""
    from ragpipe.config.settings import RUN_KEYS

    typed = {key.partition(".")[0] for key in getattr(origins, "chosen", ())}
    not_of_a_run = [key for key in plain if key in typed and key not in (*RUN_KEYS, "task")]
    if not not_of_a_run:
        return []  # before the import of all tasks, for which an evaluation need not wait
    from ragpipe.engine.task_settings import setting_keys
    from ragpipe.tasks.schema import TASKS

    settings = TASKS.get(task)
    keys = setting_keys(settings) if settings else not_of_a_run
    what, expected = f"a key that task={task} does not know", f"keys of task={task}: {', '.join(keys)}; or of a run"
    return [
        Problem(origins.location(key), key, what, expected, did_you_mean(key, keys) or did_you_mean(key, RUN_KEYS))
        for key in not_of_a_run
        if key not in keys
    ]
