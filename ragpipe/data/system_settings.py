"""Settings of the system under test, one class per kind."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol

from pydantic import Field, field_validator

from ragpipe.core import registry
from ragpipe.core.sample import Sample
from ragpipe.core.secrets import is_variable_name
from ragpipe.core.settings import NotInIdentity, Settings, did_you_mean
from ragpipe.data.settings import OUTPUT_FIELDS, Address, PathExpression
from ragpipe.judge.settings import BudgetSettings, PriceSettings

_CALLABLE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_ADDRESS = re.compile(r"https?://[^\s@]+")


FIELDS_OF_ANSWER = OUTPUT_FIELDS - {"method", "repeat"}
"""What an answer may have; `system.method` and `system.repeats` give the rest."""


class AnySystem(Settings):
    """The base of the settings of every system, one class per `kind` (`core/registry.py`): what every system may have."""

    if TYPE_CHECKING:
        kind: str  # each class declares its own, in its place among the keys

    index_manifest: Annotated[Address | None, NotInIdentity] = Field(
        default=None,
        description="File with one row per chunk of the system's index, for the coverage of the index. null: not known.",
    )
    retrieves: bool | dict[str, bool] = Field(
        default=True,
        description=(
            "Whether the system retrieves. false: it retrieves nothing by design (closed book); a mapping says so "
            "of single methods. true: the outputs say it themselves."
        ),
    )
    prices: PriceSettings | None = Field(
        default=None,
        description=(
            "Prices of the tokens in an output's `usage`; an output's own `cost_usd` takes precedence. null: the "
            "cost is unknown."
        ),
    )

    def says_it_retrieves(self, method: str) -> bool:
        """Whether the settings leave it to a method's outputs that they retrieve; False when they say that none does."""
        return self.retrieves if isinstance(self.retrieves, bool) else self.retrieves.get(method, True)

    def identity(self) -> dict[str, Any]:
        """As for every section; `retrieves` stands in it only where it says that something retrieves nothing, `prices`
        only where they are given."""
        identity = super().identity()
        if self.prices is None:
            identity.pop("prices")
        retrieves = identity.pop("retrieves")
        without = (
            retrieves if isinstance(retrieves, bool) else {name: False for name in sorted(retrieves) if not retrieves[name]}
        )
        return identity if without in (True, {}) else {**identity, "retrieves": without}


class RecordedSystem(AnySystem):
    """The outputs stand in the data set, beside the questions."""

    kind: Literal["recorded"] = Field(default="recorded", description="The outputs are in the data set: nothing is called.")


class System(Protocol):
    """Gives the raw output of one sample, a mapping with the keys of an output. Raises whatever went wrong."""

    @property
    def notes(self) -> Sequence[str]:
        """What the user should know of its answers."""
        ...

    async def answer(self, sample: Sample) -> Mapping[str, Any]: ...
    async def close(self) -> None: ...


