"""What models take: the table, what the user says of a model, what a refusal teaches; and the context window."""

import pytest
from pydantic import ValidationError

from ragpipe.core.secrets import Redactor, looks_like_key
from ragpipe.judge import pricing
from ragpipe.judge.capabilities import MODES, CapabilitySettings, capabilities, is_pinned
from ragpipe.judge.client import ApiResponse, AttemptError
from ragpipe.judge.http_responses import parse_response
from ragpipe.judge.live_transport import client_name
from ragpipe.judge.pricing import count_tokens
from ragpipe.judge.provider_state import context_excess
from ragpipe.judge.settings import JudgeSettings

MODEL = "openai/gpt-4o-mini-2024-07-18"
LOCAL = {"model": "hosted_vllm/m@abcdef1", "api_base": "http://h/v1"}
BOTH = {"temperature", "seed"}


@pytest.mark.parametrize(("model", "sampling", "modes", "system_role", "limit_name", "thinks"), [
    (MODEL, BOTH, MODES, True, "max_tokens", False),
    ("openai/o3-2025-04-16", {"seed"}, MODES, True, "max_completion_tokens", True),
    ("openai/gpt-5-mini-2025-08-07", {"seed"}, MODES, True, "max_completion_tokens", True),
    ("openai/gpt-5-chat-latest", BOTH, MODES, True, "max_tokens", True),  # takes a temperature
    ("anthropic/claude-3-5-haiku-20241022", {"temperature"}, MODES, True, "max_tokens", False),
    ("anthropic/claude-sonnet-4-20250514", {"temperature"}, MODES, True, "max_tokens", True),
    ("anthropic/claude-opus-4-7", set(), MODES, True, "max_tokens", True),
    ("bedrock/us.anthropic.claude-opus-4-7", set(), ("plain",), True, "max_tokens", True),
    ("gemini/gemini-2.0-flash-001", BOTH, MODES, True, "max_tokens", False),
    ("gemini/gemma-3-27b-it", BOTH, MODES, False, "max_tokens", False),
    ("deepseek/deepseek-chat", {"temperature"}, MODES[1:], True, "max_tokens", True),
    ("hosted_vllm/anything", BOTH, MODES, True, "max_tokens", True),  # whether it thinks is learned from its refusal
])  # fmt: skip
def test_the_table(model, sampling, modes, system_role, limit_name, thinks):
    found = capabilities(model)
    assert (found.sampling, found.modes, found.system_role, found.limit_name) == (sampling, modes, system_role, limit_name)
    assert found.thinks is thinks
    assert capabilities(model, CapabilitySettings(reasoning_effort=not thinks)).thinks is not thinks


def test_the_table_knows_the_models_that_litellm_knows_to_take_no_temperature():
    """Claude and Gemini; at other places (a cloud's resale of OpenAI's models) it is learned from the first refusal."""
    rows = pricing._bundled()[1]
    fixed = {name: row for name, row in rows.items() if row.get("supports_sampling_params") is False and row.get("mode") == "chat"}
    names = {name if "/" in name else f"{row['litellm_provider']}/{name}" for name, row in fixed.items()}
    chosen = sorted(name for name in names if "claude" in name or "/gemini-" in name)
    assert len(chosen) > 100
    assert [name for name in chosen if "temperature" in capabilities(name).sampling] == []


def test_a_temperature_that_would_not_be_sent_is_refused():
    with pytest.raises(ValidationError, match=r"takes no temperature: .*judge\.temperature: null"):
        JudgeSettings(model="openai/o3-2025-04-16", temperature=0.7)
    with pytest.raises(ValidationError, match="takes no seed"):
        JudgeSettings(model="anthropic/claude-3-5-haiku-20241022", seed=3)
    with pytest.raises(ValidationError, match="context_token"):
        JudgeSettings(model=MODEL, capabilities={"context_token": 8192})


def _error(message: str, param: str | None = None) -> AttemptError:
    with pytest.raises(AttemptError) as caught:
        parse_response(ApiResponse(400, {}, {"error": {"message": message, "param": param}}, message))
    return caught.value


