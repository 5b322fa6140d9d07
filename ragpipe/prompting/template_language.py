"""The language of prompt templates: Jinja in its sandbox, without calls.

A template may come from someone else: `task=rescore` and `task=verify` render those of a run folder again. So it sees the values
of the question alone, and of our own models only the fields. The library refuses calls when it reads a template.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jinja2
import jinja2.sandbox
from jinja2.runtime import LoopContext
from pydantic import BaseModel

from ragpipe.core.digest import canonical_json
from ragpipe.prompting.fences import OnOneLine

MAX_RENDERED = 4_000_000  # characters; a longer question fits no judge and is a mistake in the data


class TooMuch(jinja2.exceptions.SecurityError):
    """The values are too long for this template: an error of the case, not of the template."""


class _Sandbox(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """No private attributes, no methods, no globals."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Fields of our own models directly: they are data, and the sandbox's checks cost more than the rendering."""
        if attribute == "index" and type(obj) is LoopContext:
            return obj.index
        if isinstance(obj, BaseModel) and attribute in type(obj).model_fields:
            return getattr(obj, attribute)
        return super().getattr(obj, attribute)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Of a model only its fields: some methods of pydantic read files and unpickle."""
        if isinstance(obj, BaseModel) and attr not in type(obj).model_fields:
            return False
        return super().is_safe_attribute(obj, attr, value)


def _on_one_line(value: Any) -> Any:
    """A text to be fenced on one line; anything else is printed as without the filter."""
    return OnOneLine(value) if isinstance(value, str) else value


def environment(folders: Sequence[Path], finalize: Callable[[Any], Any]) -> jinja2.Environment:
    """A Jinja environment that reads templates below the folders and knows only their values."""
    env = _Sandbox(
        loader=jinja2.FileSystemLoader([str(f) for f in folders]),
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=False,
        finalize=finalize,
        auto_reload=False,
    )
    env.globals.clear()  # range, lipsum, cycler, joiner, namespace: a prompt only needs its values
    del env.filters["random"]  # the same values make the same question
    env.filters |= {"tojson": canonical_json, "on_one_line": _on_one_line}
    return env
