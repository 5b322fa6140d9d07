"""Prices and token counts, without importing litellm."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from ragpipe.judging.pricing import own_rates, rates_for, table_rates
from ragpipe.judging.settings import Price
from ragpipe.judging.token_count import count_tokens, how_counted
from ragpipe.schema.price_rates import Rates
from tests.support.asking import ask, question, settings

MODEL = "openai/gpt-4o-mini-2024-07-18"


@pytest.fixture(scope="module")
def table():
    spec = find_spec("litellm")
    return json.loads((Path(spec.origin).parent / "model_prices_and_context_window_backup.json").read_text())


def test_the_price_of_a_reply_is_the_tables(table):
    row = table["gpt-4o-mini-2024-07-18"]
    found = table_rates(MODEL)
    expected = (
        600 * row["input_cost_per_token"]
        + 400 * row["cache_read_input_token_cost"]
        + 200 * row["output_cost_per_token"]
    )
    assert found.usd(1000, 200, 400) == pytest.approx(expected, rel=1e-12)
    assert found.source.startswith("litellm ")
    assert found.source.removeprefix("litellm ")[0].isdigit(), "a version, and no day: the table names none"


TIERS = [
    # model in the table, tokens in, out, cached, reasoning; the row's names of what is counted, by hand
    ("gemini/gemini-2.5-pro", (200_000, 100, 50_000, None), {
        "input_cost_per_token": 150_000, "cache_read_input_token_cost": 50_000, "output_cost_per_token": 100,
    }),
    ("gemini/gemini-2.5-pro", (200_001, 100, 50_001, None), {
        "input_cost_per_token_above_200k_tokens": 150_000, "cache_read_input_token_cost_above_200k_tokens": 50_001,
        "output_cost_per_token_above_200k_tokens": 100,
    }),
    ("perplexity/sonar-deep-research", (10, 1000, None, 900), {
        "input_cost_per_token": 10, "output_cost_per_token": 100, "output_cost_per_reasoning_token": 900,
    }),
]  # fmt: skip


@pytest.mark.parametrize(("model", "tokens", "counted"), TIERS)
def test_long_prompts_cached_and_reasoning_tokens_have_prices_of_their_own(table, model, tokens, counted):
    expected = sum(table[model][name] * count for name, count in counted.items())
    assert table_rates(model).usd(*tokens) == pytest.approx(expected, rel=1e-12)


def test_every_tier_of_the_table_is_read(table):
    """Of every row with a price for prompts above so many tokens: one token more is charged by it, the limit is not."""
    limits = set()
    for name, row in table.items():
        if not isinstance(row, dict) or "input_cost_per_token" not in row or "/" not in name:
            continue
        named = [(key, re.fullmatch(r"input_cost_per_token_above_(\d+)k_tokens", key)) for key in row]
        for key, match in named:
            if match and row.get("output_cost_per_token"):
                limit = int(match[1]) * 1000
                below = [int(m[1]) * 1000 for _, m in named if m and int(m[1]) * 1000 < limit]
                before = row[
                    f"input_cost_per_token_above_{max(below) // 1000}k_tokens" if below else "input_cost_per_token"
                ]
                rates = table_rates(name)
                assert rates.usd(limit, 0) == pytest.approx(limit * before), name
                assert rates.usd(limit + 1, 0) == pytest.approx((limit + 1) * row[key]), name
                limits.add(match[1])
    assert limits >= {"100", "200", "272", "512"}


def test_prices_that_the_table_names_by_ranges_are_tiers(table):
    row = table["dashscope/qwen-flash"]["tiered_pricing"]
    rates = table_rates("dashscope/qwen-flash")
    for number, above in ((1000, 0), (256_001, 1)):
        expected = number * row[above]["input_cost_per_token"] + 10 * row[above]["output_cost_per_token"]
        assert rates.usd(number, 10) == pytest.approx(expected)


def test_many_replies_cost_what_each_of_them_does():
    rates = table_rates("gemini/gemini-2.5-pro")
    tokens = [(10, 20, 5, 7, 2), (200_000, 1, 0, 0, 0), (200_001, 1, 100, 1, 50), (0, 0, 0, 0, 0)]
    found = rates.usd_of(*(np.array(column, dtype=float) for column in zip(*tokens, strict=True)))
    assert found.tolist() == [rates.usd(*one) for one in tokens]
    unknown = rates.usd_of(*(np.array([n]) for n in (np.nan, 1.0, 0.0, 0.0, 0.0)))
    assert np.isnan(unknown).all()
    half = rates.usd_of(*(np.array([n]) for n in (1.0, 1.0, np.nan, np.nan, np.nan)))
    assert half.tolist() == [rates.usd(1, 1)]


def test_what_is_written_down_is_what_is_computed_with():
    for rates in (table_rates("gemini/gemini-2.5-pro"), table_rates("openai/no-such-2020-01-01")):
        assert Rates.of_document(json.loads(json.dumps(rates.document()))) == rates


def test_what_is_written_to_a_cache_has_a_price_of_its_own():
    """By hand: 600 of 1,000 tokens at 2.00, 100 found at 0.20, 300 written at 2.50, 50 out at 10.00, each per million."""
    price = Price(input=2.0, output=10.0, cached_input=0.2, written_input=2.5)
    rates = own_rates(MODEL, price, "judge.prices")
    assert rates.usd(1000, 50, 100, 0, 300) == pytest.approx((600 * 2.0 + 100 * 0.2 + 300 * 2.5 + 50 * 10.0) / 1e6)
    assert rates.most_usd(1000, 50) == pytest.approx((1000 * 2.5 + 50 * 10.0) / 1e6)
    plain = own_rates(MODEL, Price(input=2.0, output=10.0), "judge.prices")
    assert plain.usd(1000, 50, 0, 0, 300) == plain.usd(1000, 50)


def test_own_prices_win():
    price = Price(input=2.0, output=10.0, cached_input=1.0)
    assert own_rates(MODEL, price, "judge.prices").usd(1_000_000, 100_000, 500_000) == 1.0 + 0.5 + 1.0
    thinks = Price(input=2.0, output=10.0, reasoning=4.0)
    assert own_rates(MODEL, thinks, "judge.prices").usd(0, 100_000, 0, 50_000) == 0.5 + 0.2
    assert rates_for(settings("http://127.0.0.1:1/v1", prices=price.model_dump())).source == "judge.prices"


@pytest.mark.parametrize("model", [
    "anthropic/claude-3-5-haiku-20241022-unknown", "hosted_vllm/some-model", "ollama/llama3.1", "openai/no-such-2020-01-01",
    "mistral/gpt-4o-mini-2024-07-18",
])  # fmt: skip
def test_an_unknown_price_is_null_with_a_reason_and_never_zero(model):
    rates = table_rates(model)
    assert rates.usd(10, 10, 0) is None
    assert model in rates.reason


def test_the_reason_names_the_section_that_can_give_a_price():
    assert "set judge.prices" in table_rates("openai/no-such-2020-01-01").reason
    assert "set embedder.prices" in table_rates("openai/no-such-2020-01-01", section="embedder").reason
    assert "set judge.prices" in rates_for(settings("http://127.0.0.1:1/v1")).reason


def test_no_usage_no_price():
    assert table_rates(MODEL).usd(None, 3) is None


def test_own_price_of_a_judge_is_in_its_calls(serve, monkeypatch):
    import asyncio

    monkeypatch.setenv("RAGPIPE_TEST_KEY", "a-test-key-of-no-worth")
    (call,) = asyncio.run(ask(settings(serve().url, prices={"input": 1.0, "output": 2.0}), question()))
    assert call.paid_usd == pytest.approx((call.tokens_in + 2 * call.tokens_out) / 1e6)


@pytest.mark.slow
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
    monkeypatch.setattr("ragpipe.judging.token_count._encoding", lambda name: None)
    assert count_tokens("123456789") == 3
    assert "4 characters" in how_counted("m")


@pytest.mark.slow
def test_nothing_here_imports_litellm_or_aiohttp():
    code = (
        "import sys; import ragpipe.judging.transports.live_transport, ragpipe.judging.pricing as c, ragpipe.judging.token_count as t; "
        "c.table_rates('openai/gpt-4o-mini-2024-07-18').usd(1, 1); t.count_tokens('x'); "
        "print([m for m in ('litellm', 'aiohttp', 'pandas', 'scipy', 'json_repair') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
