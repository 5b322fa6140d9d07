"""What litellm would follow out of the environment is refused: it is in no key."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from ragpipe.cli.command_line import main
from ragpipe.judge.client import AttemptError
from ragpipe.judge.litellm_client import LitellmClient
from ragpipe.judge.live_transport import base_url_variables, client_name, conflicting_base_url
from ragpipe.judge.settings import JudgeSettings
from tests.support.asking import ask, settings
from tests.support.harness import arguments, write_cases

FOLLOWED = [
    ("openai/gpt-4o-2024-08-06", "litellm", "OPENAI_BASE_URL"), ("openai/gpt-4o-2024-08-06", "litellm", "OPENAI_API_BASE"),
    ("hosted_vllm/m-2024-07-18", "auto", "HOSTED_VLLM_API_BASE"), ("lm_studio/m-2024-07-18", "auto", "OPENAI_BASE_URL"),
    ("groq/m-2024-07-18", "auto", "GROQ_API_BASE"), ("together_ai/m-2024-07-18", "auto", "TOGETHER_AI_API_BASE"),
]  # fmt: skip


@pytest.mark.parametrize(("model", "client", "variable"), FOLLOWED)
def test_a_variable_that_litellm_follows_is_refused(model, client, variable):
    found = conflicting_base_url(JudgeSettings(model=model, client=client), "judge", {variable: "http://127.0.0.1:1/v1"})
    assert found.key == variable
    assert found.fix == f"unset {variable}, or set judge.api_base to that server"


@pytest.mark.parametrize(("model", "keys", "environ"), [
    ("groq/m-2024-07-18", {}, {"OPENAI_BASE_URL": "http://x", "OPENAI_API_BASE": "http://x", "MISTRAL_API_BASE": "http://x"}),
    ("groq/m-2024-07-18", {}, {"GROQ_API_BASE": ""}),
    ("groq/m-2024-07-18", {"api_base": "http://127.0.0.1:1/v1"}, {"GROQ_API_BASE": "http://x"}),
    ("groq/m-2024-07-18", {}, {"GROQ_API_KEY": "k"}),
])  # fmt: skip
def test_nothing_else_is(model, keys, environ):
    assert conflicting_base_url(JudgeSettings(model=model, **keys), "judge", environ) is None


@pytest.mark.parametrize("variable", ["OPENAI_BASE_URL", "OPENAI_API_BASE"])
def test_a_gateway_is_not_passed_over_by_the_direct_client(variable):
    settings = JudgeSettings(model="openai/gpt-4o-2024-08-06")
    assert client_name(settings) == "direct"
    found = conflicting_base_url(settings, "judge", {variable: "http://gateway/v1"})
    assert (found.key, found.fix) == (variable, f"unset {variable}, or set judge.api_base to that server")
    assert "the direct client would pass it over and ask the public openai" in found.found


@pytest.mark.thorough(tried=1)
@pytest.mark.slow
@pytest.mark.parametrize(("model", "client", "variable"), FOLLOWED)
async def test_litellm_does_follow_it(serve, monkeypatch, model, client, variable):
    """The reason for all of this: with it gone, the refusal can go."""
    server = serve()
    monkeypatch.setenv(variable, server.url)
    assert variable in base_url_variables(model.partition("/")[0])
    asking = LitellmClient(JudgeSettings(model=model, client=client), "a-test-key-of-no-worth")
    with suppress(AttemptError):  # for some providers it wants more in an answer than the test server gives
        await asking.send(asking.prepare({"messages": [{"role": "user", "content": "How good?"}]})[0])
    await asking.close()
    assert server.tries == 1


@pytest.mark.slow
def test_a_run_is_refused_before_anything_is_asked(serve, here, monkeypatch, capfd):
    server = serve()
    monkeypatch.setenv("HOSTED_VLLM_API_BASE", server.url)
    words = arguments(write_cases(here / "data.jsonl", 1), here / "out", server.url, metrics="correctness")
    assert main([*words, "judge.model=hosted_vllm/m-2024-07-18", "judge.api_base=null"]) == 2
    told = capfd.readouterr().err
    assert "HOSTED_VLLM_API_BASE" in told
    assert "judge.api_base" in told
    assert (server.tries, (here / "out").exists()) == (0, False)


@pytest.mark.slow
async def test_with_an_address_of_its_own_a_judge_is_asked_there(serve, monkeypatch):
    server, other = serve(), serve()
    monkeypatch.setenv("HOSTED_VLLM_API_BASE", other.url)
    await ask(settings(server.url, model="hosted_vllm/m-2024-07-18", client="litellm"))
    assert (server.tries, other.tries) == (1, 0)


LOADS = """
import asyncio, os
from ragpipe.judge.litellm_client import LitellmClient
from ragpipe.judge.settings import JudgeSettings

async def work():
    client = LitellmClient(JudgeSettings(model="groq/m-2024-07-18"), "k")
    before = dict(os.environ)
    client.prepare({"messages": []})
    assert dict(os.environ) == before, set(os.environ.items()) ^ set(before.items())
    await client.close()

asyncio.run(work())
"""


@pytest.mark.thorough
@pytest.mark.slow
def test_litellm_adds_nothing_to_the_environment(tmp_path):
    """Without a file of its own a program counts as interactive, as a notebook does: there litellm reads ./.env."""
    (tmp_path / ".env").write_text("GROQ_API_BASE=http://127.0.0.1:1/v1\nHTTPS_PROXY=http://127.0.0.1:1\n")
    given = {name: value for name, value in os.environ.items() if not name.startswith("LITELLM_")}
    root = Path(__file__).resolve().parents[3]
    ran = subprocess.run(
        [sys.executable, "-c", LOADS], cwd=tmp_path, env={**given, "PYTHONPATH": str(root)}, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
