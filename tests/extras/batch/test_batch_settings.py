"""Which judges batches can ask, their prices, which are never derived, and which transport a plan recommends."""

import pytest

from ragpipe.extras.batch.settings import BatchSettings, advice
from ragpipe.judge.settings import JudgeSettings, PriceSettings

BATCH = BatchSettings()


def test_the_table_names_batch_prices():
    rates = BATCH.rates(JudgeSettings(model="openai/gpt-4o-mini-2024-07-18"))
    # OpenAI's price list: 0.075 and 0.30 dollars per million tokens by batch
    assert [(t.above, t.input, t.output) for t in rates.tiers] == [(0, 0.075, 0.3)]
    assert rates.usd(1_000_000, 100_000) == pytest.approx(0.105)


def test_a_model_without_batch_prices_has_an_unknown_price():
    rates = BATCH.rates(JudgeSettings(model="azure/gpt-4-0125-preview", allow_unpinned=True))
    assert rates.usd(1000, 100) is None
    assert rates.reason == "the price table has no price for azure/gpt-4-0125-preview: set transport.prices"


def test_ones_own_prices_come_first_and_those_of_live_replies_are_not_taken():
    own = JudgeSettings(model="openai/m-2024-07-18", api_base="http://127.0.0.1:1/v1", prices=PriceSettings(input=8.0, output=8.0))
    priced = BatchSettings(prices=PriceSettings(input=1.0, output=2.0))
    assert priced.rates(own).usd(1_000_000, 1_000_000) == pytest.approx(3.0)
    assert BATCH.rates(own).usd(1000, 100) is None


@pytest.mark.parametrize("provider", ["groq", "gemini", "vertex_ai", "bedrock", "mistral", "azure", "together_ai"])
def test_other_providers_are_refused_by_name(provider):
    problem = BATCH.refusal(JudgeSettings(model=f"{provider}/model-2024-07-18"))
    assert provider in problem.found
    assert "transport=live" in problem.fix


def test_a_server_of_ones_own_needs_its_address():
    problem = BATCH.refusal(JudgeSettings(model="hosted_vllm/m", allow_unpinned=True))
    assert problem.key == "judge.api_base"


@pytest.mark.parametrize(("rounds", "by_batch", "live", "words"), [
    (2, 0.50, 1.00, "recommended: transport=batch, where results may wait"),
    (5, 0.50, 1.00, "recommended: transport=live, unless 5 rounds one after the other are worth it"),
    (1, None, 1.00, "no recommendation without both prices"),
])  # fmt: skip
def test_batches_are_recommended_where_they_save_money_that_is_worth_a_wait(rounds, by_batch, live, words):
    assert advice(rounds, by_batch, live) == words
