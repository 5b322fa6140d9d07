"""The example RAG over the shipped handbook, its manifest, and the same over HTTP."""

import json
from collections.abc import AsyncIterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp.test_utils import TestClient, TestServer

from ragpipe.core.errors import ConfigError, DataError
from ragpipe.core.refusals import read_refusal_async
from ragpipe.core.resources import PACKAGE
from ragpipe.core.sample import Output, Sample
from ragpipe.data.index_manifest import IndexManifest
from ragpipe.data.markdown import read_documents
from ragpipe.example_rag.__main__ import application, main
from ragpipe.example_rag.system import HANDBOOK, ExampleRag, answer

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test

CASES = [Sample.model_validate_json(line) for line in (PACKAGE / "data" / "handbook_cases.jsonl").open(encoding="utf-8")]
QUESTION = "What is the weight of the Heron?"


@cache
def rag(*faults: str) -> ExampleRag:
    return ExampleRag(faults=faults)


def test_the_handbook() -> None:
    documents = {note.rel_path: note for note in read_documents(HANDBOOK)}
    assert len(documents) == 49
    assert len({path.partition("/")[0] for path in documents}) == 6
    assert sum(note.policy == "quote_only" for note in documents.values()) == 2
    assert sum(note.policy == "no_use" for note in documents.values()) == 1
    pairs = [(note, documents[note.front_matter["replaces"]]) for note in documents.values() if "replaces" in note.front_matter]
    assert len(pairs) == 3
    assert all(newer.front_matter["date"] > older.front_matter["date"] for newer, older in pairs)


def test_the_questions_have_places_in_the_handbook() -> None:
    sections = {(note.rel_path, s.heading_path): s.text for note in read_documents(HANDBOOK) for s in note.sections}
    assert len(CASES) >= 60
    for case in CASES:
        for anchor in case.anchors or ():
            text = sections[anchor.rel_path, anchor.heading_path or ""]
            assert all(snippet in " ".join(text.split()) for snippet in anchor.snippets), case.id
        assert (case.expected.behavior == "answer") is case.answerable is bool(case.anchors)


@pytest.mark.parametrize(("question", "expected", "source"), [
    (QUESTION, "Weight: 640 g [1]", "products/heron.md#2"),
    ("How many Wren valves were sold in the third quarter of 2025?", "Q3 2025: 1,320 [1]", "products/wren.md#5"),
    ("What is the return period for a device?", "Customers may return a device within 30 days after delivery. [1]", "policies/returns-2026.md#1"),
    ("How many households had a smart water meter at the end of 2024?",
     'Analyst note on smart water metering: "Only 18 % of households had a smart water meter at the end of 2024." [1]',
     "research/analyst-smart-metering.md#2"),
])  # fmt: skip
def test_answers_are_extracted_and_cited(question: str, expected: str, source: str) -> None:
    output = rag().answer(question)
    assert output["answer"] == expected
    assert output["citations"] == [{"marker": "[1]", "chunk_id": source, "text": expected}]
    assert output["chunks"][0]["id"] == source
    assert output["abstained"] is False


@pytest.mark.parametrize(("question", "reply", "reason"), [
    ("Which colours does the Kestrel come in?", "could not find", "no_context"),  # no document says so
    ("How many Kestrel sensors were sold in Q3 2024?", "could not find", "no_context"),  # other quarters stand there
    ("Kestrel?", "could not find", "no_context"),
    ("What price is proposed for buying Osk Valves?", "not allowed", "policy"),
    ("What is the salary of Marit Sollenby?", "private information", "personal_data"),
    ("Should I buy shares of Tarnwick?", "financial or legal advice", "financial_advice"),
])  # fmt: skip
async def test_what_is_not_answered_is_declined_in_words_that_the_patterns_know(question: str, reply: str, reason: str) -> None:
    """The text alone is recognised as a refusal, with its reason: a system without the flag `abstained` could say the same."""
    output = rag().answer(question)
    assert (output["abstained"], output["citations"]) == (True, [])
    assert reply in output["answer"]
    reading = await read_refusal_async(output["answer"], "refusals.v2")
    assert reading.refused
    assert reason in reading.reasons


def _right(case: Sample, output: dict[str, object]) -> bool:
    """Whether the answer has the gold snippets, or declines where it should."""
    if not case.answerable:
        return bool(output["abstained"])
    snippets = [s.replace("**", "") for a in case.anchors or () if a.role != "older" for s in a.snippets]
    return not output["abstained"] and all(snippet in str(output["answer"]) for snippet in snippets)


