"""What models take: sampling parameters, the system role, the name of the token limit, the first output mode to try.

Three sources, the later ones first: the user (`judge.capabilities`), the model's family, its provider. The provider rows are
compared with the table of litellm 1.106.2, the families with its o-series and gpt-5 rules and with the columns
`supports_sampling_params` and `supports_system_messages` of its model table. What a model refuses in spite of this is learned from its
response to the first call (`transports/provider_state.py`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Literal

from pydantic import Field

from ragpipe.core.settings import Settings

LOCAL: frozenset[str] = frozenset(
    {"hosted_vllm", "vllm", "ollama", "ollama_chat", "lm_studio", "llamafile", "llamacpp", "xinference", "custom_openai"}
)
"""Providers whose weights are on the user's own machines."""

OPENAI_COMPATIBLE: frozenset[str] = LOCAL | {"openai", "openai_like", "litellm_proxy"}
"""Providers with an OpenAI-compatible endpoint: the direct client can ask them."""

Sampling = Literal["temperature", "seed"]
_ALL: frozenset[str] = frozenset({"temperature", "seed"})
_SEEDLESS: frozenset[str] = frozenset({"temperature"})

OutputMode = Literal["json_schema", "json_object", "plain"]
MODES: tuple[OutputMode, ...] = ("json_schema", "json_object", "plain")


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a model takes.

    `sampling`: parameters that are sent and are in the key. `modes`: the output modes that are tried, in this order.
    `system_role`: whether a system message is sent as such. `limit_name`: the parameter for the longest reply.
    `context_tokens`: the window, prompt and reply together; None where it is not known. `thinks`: whether it has a thinking mode,
    and so takes `reasoning_effort`; `samples_while_thinking`: whether it takes a temperature while it thinks.
    """

    sampling: frozenset[str] = _ALL
    modes: tuple[OutputMode, ...] = MODES
    system_role: bool = True
    limit_name: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    context_tokens: int | None = None
    thinks: bool = True
    samples_while_thinking: bool = True


_OBJECT, _PLAIN = MODES[1:], MODES[2:]
_PROVIDERS = {
    "anthropic": Capabilities(_SEEDLESS),
    "bedrock": Capabilities(_SEEDLESS, _PLAIN),
    "sagemaker": Capabilities(_SEEDLESS, _PLAIN),
    "cohere": Capabilities(_ALL, _OBJECT),
    "huggingface": Capabilities(_ALL, _PLAIN),
    "deepseek": Capabilities(_SEEDLESS, _OBJECT),
}
_DEFAULT = Capabilities()

_OWN_SAMPLING = re.compile(
    r"(?:openai|azure|openrouter/openai)/(?:o[134]|gpt-5)(?:-(?:mini|nano|pro))?(?:-\d{4}-\d\d-\d\d)?", re.I
)
"""OpenAI's reasoning models: their temperature is fixed, and the limit on the reply covers their thinking."""
_FIXED_TEMPERATURE = re.compile(
    r"(?:[\w-]+/)*(?:[\w-]+\.)*(?:databricks-)?"
    r"(?:claude-(?:opus-4-[78]|(?:opus|sonnet|haiku)-[5-9]|fable|mythos)|gemini-3\.(?:5-flash-lite|[6-9]-flash)).*",
    re.I,
)
_NO_THINKING = re.compile(
    r"(?:[\w-]+/)*(?:[\w-]+\.)*(?:ft:)?"
    r"(?:(?:chat)?gpt-(?:3\.?5|4)|claude-(?:2|instant|3-(?:opus|sonnet|haiku|5))|gemini-(?:1|2\.0)|gemma-[23]|command-r|"
    r"(?:code|mini|pix)stral|open-mi[sx]tral).*",
    re.I,
)
"""Families without a thinking mode; none of them is one that litellm's table calls a reasoning model (`supports_reasoning`)."""
_CLAUDE = re.compile(r"(?:[\w-]+/)*(?:[\w-]+\.)*claude-.*", re.I)
"""Anthropic's models refuse a temperature while they think."""
_NO_SYSTEM_ROLE = re.compile(r"gemini/gemma-3.*", re.I)


