"""Which client a judge uses."""

from __future__ import annotations

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
