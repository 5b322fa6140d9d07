"""Text that is no list of chunks is refused, and prices are added exactly."""

import pyarrow as pa
import pytest

from ragpipe.core.usage import Usage, UsageSum
from ragpipe.score.case_blocks import RetrievedChunks


@pytest.mark.parametrize("text", ['[{"id":"a"', '[] {"chunks":[]}', "[1]", ""])
def test_text_that_is_no_list_of_chunks_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"JSON|chunks"):
        RetrievedChunks(pa.chunked_array([["[]", text]]))


def test_many_prices_are_added_exactly() -> None:
    assert Usage.sum([Usage(calls=1, usd_known=0.1)] * 10) == Usage(calls=10, usd_known=1.0)
    total = UsageSum()
    total.add_batch(Usage(calls=9, replies=9, usd_known=99.0), [0.1] * 9)  # the prices alone count
    total.add(Usage(calls=1, replies=1, usd_known=0.1))
    assert total.total() == Usage(calls=10, replies=10, usd_known=1.0)
