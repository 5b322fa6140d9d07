"""The `judge` section for a language model: which model answers, how it is asked, and how hard it may be pushed."""

from __future__ import annotations

import os
import re
from typing import Annotated, Any, ClassVar, Literal, Self
from urllib.parse import urlsplit

from pydantic import BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from ragpipe.core.secrets import HIDDEN, hide_secrets, is_variable_name, looks_secret
from ragpipe.core.settings import NotInIdentity, Settings
from ragpipe.core.usage import PARTS, Price, Tier
from ragpipe.judge.capabilities import LOCAL, Capabilities, CapabilitySettings, capabilities, is_pinned, with_provider
from ragpipe.judge.question import AnyJudge


class BudgetSettings(Settings):
    """Limits that no start of the run goes beyond: money, tokens and requests, each null for no limit.

    Retries and repairs count, and requests that timed out or broke off count as if they were answered in full.
    """

    usd: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        default=None, description="US dollars that all starts of a run may spend together, above 0. null: no limit."
    )
    tokens: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="Tokens, in and out, of all starts of a run together, 1 or more. null: no limit."
    )
    calls: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description=(
            "Requests, retries included, that all starts of a run may send and have answered, 1 or more. null: no limit."
        ),
    )

    @property
    def is_set(self) -> bool:
        """Whether there is any limit."""
        return any(getattr(self, part) is not None for part in PARTS)


class PriceSettings(Settings):
    """US dollars per million tokens, for a model whose price the table does not know (or knows wrongly).

    `cached_input` and `written_input` null: cached tokens, and those written to a cache, cost as much as others; `reasoning` null: as much as the rest of the output.
    """

    input: float = Field(ge=0, allow_inf_nan=False, description="US dollars per million input tokens.")
    output: float = Field(ge=0, allow_inf_nan=False, description="US dollars per million output tokens.")
    cached_input: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = Field(
        default=None, description="US dollars per million cached input tokens. null: as `input`."
    )
    reasoning: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = Field(
        default=None, description="US dollars per million reasoning tokens. null: as `output`."
    )

    written_input: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = Field(
        default=None, description="US dollars per million input tokens that the provider writes to its cache. null: as `input`."
    )

    def of(self, model: str, source: str) -> Price:
        """The price of a model: these prices, for prompts of any length. `source` is where they are in the configuration."""
        cached = self.input if self.cached_input is None else self.cached_input
        reasoning = self.output if self.reasoning is None else self.reasoning
        written = self.input if self.written_input is None else self.written_input
        return Price(model, source, (Tier(0, self.input, self.output, cached, reasoning, written),))


_BREAKER = 5  # failed calls in a row, beside those in flight, that end the run
_NAMES = frozenset({"model", "revision", "endpoint", "season", "served_as"})
"""They may look random (a commit, a digest) and are no secrets."""


def _finite(value: Any) -> Any:
    if value is None:
        raise ValueError("a try without an end would hang the run: give a finite number of seconds, such as 120")
    return value


