"""Objects of the real langchain-core and llama-index-core as systems, without a model or a network."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.frameworks
pytest.importorskip("langchain_core")
pytest.importorskip("llama_index.core")

from ragpipe.core.sample import Output, Sample  # noqa: E402
from ragpipe.data.live_system import open_methods  # noqa: E402
from ragpipe.data.system_settings import PythonSystem  # noqa: E402
from ragpipe.runs.collect_outputs import CollectStage  # noqa: E402
from ragpipe.runs.collected_outputs import collected_outputs  # noqa: E402

MODULE = """
from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from llama_index.core import Settings, SummaryIndex
from llama_index.core.base.response.schema import Response
from llama_index.core.llms import MockLLM
from llama_index.core.schema import NodeWithScore, TextNode

DOCUMENTS = [
    Document(page_content="Paris is the capital of France.", metadata={"source": "france.md", "score": 0.9}, id="d1"),
    Document(page_content="Berlin is the capital of Germany.", metadata={"doc_id": "germany", "heading_path": "A > B"}),
]

class Words(BaseRetriever):
    def _get_relevant_documents(self, query, *, run_manager):
        return DOCUMENTS

def model(text):
    while True:
        yield AIMessage(text, usage_metadata={"input_tokens": 12, "output_tokens": 3, "total_tokens": 15,
                                              "input_token_details": {"cache_read": 4}})

chat = GenericFakeChatModel(messages=model("Paris it is"))
prompt = ChatPromptTemplate.from_template("{context} {question}")
retriever = Words()
texts = {"context": retriever, "question": RunnablePassthrough()} | prompt | chat | StrOutputParser()
messages = {"context": retriever, "question": RunnablePassthrough()} | prompt | chat
retrieval_chain = (
    RunnablePassthrough.assign(context=RunnableLambda(lambda x: retriever.invoke(x["input"])))
    .assign(answer=RunnableLambda(lambda x: {"context": x["context"], "question": x["input"]}) | prompt | chat | StrOutputParser())
)

def retrieval_qa(sample):
    return {"query": sample["question"], "result": "Paris it is", "source_documents": DOCUMENTS}

def documents(sample):
    return {"answer": AIMessage("Paris it is"), "contexts": DOCUMENTS}

NODES = [
    NodeWithScore(node=TextNode(text="Paris is the capital of France.", id_="n1", metadata={"file_name": "france.md"}), score=0.7),
    NodeWithScore(node=TextNode(text="Berlin is the capital of Germany.", id_="n2"), score=None),
]

def response(sample): return Response(response="Paris it is", source_nodes=NODES)
def nodes(sample): return NODES

Settings.llm = MockLLM()
index = SummaryIndex([node.node for node in NODES])
engine = index.as_query_engine(llm=MockLLM(), response_mode="compact")
"""


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("frameworks")
    (folder / "chains.py").write_text(MODULE)
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))
    sys.modules.pop("chains", None)


async def answered(folder: Path, name: str, journal: str = "", **settings: Any) -> Output:
    python = PythonSystem(kind="python", callable=f"chains:{name}", **settings)
    path = folder / f"{name}{journal}.jsonl"
    sample = Sample(id="s1", question="What is the capital of France?")
    await CollectStage(open_methods(python, ["chains"]), path).run(lambda: iter([sample]))
    ((output,),) = collected_outputs(path).values()
    assert output.error is None
    return output


TEXTS = ["Paris is the capital of France.", "Berlin is the capital of Germany."]


@pytest.mark.parametrize(("name", "settings"), [
    ("retrieval_chain", {"input": "{input: question}"}),
    ("retrieval_chain.invoke", {"input": "{input: question}"}),
    ("retrieval_qa", {}), ("documents", {}),
])  # fmt: skip
async def test_documents_of_langchain_are_chunks(plugin: Path, name: str, settings: dict[str, Any]) -> None:
    output = await answered(plugin, name, **settings)
    assert output.answer == "Paris it is"
    first, second = output.chunks or []
    assert [first.text, second.text] == TEXTS
    assert (first.id, first.doc_id, first.score) == ("d1", "france.md", 0.9)
    assert (second.id, second.doc_id, second.heading_path) == ("c2", "germany", "A > B")


@pytest.mark.parametrize("name", ["texts", "messages"])
async def test_texts_and_messages_of_langchain_are_answers(plugin: Path, name: str) -> None:
    output = await answered(plugin, name)
    assert (output.answer, output.chunks) == ("Paris it is", None)
    if name == "messages":
        assert output.usage == {"input_tokens": 12, "output_tokens": 3, "total_tokens": 15, "cached_tokens": 4}


async def test_a_retriever_alone_gives_chunks_and_no_answer(plugin: Path) -> None:
    output = await answered(plugin, "retriever")
    assert output.answer is None
    assert [chunk.text for chunk in output.chunks or []] == TEXTS


@pytest.mark.parametrize("name", ["response", "nodes", "engine"])
async def test_responses_of_llama_index(plugin: Path, name: str) -> None:
    output = await answered(plugin, name)
    first, second = output.chunks or []
    assert [(first.id, first.text), (second.id, second.text)] == [("n1", TEXTS[0]), ("n2", TEXTS[1])]
    if name == "response":
        assert output.answer == "Paris it is"
        assert (first.doc_id, first.score, second.score) == ("france.md", 0.7, None)
    if name == "engine":
        assert "What is the capital of France?" in (output.answer or "")  # the mock model repeats its prompt