@pytest.mark.parametrize(("message", "param", "refused"), [
    ("System role not supported", None, "system_role"),  # Gemma's chat template at vLLM
    ("Unsupported value: 'messages[0].role' does not support 'system' with this model.", "messages[0].role", "system_role"),  # o1 at OpenAI
    ("Developer instruction is not enabled for models/gemma-3-27b-it", None, "system_role"),  # Gemini
    ("Unsupported value: 'reasoning_effort' does not support 'none' with this model.", "reasoning_effort", "reasoning_effort"),  # gpt-5 at OpenAI
    ("litellm.UnsupportedParamsError: reasoning_effort=none is not supported for gpt-5-mini-2025-08-07.", None, "reasoning_effort"),
    ("Invalid value for 'messages[0].content'", None, None),
    ("The system is not supported here", None, None),
])  # fmt: skip
def test_what_was_refused_is_told_from_other_refusals(message, param, refused):
    assert _error(message, param).refused_parameter == refused


def _messages(text: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": "You judge."}, {"role": "user", "content": text}]


def test_what_does_not_fit_into_the_window_is_not_sent_with_a_margin_where_our_count_is_an_estimate():
    settings = JudgeSettings(**LOCAL, max_tokens=200, capabilities={"context_tokens": 1200})
    text = "The ferry leaves at nine. " * 140
    own = count_tokens("You judge.\n" + text, LOCAL["model"])
    assert 840 < own < 984  # fits as we count, not with a fifth more
    assert context_excess(settings, _messages("short")) is None
    assert "window of 1,200 (judge.capabilities.context_tokens)" in context_excess(settings, _messages(text))
    assert context_excess(JudgeSettings(**LOCAL), _messages(text * 100)) is None


def test_no_reasoning_model_of_litellms_table_is_said_to_have_no_thinking_mode():
    rows = {name: row for name, row in pricing._bundled()[1].items() if row.get("supports_reasoning")}
    names = [name if "/" in name else f"{row.get('litellm_provider')}/{name}" for name, row in rows.items()]
    assert len(names) > 300
    assert [name for name in names if not capabilities(name).thinks] == []


def test_an_effort_is_sent_and_in_the_identity_of_replies_where_it_is_set():
    thinking = "openai/gpt-5-mini-2025-08-07"
    assert JudgeSettings(model=thinking).identity_of_judge()["sampling"] == {}
    assert JudgeSettings(model=thinking, reasoning_effort="low").sampling() == {"reasoning_effort": "low"}
    with pytest.raises(ValidationError, match=r"has no thinking mode.*judge\.capabilities\.reasoning_effort: true"):
        JudgeSettings(model=MODEL, reasoning_effort="low")
    said = JudgeSettings(model=MODEL, reasoning_effort="low", capabilities={"reasoning_effort": True})
    assert said.sampling() == {"temperature": 0.0, "reasoning_effort": "low"}


def test_claude_takes_no_temperature_while_it_thinks():
    """Anthropic's documentation of extended thinking: it is not compatible with a changed temperature or top_k."""
    claude = "anthropic/claude-sonnet-4-20250514"
    assert JudgeSettings(model=claude).sampling() == {"temperature": 0.0}
    assert JudgeSettings(model=claude, reasoning_effort="none").sampling() == {"temperature": 0.0, "reasoning_effort": "none"}
    assert JudgeSettings(model=claude, reasoning_effort="high").sampling() == {"reasoning_effort": "high"}
    with pytest.raises(ValidationError, match="no temperature while it thinks"):
        JudgeSettings(model=claude, reasoning_effort="high", temperature=0.7)


PINNED = [
    "gpt-4o-mini-2024-07-18", "claude-3-5-haiku-20241022", "claude-3-5-haiku@20241022", "gpt-3.5-turbo-0613",
    "mistral-large-2411", "kimi-k2-0905", "gpt-4-1106-preview", "gpt-4-0125-preview", "gemini-1.5-pro-002",
    "anthropic.claude-3-5-sonnet-20241022-v2:0", "llama3@sha256:0123456789abcdef",
    "Qwen/Qwen2.5-7B-Instruct@1a2b3c4d5e", "model.gguf@sha256:00112233445566",
]  # fmt: skip
ALIASES = [
    "gpt-4o", "gpt-4o-latest", "claude-3-5-haiku", "llama3.1:8b", "Meta-Llama-3.1-70B-Instruct", "model.gguf", "gpt-5",
    "mixtral-8x22b-32k", "o3-mini", "gemini-2.0-flash", "phi-4", "llama3-70b-8192",
    "moonshot-v1-1024", "gemma-2048", "mixtral-8x7b-32768", "m-16384", "m-4096", "m-8192-preview",
]  # fmt: skip


@pytest.mark.parametrize(("name", "pinned"), [*((name, True) for name in PINNED), *((name, False) for name in ALIASES)])
def test_an_alias_is_refused_unless_it_is_accepted(name, pinned):
    assert is_pinned(name) is pinned
    if not pinned:
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
    ({"concurrency": 0}, "concurrency", "greater than or equal to 1"),
    ({"api_base": "localhost:8000/v1"}, "api_base", "base URL"),
    ({"api_base": "http://h/v1?key=x"}, "api_base", "without a query"),
    ({"api_base": "http://h/v1/chat/completions"}, "api_base", "leave"),
    ({"timeout_s": float("inf")}, "timeout_s", "less than or equal"),
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


@pytest.mark.parametrize(("key", "value", "why"), [
    ("api_base", "https://me:hunter2@host/v1", "user or password"),
    *((name, "sk-proj-hunter2hunter2hunter2", "a name, not a key") for name in ("revision", "endpoint", "season")),
])  # fmt: skip
def test_a_password_or_key_in_an_address_or_name_is_refused_and_not_shown(key, value, why):
    with pytest.raises(ValidationError, match=why) as caught:
        JudgeSettings(**{"model": MODEL, "api_base": "http://h/v1", key: value})
    assert "hunter2" not in str(caught.value) + repr(caught.value.errors())


def test_ordinary_values_are_no_keys():
    names = [MODEL, "hosted_vllm/Qwen/Qwen2.5-7B-Instruct", "conf/judge/llm.yaml", "2024-spring-season"]
    assert [text for text in [*names, "http://127.0.0.1:8000/v1"] if looks_like_key(text)] == []


def test_what_is_in_which_identity():
    base = JudgeSettings(model=MODEL)
    assert base.identity_of_judge() == {"model": MODEL, "endpoint": "", "sampling": {"temperature": 0.0}, "season": ""}
    operational = JudgeSettings(
        model=MODEL, client="litellm", api_key_env="X", concurrency=3, rpm=5.0, timeout_s=1.0, retries=0, max_calls=1,
        outage_s=1.0, output_mode="plain", allow_unpinned=True, prices={"input": 1.0, "output": 2.0},
    )  # fmt: skip
    assert operational.identity() == base.identity()
    for of_the_run in ({"max_tokens": 10}, {"capabilities": {"context_tokens": 8192}}):
        other = JudgeSettings(model=MODEL, **of_the_run)
        assert other.identity() != base.identity()
        assert other.identity_of_judge() == base.identity_of_judge()


@pytest.mark.parametrize("name", ["revision", "endpoint", "season"])
def test_a_commit_or_digest_in_the_identity_stays_itself(name):
    here, there = (JudgeSettings(model="hosted_vllm/m-2024-07-18", api_base="http://h/v1", **{name: c * 8})
                   for c in ("9f8c1", "0a1b2"))  # fmt: skip
    assert getattr(here, name) == "9f8c1" * 8
    assert here.identity_of_judge() != there.identity_of_judge()


def test_a_named_endpoint_may_move():
    here = JudgeSettings(model=MODEL, api_base="http://127.0.0.1:8000/v1", endpoint="mine")
    there = JudgeSettings(model=MODEL, api_base="http://127.0.0.1:9000/v1", endpoint="mine")
    assert here.identity() == there.identity()
    assert here.identity_of_judge() == there.identity_of_judge()
    assert JudgeSettings(model=MODEL, api_base="https://Host/v1").place == "host:443/v1"


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
