"""The shipped experiments on real data, through the command line, against reference values from trusted libraries."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ragpipe.cli.command_line import main
from tests.support.rows import first_rows

NAMES = {"P": "precision", "ndcg_cut": "ndcg", "recall": "recall", "success": "hit", "recall_all": "recall_all"}
WHOLE = {"recip_rank": "mrr", "map": "map@1000", "ndcg": "ndcg@1000"}
RUNS = [
    ("clapnq", "clapnq_dev", "run.bm25.trec", "shared clapnq_dev run.bm25", "qrels.txt"),
    ("clapnq", "clapnq_dev", "run.tfidf.trec", "shared clapnq_dev run.tfidf", "qrels.txt"),
    ("mtrag", "mtrag_un", "run.bm25.trec", "shared mtrag_un run.bm25", "qrels.txt"),
    ("mtrag", "mtrag_un", "run.tfidf.trec", "shared mtrag_un run.tfidf", "qrels.txt"),
    ("trec", "trec_eval", "results.test", "trec_eval results.test", "qrels.test"),
]


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> Path:
    monkeypatch.chdir(folder)
    assert main([*words, "report.formats=[]", "name=x"]) == 0
    return (folder / "outputs" / "x" / "latest" / "iteration-1").resolve()


def ours(measure: str) -> str | None:
    base, _, cut = measure.rpartition("_")
    return WHOLE.get(measure) or (f"{NAMES[base]}@{cut}" if base in NAMES else None)


@pytest.mark.thorough(tried=2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("experiment", "folder", "file", "expected", "qrels"),
    first_rows((pytest.param(*row, id=row[3]) for row in RUNS), {"trec_eval results.test"}),
)
def test_retrieval_equals_trec_eval(experiment, folder, file, expected, qrels, tmp_path, monkeypatch, real_data) -> None:
    import pytrec_eval

    found = run(
        tmp_path, monkeypatch, f"+experiment={experiment}", f"dataset.path={real_data / folder}",
        f"dataset.files.run={file}", "metrics.retrieval.k=[1,5,10,20,1000]",
    )  # fmt: skip
    scores = json.loads((found / "metrics.json").read_text())["overall"]["scores"]
    reference = json.loads((real_data / "EXPECTED.json").read_text())["retrieval"][expected]
    compared = 0
    for measure, value in reference["mean_over_all_qrels_queries"].items():
        name = ours(measure)
        if name in scores:
            assert scores[name]["mean"] == pytest.approx(value, abs=5.1e-7), measure
            assert scores[name]["n_ok"] == reference["queries_in_qrels"]
            compared += 1
    assert compared == 18
    judged = _table(real_data / folder / qrels, 0, 2, 3, int)
    ranked = _table(real_data / folder / file, 0, 2, 4, float)
    measures = {"map", "ndcg", "recip_rank", "P.5,10", "recall.5,10", "ndcg_cut.5,10", "success.5,10"}
    theirs = pytrec_eval.RelevanceEvaluator(judged, measures).evaluate(ranked)
    rows = pq.read_table(found / "scores.parquet").to_pylist()
    ids = {r["id"]: r for r in pq.read_table(found.parent / "samples.parquet").to_pylist()}
    values = {(_query(ids[r["sample_id"]], experiment), r["score_name"]): r["value"] for r in rows if r["status"] == "ok"}
    for query, measured in theirs.items():
        for measure, value in measured.items():
            assert values[query, ours(measure)] == pytest.approx(value, abs=1e-9), (query, measure)


def _query(sample: dict[str, Any], experiment: str) -> str:
    if experiment != "mtrag":
        return str(sample["id"])
    meta = json.loads(sample["meta"])
    return f"{meta['conversation']}_{meta['turn']}"


def _table(path: Path, query: int, doc: int, value: int, kind: Any) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for line in path.read_text().splitlines():
        cells = line.split()
        found.setdefault(cells[query], {})[cells[doc]] = kind(cells[value])
    return found


@pytest.mark.thorough
@pytest.mark.slow
def test_ragtruth_is_judged_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, real_data: Path) -> None:
    found = run(
        tmp_path, monkeypatch, "+experiment=ragtruth", f"dataset.path={real_data / 'ragtruth_qa' / 'ragtruth_qa.jsonl'}",
    )  # fmt: skip
    expected = json.loads((real_data / "EXPECTED.json").read_text())["datasets"]["shared ragtruth_qa"]
    outputs = pq.read_table(found.parent / "outputs.parquet").to_pylist()
    assert pq.read_metadata(found.parent / "samples.parquet").num_rows == expected["sources"]
    assert len(outputs) == expected["responses"]
    assert all(len(o["chunks"]) == 3 for o in outputs)
    by_model = Counter(o["method"] for o in outputs)
    assert dict(by_model) == {model: counts[0] for model, counts in expected["by_model"].items()}
    scores = json.loads((found / "metrics.json").read_text())["by"]["method"]
    assert {model: scores[model]["n_cases"] for model in by_model} == dict(by_model)
    assert all(scores[model]["scores"]["faithfulness"]["n_ok"] == n for model, n in by_model.items())
    for model, (answers, hallucinated, _) in expected["by_model"].items():
        assert scores[model]["scores"]["human_hallucinated"]["mean"] == hallucinated / answers
