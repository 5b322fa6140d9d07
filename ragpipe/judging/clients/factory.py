"""Which client a judge uses."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ragpipe.core.errors import Problem
from ragpipe.judging.capabilities import OPENAI_COMPATIBLE
from ragpipe.judging.clients.client import Client
from ragpipe.judging.settings import JudgeSettings


def client_name(settings: JudgeSettings) -> str:
    """`direct` for OpenAI-compatible endpoints whose address is known, else `litellm`."""
    if settings.client != "auto":
        return settings.client
    known = settings.api_base is not None or settings.provider == "openai"
    return "direct" if known and settings.provider in OPENAI_COMPATIBLE else "litellm"


def make_client(settings: JudgeSettings, key: str | None) -> Client:
    """The client, not yet connected. Its libraries are imported here or later, so that offline commands need none."""
    if client_name(settings) == "direct":
        from ragpipe.judging.clients.direct_client import DirectClient

        return DirectClient(settings, key)
    from ragpipe.judging.clients.litellm_client import LitellmClient

    return LitellmClient(settings, key)


_OPENAI = ("OPENAI_BASE_URL", "OPENAI_API_BASE")
_OTHER_VARIABLES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("ai21", "aiohttp_openai", "custom_openai", "litellm_proxy", "lm_studio", "xinference"), _OPENAI),
    "text-completion-openai": _OPENAI,
    "azure": ("AZURE_OPENAI_ENDPOINT",),
    "bedrock": ("AWS_BEDROCK_RUNTIME_ENDPOINT",),
    "datarobot": ("DATAROBOT_ENDPOINT",),
    "featherless_ai": ("FEATHERLESS_API_BASE",),
    "fireworks_ai": ("FIREWORKS_API_BASE",),
    "gradient_ai": ("GRADIENT_AI_AGENT_ENDPOINT",),
    "huggingface": ("HF_API_BASE",),
    "lambda_ai": ("LAMBDA_API_BASE",),
    "meta_llama": ("LLAMA_API_BASE",),
    "mistral": ("MISTRAL_AZURE_API_BASE",),
    "ollama_chat": ("OLLAMA_API_BASE",),
    "text-completion-codestral": ("CODESTRAL_API_BASE",),
    "vertex_ai": ("VERTEXAI_API_BASE", "VERTEX_API_BASE"),
    "volcengine": ("ARK_API_BASE",),
    "watsonx": ("WATSONX_URL", "WX_URL", "WML_URL"),
}
"""Variables that litellm reads besides `<PROVIDER>_API_BASE` and `<PROVIDER>_BASE_URL`. Found with litellm 1.106.2, by the
requests that reached another server."""


def base_url_variables(provider: str) -> tuple[str, ...]:
    """The environment variables from which litellm would take a provider's base URL."""
    head = provider.upper().replace("-", "_")
    return tuple(dict.fromkeys((f"{head}_API_BASE", f"{head}_BASE_URL", *_OTHER_VARIABLES.get(provider, ()))))


def conflicting_base_url(
    settings: JudgeSettings, section: str, environ: Mapping[str, str] | None = None
) -> Problem | None:
    """The problem when a variable names another server than the settings do; None when none does.

    `section` is the part of the configuration that the settings are (`judge`, `embedder`); embeddings always go through
    litellm.
    """
    if settings.api_base is not None:
        return None
    environ = os.environ if environ is None else environ
    direct = section == "judge" and client_name(settings) == "direct"
    name = next((name for name in base_url_variables(settings.provider) if environ.get(name)), None)
    if name is None:
        return None
    would = (
        f"the direct client would pass it over and ask the public {settings.provider}"
        if direct
        else "litellm would ask the server that it names"
    )
    return Problem(
        "environment",
        name,
        f"set, and {section}.api_base is not: {would}",
        f"the address of {settings.model} in the configuration, where it is part of the key of every reply",
        f"unset {name}, or set {section}.api_base to that server",
    )