class LiveSystem(AnySystem):
    """The base of the settings of every system that is called: what each of them has.

    `method` names it in the tables. It is asked `repeats` times for each sample: a system that does not always answer the
    same gives outputs that differ, and each of them is a case. `version` is free text: raise it when the system behind the same address has changed,
    so that its outputs are collected anew. `params` go to the system with every question. `methods` asks several methods in
    one run: each is this section with the keys that its name leads to in place of the section's, and its own `params` over
    the section's, name by name. Prices, the budget, the index and the name are the section's alone.

    `timeout_s` bounds one request, and twice as much all requests for one answer without the waits; `concurrency` the answers under way.
    A request that failed for a passing reason is sent again, up to `retries` times.
    """

    implementation: ClassVar[str] = ""
    """The `module:class` of the `System` that is made with these settings and asked."""
    goes_on: ClassVar[bool] = False
    """Whether a request that ran out of time may go on all the same, as a thread does: it is not sent again."""

    method: str = Field(default="default", min_length=1, description="Name of the system in the tables.")
    methods: dict[Annotated[str, Field(min_length=1)], dict[str, Any]] = Field(
        default_factory=dict,
        description=(
            "Several methods in one run, by name: the keys of this section that the method has otherwise. Default: the "
            "one method `method`."
        ),
    )
    params: dict[str, Any] = Field(
        default_factory=dict, description="Any values, handed to the system with every question as `params`. Default: none."
    )
    repeats: int = Field(
        default=1, ge=1, le=1000, description="How often each sample is asked, 1 to 1,000. Every answer is a case."
    )
    version: str = Field(default="", description="Any text. Another text collects all outputs anew.")
    concurrency: Annotated[int, NotInIdentity] = Field(
        default=4, ge=1, le=1000, description="Answers under way at once, 1 to 1,000."
    )
    rpm: Annotated[Annotated[float, Field(gt=0, allow_inf_nan=False)] | None, NotInIdentity] = Field(
        default=None, description="Requests per minute, above 0. null: no limit of ours."
    )
    timeout_s: Annotated[float, NotInIdentity] = Field(
        default=120.0, gt=0, le=3600, description="Seconds for the whole answer to one request, above 0 to 3,600."
    )
    retries: Annotated[int, NotInIdentity] = Field(
        default=8, ge=0, le=100, description="Further requests for an answer after a passing failure, 0 to 100."
    )
    outage_s: Annotated[float, NotInIdentity] = Field(
        default=600.0,
        ge=0,
        le=864_000,
        allow_inf_nan=False,
        description="Seconds without any answer after which the collection ends, 0 to 864,000.",
    )

    budget: Annotated[BudgetSettings, NotInIdentity] = Field(
        default_factory=BudgetSettings,
        description="What all starts of a run may spend on the system's answers together, in money, tokens or requests.",
    )

    @property
    def method_names(self) -> tuple[str, ...]:
        """The names of the methods that are asked, in the order of the tables."""
        return tuple(self.methods) or (self.method,)

    @property
    def place(self) -> str:
        """Where it is asked, for messages. Methods of one place share its limits."""
        return self.kind

    @property
    def code(self) -> str:
        """The `module:object` of a user's that answers: imported before anything is spent. Empty: none."""
        return "" if self.implementation.startswith("ragpipe.") else self.implementation

    @property
    def by_version(self) -> bool:
        """Whether its `version` alone, and no edit of its code, makes it another system."""
        return not self.code

    def opened(self, plugins: Sequence[str]) -> System:
        """The system, ready to be asked. Raises ConfigError when it cannot be had."""
        system: System = registry.imported(self.implementation)(self)
        return system

    def each_method(self) -> tuple[LiveSystem, ...]:
        """The settings of each method that is asked: without `methods`, this section. Raises ValueError for wrong ones."""
        if not self.methods:
            return (self,)
        sections = method_sections(self.model_dump(mode="json", by_alias=True))
        return tuple(
            registry.find("system", section["kind"]).model_validate_json(json.dumps(section)) for section in sections.values()
        )

    def identity(self) -> dict[str, Any]:
        """As for every system; of `retrieves` only what it says of its one method, `params` only where there are any. With
        `methods`, the identity of each, and the prices that all have."""
        if self.methods:
            return self._identity_of_methods()
        left_out = {"retrieves", "methods", *(() if self.params else ("params",))}
        identity = {name: value for name, value in super().identity().items() if name not in left_out}
        return identity if self.says_it_retrieves(self.method) else {**identity, "retrieves": False}

    def _identity_of_methods(self) -> dict[str, Any]:
        methods = {}
        for settings in self.each_method():
            identity = settings.identity()
            methods[settings.method] = {name: value for name, value in identity.items() if name not in ("method", "prices")}
        prices = {} if self.prices is None else {"prices": self.prices.identity()}
        return {"kind": self.kind, "methods": methods, **prices}


class PythonSystem(LiveSystem):
    """A Python callable `package.module:function`, sync or async, below a package listed in `plugins:`.

    It gets the sample as a plain dict (id, question, history, meta, params), or what `input` makes of it, and returns the answer
    as a text or a dict with the keys of an output (`answer`, `chunks` or `contexts`, `citations`, `abstained`, `timings`, `usage`
    ...), or an object of LangChain or LlamaIndex.
    An edit of the callable's file, or another `version`, makes it another system, whose outputs are collected anew.
    """

    implementation: ClassVar[str] = "ragpipe.data.python_system:PythonCallable"
    goes_on: ClassVar[bool] = True
    kind: Literal["python"] = Field(description="A Python callable is asked for every sample.")
    callable: str = Field(
        description=(
            "The callable, as package.module:function or package.module:object.method, below a package of `plugins`. It "
            "may be async, or an object with invoke or query."
        )
    )
    input: PathExpression | None = Field(
        default=None,
        description=(
            "What it gets, a path expression (JMESPath) on the sample and `params`. null: the question for invoke, "
            "ainvoke, query and aquery, else the sample."
        ),
    )

    @field_validator("callable")
    @classmethod
    def _names_a_module(cls, value: str) -> str:
        if not _CALLABLE.fullmatch(value):
            raise ValueError("package.module:function, or package.module:object.method")
        return value

    @property
    def place(self) -> str:
        return self.callable

    @property
    def code(self) -> str:
        return self.callable

    def opened(self, plugins: Sequence[str]) -> System:
        system: System = registry.imported(self.implementation)(self, plugins)
        return system


