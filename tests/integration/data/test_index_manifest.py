"""The manifest of an index: read strictly, counted by hand, frozen into the run and told in its reports."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ragpipe.cli.command_line import main
from ragpipe.core.errors import DataError
from ragpipe.core.sample import Anchor, Sample
from ragpipe.data.index_manifest import IndexManifest

ROWS: list[dict[str, Any]] = [
    {"doc_id": "a.md", "chunk_id": "1", "tokens": 100, "doc_type": "markdown", "chunker": "heading-2", "index_version": "7"},
    {"doc_id": "a.md", "chunk_id": "2", "tokens": 200, "doc_type": "markdown", "chunker": "heading-2"},
    {"doc_id": "a.md", "chunk_id": "3", "tokens": 9000, "doc_type": "markdown", "status": "skipped", "reason": "over the context limit"},
    {"doc_id": "b.pdf", "doc_type": "pdf"},
    {"doc_id": "c.pdf", "chunk_id": "1", "doc_type": "pdf", "status": "skipped", "reason": "no text", "rel_path": "deep/c.pdf"},
]  # fmt: skip
SAMPLES = [
    Sample(id="q1", question="?", relevant_docs=["a.md", "b.pdf"]),
    Sample(id="q2", question="?", relevant_docs=["b.pdf", "lost.md"]),
    Sample(id="q3", question="?", anchors=[Anchor(rel_path="deep/c.pdf")]),
]


NAMES = ["doc_id", "chunk_id", "tokens", "doc_type", "chunker", "index_version", "status", "reason", "rel_path"]


def write(folder, kind, rows):
    path = folder / f"index.{kind}"
    if kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif kind == "json":
        path.write_text(json.dumps(rows))
    elif kind == "parquet":
        pq.write_table(pa.Table.from_pylist([{name: row.get(name) for name in NAMES} for row in rows]), path)
    else:
        lines = [",".join(NAMES), *(",".join(str(row.get(name, "")) for name in NAMES) for row in rows)]
        path.write_text("\n".join(lines) + "\n")
    return path.name


@pytest.mark.parametrize("kind", ["jsonl", "json", "csv", "parquet"])
def test_every_form_gives_the_same_counts(tmp_path, kind):
    rows = [{"status": "embedded", **row} if "chunk_id" in row or kind == "parquet" else row for row in ROWS]
    found = IndexManifest(write(tmp_path, kind, rows), tmp_path).coverage(SAMPLES)
    whole = found.overall
    assert (whole.documents, whole.documents_without_chunks, whole.documents_not_embedded) == (3, 1, 1)
    assert (whole.chunks_attempted, whole.chunks_embedded, whole.chunks_skipped) == (4, 2, 2)
    assert (whole.no_chunks_rate, whole.skipped_rate) == (pytest.approx(1 / 3), 0.5)
    assert whole.skipped_because == {"over the context limit": 1, "no text": 1}
    assert found.by_doc_type["pdf"].documents_without_chunks == 1
    assert found.by_doc_type["markdown"].chunks_embedded == 2
    assert (found.chunkers, found.embeddings, found.index_versions) == (["heading-2"], [], ["7"])
    # of 100, 200, 9000 the 95th percentile lies .9 of the way from the second to the third
    expected = {"n": 3, "min": 100, "mean": pytest.approx(3100.0), "p95": pytest.approx(8120.0), "max": 9000}
    assert found.tokens.model_dump() == expected
    assert found.without_chunks == ["b.pdf"]
    missing = [(one.document, one.why, one.samples) for one in found.gold_missing]
    assert (found.gold_documents, missing) == (4, [
        ("b.pdf", "no_chunks", ["q1", "q2"]), ("lost.md", "not_in_manifest", ["q2"]), ("c.pdf", "not_embedded", ["q3"]),
    ])  # fmt: skip
    assert found.samples_missing_gold == {"q1": 1, "q2": 2, "q3": 1}


@pytest.mark.parametrize(("row", "key", "told"), [
    ({"chunk_id": "1"}, "doc_id", "nothing"),
    ({"doc_id": "a.md", "chunk_id": "1"}, "chunk_id", "a second time"),
    ({"doc_id": "b.pdf", "chunk_id": "1", "doc_type": "pdf"}, "chunk_id", "a chunk of a document without chunks"),
    ({"doc_id": "a.md"}, "chunk_id", "nothing"),
    ({"doc_id": "x", "tokens": 3}, "chunk_id", "beside what belongs to a chunk"),
    ({"doc_id": "x", "chunk_id": "1", "status": "skipped"}, "reason", "skipped without a reason"),
    ({"doc_id": "x", "chunk_id": "1", "reason": "why"}, "reason", "embedded with a reason"),
    ({"doc_id": "x", "chunk_id": "1", "status": "lost"}, "status", "lost"),
    ({"doc_id": "x", "chunk_id": "1", "tokens": -1}, "tokens", "-1"),
    ({"doc_id": "x", "chunk_id": "1", "tokens": "many"}, "tokens", "many"),
    ({"doc_id": "x", "chunkid": "1"}, "chunkid", "did you mean 'chunk_id'?"),
    ({"doc_id": "a.md", "chunk_id": "4", "doc_type": "pdf"}, "doc_type", "'markdown', as at index.jsonl:1"),
])  # fmt: skip
def test_a_wrong_row_is_named_with_its_line(tmp_path, row, key, told):
    with pytest.raises(DataError) as caught:
        IndexManifest(write(tmp_path, "jsonl", [*ROWS, row]), tmp_path).coverage([])
    assert f"index.jsonl:6: {key}" in str(caught.value)
    assert told in str(caught.value)


def test_an_empty_manifest_and_a_missing_one_are_refused(tmp_path):
    (tmp_path / "index.jsonl").write_text("\n")
    with pytest.raises(DataError, match="no rows"):
        IndexManifest("index.jsonl", tmp_path).coverage([])
    with pytest.raises(DataError, match="No such file"):
        IndexManifest("none.jsonl", tmp_path)


CASES = [
    {"id": "q1", "question": "?", "relevant_docs": ["a.md"], "answer": "x", "chunks": [{"id": "1", "doc_id": "a.md", "text": "t"}]},
    {"id": "q2", "question": "?", "relevant_docs": ["b<i>.pdf"], "answer": "x", "chunks": [{"id": "1", "doc_id": "a.md", "text": "t"}]},
]  # fmt: skip
GIVEN = [ROWS[0], {"doc_id": "b<i>.pdf", "doc_type": "pdf"}]
WORDS = ["dataset=jsonl", "dataset.path=cases.jsonl", "metrics=[retrieval]", "name=x", "system.index_manifest=index.jsonl"]
TOLD = "1 of 2 gold documents are not in the index by its manifest: b<i>.pdf (without chunks; q2)"


@pytest.fixture
def run(here, capsys):
    Path("cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in CASES))
    write(here, "jsonl", GIVEN)
    assert main(WORDS) == 0
    return Path("outputs/x/latest")


@pytest.mark.slow
def test_a_run_freezes_it_and_reports_tell_what_is_missing(run, capsys):
    assert TOLD in " ".join(capsys.readouterr().err.split())
    assert json.loads((run / "index.json").read_text())["overall"]["documents_without_chunks"] == 1
    page = (run / "report.md").read_text()
    assert f"`{TOLD}`" in page
    assert "| `pdf` | 1 | 1 (100.0%) | 0 | 0 | 0 | 0 |" in page
    assert "b&lt;i&gt;.pdf" in (run / "report.html").read_text()
    stamp = (run / "index.json").stat().st_mtime_ns
    assert main(WORDS) == 0
    assert (run / "index.json").stat().st_mtime_ns == stamp


def _findings(run):
    """What the records say of each case: documents not in the index, failure modes, diagnoses."""
    columns = ["sample_id", "method", "gold_not_indexed", "failure_modes", "diagnosis"]
    rows = pq.read_table(run / "iteration-1" / "records.parquet", columns=columns).to_pylist()
    return {(row.pop("sample_id"), row.pop("method")): tuple(row.values()) for row in rows}


NOT_INDEXED = (1, ["not_indexed"], ["not_indexed"])  # which explains the miss
UNLABELLED = {"id": "q3", "question": "?", "answer": "x", "chunks": []}
CLOSED_BOOK = {"id": "q2", "question": "?", "relevant_docs": ["b<i>.pdf"], "answer": "x", "method": "closed", "retrieves": False}


@pytest.fixture
def labelled(here):
    """Cases with a document in the index, one without, unlabelled, and of a method that retrieves nothing."""
    cases = [*({**case, "method": "rag"} for case in (*CASES, UNLABELLED)), CLOSED_BOOK]
    Path("cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
    write(here, "jsonl", GIVEN)


@pytest.mark.slow
@pytest.mark.usefixtures("labelled")
def test_a_document_that_is_not_in_the_index_is_the_first_diagnosis():
    assert main(WORDS) == 0
    assert _findings(Path("outputs/x/latest")) == {
        ("q1", "rag"): (0, [], []), ("q2", "rag"): NOT_INDEXED, ("q3", "rag"): (None, [], []), ("q2", "closed"): (1, [], []),
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.usefixtures("labelled")
def test_a_manifest_that_lacks_what_was_found_is_not_believed():
    found = {**CASES[1], "method": "rag", "chunks": [{"id": "1", "doc_id": "b<i>.pdf", "text": "t"}]}
    Path("cases.jsonl").write_text(json.dumps(found) + "\n")
    assert main(WORDS) == 0
    assert _findings(Path("outputs/x/latest"))["q2", "rag"] == (1, [], ["stale_index_manifest"])


@pytest.mark.slow
@pytest.mark.usefixtures("labelled")
def test_without_a_manifest_nothing_is_said_of_the_index():
    assert main([word for word in WORDS if "index_manifest" not in word]) == 0
    assert _findings(Path("outputs/x/latest"))["q2", "rag"] == (None, ["retrieval_miss"], ["retrieval_failure"])
    metrics = json.loads(Path("outputs/x/latest/iteration-1/metrics.json").read_text())
    mode = metrics["overall"]["failure_modes"]["not_indexed"]
    assert (mode["n"], mode["n_judged"]) == (0, 2), "of a method that retrieves nothing, and where all was found, it is known"


@pytest.mark.slow
def test_it_is_part_of_what_a_run_rests_on(run, capsys):
    assert main(["task=verify", "run=outputs/x/latest"]) == 0
    assert main(["task=rescore", "run=outputs/x/latest", "scoring.level=0.9"]) == 0
    folders = {path.parent.resolve() for path in Path("outputs/x").glob("*/index.json")}
    assert len(folders) == 2, "a run made from it has it too"
    measured, rescored = (_findings(folder) for folder in folders)
    assert measured == rescored
    assert rescored["q2", "default"] == NOT_INDEXED
    index, first = run / "index.json", run.resolve()
    text = index.read_text().replace('"7"', '"8"')
    index.unlink()  # its bytes are shared with the other run's
    index.write_text(text)
    capsys.readouterr()
    assert main(["task=verify", "run=outputs/x/latest"]) != 0
    assert "index.json" in capsys.readouterr().out
    write(Path(), "jsonl", [*GIVEN, {"doc_id": "new.md"}])
    assert main(["task=plan", *WORDS]) == 0
    assert "index: 1 of 2 gold documents are not in the index by its manifest" in capsys.readouterr().out
    assert main(WORDS) == 0
    assert run.resolve() != first, "another manifest is another run"


def of_index(tokens):
    """A row per chunk of each document, by its tokens; a document without any is a row alone."""
    kinds = {"md": "markdown", "pdf": "pdf"}
    return [
        {"doc_id": name, "doc_type": kinds[name.split(".")[1]], "rel_path": f"docs/{name}", **chunk}
        for name, chunks in tokens.items()
        for chunk in [{"chunk_id": str(n), "tokens": n_tokens} for n, n_tokens in enumerate(chunks)] or [{}]
    ]  # fmt: skip


def evaluated(name, index, found):
    """A run over an index: `found` are the documents that each question got."""
    labels = {"q1": {"relevant_docs": ["a.md"]}, "q2": {"relevant_docs": ["scan.pdf"]}, "q3": {"anchors": [{"rel_path": "docs/scan.pdf"}]}}
    cases = [
        {"id": case, "question": f"{case}?", "answer": "x", **labels[case],
         "chunks": [{"id": f"{doc}#1", "doc_id": doc, "rel_path": f"docs/{doc}", "text": "t"} for doc in documents]}
        for case, documents in found.items()
    ]  # fmt: skip
    Path(f"{name}.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
    Path(f"{name}.index.jsonl").write_text("".join(json.dumps(row) + "\n" for row in of_index(index)))
    assert main(["dataset=jsonl", "dataset.name=docs", f"dataset.path={name}.jsonl", "metrics=[retrieval]", f"name={name}",
                 f"system.index_manifest={name}.index.jsonl", "report.formats=[]"]) == 0  # fmt: skip


@pytest.mark.slow
def test_two_indexes_are_compared(here, capsys):
    """core-metrics.md: evaluation is sensitive to indexing changes. A document without chunks is lost, its questions miss it."""
    evaluated("v6", {"a.md": [100, 200], "scan.pdf": [300]}, {"q1": ["a.md"], "q2": ["scan.pdf"], "q3": ["scan.pdf"]})
    evaluated("v7", {"a.md": [100, 50, 50], "scan.pdf": [], "new.md": [400]}, {"q1": ["a.md"], "q2": ["new.md"], "q3": ["a.md"]})
    rows = pq.read_table("outputs/v7/latest/index.parquet").to_pylist()
    assert rows[:2] == [
        {"document": "a.md", "doc_type": "markdown", "rel_paths": ["docs/a.md"], "chunks": 3, "tokens": 200},
        {"document": "scan.pdf", "doc_type": "pdf", "rel_paths": ["docs/scan.pdf"], "chunks": 0, "tokens": None},
    ]
    capsys.readouterr()
    assert main(["task=compare", "base=v6", "candidate=v7"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    folder = next(Path("outputs/v7/comparisons").iterdir())
    index = json.loads((folder / "comparison.json").read_text())["comparisons"][0]["index"]
    expected = {"base": 2, "candidate": 2, "n_lost": 1, "lost": ["scan.pdf"], "n_new": 1, "new": ["new.md"], "n_rechunked": 1}
    assert index["documents"] == expected
    assert index["chunk_size"] == {"unit": "tokens", "base": 200.0, "candidate": 150.0}
    assert index["gold"] == {"n": 2, "n_lost": 1, "n_found": 0, "lost": [{"document": "scan.pdf", "n_samples": 2, "samples": ["q2", "q3"]}]}
    recall = [(row["doc_type"], row["n"], row["base_mean"], row["candidate_mean"]) for row in index["recall"]["by_doc_type"]]
    assert recall == [("pdf", 2, 1, 0), ("markdown", 1, 1, 1)]
    lines = [
        "index: 2 -> 2 documents (1 lost: scan.pdf; 1 new: new.md; 1 with other chunks), 3 -> 4 chunks, 200.0 -> 150.0 tokens per chunk",
        "1 of 2 gold documents are no longer in the index by its manifest: scan.pdf (asked by q2, q3)",
        "recall@10 by type of the gold document: pdf 1.000 -> 0.000, ",
    ]
    page, markdown = ((folder / name).read_text() for name in ("compare.html", "comparison.md"))
    assert [line for line in lines if line not in said] == []
    assert [line for line in lines[:2] if line.replace("->", "-&gt;") not in page] == []
    assert "gold documents are no longer in the index by its manifest: scan.pdf" in markdown


@pytest.mark.slow
def test_without_tokens_chunks_are_measured_in_characters_of_what_was_retrieved(here, capsys):
    """And the same index on both sides is no difference."""
    questions = {"q1": ["a.md"]}
    evaluated("v6", {"a.md": [5]}, questions)
    evaluated("v7", {"a.md": [5], "scan.pdf": []}, questions)
    Path("v7.index.jsonl").write_text('{"doc_id": "a.md", "chunk_id": "1"}\n')
    assert main(["dataset=jsonl", "dataset.name=docs", "dataset.path=v7.jsonl", "metrics=[retrieval]", "name=v8",
                 "system.index_manifest=v7.index.jsonl", "report.formats=[]"]) == 0  # fmt: skip
    assert main(["task=compare", "base=v6", "candidate=[v8,v7]"]) == 0
    folder = next(Path("outputs/v7/comparisons").iterdir())
    sizes = [item["index"]["chunk_size"] for item in json.loads((folder / "comparison.json").read_text())["comparisons"]]
    assert sizes == [{"unit": "characters", "base": 1.0, "candidate": 1.0}, {"unit": "tokens", "base": 5.0, "candidate": 5.0}]
    capsys.readouterr()
    assert main(["task=compare", "base=v6", "candidate=v6"]) == 0
    assert "index:" not in capsys.readouterr().out
