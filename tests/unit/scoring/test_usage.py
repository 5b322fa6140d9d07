"""Usage: sums, differences, money, and the way to JSON and back."""

from dataclasses import fields

import pytest

from ragpipe.schema.call import Call, Payment
from ragpipe.schema.usage import Usage, UsageSum

SPEND = Usage(calls=2, replies=3, tokens_in=30, tokens_out=6, usd_known=0.75, unpriced=1, without_usage=1)
PAID = Payment("m", "2026-01-01T00:00:00.000+00:00", tokens_in=10, tokens_out=2, tokens_cached=4, usd=0.25)


def test_plus_and_minus_undo_each_other() -> None:
    more = Usage(calls=1, replies=1, tokens_in=10, tokens_cached=4, usd_known=0.25)
    assert SPEND + more == Usage(3, 4, 40, 6, 4, 0, 0, 1.0, 1, 1)
    assert SPEND + more - more == SPEND
    assert (Usage() - SPEND).clipped() == Usage()
    assert SPEND.clipped() == SPEND


def test_money_is_unknown_as_soon_as_one_price_is() -> None:
    assert (SPEND.usd, SPEND.usd_known) == (None, 0.75)
    assert Usage(usd_known=0.5).usd == 0.5
    assert Usage().usd == 0.0


@pytest.mark.parametrize("usage", [Usage(), SPEND, SPEND + Usage(damaged=1)])
def test_json_and_back(usage: Usage) -> None:
    assert Usage.from_json(usage.as_json()) == usage
    assert ("damaged" in usage.as_json()) == bool(usage.damaged)
    assert Usage.from_json({**usage.as_json(), "latency_ms": 3}) == usage


def test_many_prices_are_added_exactly() -> None:
    assert Usage.sum([Usage(calls=1, usd_known=0.1)] * 10) == Usage(calls=10, usd_known=1.0)
    total = UsageSum()
    total.add_batch(Usage(calls=9, replies=9, usd_known=99.0), [0.1] * 9)  # the prices alone count
    total.add(Usage(calls=1, replies=1, usd_known=0.1))
    assert total.total() == Usage(calls=10, replies=10, usd_known=1.0)


def test_usage_of_a_payment_and_of_a_stored_call() -> None:
    assert Usage.of_payment(PAID) == Usage(replies=1, tokens_in=10, tokens_out=2, tokens_cached=4, usd_known=0.25)
    assert Usage.of_payment(Payment("m", PAID.at)) == Usage(replies=1, unpriced=1, without_usage=1)
    call = Call("k", "p", "m", "ok", tokens_in=10, tokens_out=2, tokens_reasoning=1, paid_usd=0.25)
    assert Usage.of_call(call) == Usage(calls=1, tokens_in=10, tokens_out=2, tokens_reasoning=1)
    assert Usage.of_call(Call("k", "p", "m", "timeout")).without_usage == 1


def test_a_sum_adds_every_field():
    names = [field.name for field in fields(Usage)]
    left, right = Usage(*range(1, 1 + len(names))), Usage(*(100 * n for n in range(1, 1 + len(names))))
    assert [getattr(left + right, name) for name in names] == [101 * n for n in range(1, 1 + len(names))]
