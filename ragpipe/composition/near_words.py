"""What a word of the command line may have been meant as that names nothing: a task, an option, a key, a file, an option of
the program, a folder's option; and the words that the chosen task does not know."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from glob import escape
from itertools import islice
from pathlib import Path
from typing import Any, get_args

from ragpipe.core import registry
from ragpipe.core.errors import Problem
from ragpipe.core.registry import option_files
from ragpipe.core.validation import ConfigOrigins, did_you_mean

_FILES_COMPARED = 5_000  # of a folder, with the name of a file that is not there
_FORMS = {"task": "task={}", "experiment": "+experiment={}", "mode": "+mode={}", "metrics": "metrics=[{}]"} | {
    group: f"{group}={{}}" for group in ("dataset", "system", "judge", "embedder", "transport", "runner", "scoring")
}
_CLOSE = 0.75  # how alike two words must be, from 0 to 1
_OPTIONS = {
    "help": "--help",
    "version": "--version",
    "multirun": "-m",
    "dry-run": "task=plan",
    "resume": "the same command again: it goes on where it stopped",
    "config-name": "+experiment=NAME",
    "config-dir": "--config-dir DIR",
    "output": "output_dir=DIR",
    "verbose": "log_level=debug",
    "resolve": "--resolve",
    "package": "--package",
}
"""Options, those that other programs have too, and what does the same here."""


def near_word(word: str) -> str:
    """What a word without `=` may have been meant as: the name of a task, of an option of a group, of a key, or a file. Empty
    where nothing is near."""
    from ragpipe.config.settings import RUN_KEYS

    meanings = {form.format(name): name for group, form in _FORMS.items() for name in option_files(group)} | {
        f"{key}=...": key for key in RUN_KEYS
    }
    names = get_close_matches(word, sorted({*meanings.values()}), 1, _CLOSE)
    if word in _OPTIONS and word not in names:
        return f"did you mean {_OPTIONS[word]}?"
    missing = Path(word)
    if word not in names and missing.suffix:
        beside = islice(missing.parent.glob(f"*{escape(missing.suffix)}"), _FILES_COMPARED)
        if near := get_close_matches(missing.stem, [path.stem for path in beside], 1):
            return f"did you mean {missing.with_stem(near[0])}?"
    if missing.suffix or "/" in word:
        return "there is no such file or folder here; a file is evaluated by `python -m ragpipe FILE`"
    texts = [text for text, name in meanings.items() if name in names]
    return f"did you mean {' or '.join(texts[:3])}?" if texts else "--help lists the words"


def near_option(option: str) -> str:
    """What an unknown option (`--dry-run`) may have been meant as; else where they are listed."""
    near = get_close_matches(option.lstrip("-").partition("=")[0], _OPTIONS, 1, _CLOSE)
    return f"did you mean {_OPTIONS[near[0]]}?" if near else "--help lists the options"


def option_meant(group: str, name: str) -> str:
    """What to write in place of an option that is not found: one in a folder of its own name here, or the value of a key: a model
    as `judge`, a format as `report`. Empty where nothing is known."""
    if (Path(name) / group / f"{name}.yaml").is_file():
        return f"it is in the folder {name}/: add --config-dir {name}"
    if group == "judge":
        from ragpipe.judging.model_names import with_provider

        return f"for a language model: judge=llm judge.model={with_provider(name)}"
    if group == "embedder":
        return "for a model behind an API: embedder=litellm embedder.model=PROVIDER/MODEL"
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
    if not (not_of_a_run := [key for key in plain if key in typed and key not in (*RUN_KEYS, "task")]):
        return []  # before the import of all tasks, for which an evaluation need not wait
    from ragpipe.engine.task_settings import setting_keys

    settings = getattr(registry.find("task", task), "Keys", None)
    keys = setting_keys(settings) if settings else not_of_a_run
    what, expected = f"a key that task={task} does not know", f"keys of task={task}: {', '.join(keys)}; or of a run"
    return [
        Problem(origins.location(key), key, what, expected, did_you_mean(key, keys) or did_you_mean(key, RUN_KEYS))
        for key in not_of_a_run
        if key not in keys
    ]
