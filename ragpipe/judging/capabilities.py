"""What providers support: sampling parameters and the first output mode to try.

Compared with the table of litellm 1.106.2. What a provider refuses in spite of this table is learned from its response to
the first call (`transports/output_modes.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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

_ALL = frozenset({"temperature", "top_p", "seed"})
_SEEDLESS = frozenset({"temperature", "top_p"})


@dataclass(frozen=True, slots=True)
class Capabilities:
    """`sampling`: parameters that are sent and are in the key. `mode`: the first output mode."""

    sampling: frozenset[str] = _ALL
    mode: Literal["json_schema", "json_object", "plain"] = "json_schema"


_TABLE = {
    "anthropic": Capabilities(_SEEDLESS),
    "bedrock": Capabilities(_SEEDLESS, "plain"),
    "sagemaker": Capabilities(_SEEDLESS, "plain"),
    "cohere": Capabilities(_ALL, "json_object"),
    "huggingface": Capabilities(_ALL, "plain"),
    "ollama": Capabilities(_ALL, "json_schema"),
    "deepseek": Capabilities(_SEEDLESS, "json_object"),
}
_DEFAULT = Capabilities()


def capabilities(provider: str) -> Capabilities:
    """The capabilities of a provider; one that is not in the table is assumed to support everything."""
    return _TABLE.get(provider, _DEFAULT)