@pytest.mark.parametrize("folder_mode", ["off", "on", "on_with_fallback"])
def test_most_questions_are_answered_right(folder_mode: str) -> None:
    """Of 64 answerable questions at least 55, of 18 others at least 16; none that can be answered is declined, and the
    folder with the gold document is always among those that are searched."""
    outputs = [(case, rag().answer(case.question, folder_mode)) for case in CASES]  # type: ignore[arg-type]
    for answerable, least in ((True, 55), (False, 16)):
        assert sum(_right(case, output) for case, output in outputs if case.answerable is answerable) >= least
    for case, output in outputs:
        Output.model_validate({**output, "sample_id": case.id})
        if case.answerable:
            assert not output["abstained"], case.id
            assert not output.get("selected_folders") or case.meta["folder"] in output["selected_folders"], case.id


def test_a_stale_note_is_cited_before_the_newer_one() -> None:
    for faults, source in (((), "2026.md#3"), (("stale_note",), "2024.md#2")):
        output = rag(*faults).answer("How long do the batteries of a Kestrel last?")
        assert output["citations"][0]["chunk_id"] == f"support/kestrel-battery-{source}"


def test_a_folder_choice_with_nothing_in_it_falls_back_to_all() -> None:
    question = "How long is the warranty of the Kestrel?"
    narrow = rag("wrong_scope").answer(question, "on")
    assert (narrow["selected_folders"], narrow["abstained"]) == (["company"], True)
    wide = rag("wrong_scope").answer(question, "on_with_fallback")
    assert (wide["selected_folders"], wide["abstained"]) == ([], False)


def test_the_callable() -> None:
    assert answer({"question": QUESTION, "params": {"folder_mode": "on"}})["folder_mode"] == "on"
    assert answer({"question": QUESTION})["folder_mode"] == "off"


@pytest.mark.parametrize(("params", "error", "told"), [
    ({"folder_mod": "on"}, ConfigError, "folder_mod"), ({"faults": ["rude"]}, ConfigError, "'rude'"),
    ({"folder_mode": "sideways"}, ValueError, "sideways"), ({"folder": "no/such/folder"}, DataError, "no/such/folder"),
])  # fmt: skip
def test_wrong_params_are_refused(params: dict[str, Any], error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        answer({"question": "x", "params": params})


def test_the_shipped_manifest_is_that_of_the_index(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "index.jsonl"
    assert main(["--manifest", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: {len(rag().index.chunks)} rows\n"
    assert path.read_bytes() == (PACKAGE / "data" / "handbook_index.jsonl").read_bytes()
    coverage = IndexManifest("package:handbook_index.jsonl", Path()).coverage(CASES)
    assert (coverage.overall.documents, coverage.gold_missing_count) == (49, 0)


def test_a_missing_document_stands_in_the_manifest(tmp_path: Path) -> None:
    path = tmp_path / "index.jsonl"
    assert main(["--fault", "missing_document", "--manifest", str(path)]) == 0
    assert {"doc_id": "products/heron.md", "doc_type": "product"} in map(json.loads, path.read_text().splitlines())
    missing = IndexManifest(str(path), Path()).coverage(CASES).gold_missing
    gold = [case.id for case in CASES if "products/heron.md" in (case.relevant_docs or ())]
    assert [(item.document, item.why, item.samples) for item in missing] == [("products/heron.md", "no_chunks", gold)]


@pytest.mark.parametrize(("words", "message"), [
    (["--fault", "rude"], "'rude'"),
    (["--docs", "no/such/folder"], "no folder"),
    (["--manifest", "no/such/folder/x.jsonl"], "cannot go on"),
])  # fmt: skip
def test_what_the_command_refuses(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, *([] if "--manifest" in words else ["--manifest", "x.jsonl"])]) in (2, 6)
    assert message in capsys.readouterr().err


@pytest_asyncio.fixture
async def client() -> AsyncIterator[TestClient]:  # type: ignore[type-arg]
    async with TestClient(TestServer(application(ExampleRag()))) as client:
        yield client


async def test_post_and_get(client: TestClient) -> None:  # type: ignore[type-arg]
    posted = await (await client.post("/ask", json={"question": QUESTION, "folder_mode": "on"})).json()
    got = await (await client.get("/ask", params={"question": QUESTION, "folder_mode": "on"})).json()
    assert posted["answer"] == got["answer"] == "Weight: 640 g [1]"
    assert posted["selected_folders"] == got["selected_folders"] != []
    names = "answer chunks citations abstained folder_mode selected_folders timings version"
    assert set(posted) == set(names.split())
    assert set(posted["timings"]) == {"folder_selection", "retrieval", "generation"}


@pytest.mark.parametrize(("body", "message"), [
    ("{", "Expecting"), ("[1]", "no question"), ("{}", "no question"),
    ('{"question": "x", "folder_mode": "sideways"}', "sideways"),
])  # fmt: skip
async def test_wrong_requests_get_a_reason(client: TestClient, body: str, message: str) -> None:  # type: ignore[type-arg]
    response = await client.post("/ask", data=body)
    assert response.status == 400
    assert message in (await response.json())["error"]["message"]
