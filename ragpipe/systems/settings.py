"""Settings of the system under test, one class a kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from ragpipe.core.validation import did_you_mean
from ragpipe.datasets.settings import OUTPUT_FIELDS, PathExpression
from ragpipe.judging.settings import Price
from ragpipe.schema.settings import NotInIdentity, Settings


class _System(Settings):
    """What every system may have.

    `index_manifest` is the file that says which chunks of which documents are in its index. Its content, not its name, is
    part of a run's identity. `retrieves: false` says that the system retrieves nothing by design (closed book); a mapping
    says it of single methods, `{closed_book: false}`. True adds nothing to what an output says of itself, and only what is
    false is part of a run's identity. `prices` are those of the tokens in the outputs' `usage`, which an output's own
    `cost_usd` goes before; they are part of the identity where they are given, but not of what names the outputs.
    """

    index_manifest: Annotated[str | None, NotInIdentity] = Field(
        default=None,
        min_length=1,
        description="File with one row per chunk of the system's index, for the coverage of the index. null: not known.",
    )
    retrieves: bool | dict[str, bool] = Field(
        default=True,
        description=(
            "Whether the system retrieves. false: it retrieves nothing by design (closed book); a mapping says so "
            "of single methods. true: the outputs say it themselves."
        ),
    )
    prices: Price | None = Field(
        default=None,
        description=(
            "Prices of the tokens in an output's `usage`; an output's own `cost_usd` takes precedence. null: the "
            "cost is unknown."
        ),
    )

    def says_it_retrieves(self, method: str) -> bool:
        """Whether the settings leave it to a method's outputs that they retrieve; False when they say that none does."""
        return self.retrieves if isinstance(self.retrieves, bool) else self.retrieves.get(method, True)

    @property
    def named_methods(self) -> frozenset[str]:
        """The methods that `retrieves` names."""
        return frozenset(() if isinstance(self.retrieves, bool) else self.retrieves)

    def identity(self) -> dict[str, Any]:
        """As for every section; `retrieves` stands in it only where it says that something retrieves nothing, `prices`
        only where they are given."""
        identity = super().identity()
        if self.prices is None:
            identity.pop("prices")
        retrieves = identity.pop("retrieves")
        without = (
            retrieves
            if isinstance(retrieves, bool)
            else {name: False for name in sorted(retrieves) if not retrieves[name]}
        )
        return identity if without in (True, {}) else {**identity, "retrieves": without}


class RecordedSystem(_System):
    """The outputs stand in the data set, beside the questions."""

    kind: Literal["recorded"] = Field(
        default="recorded", description="The outputs are in the data set: nothing is called."
    )


class _Live(_System):
    """What every system that is called has.

    `method` names it in the tables. It is asked `repeats` times for each sample: a system that does not always answer the
    same gives outputs that differ, and each of them is a case. `version` is free text: raise it when the system behind the same address has changed,
    so that its outputs are collected anew. `timeout_s` bounds one answer, `concurrency` the answers under way.
    """

    method: str = Field(default="default", min_length=1, description="Name of the system in the tables.")
    repeats: int = Field(
        default=1, ge=1, le=1000, description="How often each sample is asked, 1 to 1,000. Every answer is a case."
    )
    version: str = Field(default="", description="Any text. Another text collects all outputs anew.")
    concurrency: Annotated[int, NotInIdentity] = Field(
        default=4, ge=1, le=1000, description="Requests in flight at once, 1 to 1,000."
    )
    timeout_s: Annotated[float, NotInIdentity] = Field(
        default=120.0,
        gt=0,
        le=3600,
        description="Seconds for one answer, above 0 to 3,600; a later one is a system error.",
    )

    def identity(self) -> dict[str, Any]:
        """As for every system; of `retrieves` only what it says of its one method."""
        identity = {name: value for name, value in super().identity().items() if name != "retrieves"}
        return identity if self.says_it_retrieves(self.method) else {**identity, "retrieves": False}


class PythonSystem(_Live):
    """A Python callable `package.module:function`, sync or async, below a package listed in `plugins:`.

    It gets the sample as a plain dict (id, question, history, meta) and returns the answer as a text or a dict with the
    keys of an output (`answer`, `chunks` or `contexts`, `citations`, `abstained`, `timings`, `usage` ...).
    `recognised_by` (YAML: `identity`) says what makes it another system, so that its outputs are collected anew: `source`,
    an edit of the callable's file or another `version`; `version`, that alone.
    """

    kind: Literal["python"] = Field(description="A Python callable is asked for every sample.")
    callable: str = Field(
        pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$",
        description="The callable, as package.module:function, below a package of `plugins`. It may be async.",
    )
    recognised_by: Annotated[Literal["source", "version"], NotInIdentity] = Field(
        default="source",
        alias="identity",
        description=(
            "What makes it another system, whose outputs are collected anew. source: an edit of the callable's "
            "file or another `version`; version: that alone."
        ),
    )


class HttpSystem(_Live):
    """An HTTP endpoint that is sent one JSON object a question (POST) and answers with one.

    `body` gives each key of the request as a JMESPath over the sample, `fields` each field of the output as a JMESPath
    over the response. `headers_env` maps header names to the *names* of environment variables that hold their values.
    """

    kind: Literal["http"] = Field(description="An HTTP endpoint is sent one POST per sample.")
    url: str = Field(pattern=r"^https?://[^\s@]+$", description="Address of the endpoint, http or https.")
    body: dict[str, PathExpression] = Field(
        default_factory=lambda: {"question": "question", "history": "history"},
        min_length=1,
        description="Keys of the request, each a path expression (JMESPath) on the sample. Default: question and history.",
    )
    fields: dict[str, PathExpression] = Field(
        default_factory=lambda: {"answer": "answer", "contexts": "contexts"},
        min_length=1,
        description=(
            "Fields of the output, each a path expression (JMESPath) on the response. Default: answer and contexts."
        ),
    )
    headers_env: Annotated[dict[str, str], NotInIdentity] = Field(
        default_factory=dict,
        description="Names of environment variables that hold the values of headers, by header name. Default: none.",
    )

    @field_validator("fields")
    @classmethod
    def _known_fields(cls, fields: dict[str, str]) -> dict[str, str]:
        known = sorted(OUTPUT_FIELDS - {"method", "repeat"})  # `system.method` and `system.repeats` give them
        for name in fields:
            if name not in known:
                fix = did_you_mean(name, known) or f"there are {', '.join(known)}"
                raise ValueError(f"{name!r} is no field of an output; {fix}")
        return fields


LiveSystem = PythonSystem | HttpSystem
SystemSettings = RecordedSystem | PythonSystem | HttpSystem
SYSTEMS: dict[str, type[Settings]] = {"recorded": RecordedSystem, "python": PythonSystem, "http": HttpSystem}
"""The settings of each kind of system."""


def settings_class(section: object) -> type[Settings]:
    """The class that checks a `system` section: that of its `kind`, of a recorded system when the kind is none."""
    kind = section.get("kind") if isinstance(section, Mapping) else None
    return SYSTEMS.get(str(kind), RecordedSystem)
