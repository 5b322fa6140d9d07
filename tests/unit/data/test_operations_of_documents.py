"""The options made for the documents' own files read timings, usage and errors where the records have them."""

import json

import pytest
import yaml

from ragpipe.core.resources import conf_dir

OPERATIONS = {"timings": {"total": 1200.0}, "usage": {"tokens_in": 7.0, "cost_usd": 0.014}}
FAILED = {"error": "timed out"}


@pytest.mark.parametrize(("option", "asked", "answered"), [
    ("eval_set", {"id": "a", "input": {"query": "Who?"}}, lambda said: {"output": {"response": "Ada.", **said} if said != FAILED else said}),
    ("golden_set", {"id": "a", "question": "Who?"}, lambda said: {"answer": "Ada.", **said} if said != FAILED else said),
    ("query_logs", {"queryLogId": "a", "question": "Who?", "context": []}, lambda said: {"answer": "Ada.", **said} if said != FAILED else said),
    ("graphrag", {"id": "a", "question": "Who?", "ground_truth": "Ada.", "method": "m"}, lambda said: {"answer": "Ada.", **said} if said != FAILED else said),
])  # fmt: skip
def test_timings_usage_and_errors_are_read(open_file, tmp_path, option, asked, answered):
    plain = yaml.safe_load((conf_dir() / "dataset" / f"{option}.yaml").read_text(encoding="utf-8"))
    plain = {key: value for key, value in plain.items() if key not in ("path", "files")}
    rows = [{**asked, **answered(OPERATIONS)}, {**asked, ("queryLogId" if option == "query_logs" else "id"): "b", **answered(FAILED)}]
    good, failed = (record.output for record in open_file({"d.json": json.dumps(rows)}, **plain))
    assert (good.timings, good.usage, good.error) == (OPERATIONS["timings"], OPERATIONS["usage"], None)
    assert (failed.answer, failed.error) == (None, "timed out")