class JudgeSettings(AnyJudge):
    """A language model as judge.

    Only what changes the text of a reply is in `identity_of_judge()`, and so in the key under which replies are found
    again; fields marked `NotInIdentity` are in no identity at all. `section` is the part of the configuration that these
    settings are of, for messages that name a key.
    """

    section: ClassVar[str] = "judge"

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, protected_namespaces=(), hide_input_in_errors=True)

    kind: Annotated[Literal["llm"], NotInIdentity] = Field(
        default="llm", description="A language model that a provider or a local server runs."
    )
    # `model` is checked against these three, so they come before it
    allow_unpinned: Annotated[bool, NotInIdentity] = Field(
        default=False,
        description="Whether a model name without a version is accepted, although its meaning can change between runs.",
    )
    revision: str | None = Field(
        default=None,
        description=("Commit or digest of the weights behind `api_base` or a local provider. null: the model name is pinned."),
    )
    api_base: Annotated[str | None, NotInIdentity] = Field(
        default=None, description="Base URL of an OpenAI-compatible server. null: the provider's public address."
    )

    model: str = Field(description="The model, as provider/name with a pinned version, such as openai/gpt-4o-mini-2024-07-18.")
    client: Annotated[Literal["auto", "litellm", "direct"], NotInIdentity] = Field(
        default="auto",
        description=(
            "Library that sends the requests. direct: our own, for OpenAI-compatible servers; litellm: for all "
            "others; auto: whichever fits."
        ),
    )
    endpoint: str | None = Field(
        default=None, description="Name of the server in the keys of stored replies. null: host, port and path of `api_base`."
    )
    served_as: Annotated[list[str], NotInIdentity] = Field(
        default_factory=list, description="Other names under which this very model answers. Default: none."
    )
    served_model: Annotated[Literal["refuse", "warn"] | None, NotInIdentity] = Field(
        default=None,
        description=(
            "What a reply of another model does. refuse: it is not kept and the run ends; warn: it is kept and "
            "flagged. null: refuse for a pinned name at a public provider, else warn."
        ),
    )
    api_key_env: Annotated[str | None, NotInIdentity] = Field(
        default=None,
        description=(
            "Name of the environment variable that holds the key, never the key itself. null: the provider's usual one."
        ),
    )
    season: str = Field(default="", description="Any text. Another text asks every question again.")
    note: Annotated[str | None, NotInIdentity] = Field(
        default=None, description="What readers should know of this judge; reports show it. null: nothing."
    )

    capabilities: CapabilitySettings = Field(
        default_factory=CapabilitySettings,
        description="What the model takes, where the table of models does not know it. Default: as known, else learned.",
    )
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] | None = Field(
        default=0.0, description="Sampling temperature, 0 to 2. null: not sent, for models that refuse it."
    )
    seed: int | None = Field(
        default=None, description="Seed that is sent with every request, where the provider takes one. null: not sent."
    )
    max_tokens: Annotated[int, Field(ge=1)] | None = Field(
        default=2048, description="Longest reply in tokens; a cut reply is an error, never a score. null: the provider's limit."
    )
    reasoning_effort: Literal["none", "low", "medium", "high"] | None = Field(
        default=None,
        description=(
            "How long a model with a thinking mode thinks before it answers. Its thoughts are paid for and count in "
            "`max_tokens`. null: not sent, so as the model does by itself."
        ),
    )
    shuffle_seed: Annotated[int, Field(ge=0, le=2**32 - 1)] | None = Field(
        default=None,
        description=(
            "Seed by which contexts, claims and other items of a question are shown in an order of their own, 0 to "
            "4,294,967,295. null: the order of the data."
        ),
    )
    output_mode: Annotated[Literal["auto", "json_schema", "json_object", "plain"], NotInIdentity] = Field(
        default="auto",
        description=(
            "How a structured reply is asked for. auto: json_schema, then json_object, then plain, whichever the model takes."
        ),
    )

    concurrency: Annotated[int, NotInIdentity] = Field(
        default=16, ge=1, le=4096, description="Requests in flight at once, 1 to 4,096."
    )
    rpm: Annotated[Annotated[float, Field(gt=0, allow_inf_nan=False)] | None, NotInIdentity] = Field(
        default=None, description="Requests per minute, above 0. null: no limit of ours."
    )
    tpm: Annotated[Annotated[float, Field(gt=0, allow_inf_nan=False)] | None, NotInIdentity] = Field(
        default=None, description="Tokens per minute, above 0. null: no limit of ours."
    )
    timeout_s: Annotated[float, BeforeValidator(_finite), Field(gt=0, le=86_400, allow_inf_nan=False), NotInIdentity] = Field(
        default=120.0, description="Seconds for the whole answer of one attempt, above 0 to 86,400."
    )
    retries: Annotated[int, NotInIdentity] = Field(
        default=5, ge=0, le=100, description="Further attempts of a call after a passing failure, 0 to 100."
    )
    outage_s: Annotated[float, NotInIdentity] = Field(
        default=600.0,
        ge=0,
        le=864_000,
        allow_inf_nan=False,
        description="Seconds without any answer after which the run ends, 0 to 864,000.",
    )
    max_calls: Annotated[int, NotInIdentity] = Field(
        default=10_000, ge=1, description="Questions that one start may ask, 1 or more; a larger plan is refused."
    )
    budget: Annotated[BudgetSettings, NotInIdentity] = Field(
        default_factory=BudgetSettings,
        description="What all starts of a run may spend on this model together, in money, tokens or requests.",
    )
    prices: Annotated[PriceSettings | None, NotInIdentity] = Field(
        default=None, description="Prices of the model. null: those of litellm's table; an unknown price stays unknown."
    )

    @model_validator(mode="before")
    @classmethod
    def _hide(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        named = {
            name: text
            for name, text in data.items()
            if name in _NAMES and not any(map(looks_secret, map(str, text if isinstance(text, list) else [text])))
        }
        return {**hide_secrets(data), **named}  # pydantic puts the offending input into its errors

    @field_validator("model", "endpoint", "revision", "season")
    @classmethod
    def _one_line(cls, value: str | None) -> str | None:
        if value and (odd := re.search(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]", value)):
            raise ValueError(f"a name on one line, found {odd[0]!r} in it")
        return value

    @field_validator("api_base")
    @classmethod
    def _plain_url(cls, value: str | None) -> str | None:
        return None if value is None else checked_api_base(value)

    @field_validator("api_key_env")
    @classmethod
    def _variable(cls, value: str | None) -> str | None:
        if value is not None and (value == HIDDEN or not is_variable_name(value)):
            raise ValueError(
                "expected the NAME of an environment variable, such as OPENAI_API_KEY, never the key itself; "
                "export the key under that name (and revoke it if it was just typed into a file or a shell history)"
            )
        return value

    @field_validator("revision", "endpoint", "season")
    @classmethod
    def _no_key(cls, value: str | None) -> str | None:
        if value == HIDDEN:  # it is part of the judge's identity: one text for several would mix up their replies
            raise ValueError(f"a name, not a key: put the key into an environment variable ({cls.section}.api_key_env)")
        return value

    @field_validator("revision")
    @classmethod
    def _not_blank(cls, value: str | None) -> str | None:
        if value is not None and not value.strip():
            raise ValueError("a revision names the weights (a commit, a digest, a file's hash): it cannot be blank")
        return value

    @field_validator("model")
    @classmethod
    def _pinned(cls, value: str, info: ValidationInfo) -> str:
        provider, slash, name = value.partition("/")
        if not slash or not provider or not name or value != value.strip():
            meant = with_provider(name or provider) if (name or provider).strip() else "hosted_vllm/my-model"
            raise ValueError(f"provider/model, such as openai/gpt-4o-mini-2024-07-18; here perhaps {meant}")
        if {"allow_unpinned", "revision", "api_base"} - set(info.data):
            return value  # one of them is wrong itself, and is reported
        revision, local = info.data["revision"], info.data["api_base"] is not None or provider in LOCAL
        if revision is not None and not local:
            raise ValueError(
                f"{cls.section}.revision names the weights behind api_base or a local provider, not those of {provider}"
            )
        if not (is_pinned(name) or info.data["allow_unpinned"] or revision is not None):
            raise ValueError(cls._alias_message(name, local))
        return value

    @classmethod
    def _alias_message(cls, name: str, local: bool) -> str:
        dated = "name a dated version of it"
        how = f"set {cls.section}.revision to the weights' commit or digest" if local else dated
        return (
            f"{name!r} is an alias: what it names can change between two runs. Give a pinned version (a date such "
            f"as 2024-07-18, @sha256:..., a revision); {how}, or accept the drift with {cls.section}.allow_unpinned=true"
        )

    @field_validator("temperature", "seed", check_fields=False)  # an embedder has none of them
    @classmethod
    def _taken(cls, value: Any, info: ValidationInfo) -> Any:
        name, model = info.field_name, info.data.get("model")
        if value is None or model is None or "capabilities" not in info.data:
            return value
        if name == "temperature" and value == 0:
            return value  # the default: as little chance as the model allows
        if name not in capabilities(model, info.data["capabilities"]).sampling:
            raise ValueError(
                f"{model} takes no {name}: it would not be sent, and replies would not depend on it; remove it "
                f"({cls.section}.{name}: null)"
            )
        return value

    @field_validator("reasoning_effort", check_fields=False)
    @classmethod
    def _thinks(cls, value: str | None, info: ValidationInfo) -> str | None:
        model = info.data.get("model")
        if value is None or model is None or "capabilities" not in info.data:
            return value
        if not capabilities(model, info.data["capabilities"]).thinks:
            raise ValueError(
                f"{model} has no thinking mode: leave it out ({cls.section}.reasoning_effort: null), name a model that has one, "
                f"say that this one does ({cls.section}.capabilities.reasoning_effort: true), or ask for the reasons in the reply "
                "(metrics.NAME.reasoning: true)"
            )
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self._is_thinking and self.temperature and not self.supported.samples_while_thinking:
            raise ValueError(
                f"{self.model} takes no temperature while it thinks: set {self.section}.temperature to null, or "
                f"{self.section}.reasoning_effort to null"
            )
        if self.client == "direct" and self.api_base is None and self.provider != "openai":
            raise ValueError(
                f"{self.section}.client=direct speaks to OpenAI-compatible endpoints and does not know the address of "
                f"{self.provider!r}: set {self.section}.api_base, or {self.section}.client=litellm"
            )
        return self

    @property
    def provider(self) -> str:
        """The part of `model` before the first slash."""
        return self.model.partition("/")[0]

    @property
    def name(self) -> str:
        """The model's name as its provider knows it."""
        return self.model.partition("/")[2]

    @property
    def place(self) -> str:
        """`endpoint`, or host:port/path of `api_base`, or '' for a public provider."""
        if self.endpoint is not None:
            return self.endpoint
        if self.api_base is None:
            return ""
        parts = urlsplit(self.api_base)
        return f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}{parts.path}"

    @property
    def label(self) -> str:
        """Short printable name: the model, and its server when that is not its public provider."""
        return self.model + (f"@{self.place}" if self.place else "")

    @property
    def breaker_after(self) -> int:
        """Consecutive failed calls that end the run."""
        return self.concurrency + _BREAKER

    @property
    def key_variable(self) -> str | None:
        """The environment variable that holds the key, None when no key is sent (or litellm finds its own)."""
        if self.api_key_env is None and self.provider == "openai" and self.api_base is None:
            return "OPENAI_API_KEY"
        return self.api_key_env

    @property
    def key_source(self) -> str:
        """Where the key comes from, in words."""
        if self.key_variable:
            return f"the key comes from the environment variable {self.key_variable} ({self.section}.api_key_env)"
        if self.api_base:
            return f"no key was sent: name the environment variable that holds it in {self.section}.api_key_env"
        return (
            f"litellm looked for the key in its own variable, usually {self.provider.upper()}_API_KEY; another one is named "
            f"by {self.section}.api_key_env"
        )

    def api_key(self) -> str | None:
        """The key itself, read from the environment; it is never stored. None when it is not set."""
        return (os.environ.get(self.key_variable) or None) if self.key_variable else None

    @property
    def supported(self) -> Capabilities:
        """What the model takes, as far as it is known before the first call."""
        return capabilities(self.model, self.capabilities)

    def sampling(self) -> dict[str, Any]:
        """The sampling parameters that this model takes, and the effort where one is set, as they are in keys and are sent."""
        parameters = {"temperature": self.temperature, "seed": self.seed}
        supported = self.supported.sampling
        if self._is_thinking and not self.supported.samples_while_thinking:
            supported -= {"temperature"}
        effort = {} if self.reasoning_effort is None else {"reasoning_effort": self.reasoning_effort}
        taken = {name: value for name, value in parameters.items() if value is not None and name in supported}
        return taken | effort

    @property
    def _is_thinking(self) -> bool:
        return self.reasoning_effort not in (None, "none")

    def identity_of_judge(self) -> dict[str, Any]:
        """What a reply depends on besides the question: part of every question's key, but for `shuffle_seed`, which shows
        in the questions that it changes."""
        identity: dict[str, Any] = {
            "model": self.model,
            "endpoint": self.place,
            "sampling": self.sampling(),
            "season": self.season,
        }
        optional = {"revision": self.revision, "shuffle_seed": self.shuffle_seed}
        return identity | {name: value for name, value in optional.items() if value is not None}

    def identity(self) -> dict[str, Any]:
        """As `Settings.identity`, with the endpoint that is in use."""
        return {**super().identity(), "endpoint": self.place}


def checked_api_base(value: str) -> str:
    """The URL without a slash at its end. Raises ValueError for what is no base URL, and for one that holds a key."""
    if value == HIDDEN:
        raise ValueError("a URL must not hold a user or password: put the key into an environment variable")
    if odd := re.search(r"[\x00-\x20\x7f-\xa0\u2028\u2029\\]", value):  # `urlsplit` drops some of them without a word
        raise ValueError(f"a URL without blanks and control characters, found {odd[0]!r}")
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("expected a base URL such as http://127.0.0.1:8000/v1")
    if parts.query or parts.fragment:
        raise ValueError("expected a base URL without a query or fragment: keys belong in an environment variable")
    try:
        _ = parts.port
    except ValueError as error:
        raise ValueError("the port must be a number from 0 to 65535") from error
    if parts.path.rstrip("/").endswith("/chat/completions"):
        raise ValueError("leave `/chat/completions` out: ragpipe adds it to the base URL")
    return value.rstrip("/")