@lru_cache(maxsize=64)
def capabilities(model: str, overrides: CapabilitySettings | None = None) -> Capabilities:
    """What `provider/name` takes, with what the user says of it; a model that is not known is assumed to take everything."""
    provider = model.partition("/")[0]
    known = _PROVIDERS.get(provider, _DEFAULT)
    if _OWN_SAMPLING.fullmatch(model):
        known = replace(known, sampling=frozenset({"seed"}), limit_name="max_completion_tokens")
    elif _FIXED_TEMPERATURE.fullmatch(model):
        known = replace(known, sampling=known.sampling - {"temperature"})
    elif _NO_SYSTEM_ROLE.fullmatch(model):
        known = replace(known, system_role=False)
    known = replace(known, thinks=not _NO_THINKING.fullmatch(model), samples_while_thinking=not _CLAUDE.fullmatch(model))
    if overrides is None:
        return known
    thinks = known.thinks if overrides.reasoning_effort is None else overrides.reasoning_effort
    return replace(known, context_tokens=overrides.context_tokens, thinks=thinks)


class CapabilitySettings(Settings):
    """What the model takes. null: as the table knows it, else it is assumed and learned from the provider's refusal. The
    window decides which questions are asked, so it is in the identity of a run."""

    reasoning_effort: bool | None = Field(
        default=None, description="Whether the model has a thinking mode and takes `reasoning_effort`. null: as known."
    )
    context_tokens: Annotated[int, Field(ge=256)] | None = Field(
        default=None,
        description=(
            "The model's context window in tokens, prompt and reply together, 256 or more. A question that does not fit is "
            "an error (`too_long`) and is not sent. null: the provider decides."
        ),
    )


_PINS = re.compile(
    r"""
      (?<!\d)20\d\d-?(?:0[1-9]|1[0-2])-?(?:0[1-9]|[12]\d|3[01])(?!\d)   # a date: 2024-07-18, 20241022
    | [@:-]sha256[:-][0-9a-f]{12,64}                                     # a digest: @sha256:..., ollama's sha256-...
    | @[0-9a-f]{7,64}\b                                                  # a revision: model@1a2b3c4
    | -(?:0\d\d|(?!1024)(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])|[23]\d(?:0[1-9]|1[0-2]))
      (?:-(?:preview|it|instruct))?$      # a numbered or dated build: -002, -0613, -2411; not a context size: -8192
    """,
    re.X | re.I,
)


def is_pinned(model: str) -> bool:
    """True for `gpt-4o-mini-2024-07-18`, `claude-3-5-haiku-20241022`, `gemini-1.5-pro-002`, `m@sha256:...`; not `gpt-4o`,
    nor `llama3-70b-8192`."""
    return bool(_PINS.search(model))


_PROVIDER_OF = (
    (r"gpt|o\d|chatgpt|text-embedding", "openai"),
    (r"claude", "anthropic"),
    (r"gemini", "gemini"),
    (r"mistral|ministral|magistral|codestral", "mistral"),
    (r"command", "cohere"),
    (r"deepseek", "deepseek"),
    (r"grok", "xai"),
    (r"llama|qwen|phi|gemma", "hosted_vllm"),
)
"""Beginnings of names by which models are known, and the provider that is asked for them; the last is a server of one's own."""


def with_provider(name: str) -> str:
    """How `judge.model` is most likely written for a bare name: `openai/gpt-4o-DATE` for `gpt-4o`. A name that is pinned already
    gets no `-DATE`, nor does one of a server of one's own, and a provider's own name gets a placeholder."""
    provider, slash, model = name.partition("/")
    if not slash:
        known = (provider for beginning, provider in _PROVIDER_OF if re.match(beginning, name, re.I))
        provider, model = next(known, "openai"), name
        if not re.search(r"\d", name):  # no model, but perhaps a provider
            provider, model = (name if name in {p for _, p in _PROVIDER_OF} else "openai"), "MODEL"
    pin = "" if is_pinned(model) or provider == "hosted_vllm" else "-DATE"
    return f"{provider}/{model}{pin}"
