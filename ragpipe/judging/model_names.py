"""Whether a model's name is pinned to certain weights, or an alias that a provider may move."""

from __future__ import annotations

import re

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


_PROVIDERS = (
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
        known = (provider for beginning, provider in _PROVIDERS if re.match(beginning, name, re.I))
        provider, model = next(known, "openai"), name
        if not re.search(r"\d", name):  # no model, but perhaps a provider
            provider, model = (name if name in {p for _, p in _PROVIDERS} else "openai"), "MODEL"
    pin = "" if is_pinned(model) or provider == "hosted_vllm" else "-DATE"
    return f"{provider}/{model}{pin}"
