"""What models take: sampling parameters, the system role, the name of the token limit, the first output mode to try.

Three sources, the later ones first: the user (`judge.capabilities`), the model's family, its provider. The provider rows are
compared with the table of litellm 1.106.2, the families with its o-series and gpt-5 rules and with the columns
`supports_sampling_params` and `supports_system_messages` of its model table. What a model refuses in spite of this is learned from its
response to the first call (`transports/output_modes.py`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from ragpipe.judging.capability_settings import CapabilitySettings

LOCAL: frozenset[str] = frozenset(
    {
        "hosted_vllm",
        "vllm",
        "ollama",
        "ollama_chat",
        "lm_studio",
        "llamafile",
        "llamacpp",
        "xinference",
        "custom_openai",
    }
)
"""Providers whose weights are on the user's own machines."""

OPENAI_COMPATIBLE: frozenset[str] = LOCAL | {"openai", "openai_like", "litellm_proxy"}
"""Providers with an OpenAI-compatible endpoint: the direct client can ask them."""

Sampling = Literal["temperature", "top_p", "seed"]
_ALL: frozenset[str] = frozenset({"temperature", "top_p", "seed"})
_SEEDLESS: frozenset[str] = frozenset({"temperature", "top_p"})

OutputMode = Literal["json_schema", "json_object", "plain"]
MODES: tuple[OutputMode, ...] = ("json_schema", "json_object", "plain")


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a model takes.

    `sampling`: parameters that are sent and are in the key. `modes`: the output modes that are tried, in this order.
    `system_role`: whether a system message is sent as such. `limit_name`: the parameter for the longest reply.
    `context_tokens`: the window, prompt and reply together; None where it is not known. `thinks`: whether it has a thinking mode,
    and so takes `reasoning_effort`; `samples_while_thinking`: whether it takes a temperature and top_p while it thinks.
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
        known = replace(known, sampling=known.sampling - {"temperature", "top_p"})
    elif _NO_SYSTEM_ROLE.fullmatch(model):
        known = replace(known, system_role=False)
    known = replace(
        known, thinks=not _NO_THINKING.fullmatch(model), samples_while_thinking=not _CLAUDE.fullmatch(model)
    )
    return known if overrides is None else _overridden(known, overrides)


def _overridden(known: Capabilities, overrides: CapabilitySettings) -> Capabilities:
    flags = {name: getattr(overrides, name) for name in sorted(_ALL)}
    taken = {name for name in _ALL if (name in known.sampling if flags[name] is None else flags[name])}
    allowed = {"json_schema": overrides.json_schema, "json_object": overrides.json_object, "plain": None}
    modes = tuple(mode for mode in MODES if (mode in known.modes if allowed[mode] is None else allowed[mode]))
    other_name = (
        known.limit_name == "max_completion_tokens"
        if overrides.max_completion_tokens is None
        else overrides.max_completion_tokens
    )
    return Capabilities(
        frozenset(taken),
        modes,
        known.system_role if overrides.system_role is None else overrides.system_role,
        "max_completion_tokens" if other_name else "max_tokens",
        overrides.context_tokens,
        known.thinks if overrides.reasoning_effort is None else overrides.reasoning_effort,
        known.samples_while_thinking,
    )
