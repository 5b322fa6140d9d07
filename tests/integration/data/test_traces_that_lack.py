"""A trace whose step of retrieval says nothing of documents: the contexts are not recorded, and a line says what is lacking."""

import json

import pytest

from ragpipe.cli.command_line import main

pytestmark = pytest.mark.slow

STEPS = {"openinference.span.kind": "RETRIEVER"}


def test_the_first_run_says_what_a_trace_lacks(here, capsys):
    ids = {"trace_id": "0x" + "1f" * 16, "span_id": "0x" + "2e" * 8}
    root = {"openinference.span.kind": "CHAIN", "input.value": "When?", "output.value": "At six."}
    rows = [
        {"name": "rag", "context": ids, "parent_id": None, "attributes": root},
        {"name": "search", "context": {**ids, "span_id": "0x" + "3d" * 8}, "parent_id": ids["span_id"], "attributes": STEPS},
    ]
    times = {"kind": "INTERNAL", "start_time": "2026-01-01T00:00:00Z", "end_time": "2026-01-01T00:00:01Z", "status": {}, "events": []}
    (here / "spans.jsonl").write_text("".join(json.dumps(row | times) + "\n" for row in rows))
    assert main(["spans.jsonl"]) == 0
    out = capsys.readouterr()
    said = " ".join((out.out + out.err).split())
    assert "the step search records no documents" in said
    assert "faithfulness" in said.partition("not measured")[2]
