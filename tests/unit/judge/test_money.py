"""Prices and token counts, without importing litellm."""

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragpipe.core.sample import CaseKey
from ragpipe.core.score import Score, ScoreSpec
from ragpipe.core.usage import Price
from ragpipe.judge.jury import CascadeSettings, agreement_of, combine, is_drawn, is_unsure
from ragpipe.judge.pricing import count_tokens, how_counted, rates_for, table_rates
from ragpipe.judge.settings import PriceSettings
from tests.support.asking import settings

MODEL = "openai/gpt-4o-mini-2024-07-18"


@pytest.fixture(scope="module")
def table():
    spec = find_spec("litellm")
    return json.loads((Path(spec.origin).parent / "model_prices_and_context_window_backup.json").read_text())


def test_the_price_of_a_reply_is_the_tables(table):
    row = table["gpt-4o-mini-2024-07-18"]
    found = table_rates(MODEL)
    expected = 600 * row["input_cost_per_token"] + 400 * row["cache_read_input_token_cost"] + 200 * row["output_cost_per_token"]
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
                before = row[f"input_cost_per_token_above_{max(below) // 1000}k_tokens" if below else "input_cost_per_token"]
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
        assert Price.of_document(json.loads(json.dumps(rates.document()))) == rates


def test_what_is_written_to_a_cache_has_a_price_of_its_own():
    """By hand: 600 of 1,000 tokens at 2.00, 100 found at 0.20, 300 written at 2.50, 50 out at 10.00, each per million."""
    price = PriceSettings(input=2.0, output=10.0, cached_input=0.2, written_input=2.5)
    rates = price.of(MODEL, "judge.prices")
    assert rates.usd(1000, 50, 100, 0, 300) == pytest.approx((600 * 2.0 + 100 * 0.2 + 300 * 2.5 + 50 * 10.0) / 1e6)
    assert rates.most_usd(1000, 50) == pytest.approx((1000 * 2.5 + 50 * 10.0) / 1e6)
    plain = PriceSettings(input=2.0, output=10.0).of(MODEL, "judge.prices")
    assert plain.usd(1000, 50, 0, 0, 300) == plain.usd(1000, 50)


def test_own_prices_win():
    price = PriceSettings(input=2.0, output=10.0, cached_input=1.0)
    assert price.of(MODEL, "judge.prices").usd(1_000_000, 100_000, 500_000) == 1.0 + 0.5 + 1.0
    thinks = PriceSettings(input=2.0, output=10.0, reasoning=4.0)
    assert thinks.of(MODEL, "judge.prices").usd(0, 100_000, 0, 50_000) == 0.5 + 0.2
    assert rates_for(settings("http://127.0.0.1:1/v1", prices=price.model_dump())).source == "judge.prices"


@pytest.mark.parametrize("model", [
    "anthropic/claude-3-5-haiku-20241022-unknown", "hosted_vllm/some-model", "ollama/llama3.1", "openai/no-such-2020-01-01",
    "mistral/gpt-4o-mini-2024-07-18",
])  # fmt: skip
def test_an_unknown_price_is_null_with_a_reason_and_never_zero(model):
    rates = table_rates(model)
    assert rates.usd(10, 10, 0) is None
    assert model in rates.reason


def test_an_estimate_says_so(monkeypatch):
    assert how_counted("anthropic/claude") == "estimated with cl100k_base"
    monkeypatch.setattr("ragpipe.judge.pricing._encoding", lambda name: None)
    assert count_tokens("123456789") == 3
    assert "4 characters" in how_counted("m")


