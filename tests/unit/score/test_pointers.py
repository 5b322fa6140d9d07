"""Ids that lead nowhere and contexts without a text are said, with the ids; a run in order is told nothing."""

import unicodedata
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ragpipe.core.sample import Anchor, Chunk, Citation, Output, Sample
from ragpipe.runs.data_profile import DataProfile
from ragpipe.store.table_rows import OUTPUTS, SAMPLES, output_row, sample_row, table_of_cells


def warnings(folder: Path, *cases: tuple[dict[str, Any], dict[str, Any]], method: str = "m") -> list[str]:
    samples = [Sample(id=f"q{i}", question="?", **labels) for i, (labels, _) in enumerate(cases)]
    outputs = [Output(sample_id=f"q{i}", method=method, **fields) for i, (_, fields) in enumerate(cases)]
    rows = [output_row(output, i) for i, output in enumerate(outputs)]
    pq.write_table(table_of_cells([sample_row(sample) for sample in samples], SAMPLES), folder / "samples.parquet")
    pq.write_table(table_of_cells(rows, OUTPUTS), folder / "outputs.parquet")
    return DataProfile().read(folder / "samples.parquet", folder / "outputs.parquet").pointers.warnings()


def chunks(*ids: str, text: str = "Some text.", **fields: Any) -> dict[str, Any]:
    return {"chunks": [Chunk(id=name, rank=i, text=text, **fields) for i, name in enumerate(ids, 1)]}


def cited(*ids: str | None, marker: str | None = None) -> dict[str, Any]:
    return {"citations": [Citation(chunk_id=name, marker=marker) for name in ids]}


IN_ORDER = {"relevant_docs": ["d1"], "anchors": [Anchor(rel_path="a.md")], "gains": {"d1": 1.0, "never": 0.0}}
FIELDS = chunks("d1", "d2")


@pytest.mark.parametrize("cases", [
    [(IN_ORDER, chunks("d1", "d2", rel_path="a.md") | cited("d1", "d2", "lost")), ({}, {"answer": "no contexts at all"})],
    [({}, FIELDS | cited("d1", "lost"))],  # half of the citations are not most
    [({}, FIELDS | cited(None, None, marker="[2]"))],  # a mark is a rank
    [({}, FIELDS | cited(None, None, marker="Smith 2020"))],
    [({"relevant_docs": ["a"]}, chunks("b")), ({"relevant_docs": ["b"]}, chunks("a"))],  # a miss, and no fault of the ids
    [({"relevant_docs": ["a"]}, {"chunks": []})],  # nothing retrieved says nothing of the ids
    [({"relevant_docs": ["a"]}, {"chunks": None} | cited("x"))],
])  # fmt: skip
def test_a_run_in_order_is_told_nothing(tmp_path: Path, cases: list[Any]) -> None:
    assert warnings(tmp_path, *cases) == []


def test_most_citations_dangle(tmp_path: Path) -> None:
    (line,) = warnings(tmp_path, ({}, FIELDS | cited("[1]", "[2]")), ({}, FIELDS | cited("[1]", "d1")))
    assert line.startswith("3 of 4 citations name a chunk that was not retrieved ('[1]', '[2]'), first in 'q0': ")
    (line,) = warnings(tmp_path, ({}, FIELDS | cited(None, None, marker="[7]")))
    assert line.startswith("2 of 2 citations name a chunk that was not retrieved ('[7]'")


DECOMPOSED = unicodedata.normalize("NFD", "caf\u00e9.md")
LABELS = [
    ({"relevant_docs": ["doc-1"]}, chunks("DOC-1"), "relevant_docs", "'doc-1' differs from the retrieved 'DOC-1'"),
    ({"relevant_chunks": ["a "]}, chunks("a"), "relevant_chunks", "'a ' differs from the retrieved 'a'"),
    ({"required_support_groups": [["Doc-1", Anchor(rel_path="Doc-1")]]}, chunks("doc-1"), "required_support_groups", "'Doc-1'"),
    ({"gains": {"x": 2.0, "a": 0.0}}, chunks("a"), "gains", "'x'"),
    ({"anchors": [Anchor(rel_path="caf\u00e9.md")]}, chunks("a", rel_path=DECOMPOSED), "anchors", "Unicode form (NFC, NFD)"),
]  # fmt: skip


@pytest.mark.parametrize(("labels", "output", "field", "hint"), LABELS)
def test_gold_ids_that_no_case_retrieved(tmp_path: Path, labels: Any, output: Any, field: str, hint: str) -> None:
    (line,) = warnings(tmp_path, (labels, output))
    assert f"1 of 1 ids of {field} were retrieved in no case" in line
    assert hint in line


@pytest.mark.parametrize(("text", "said"), [
    ("https://example.org/a", True), ("[1] https://example.org/a\n\n[2] http://example.org/b?x=1", True), ("- www.example.org", True),
    ("[1] https://example.org/a\n\nThe room is large.", False), ("See https://example.org/a", False), ("", False),
])  # fmt: skip
def test_contexts_that_are_nothing_but_addresses(tmp_path: Path, text: str, said: bool) -> None:
    found = warnings(tmp_path, ({}, chunks("a", "b", text=text)), method="bing")
    assert [line.startswith("method bing: 2 of 2 contexts are nothing but addresses") for line in found] == [True] * said


def test_one_id_in_another_form_is_a_fault_among_many_in_order(tmp_path: Path) -> None:
    good = [({"relevant_docs": [f"d{i}"]}, chunks(f"d{i}")) for i in range(9)]
    assert warnings(tmp_path, *good, ({"relevant_docs": ["lost"]}, chunks("d0"))) == []
    (line,) = warnings(tmp_path, *good, ({"relevant_docs": ["D3"]}, chunks("d0")))
    assert line.startswith("1 of 10 ids of relevant_docs were retrieved in no case ('D3'), first in 'q9': ")


def test_every_id_that_leads_nowhere_has_its_first_case(tmp_path: Path) -> None:
    cases = [
        ({"relevant_docs": ["a", "b"]}, chunks("a", "b") | cited("a", "b")),
        ({"relevant_docs": ["a", "x"], "required_support_groups": [["a"], ["y"]]}, chunks("a", "b") | cited("a", "b", "z")),
        ({"relevant_docs": ["x", "b"]}, chunks("a") | cited("a")),
    ]
    assert warnings(tmp_path, *cases) == []
    found = DataProfile().read(tmp_path / "samples.parquet", tmp_path / "outputs.parquet").pointers.dangling()
    assert [(d.field, d.missing, d.total, d.first, d.names) for d in found] == [
        ("citations", 1, 6, "q1", ("z",)),
        ("relevant_docs", 1, 3, "q1", ("x",)),
        ("required_support_groups", 1, 2, "q1", ("y",)),
    ]
