"""Words of the command line that the chosen task does not know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragpipe.core.errors import Problem
from ragpipe.core.validation import ConfigOrigins, did_you_mean


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
    if settings is None:
        return []
    own = setting_keys(settings)
    unknown = [key for key in not_of_a_run if key not in own]
    expected = f"keys of task={task}: {', '.join(own)}; or of a run"
    return [
        Problem(
            origins.location(key),
            key,
            f"a key that task={task} does not know",
            expected,
            did_you_mean(key, own) or did_you_mean(key, RUN_KEYS),
        )
        for key in unknown
    ]
