"""Chunks as columns hold what their JSON says, and the counts over them are those of a walk from case to case."""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpipe.schema.sample import Anchor, Chunk, Citation, Output, Sample
from ragpipe.schema.table_schemas import OUTPUTS, SAMPLES, output_row, sample_row, table_of
from ragpipe.scoring import pointer_checks
from ragpipe.scoring.case_blocks import RetrievedChunks
from ragpipe.scoring.pointer_checks import Pointers, context_counts

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
CITATIONS = st.builds(
    Citation, chunk_id=st.none() | IDS, marker=st.none() | st.sampled_from(["[1]", " [ ^9 ]", "Smith 2020"])
)
CASES = st.tuples(
    st.fixed_dictionaries(
        {},
        optional={
            "relevant_docs": st.none() | st.lists(IDS, max_size=2),
            "relevant_chunks": st.lists(IDS, max_size=2),
            "gains": st.dictionaries(IDS.filter(bool), st.sampled_from([0.0, 1.0]), max_size=2),
            "anchors": st.lists(st.builds(Anchor, rel_path=IDS.filter(bool)), max_size=2),
        },
    ),
    st.fixed_dictionaries(
        {"chunks": LISTS}, optional={"citations": st.lists(CITATIONS, max_size=3), "method": st.sampled_from("mn")}
    ),
)  # fmt: skip


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


@pytest.mark.slow
@given(st.lists(CASES, min_size=1, max_size=6), st.integers(1, 6), st.integers(1, 4))
def test_pointers_are_counted_as_case_by_case(cases: list[Any], block: int, kept: int) -> None:
    """The same whatever the blocks are, and where the limit of ids is reached within a block."""
    samples = [Sample(id=f"q{i}", question="?", **labels) for i, (labels, _) in enumerate(cases)]
    outputs = [Output(sample_id=f"q{i}", **fields) for i, (_, fields) in enumerate(cases)]
    sample_rows = table_of([sample_row(sample) for sample in samples], SAMPLES)
    output_rows = table_of([output_row(output, i) for i, output in enumerate(outputs)], OUTPUTS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pointer_checks, "KEPT", kept)
        pointers, walk = Pointers(), Walk(kept)
        for start in range(0, len(cases), block):
            rows = output_rows.slice(start, block)
            chunks = RetrievedChunks(rows["chunks"])
            pointers.add(rows, sample_rows.slice(start, block), chunks, context_counts(rows["method"], chunks))
        for sample, output in zip(samples, outputs, strict=True):
            walk.add(sample, output)
        assert pointers.warnings() == walk.pointers.warnings()
    assert (pointers._citations, pointers._dangling) == (walk.pointers._citations, walk.pointers._dangling)
    assert pointers._retrieved == walk.pointers._retrieved
    assert list(pointers._gold) == list(walk.pointers._gold)


class Walk:
    """The counts of `Pointers`, one case after the other."""

    def __init__(self, kept: int) -> None:
        self.pointers, self._kept = Pointers(), kept

    def add(self, sample: Sample, output: Output) -> None:
        counts, chunks = self.pointers, output.chunks
        if chunks is None:
            return
        for citation in output.citations or ():
            mark = re.fullmatch(r"\[\s*\^?(\d{1,4})\s*\]", (citation.marker or "").strip())
            name = citation.chunk_id or (mark and mark[0])
            if name:
                counts._citations += 1
                known = [chunk.id for chunk in chunks] if citation.chunk_id else [f"{chunk.rank}" for chunk in chunks]
                if (citation.chunk_id or (mark and mark[1])) not in known:
                    counts._dangling[name] += 1
                    counts._first_dangling = counts._first_dangling or sample.id
        texts = [chunk.text for chunk in chunks if chunk.text]
        counts._contexts[output.method] += len(texts)
        counts._addresses[output.method] += sum(pointer_checks._ADDRESSES.fullmatch(text) is not None for text in texts)
        if chunks:
            self._label(sample, chunks)

    def _label(self, sample: Sample, chunks: list[Chunk]) -> None:
        counts = self.pointers
        gains = [name for name, gain in (sample.gains or {}).items() if gain > 0]
        labels = {
            "relevant_docs": sample.relevant_docs, "relevant_chunks": sample.relevant_chunks, "gains": gains,
            "anchors": [anchor.rel_path for anchor in sample.anchors or ()],
            "required_support_groups": [name for group in sample.required_support_groups or () for name in group],
        }  # fmt: skip
        for field, names in labels.items():
            if names:
                gold = counts._gold.setdefault(field, {})
                gold.update({name: sample.id for name in names if name not in gold})
        if counts._gold and len(counts._retrieved) < self._kept:
            names_of = [name for chunk in chunks for name in (chunk.id, chunk.doc_id, chunk.rel_path)]
            counts._retrieved.update(name for name in names_of if name)


def test_the_examples_are_json_that_ragpipe_writes() -> None:
    """A key in another order is no chunk that ragpipe wrote, but is read all the same."""
    chunks = [{"text": "t", "rank": 2, "id": "x", "more": {"a": [1, None]}}]
    retrieved = RetrievedChunks(pa.chunked_array([[json.dumps(chunks), None]]))
    assert (retrieved.column("id").to_pylist(), retrieved.column("text").to_pylist()) == (["x"], ["t"])
    assert retrieved.lengths.to_pylist() == [1, None]
