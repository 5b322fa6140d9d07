"""What models take: the table, what the user says of a model, what a refusal teaches; and the context window."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from ragpipe.judging import pricing
from ragpipe.judging.cache_key import judge_parts
from ragpipe.judging.capabilities import MODES, CapabilitySettings, capabilities
from ragpipe.judging.clients.client import ApiResponse, AttemptError
from ragpipe.judging.clients.http_responses import parse_response
from ragpipe.judging.settings import JudgeSettings
from ragpipe.judging.token_count import count_tokens
from ragpipe.judging.transports.provider_state import ContextWindow

MODEL = "openai/gpt-4o-mini-2024-07-18"
LOCAL = {"model": "hosted_vllm/m@abcdef1", "api_base": "http://h/v1"}


@pytest.mark.parametrize(("model", "sampling", "modes", "system_role", "limit_name"), [
    (MODEL, {"temperature", "top_p", "seed"}, MODES, True, "max_tokens"),
    ("openai/o3-2025-04-16", {"seed"}, MODES, True, "max_completion_tokens"),
    ("openai/gpt-5-mini-2025-08-07", {"seed"}, MODES, True, "max_completion_tokens"),
    ("azure/o4-mini", {"seed"}, MODES, True, "max_completion_tokens"),
    ("openai/gpt-5-chat-latest", {"temperature", "top_p", "seed"}, MODES, True, "max_tokens"),  # no reasoning model
    ("openai/gpt-4o-2024-08-06", {"temperature", "top_p", "seed"}, MODES, True, "max_tokens"),
    ("anthropic/claude-3-5-haiku-20241022", {"temperature", "top_p"}, MODES, True, "max_tokens"),
    ("anthropic/claude-opus-4-7", set(), MODES, True, "max_tokens"),
    ("bedrock/us.anthropic.claude-opus-4-7", set(), ("plain",), True, "max_tokens"),
    ("gemini/gemma-3-27b-it", {"temperature", "top_p", "seed"}, MODES, False, "max_tokens"),
    ("deepseek/deepseek-chat", {"temperature", "top_p"}, MODES[1:], True, "max_tokens"),
    ("hosted_vllm/anything", {"temperature", "top_p", "seed"}, MODES, True, "max_tokens"),
])  # fmt: skip
def test_the_table(model, sampling, modes, system_role, limit_name):
    found = capabilities(model)
    assert (found.sampling, found.modes, found.system_role, found.limit_name) == (
        sampling,
        modes,
        system_role,
        limit_name,
    )


def test_the_table_knows_the_models_that_litellm_knows_to_take_no_temperature():
    """Claude and Gemini; at other places (a cloud's resale of OpenAI's models) it is learned from the first refusal."""
    rows = pricing._bundled()[1]
    fixed = {
        name: row
        for name, row in rows.items()
        if row.get("supports_sampling_params") is False and row.get("mode") == "chat"
    }
    names = {name if "/" in name else f"{row['litellm_provider']}/{name}" for name, row in fixed.items()}
    chosen = sorted(name for name in names if "claude" in name or "/gemini-" in name)
    assert len(chosen) > 100
    assert [name for name in chosen if "temperature" in capabilities(name).sampling] == []


def test_what_is_not_sent_is_not_in_the_identity_of_replies():
    def sampling(model=MODEL, **keys):
        return JudgeSettings(model=model, **keys).identity_of_judge()["sampling"]

    assert sampling() == {"temperature": 0.0}
    assert sampling(capabilities={"temperature": False}) == sampling(temperature=None) == {}
    assert sampling("openai/o3-2025-04-16") == {}
    assert sampling("openai/o3-2025-04-16", capabilities={"temperature": True}, temperature=0.5) == {"temperature": 0.5}
    assert sampling("anthropic/claude-3-5-haiku-20241022", capabilities={"seed": True}, seed=3) == {
        "temperature": 0.0,
        "seed": 3,
    }


def test_the_window_is_in_the_identity_of_a_run_alone():
    plain = JudgeSettings(model=MODEL)
    other = JudgeSettings(model=MODEL, capabilities={"context_tokens": 8192})
    assert other.identity() != plain.identity()
    assert other.identity_of_judge() == plain.identity_of_judge()


def test_a_temperature_that_would_not_be_sent_is_refused():
    with pytest.raises(ValidationError, match=r"takes no temperature: .*judge\.capabilities\.temperature: true"):
        JudgeSettings(model="openai/o3-2025-04-16", temperature=0.7)
    with pytest.raises(ValidationError, match="takes no temperature"):
        JudgeSettings(model=MODEL, capabilities={"temperature": False}, temperature=0.7)
    with pytest.raises(ValidationError, match="context_token"):
        JudgeSettings(model=MODEL, capabilities={"context_token": 8192})


def _error(message: str, param: str | None = None) -> AttemptError:
    with pytest.raises(AttemptError) as caught:
        parse_response(ApiResponse(400, {}, {"error": {"message": message, "param": param}}, message))
    return caught.value


@pytest.mark.parametrize(("message", "param"), [
    ("System role not supported", None),  # Gemma's chat template at vLLM
    ("Unsupported value: 'messages[0].role' does not support 'system' with this model.", "messages[0].role"),  # o1 at OpenAI
    ("Developer instruction is not enabled for models/gemma-3-27b-it", None),  # Gemini
    ("This model does not support system prompts.", None),
])  # fmt: skip
def test_a_refused_system_role_is_told_from_other_refusals(message, param):
    assert _error(message, param).refused_parameter == "system_role"


@pytest.mark.parametrize(("message", "param"), [
    ("Unsupported value: 'reasoning_effort' does not support 'none' with this model.", "reasoning_effort"),  # gpt-5 at OpenAI
    ("litellm.UnsupportedParamsError: reasoning_effort=none is not supported for gpt-5-mini-2025-08-07.", None),
])  # fmt: skip
def test_a_refused_effort_is_told_by_its_name(message, param):
    assert _error(message, param).refused_parameter == "reasoning_effort"


@pytest.mark.parametrize(
    "message", ["Invalid value for 'messages[0].content'", "The system is not supported here", "role: tool"]
)
def test_other_refusals_are_not_about_the_system_role(message):
    assert _error(message).refused_parameter is None


@pytest.mark.parametrize(("message", "tokens"), [
    ("This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.", 8192),  # OpenAI
    ("The decoder prompt (length 9001) is longer than the maximum model length of 8192.", 8192),  # vLLM
    ("prompt is too long: 208310 tokens > 200000 maximum", 200_000),  # Anthropic
    ("The input token count (1048577) exceeds the maximum number of tokens allowed (1048576).", 1_048_576),  # Gemini
    ("the request exceeds the available context size (4096 tokens), try increasing it", 4096),  # llama.cpp
    ("Prompt contains 40,001 tokens, too large for model with 32,768 maximum context length", 32_768),  # Mistral
    ("Input is too long for requested model.", None),  # Bedrock
])  # fmt: skip
def test_the_window_is_learned_from_a_refusal(message, tokens):
    assert _error(message).kind == "too_long"
    window = ContextWindow(JudgeSettings(**LOCAL))
    window.learn(message)
    assert window.tokens == tokens


def _messages(text: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": "You judge."}, {"role": "user", "content": text}]


def test_a_window_that_was_given_is_kept_with_a_margin_until_replies_show_how_the_server_counts():
    window = ContextWindow(JudgeSettings(**LOCAL, max_tokens=200, capabilities={"context_tokens": 1200}))
    window.learn("maximum context length is 9000 tokens")
    assert window.tokens == 1200
    text = "The ferry leaves at nine. " * 140
    own = count_tokens("You judge.\n" + text, LOCAL["model"])
    assert 840 < own < 984  # fits as we count, not with a fifth more
    assert window.excess(_messages("short")) is None
    assert "does not fit" not in (window.excess(_messages("x" * 900)) or "")
    assert "window of 1,200 (judge.capabilities.context_tokens)" in window.excess(_messages(text))
    for _ in range(5):
        window.observe(
            _messages("The ferry leaves at nine. " * 20),
            count_tokens("You judge.\n" + "The ferry leaves at nine. " * 20),
        )
    assert window.excess(_messages(text)) is None
    assert (
        window.excess(_messages("\u6e21\u8f2a\u4e5d\u70b9\u51fa\u53d1\u3002" * 120)) is not None
    )  # another script has its own ratio


def test_no_window_measures_nothing():
    window = ContextWindow(JudgeSettings(**LOCAL))
    assert window.excess(_messages("x" * 10_000_000)) is None


@pytest.mark.parametrize(("model", "thinks"), [
    (MODEL, False),
    ("azure/gpt-4.1", False),
    ("openai/gpt-3.5-turbo-0125", False),
    ("anthropic/claude-3-5-haiku-20241022", False),
    ("gemini/gemini-2.0-flash-001", False),
    ("openai/o3-2025-04-16", True),
    ("openai/gpt-5-mini-2025-08-07", True),
    ("anthropic/claude-sonnet-4-20250514", True),
    ("anthropic/claude-3-7-sonnet-20250219", True),
    ("gemini/gemini-2.5-flash", True),
    ("hosted_vllm/openai/gpt-oss-120b", True),
    ("hosted_vllm/anything", True),  # not known: learned from its refusal
])  # fmt: skip
def test_which_models_have_a_thinking_mode(model, thinks):
    assert capabilities(model).thinks is thinks
    assert capabilities(model, CapabilitySettings(reasoning_effort=not thinks)).thinks is not thinks


def test_no_reasoning_model_of_litellms_table_is_said_to_have_no_thinking_mode():
    rows = pricing._bundled()[1]
    names = [
        name if "/" in name else f"{row.get('litellm_provider')}/{name}"
        for name, row in rows.items()
        if row.get("supports_reasoning")
    ]
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
    assert JudgeSettings(model=claude, reasoning_effort="none").sampling() == {
        "temperature": 0.0,
        "reasoning_effort": "none",
    }
    assert JudgeSettings(model=claude, reasoning_effort="high").sampling() == {"reasoning_effort": "high"}
    with pytest.raises(ValidationError, match="no temperature and no top_p while it thinks"):
        JudgeSettings(model=claude, reasoning_effort="high", temperature=0.7)


def test_a_seed_of_the_order_names_the_judge_but_is_in_no_key():
    plain, seeded = JudgeSettings(model=MODEL), JudgeSettings(model=MODEL, shuffle_seed=3)
    assert seeded.identity_of_judge() == {**plain.identity_of_judge(), "shuffle_seed": 3}
    assert judge_parts(seeded.identity_of_judge()) == judge_parts(plain.identity_of_judge())
