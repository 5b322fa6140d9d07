"""Prices are added exactly."""

from ragpipe.core.usage import Usage, UsageSum


def test_many_prices_are_added_exactly() -> None:
    assert Usage.sum([Usage(calls=1, usd_known=0.1)] * 10) == Usage(calls=10, usd_known=1.0)
    total = UsageSum()
    total.add_batch(Usage(calls=9, replies=9, usd_known=99.0), [0.1] * 9)  # the prices alone count
    total.add(Usage(calls=1, replies=1, usd_known=0.1))
    assert total.total() == Usage(calls=10, replies=10, usd_known=1.0)
