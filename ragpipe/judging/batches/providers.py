"""Which providers take batches, and the Batch API of each."""

from __future__ import annotations

from ragpipe.core.errors import Problem
from ragpipe.judging.batches.batch_api import BatchApi
from ragpipe.judging.settings import JudgeSettings

_OPENAI_SHAPED = ("openai", "litellm_proxy", "hosted_vllm", "openai_like", "custom_openai")
_TAKEN = (*_OPENAI_SHAPED, "anthropic")


def unbatchable(settings: JudgeSettings) -> Problem | None:
    """The problem of a judge whose provider takes no batches here; None where it does."""
    if settings.provider in _TAKEN and (settings.api_base or settings.provider in ("openai", "anthropic")):
        return None
    key, found = "judge.model", f"{settings.model}, and transport=batch"
    if settings.provider in _TAKEN:
        return Problem("", "judge.api_base", f"null, for {settings.provider}", "the address of its Batch API", "set it")
    return Problem(
        "",
        key,
        found,
        f"a provider whose batches are supported: {', '.join(_TAKEN)}",
        f"transport=live asks {settings.provider} question by question",
    )


def key_variable(settings: JudgeSettings) -> str | None:
    """The environment variable that holds the key of a Batch API; None where none is sent."""
    if settings.provider == "anthropic" and settings.api_key_env is None and settings.api_base is None:
        return "ANTHROPIC_API_KEY"
    return settings.key_variable


def make_batch_api(settings: JudgeSettings, key: str | None) -> BatchApi:
    """The Batch API of a judge's provider, not yet connected."""
    if settings.provider == "anthropic":
        from ragpipe.judging.batches.anthropic_batches import AnthropicBatches

        return AnthropicBatches(settings, key)
    from ragpipe.judging.batches.openai_batches import OpenAIBatches

    return OpenAIBatches(settings, key)