class HttpSystem(LiveSystem):
    """An HTTP endpoint that is sent one JSON object a question (POST) or its keys in the query (GET), and answers with one
    JSON object.

    `body` gives each key of the request as a JMESPath over the sample, `fields` each field of the output as a JMESPath
    over the response; without any, the response's own keys are read. `headers_env` maps header names to the *names* of environment variables that hold their values;
    `bearer_env` names that of a bare key.
    """

    implementation: ClassVar[str] = "ragpipe.data.http_system:HttpEndpoint"
    kind: Literal["http"] = Field(description="An HTTP endpoint is asked for every sample.")
    url: str = Field(description="Address of the endpoint, http or https, without a user or password.")
    http_method: Literal["POST", "GET"] = Field(
        default="POST", description="POST: `body` is sent as a JSON object. GET: it is sent as the query of the address."
    )
    body: dict[str, PathExpression] = Field(
        default_factory=lambda: {"question": "question", "history": "history"},
        min_length=1,
        description=(
            "Keys of the request, each a path expression (JMESPath) on the sample and `params`. Default: question and history."
        ),
    )
    fields: dict[str, PathExpression] = Field(
        default_factory=dict,
        description=(
            "Fields of the output, each a path expression (JMESPath) on the response. Default: every key of the response "
            "that is a field of an output, by its own name."
        ),
    )
    headers_env: Annotated[dict[str, str], NotInIdentity] = Field(
        default_factory=dict,
        description="Names of environment variables that hold the values of headers, by header name. Default: none.",
    )
    bearer_env: Annotated[Annotated[str, Field(min_length=1)] | None, NotInIdentity] = Field(
        default=None,
        description=(
            "Name of the environment variable whose value is sent as `Authorization: Bearer VALUE`. null: no such header."
        ),
    )

    @property
    def place(self) -> str:
        return self.url

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        if not _ADDRESS.fullmatch(value):
            raise ValueError(
                "an address that begins with http:// or https://, such as http://127.0.0.1:9000/ask, without a user"
            )
        return value

    @field_validator("bearer_env")
    @classmethod
    def _is_a_name(cls, value: str | None) -> str | None:
        if value is not None and not is_variable_name(value):
            raise ValueError("the NAME of an environment variable, such as RAG_TOKEN, never the key itself")
        return value

    @field_validator("fields")
    @classmethod
    def _known_fields(cls, fields: dict[str, str]) -> dict[str, str]:
        known = sorted(FIELDS_OF_ANSWER)
        for name in fields:
            if name not in known:
                fix = did_you_mean(name, known) or f"there are {', '.join(known)}"
                raise ValueError(f"{name!r} is no field of an output; {fix}")
        return fields


SHARED_BY_METHODS = frozenset({"method", "methods", "prices", "budget", "index_manifest"})
"""Keys of the section that no single method has otherwise."""


def method_sections(section: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The `system` section of each name under its `methods`: the section, with the method's keys in place of its own, and the
    method's `params` over its own, name by name. Where a method is of another `kind`, only what every live system has is
    taken from the section."""
    base = {key: value for key, value in section.items() if key != "methods"}
    sections = {}
    for name, overrides in section.get("methods", {}).items():
        shared = base
        if overrides.get("kind", base.get("kind")) != base.get("kind"):
            shared = {key: value for key, value in base.items() if key in LiveSystem.model_fields}
        params = {**(base.get("params") or {}), **(overrides.get("params") or {})}
        sections[name] = {**shared, **overrides, "params": params, "method": name}
    return sections


def question_fields(sample: Sample, params: Mapping[str, Any]) -> dict[str, Any]:
    """`id`, `question`, `history` and `meta` of the sample, no reference and no label, and the `params` of the method: a copy,
    which the system may change."""
    sent = sample.model_dump(mode="json", include={"id", "question", "history", "meta"})
    return {**sent, "params": deepcopy(dict(params))}
