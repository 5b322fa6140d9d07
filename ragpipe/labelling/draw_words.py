"""The words of the command line by which a draw was made, so that cases can be added to it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from ragpipe.labelling.label_files import Draw
from ragpipe.labelling.label_settings import LabelSettings

_PLAIN = re.compile(r"[A-Za-z_/.][\w./-]*")


def more_labels_words(draw: Draw, run: Path, more: int) -> list[str]:
    """`task=label` with the settings of a draw that are not the usual ones, and `label.more`."""
    usual = LabelSettings().model_dump()
    settings = {name: value for name, value in draw.settings.items() if name != "n" and value != usual[name]}
    words = [f"label.{name}={_written(value)}" for name, value in settings.items()]
    return ["task=label", f"run={run}", *words, f"label.more={more}"]


def _written(value: Any) -> str:
    """A value as Hydra reads it."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{_written(key)}: {_written(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_written, value)) + "]"
    if isinstance(value, str) and not _PLAIN.fullmatch(value):
        return json.dumps(value, ensure_ascii=False)
    return str(value)
