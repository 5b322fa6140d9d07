"""Settings of the system under test, one class a kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from ragpipe.schema.settings import Operational, Settings


class _System(Settings):
    """What every system may have: `index_manifest`, the file that says which chunks of which documents are in its index.

    Its content, not its name, is part of a run's identity.
    """

    index_manifest: Annotated[str | None, Operational, Field(min_length=1)] = None


class RecordedSystem(_System):
    """The outputs stand in the data set, beside the questions."""

    kind: Literal["recorded"] = "recorded"


class _Live(_System):
    """What every system that is called has.

    `method` names it in the tables. `version` is free text: raise it when the system behind the same address has changed,
    so that its outputs are collected anew. `timeout_s` bounds one answer, `concurrency` the answers under way.
    """

    method: str = Field(default="default", min_length=1)
    version: str = ""
    concurrency: Annotated[int, Operational, Field(ge=1, le=1000)] = 4
    timeout_s: Annotated[float, Operational, Field(gt=0, le=3600)] = 120.0


class PythonSystem(_Live):
    """A Python callable `package.module:function`, sync or async, below a package listed in `plugins:`.

    It gets the sample as a plain dict (id, question, history, meta) and returns the answer as a text or a dict with the
    keys of an output (`answer`, `chunks` or `contexts`, `citations`, `abstained`, `timings`, `usage` ...).
    """

    kind: Literal["python"]
    callable: str = Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")


class HttpSystem(_Live):
    """An HTTP endpoint that is sent one JSON object a question (POST) and answers with one.

    `body` gives each key of the request as a JMESPath over the sample, `fields` each field of the output as a JMESPath
    over the response. `headers_env` maps header names to the *names* of environment variables that hold their values.
    """

    kind: Literal["http"]
    url: Annotated[str, Field(pattern=r"^https?://[^\s@]+$")]
    body: dict[str, str] = Field(default_factory=lambda: {"question": "question", "history": "history"}, min_length=1)
    fields: dict[str, str] = Field(default_factory=lambda: {"answer": "answer", "contexts": "contexts"}, min_length=1)
    headers_env: Annotated[dict[str, str], Operational] = Field(default_factory=dict)


LiveSystem = PythonSystem | HttpSystem
SystemSettings = RecordedSystem | PythonSystem | HttpSystem
_KINDS: dict[str, type[Settings]] = {"recorded": RecordedSystem, "python": PythonSystem, "http": HttpSystem}


def settings_class(section: object) -> type[Settings]:
    """The class that checks a `system` section: that of its `kind`, of a recorded system when the kind is none."""
    kind = section.get("kind") if isinstance(section, Mapping) else None
    return _KINDS.get(str(kind), RecordedSystem)