@pytest.mark.slow
def test_nothing_here_imports_litellm_or_aiohttp():
    code = (
        "import sys; import ragpipe.judge.live_transport, ragpipe.judge.pricing as c, ragpipe.judge.pricing as t; "
        "c.table_rates('openai/gpt-4o-mini-2024-07-18').usd(1, 1); t.count_tokens('x'); "
        "print([m for m in ('litellm', 'aiohttp', 'pandas', 'scipy', 'json_repair') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


GRADE = ScoreSpec("grade", 1, 5)
VERDICT = ScoreSpec("verdict", binary=True)
LOWER = ScoreSpec("leak", higher_is_better=False)
COUNT = ScoreSpec("count", None, None)


@pytest.mark.parametrize(("values", "spec", "expected"), [
    ([1], GRADE, None),
    ([1, 5], GRADE, 0),
    ([4, 4, 4], GRADE, 1),
    ([4, 2, 5], GRADE, 1 - (2 + 1 + 3) / 3 / 4),
    ([1, 1, 0], VERDICT, 1 / 3),  # of three pairs one is equal
    ([7, 7, 8], COUNT, 1 / 3),
])  # fmt: skip
def test_agreement_is_the_share_of_equal_pairs_or_their_nearness(values: list[float], spec: ScoreSpec, expected: float | None) -> None:
    assert agreement_of(values, spec) == (None if expected is None else pytest.approx(expected))


def ok(value: float, **details: Any) -> list[Score]:
    return [Score(value, details=details)]


FAILED = [Score(None, status="error", reason="unparsable: nothing to read", details={"kind": "unparsable"})]
SKIPPED = [Score(None, status="skipped", reason="no_answer")]


def combined(spec: ScoreSpec, opinions: dict[str, list[Score]], **options: Any) -> Score:
    return combine(spec, opinions, **{"rule": None, "min_members": 2, "threshold": 0.8, **options})


@pytest.mark.parametrize(("spec", "opinions", "options", "status", "value"), [
    (GRADE, {"a": ok(4), "b": ok(2), "c": ok(5)}, {}, "ok", 11 / 3),
    (GRADE, {"a": ok(4), "b": ok(2), "c": ok(5)}, {"rule": "median"}, "ok", 4),
    (GRADE, {"a": ok(4), "b": ok(2), "c": ok(5)}, {"rule": "min"}, "ok", 2),
    (LOWER, {"a": ok(0), "b": ok(0.5)}, {"rule": "min"}, "ok", 0.5),
    (VERDICT, {"a": ok(1), "b": ok(0), "c": ok(1)}, {}, "ok", 1),
    (VERDICT, {"a": ok(1), "b": ok(0)}, {}, "error", None),
    (VERDICT, {"a": ok(1), "b": FAILED, "c": ok(1)}, {}, "ok", 1),
    (VERDICT, {"a": ok(1), "b": FAILED, "c": FAILED}, {}, "error", None),
    (VERDICT, {"a": ok(1), "b": FAILED, "c": FAILED}, {"min_members": 1}, "ok", 1),
    (VERDICT, {"a": SKIPPED, "b": SKIPPED}, {}, "skipped", None),
    (VERDICT, {"a": SKIPPED, "b": FAILED}, {}, "error", None),
    (VERDICT, {"a": ok(1)}, {}, "ok", 1),  # a metric that one member alone judges
    (VERDICT, {"a": ok(1) + ok(0) + ok(1)}, {}, "ok", 1),
    (VERDICT, {"a": ok(1) + ok(0)}, {}, "error", None),
    (GRADE, {"a": ok(4) + ok(5), "b": ok(2) + FAILED}, {}, "ok", 3.25),
])  # fmt: skip
def test_members_become_one_score(spec, opinions, options, status, value) -> None:
    score = combined(spec, opinions, **options)
    assert score.status == status
    assert score.value == (None if value is None else pytest.approx(value))
    assert list(score.details["jury"]["members"]) == list(opinions)
    if status == "error" and len(opinions) > 1:
        assert score.details["kind"] == "no_majority"


def test_the_details_are_those_of_a_member_with_the_same_value() -> None:
    score = combined(VERDICT, {"a": ok(0, claims=["a"]), "b": ok(1, claims=["b"]), "c": ok(1, claims=["c"])})
    assert score.details["claims"] == ["b"]
    assert score.reason == "majority of a 0, b 1, c 1"
    assert "claims" not in combined(GRADE, {"a": ok(1, claims=["a"]), "b": ok(4, claims=["b"])}).details


def test_a_member_that_contradicts_itself_is_flagged() -> None:
    wavering = combined(VERDICT, {"a": ok(1) + ok(0) + ok(1), "b": ok(1) * 3})
    assert wavering.details["jury"]["self_consistency"] == {"a": 0.333333, "b": 1.0}
    assert wavering.details["jury"]["flags"] == ["self_inconsistent"]
    assert "flags" not in combined(GRADE, {"a": ok(4) + ok(4.5), "b": ok(4) * 2}).details["jury"]


CASCADE = CascadeSettings(first="a", then="b", near=0.5, within=0.25, random_share=0.3)


@pytest.mark.parametrize(("spec", "score", "unsure"), [
    (GRADE, Score(3), True),
    (GRADE, Score(4), True),  # .75 of the range: at the edge
    (GRADE, Score(5), False),
    (GRADE, Score(1), False),
    (VERDICT, Score(1), False),
    (COUNT, Score(3), False),
    (GRADE, FAILED[0], True),
    (GRADE, SKIPPED[0], False),
])  # fmt: skip
def test_the_first_member_is_unsure_near_the_middle_and_where_it_failed(spec: ScoreSpec, score: Score, unsure: bool) -> None:
    assert is_unsure(CASCADE, spec, score) is unsure


def test_the_draw_is_the_same_in_every_start_and_as_large_as_was_asked_for() -> None:
    keys = [CaseKey(f"q{number}", "m", 1, 1) for number in range(4000)]
    drawn = [is_drawn(CASCADE, key, "grade") for key in keys]
    assert drawn == [is_drawn(CASCADE, key, "grade") for key in keys]
    assert sum(drawn) / len(drawn) == pytest.approx(0.3, abs=0.03)  # four standard errors
    assert drawn != [is_drawn(CASCADE, key, "other") for key in keys]
