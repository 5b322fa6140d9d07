"""The example RAG over HTTP: both shapes of request, and wrong ones."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from aiohttp.test_utils import TestClient, TestServer

from ragpipe.example_rag.__main__ import application
from ragpipe.example_rag.system import ExampleRag

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test

QUESTION = "What is the weight of the Heron?"
ANSWER = "Weight: 640 g [1]"


@pytest_asyncio.fixture
async def client() -> AsyncIterator[TestClient]:  # type: ignore[type-arg]
    async with TestClient(TestServer(application(ExampleRag()))) as client:
        yield client


async def test_post_and_get(client: TestClient) -> None:  # type: ignore[type-arg]
    posted = await (await client.post("/ask", json={"question": QUESTION, "folder_mode": "on"})).json()
    got = await (await client.get("/ask", params={"question": QUESTION, "folder_mode": "on"})).json()
    assert posted["answer"] == got["answer"] == ANSWER
    assert posted["selected_folders"] == got["selected_folders"] != []
    assert set(posted) == {
        "answer", "chunks", "citations", "abstained", "folder_mode", "selected_folders", "timings", "version",
    }  # fmt: skip
    assert set(posted["timings"]) == {"folder_selection", "retrieval", "generation"}


@pytest.mark.parametrize(("body", "message"), [
    ("{", "Expecting"),
    ("[1]", "no question"),
    ("{}", "no question"),
    ('{"question": "x", "folder_mode": "sideways"}', "sideways"),
])  # fmt: skip
async def test_wrong_requests_get_a_reason(client: TestClient, body: str, message: str) -> None:  # type: ignore[type-arg]
    response = await client.post("/ask", data=body)
    assert response.status == 400
    assert message in (await response.json())["error"]["message"]
