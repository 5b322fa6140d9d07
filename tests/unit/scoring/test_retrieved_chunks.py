"""Chunks as columns hold what their JSON says, and the counts over them are those of a walk from case to case."""

import json
from dataclasses import fields

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpipe.schema.call import Call, Payment
from ragpipe.schema.sample import Chunk, Output
from ragpipe.schema.table_schemas import OUTPUTS, output_row, table_of
from ragpipe.schema.usage import Usage, UsageSum
from ragpipe.scoring.case_blocks import RetrievedChunks

IDS = st.sampled_from(["a", "b", "A", "c-1", "caf\u00e9.md", ""])
TEXTS = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        ["https://a.org/x", " [1] www.b.org ", "- HTTPS://C.ORG", "see https://a.org", '"rank":1 "doc_type":"x"', "\u2022www.d.org"]
    ),
)  # fmt: skip
CHUNKS = st.builds(
    Chunk, id=IDS, rank=st.integers(1, 9), doc_id=st.none() | IDS, rel_path=st.none() | IDS,
    score=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    doc_type=st.none() | st.sampled_from(["letter", "report", 'a "b"\\']), text=TEXTS,
)  # fmt: skip
LISTS = st.none() | st.lists(CHUNKS, max_size=4)


@pytest.mark.slow
@given(st.lists(LISTS, max_size=5))
def test_columns_hold_what_the_json_says(lists: list[list[Chunk] | None]) -> None:
    rows = [output_row(Output(sample_id="q", chunks=chunks), 0) for chunks in lists]
    retrieved = RetrievedChunks(table_of(rows, OUTPUTS)["chunks"])
    flat = [(case, chunk) for case, chunks in enumerate(lists) for chunk in chunks or ()]
    assert retrieved.lengths.to_pylist() == [None if chunks is None else len(chunks) for chunks in lists]
    assert retrieved.cases.tolist() == [case for case, _ in flat]
    for name in ("id", "doc_id", "rel_path", "rank", "doc_type", "text"):
        assert retrieved.column(name).to_pylist() == [getattr(chunk, name) for _, chunk in flat]
    types = [list(dict.fromkeys(chunk.doc_type for chunk in chunks or () if chunk.doc_type)) for chunks in lists]
    assert retrieved.doc_types().to_pylist() == types


@pytest.mark.parametrize("text", ['[{"id":"a"', '[] {"chunks":[]}', "[1]", ""])
def test_text_that_is_no_list_of_chunks_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"JSON|chunks"):
        RetrievedChunks(pa.chunked_array([["[]", text]]))


def test_the_examples_are_json_that_ragpipe_writes() -> None:
    """A key in another order is no chunk that ragpipe wrote, but is read all the same."""
    chunks = [{"text": "t", "rank": 2, "id": "x", "more": {"a": [1, None]}}]
    retrieved = RetrievedChunks(pa.chunked_array([[json.dumps(chunks), None]]))
    assert (retrieved.column("id").to_pylist(), retrieved.column("text").to_pylist()) == (["x"], ["t"])
    assert retrieved.lengths.to_pylist() == [1, None]


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
