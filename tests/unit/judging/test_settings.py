"""The judge section: what is refused with what advice, what is in which identity, and that keys are never shown."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from ragpipe.judging.capabilities import is_pinned
from ragpipe.judging.clients.factory import client_name
from ragpipe.judging.redaction import Redactor, is_variable_name, looks_like_key
from ragpipe.judging.settings import JudgeSettings

MODEL = "openai/gpt-4o-mini-2024-07-18"


@pytest.mark.parametrize("name", [
    "gpt-4o-mini-2024-07-18", "claude-3-5-haiku-20241022", "claude-3-5-haiku@20241022", "gpt-3.5-turbo-0613",
    "mistral-large-2411", "kimi-k2-0905", "gpt-4-1106-preview", "gpt-4-0125-preview", "gemini-1.5-pro-002", "anthropic.claude-3-5-sonnet-20241022-v2:0", "llama3@sha256:0123456789abcdef",
    "Qwen/Qwen2.5-7B-Instruct@1a2b3c4d5e", "model.gguf@sha256:00112233445566",
])  # fmt: skip
def test_pinned(name):
    assert is_pinned(name)


@pytest.mark.parametrize("name", [
    "gpt-4o", "gpt-4o-latest", "claude-3-5-haiku", "llama3.1:8b", "Meta-Llama-3.1-70B-Instruct", "model.gguf", "gpt-5",
    "mixtral-8x22b-32k", "o3-mini", "gemini-2.0-flash", "phi-4", "llama3-70b-8192",
    "moonshot-v1-1024", "gemma-2048", "mixtral-8x7b-32768", "m-16384", "m-4096", "m-8192-preview",
])  # fmt: skip
def test_an_alias_is_refused_unless_it_is_accepted(name):
    assert not is_pinned(name)
    with pytest.raises(ValidationError, match=r"is an alias.*judge\.allow_unpinned=true"):
        JudgeSettings(model=f"openai/{name}")
    assert JudgeSettings(model=f"openai/{name}", allow_unpinned=True).name == name


def test_a_local_model_is_pinned_by_its_revision():
    found = JudgeSettings(model="hosted_vllm/m", api_base="http://127.0.0.1:8000/v1", revision="abc1234")
    assert found.identity_of_judge()["revision"] == "abc1234"
    with pytest.raises(ValidationError, match="not those of openai"):
        JudgeSettings(model="openai/gpt-4o", revision="abc1234")


WRONG = [
    ({"model": "gpt-4o"}, "model", "provider/model, such as"),
    ({"timeout_s": None}, "timeout_s", "hang"),
    ({"timeout_s": 0.0}, "timeout_s", "greater than 0"),
    ({"timeout_s": float("inf")}, "timeout_s", "less than or equal to 86400"),
    ({"temperature": 3.0}, "temperature", "less than or equal to 2"),
    ({"concurrency": 0}, "concurrency", "greater than or equal to 1"),
    ({"concurrency": True}, "concurrency", "integer"),
    ({"retries": -1}, "retries", "greater than or equal to 0"),
    ({"rpm": 0.0}, "rpm", "greater than 0"),
    ({"api_base": "localhost:8000/v1"}, "api_base", "base URL"),
    ({"api_base": "http://h/v1?key=x"}, "api_base", "without a query"),
    ({"api_base": "http://h:99999/v1"}, "api_base", "port"),
    ({"api_base": "http://h/v1/chat/completions"}, "api_base", "leave"),
    ({"prices": {"input": -1.0, "output": 1.0}}, "prices", "greater than or equal to 0"),
    ({"rpd": 100}, "rpd", "Extra inputs"),
    ({"tpm": 0.0}, "tpm", "greater than 0"),
    ({"case_deadline_s": 0.0}, "case_deadline_s", "greater than 0"),
    ({"run_deadline_s": float("inf")}, "run_deadline_s", "finite number"),
]


@pytest.mark.parametrize(("given", "key", "why"), WRONG, ids=[f"{k}-{i}" for i, (_, k, _) in enumerate(WRONG)])
def test_a_wrong_value_is_refused_at_its_key(given, key, why):
    with pytest.raises(ValidationError, match=why) as caught:
        JudgeSettings(**{"model": MODEL, **given})
    assert {fault["loc"][0] for fault in caught.value.errors()} == {key}


SECRETS = [
    "sk-abcdefghijklmnop1234", "sk-proj-AbCd_1234567890abcdef", "AKIAIOSFODNN7EXAMPLE", "hf_abcdefghijklmnopqrstuvwx",
    "AIzaSyA1234567890abcdefghijklmnopqrstuv", "0123456789abcdef0123456789abcdef", "Bearer sk-abcdefghijklmnop",
    "gsk_abcdefghijklmnop12345678", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc", "dGhpc2lzYXNlY3JldGtleTEyMw==",
]  # fmt: skip


@pytest.mark.parametrize("secret", SECRETS)
def test_a_key_in_the_place_of_a_name_is_refused_and_not_shown(secret):
    assert looks_like_key(secret)
    for given in ({"api_key_env": secret}, {"api_key": secret}, {"prices": {"input": secret}}):
        with pytest.raises(ValidationError) as caught:
            JudgeSettings(**{"model": MODEL, **given})
        assert secret not in str(caught.value) + repr(caught.value.errors())


def test_a_password_in_a_url_is_refused_and_not_shown():
    with pytest.raises(ValidationError, match="user or password") as caught:
        JudgeSettings(model=MODEL, api_base="https://me:hunter2@host/v1")
    assert "hunter2" not in str(caught.value) + repr(caught.value.errors())


@pytest.mark.parametrize("name", ["OPENAI_API_KEY", "MY_KEY_2", "azure_openai_key", "RAGPIPE_TEST_KEY", "K"])
def test_names_of_variables_are_taken(name):
    assert is_variable_name(name)
    assert JudgeSettings(model=MODEL, api_key_env=name).key_variable == name


@pytest.mark.parametrize("text", [MODEL, "http://127.0.0.1:8000/v1", "conf/judge/llm.yaml", "2024-spring-season",
                                  "hosted_vllm/Qwen/Qwen2.5-7B-Instruct"])  # fmt: skip
def test_ordinary_values_are_no_keys(text):
    assert not looks_like_key(text)


def test_what_is_in_which_identity():
    base = JudgeSettings(model=MODEL)
    assert base.identity_of_judge() == {"model": MODEL, "endpoint": "", "sampling": {"temperature": 0.0}, "season": ""}
    operational = JudgeSettings(
        model=MODEL, client="litellm", api_key_env="X", concurrency=3, rpm=5.0, timeout_s=1.0, retries=0, max_calls=1,
        retry_after_cap_s=1.0, outage_s=1.0, output_mode="plain", prices={"input": 1.0, "output": 2.0},
    )  # fmt: skip
    assert operational.identity() == base.identity()
    tokens = JudgeSettings(model=MODEL, max_tokens=10)
    assert tokens.identity() != base.identity()
    assert tokens.identity_of_judge() == base.identity_of_judge()
    for change in ({"temperature": None}, {"seed": 1}, {"top_p": 0.5}, {"season": "2"}, {"api_base": "http://h/v1"}):
        assert JudgeSettings(model=MODEL, **change).identity_of_judge() != base.identity_of_judge()


@pytest.mark.parametrize("name", ["revision", "endpoint", "season"])
def test_a_commit_or_digest_in_the_identity_stays_itself(name):
    here, there = (JudgeSettings(model="hosted_vllm/m-2024-07-18", api_base="http://h/v1", **{name: c * 8})
                   for c in ("9f8c1", "0a1b2"))  # fmt: skip
    assert getattr(here, name) == "9f8c1" * 8
    assert here.identity_of_judge() != there.identity_of_judge()


@pytest.mark.parametrize("name", ["revision", "endpoint", "season"])
def test_a_key_in_the_identity_is_refused_and_not_shown(name):
    with pytest.raises(ValidationError, match="a name, not a key") as caught:
        JudgeSettings(model=MODEL, api_base="http://h/v1", **{name: "sk-proj-abcdefghijklmnop1234"})
    assert "abcdefgh" not in str(caught.value) + repr(caught.value.errors())


def test_a_named_endpoint_may_move():
    here = JudgeSettings(model=MODEL, api_base="http://127.0.0.1:8000/v1", endpoint="mine")
    there = JudgeSettings(model=MODEL, api_base="http://127.0.0.1:9000/v1", endpoint="mine")
    assert here.identity() == there.identity()
    assert here.identity_of_judge() == there.identity_of_judge()
    assert JudgeSettings(model=MODEL, api_base="https://Host/v1").place == "host:443/v1"


@pytest.mark.parametrize(
    "model", ["anthropic/claude-3-5-haiku-20241022", "bedrock/m-2024-07-18", "deepseek/m-2024-07-18"]
)
def test_a_seed_that_the_provider_does_not_take_is_refused(model):
    with pytest.raises(ValidationError, match=rf"{model} takes no seed: .*remove it") as caught:
        JudgeSettings(model=model, seed=5)
    assert caught.value.errors()[0]["loc"] == ("seed",)
    assert JudgeSettings(model=model).sampling() == {"temperature": 0.0}
    assert JudgeSettings(model="openai/gpt-4o-2024-08-06", seed=5).sampling()["seed"] == 5


@pytest.mark.parametrize(("given", "client"), [
    ({"model": MODEL}, "direct"), ({"model": MODEL, "api_base": "http://h/v1"}, "direct"),
    ({"model": "anthropic/claude-3-5-haiku-20241022"}, "litellm"), ({"model": MODEL, "client": "litellm"}, "litellm"),
    ({"model": "hosted_vllm/m@abcdef1", "api_base": "http://h/v1"}, "direct"),
])  # fmt: skip
def test_which_client(given, client):
    assert client_name(JudgeSettings(**given)) == client


def test_scrubbing():
    scrub = Redactor(["my secret/key+1", "EMPTY", None])
    assert scrub("a my secret/key+1 b my%20secret%2Fkey%2B1 EMPTY") == "a *** b *** EMPTY"


@pytest.mark.parametrize(("key", "value"), [
    ("model", "openai/x-2024-07-18\ny"), ("model", "openai/x\u202ey"), ("endpoint", "a\rb"), ("season", "1\n2"),
    ("api_base", "http://127.0.0.1:8000/v1\r\nX: y"), ("api_base", "http://127.0.0.1:8000/v 1"), ("api_base", "http://a\tb/v1"),
])  # fmt: skip
def test_names_and_addresses_are_on_one_line(key, value):
    given = {"model": "openai/test-model-2024-07-18", "api_base": "http://127.0.0.1:1/v1", key: value}
    with pytest.raises(ValidationError, match=r"on one line|control characters"):
        JudgeSettings(**given)
