"""Chunks as columns hold what their JSON says, and the counts over them are those of a walk from case to case."""

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpipe.schema.sample import Chunk, Output
from ragpipe.schema.table_schemas import OUTPUTS, output_row, table_of
from ragpipe.scoring.retrieved_chunks import RetrievedChunks

IDS = st.sampled_from(["a", "b", "A", "c-1", "caf\u00e9.md", ""])
TEXTS = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        ["https://a.org/x", " [1] www.b.org ", "- HTTPS://C.ORG", "see https://a.org", '"rank":1 "doc_type":"x"', "\u2022www.d.org"]
    ),
)  # fmt: skip
CHUNKS = st.builds(
    Chunk,
    id=IDS,
    rank=st.integers(1, 9),
    doc_id=st.none() | IDS,
    rel_path=st.none() | IDS,
    score=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    doc_type=st.none() | st.sampled_from(["letter", "report", 'a "b"\\']),
    text=TEXTS,
)
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
