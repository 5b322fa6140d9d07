"""Prices and token counts, without importing litellm."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from asking import ask, question, settings

from ragpipe.judging.cost import PriceTable
from ragpipe.judging.settings import Price
from ragpipe.judging.tokens import count_tokens, how_counted

MODEL = "openai/gpt-4o-mini-2024-07-18"


def test_the_price_of_a_reply_is_the_tables():
    spec = find_spec("litellm")
    row = json.loads((Path(spec.origin).parent / "model_prices_and_context_window_backup.json").read_text())[
        "gpt-4o-mini-2024-07-18"
    ]
    table = PriceTable.load()
    usd, reason = table.price(MODEL, 1000, 200, 400)
    expected = (
        600 * row["input_cost_per_token"]
        + 400 * row["cache_read_input_token_cost"]
        + 200 * row["output_cost_per_token"]
    )
    assert reason is None
    assert usd == pytest.approx(expected, rel=1e-12)
    assert table.source.startswith("litellm ")
    assert len(table.date) == 10


def test_own_prices_win():
    table = PriceTable.load({MODEL: Price(input=2.0, output=10.0, cached_input=1.0)})
    assert table.price(MODEL, 1_000_000, 100_000, 500_000) == (1.0 + 0.5 + 1.0, None)
    assert "judge.prices" in table.source


@pytest.mark.parametrize("model", [
    "anthropic/claude-3-5-haiku-20241022-unknown", "hosted_vllm/some-model", "ollama/llama3.1", "openai/no-such-2020-01-01",
    "mistral/gpt-4o-mini-2024-07-18",
])  # fmt: skip
def test_an_unknown_price_is_null_with_a_reason_and_never_zero(model):
    usd, reason = PriceTable.load().price(model, 10, 10, 0)
    assert usd is None
    assert model in reason


def test_the_reason_names_the_section_that_can_give_a_price():
    assert "set judge.prices" in PriceTable.load().price("openai/no-such-2020-01-01", 1, 1)[1]
    assert "set embedder.prices" in PriceTable.load(section="embedder").price("openai/no-such-2020-01-01", 1, 1)[1]


def test_no_usage_no_price():
    assert PriceTable.load().price(MODEL, None, 3)[0] is None


def test_own_price_of_a_judge_is_in_its_calls(serve, monkeypatch):
    import asyncio

    monkeypatch.setenv("RAGPIPE_TEST_KEY", "a-test-key-of-no-worth")
    (call,) = asyncio.run(ask(settings(serve().url, prices={"input": 1.0, "output": 2.0}), question()))
    assert call.cost_usd == pytest.approx((call.tokens_in + 2 * call.tokens_out) / 1e6)


@pytest.mark.parametrize(("model", "encoding"), [(MODEL, "o200k_base"), ("openai/gpt-4-0613", "cl100k_base")])
def test_tokens_equal_tiktokens_own(model, encoding, monkeypatch):
    folder = Path(find_spec("litellm").origin).parent / "litellm_core_utils/tokenizers"
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(folder))
    import tiktoken

    text = "The DAO's treasury held $3.5M in 2023; l'été, 東京 — don't <|endoftext|>\n\n  x\t42" * 3
    assert count_tokens(text, model) == len(tiktoken.get_encoding(encoding).encode_ordinary(text))
    assert how_counted(model) == encoding


def test_an_estimate_says_so(monkeypatch):
    assert how_counted("anthropic/claude") == "estimated with cl100k_base"
    monkeypatch.setattr("ragpipe.judging.tokens._encoding", lambda name: None)
    assert count_tokens("123456789") == 3
    assert "4 characters" in how_counted("m")


def test_nothing_here_imports_litellm_or_aiohttp():
    code = (
        "import sys; import ragpipe.judging.transports.live, ragpipe.judging.cost as c, ragpipe.judging.tokens as t; "
        "c.PriceTable.load().price('openai/gpt-4o-mini-2024-07-18', 1, 1); t.count_tokens('x'); "
        "print([m for m in ('litellm', 'aiohttp', 'pandas', 'scipy', 'json_repair') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
