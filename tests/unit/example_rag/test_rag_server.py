"""The example RAG over HTTP: every shape of request, wrong ones, and failures on purpose."""

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from aiohttp.test_utils import TestClient, TestServer

from ragpipe.example_rag.rag_server import RagServer
from ragpipe.example_rag.system import ExampleRag

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test

QUESTION = "What is the weight of the Heron?"
ANSWER = "Weight: 640 g [1]"


@pytest_asyncio.fixture
async def client() -> AsyncIterator[TestClient]:  # type: ignore[type-arg]
    async with TestClient(TestServer(RagServer(ExampleRag()).application())) as client:
        yield client


def _events(body: str) -> list[str]:
    return [event.removeprefix("data: ") for event in body.split("\n\n") if event]


async def test_post_and_get(client: TestClient) -> None:  # type: ignore[type-arg]
    posted = await (await client.post("/ask", json={"question": QUESTION, "folder_mode": "on"})).json()
    got = await (await client.get("/ask", params={"question": QUESTION, "folder_mode": "on"})).json()
    assert posted["answer"] == got["answer"] == ANSWER
    assert posted["selected_folders"] == got["selected_folders"] != []
    assert set(posted) == {
        "answer", "chunks", "citations", "abstained", "folder_mode", "selected_folders", "timings", "version",
    }  # fmt: skip
    assert set(posted["timings"]) == {"folder_selection", "retrieval", "generation"}


async def test_a_streamed_answer(client: TestClient) -> None:  # type: ignore[type-arg]
    response = await client.post("/ask", json={"question": QUESTION, "stream": True})
    assert response.content_type == "text/event-stream"
    *events, done = _events(await response.text())
    *pieces, output = map(json.loads, events)
    assert "".join(piece["delta"] for piece in pieces) == output["answer"] == ANSWER
    assert done == "[DONE]"


async def test_the_chat_shape(client: TestClient) -> None:  # type: ignore[type-arg]
    messages = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}, {"role": "user", "content": QUESTION}]
    reply = await (await client.post("/v1/chat/completions", json={"messages": messages})).json()
    assert reply["choices"][0]["message"] == {"role": "assistant", "content": ANSWER}
    assert reply["output"]["chunks"][0]["doc_id"] == "products/heron.md"
    response = await client.post("/v1/chat/completions", json={"messages": messages, "stream": True})
    *events, done = _events(await response.text())
    choices = [json.loads(event)["choices"][0] for event in events]
    assert "".join(choice["delta"].get("content", "") for choice in choices) == ANSWER
    assert (choices[-1]["finish_reason"], done) == ("stop", "[DONE]")


@pytest.mark.parametrize(("path", "body", "message"), [
    ("/ask", "{", "no JSON"),
    ("/ask", "[1]", "no JSON object"),
    ("/ask", "{}", "no question"),
    ("/ask", '{"question": " "}', "no question"),
    ("/ask", '{"question": "x", "folder_mode": "sideways"}', "sideways"),
    ("/v1/chat/completions", '{"messages": [{"role": "system", "content": "x"}]}', "no question"),
    ("/v1/chat/completions", '{"messages": 3}', "no question"),
])  # fmt: skip
async def test_wrong_requests_get_a_reason(client: TestClient, path: str, body: str, message: str) -> None:  # type: ignore[type-arg]
    response = await client.post(path, data=body)
    assert response.status == 400
    assert message in (await response.json())["error"]["message"]


async def test_failures_on_purpose() -> None:
    server = RagServer(ExampleRag(), fail_rate=0.3)
    async with TestClient(TestServer(server.application())) as client:
        responses = [await client.get("/ask", params={"question": QUESTION}) for _ in range(60)]
        health = await (await client.get("/health")).json()
    failed = [response for response in responses if response.status == 503]
    assert (server.asked, server.failed) == (60, len(failed))
    assert 8 <= len(failed) <= 28  # 18 are expected; the draw has a fixed seed
    assert {response.headers["Retry-After"] for response in failed} == {"1"}
    assert health["status"] == "ok"
