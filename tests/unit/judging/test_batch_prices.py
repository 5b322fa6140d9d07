"""Batch prices come from the user or from the table's own columns for batches, and are never derived."""

from __future__ import annotations

import pytest

from ragpipe.judging.batches.providers import unbatchable
from ragpipe.judging.pricing import batch_rates_for
from ragpipe.judging.settings import JudgeSettings, Price


def test_the_table_names_batch_prices() -> None:
    rates = batch_rates_for(JudgeSettings(model="openai/gpt-4o-mini-2024-07-18"), None)
    # OpenAI's price list: 0.075 and 0.30 dollars per million tokens by batch
    assert [(t.above, t.input, t.output) for t in rates.tiers] == [(0, 0.075, 0.3)]
    assert rates.usd(1_000_000, 100_000) == pytest.approx(0.105)


def test_a_model_without_batch_prices_has_an_unknown_price() -> None:
    rates = batch_rates_for(JudgeSettings(model="azure/gpt-4-0125-preview", allow_unpinned=True), None)
    assert rates.usd(1000, 100) is None
    assert "no batch price for azure/gpt-4-0125-preview" in rates.reason


def test_ones_own_prices_come_first_and_those_of_live_replies_are_not_taken() -> None:
    own = JudgeSettings(
        model="openai/m-2024-07-18", api_base="http://127.0.0.1:1/v1", prices=Price(input=8.0, output=8.0)
    )
    assert batch_rates_for(own, Price(input=1.0, output=2.0)).usd(1_000_000, 1_000_000) == pytest.approx(3.0)
    assert batch_rates_for(own, None).usd(1000, 100) is None


@pytest.mark.parametrize("provider", ["groq", "gemini", "vertex_ai", "bedrock", "mistral", "azure", "together_ai"])
def test_other_providers_are_refused_by_name(provider: str) -> None:
    problem = unbatchable(JudgeSettings(model=f"{provider}/model-2024-07-18"))
    assert problem is not None
    assert provider in problem.found
    assert "transport=live" in problem.fix


@pytest.mark.parametrize("model", ["openai/gpt-4o-mini-2024-07-18", "anthropic/claude-3-5-haiku-20241022"])
def test_providers_with_batches_are_taken(model: str) -> None:
    assert unbatchable(JudgeSettings(model=model)) is None


def test_a_server_of_ones_own_needs_its_address() -> None:
    problem = unbatchable(JudgeSettings(model="hosted_vllm/m", allow_unpinned=True))
    assert problem is not None
    assert problem.key == "judge.api_base"
