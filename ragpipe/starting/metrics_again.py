"""The metrics of a folder to start from, chosen again for a mapping that somebody has completed or corrected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from ragpipe.core.errors import ConfigError, DataError
from ragpipe.reports.console import Console
from ragpipe.starting.file_start import experiment_for, read_mapping, yaml_path
from ragpipe.starting.start_folder import StartFolder, write_again


def choose_again(folder: StartFolder, source: Path, words: Sequence[str], console: Console) -> StartFolder:
    """The folder with the metrics that its edited mapping allows: a label that was mapped by hand makes more of them possible. Says
    which metrics came and went.

    Nothing changes where the experiment was edited too, where the mapping names another file, and where it cannot be read: the
    run then says why. Raises OutputError.
    """
    file = folder.root / "experiment" / f"{folder.name}.yaml"
    if f"experiment/{folder.name}.yaml" in folder.edited:
        return folder
    try:
        plain = yaml.safe_load((folder.root / folder.mapping).read_text(encoding="utf-8"))
        if not isinstance(plain, dict) or plain.get("path") != yaml_path(source, folder.root):
            return folder
        reading, option = read_mapping(plain, source, words)
        before = _metrics(yaml.safe_load(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, yaml.YAMLError, ConfigError, DataError):
        return folder
    text, left_out = experiment_for(folder, source, reading, option)
    chosen = replace(folder, is_runnable=reading.cases > 0, left_out=left_out, guessed={}, edited=())
    write_again(chosen, source, text)
    after = _metrics(yaml.safe_load(text))
    come, gone = [name for name in after if name not in before], [name for name in before if name not in after]
    if come or gone:
        changes = [*(f"+{name}" for name in come), *(f"-{name}" for name in gone)]
        console.say(f"its metrics were chosen again for what the mapping reads: {', '.join(changes)}")
    return chosen


def _metrics(experiment: Any) -> list[str]:
    """The metrics in the defaults list of an experiment."""
    return next(
        (list(entry["override /metrics"]) for entry in experiment["defaults"] if "override /metrics" in entry), []
    )
