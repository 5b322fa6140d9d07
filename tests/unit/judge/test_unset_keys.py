"""Which environment variable a judge through litellm lacks its key in: named where that is certain, never where a key may come from elsewhere."""

import os
import re
import socket
from typing import Any

import pytest

from ragpipe.judge.litellm_client import unset_key_variable
from ragpipe.judge.settings import JudgeSettings

pytestmark = pytest.mark.slow  # litellm is imported


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if re.search("KEY|TOKEN", name):
            monkeypatch.delenv(name)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: pytest.fail("a check of the environment asked a server"))


def unset(model: str, **more: Any) -> str | None:
    return unset_key_variable(JudgeSettings(model=model, **more))


@pytest.mark.parametrize(("model", "variable"), [
    ("anthropic/claude-3-5-haiku-20241022", "ANTHROPIC_API_KEY"),
    ("gemini/gemini-2.0-flash-001", "GEMINI_API_KEY"),
    ("mistral/mistral-large-2411", "MISTRAL_API_KEY"),
    ("groq/m-2024-01-01", "GROQ_API_KEY"),
    ("openrouter/openai/gpt-4o-2024-08-06", "OPENROUTER_API_KEY"),
])  # fmt: skip
def test_the_variable_of_the_provider_is_named_until_it_is_set(model: str, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-another-provider")
    assert unset(model) == variable
    monkeypatch.setenv(variable, "k")
    assert unset(model) is None


@pytest.mark.parametrize(("model", "more"), [
    ("anthropic/claude-3-5-haiku-20241022", {"api_base": "http://127.0.0.1:1"}),  # a proxy
    ("anthropic/claude-3-5-haiku-20241022", {"api_key_env": "MY_KEY"}),  # checked by its name
    ("openai/m-2024-01-01", {"api_base": "http://127.0.0.1:1/v1"}),
    *((model, {}) for model in (
        "ollama/m-2024-01-01", "hosted_vllm/m-2024-01-01", "lm_studio/m-2024-01-01", "litellm_proxy/m-2024-01-01", "bedrock/m-2024-01-01",
        "vertex_ai/m-2024-01-01", "sagemaker/m-2024-01-01", "azure/m-2024-01-01", "github_copilot/m-2024-01-01",
        "huggingface/a/m-2024-01-01", "no_such_provider/m-2024-01-01",
    )),
])  # fmt: skip
def test_a_key_that_may_come_from_elsewhere_is_not_missed(model: str, more: dict[str, Any]) -> None:
    assert unset(model, **more) is None


@pytest.mark.parametrize(("model", "name"), [
    ("anthropic/claude-3-5-haiku-20241022", "ANTHROPIC_AUTH_TOKEN"), ("together_ai/m-2024-01-01", "TOGETHER_API_KEY"),
    ("cohere/m-2024-01-01", "CO_API_KEY"),
])  # fmt: skip
def test_another_variable_of_the_provider_will_do(model, name, monkeypatch):
    assert unset(model) is not None
    monkeypatch.setenv(name, "k")
    assert unset(model) is None
