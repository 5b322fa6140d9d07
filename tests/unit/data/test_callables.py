"""What a Python system may be and return: objects with methods, classes, models; and which exceptions are met again."""

import pytest

from ragpipe.core.errors import ConfigError
from ragpipe.core.sample import Sample
from ragpipe.data.live_system import failure_of_exception, open_methods
from ragpipe.data.python_system import fields_of_result
from ragpipe.data.system_settings import PythonSystem
from ragpipe.runs.collect_outputs import CollectStage, token_usage
from ragpipe.runs.collected_outputs import collected_outputs

SAMPLE = Sample(id="s1", question="Capital?")
MODULE = """
from dataclasses import dataclass, field
from pydantic import BaseModel

def words(sample): yield from ("Paris", " it", " is")

async def later(sample): return {"answer": "Paris it is", "contexts": ["one"]}
def lazy(sample): return later(sample)

class Chain:
    prefix = "sync"
    def invoke(self, value): return f"{self.prefix} {value}"

class Engine:
    async def aquery(self, value): return f"async {value}"

class Both:
    def invoke(self, value): raise AssertionError
    async def ainvoke(self, value): return f"async {value}"

class Needs:
    def __init__(self, index): ...

chain, engine, both = Chain(), Engine(), Both()

class Holder:
    inner = Chain()
holder = Holder()

class Model(BaseModel):
    answer: str = "Paris it is"
    contexts: list[str] = ["one"]
    version: str | None = None

@dataclass
class Data:
    answer: str = "Paris it is"
    contexts: list[str] = field(default_factory=lambda: ["one"])

def model(sample): return Model()
def data(sample): return Data()
def tuples(sample): return {"answer": "Paris it is", "contexts": ("one",)}
class Doc:
    page_content, metadata = "one", {"source": "a.md"}
def pair(sample): return "Paris it is", [Doc()]
def nothing_to_call(): ...
def fails(sample): return sample["index"]
number = 7
"""


@pytest.fixture
def plugin(code_here):
    (code_here / "forms.py").write_text(MODULE)
    return code_here


async def answered(folder, name, **settings):
    python = PythonSystem(kind="python", callable=f"forms:{name}", **settings)
    await CollectStage(open_methods(python, ["forms"]), folder / "j.jsonl").run(lambda: iter([SAMPLE]))
    ((output,),) = collected_outputs(folder / "j.jsonl").values()
    return output


@pytest.mark.parametrize("name", ["later", "lazy", "model", "data", "tuples", "pair"])
async def test_every_way_to_answer_gives_one_answer(plugin, name):
    output = await answered(plugin, name)
    assert output.error is None
    assert output.answer == "Paris it is"
    assert [chunk.text for chunk in output.chunks or []] == ["one"]


async def test_a_stream_of_pieces_is_refused(plugin):
    with pytest.raises(ConfigError, match=r"type[\s\S]*found: +generator[\s\S]*answer"):
        await answered(plugin, "words")


async def test_an_exception_is_told_with_its_file_and_line(plugin):
    line = next(number for number, text in enumerate(MODULE.splitlines(), 1) if text.startswith("def fails"))
    output = await answered(plugin, "fails")
    assert output.error == f"KeyError: 'index' (forms.py:{line})"


@pytest.mark.parametrize(
    ("name", "fix"),
    [("forms:tupels", "did you mean tuples?"), ("forms.part:x", "is its folder on PYTHONPATH?"), ("froms:tuples", "did you mean forms?")],
)
def test_a_callable_that_is_not_there(plugin, name, fix):
    with pytest.raises(ConfigError) as caught:
        list(open_methods(PythonSystem(kind="python", callable=name), ["forms"]))
    assert caught.value.problems[0].fix == fix


DOCUMENT = {"id": None, "metadata": {"source": "a.md"}, "page_content": "one", "type": "Document"}


class _Document:
    """As LangChain has it."""

    page_content, metadata, id = "one", {"source": "a.md"}, None


FOUND = {"answer": "yes", "chunks": [{"text": "one", "doc_id": "a.md"}]}
RESULTS = [
    ({"input": "?", "context": [_Document()], "answer": "yes"}, FOUND),
    ({"input": "?", "context": [DOCUMENT], "answer": "yes"}, FOUND),
    ({"question": "?", "context": [_Document()], "answer": "yes"}, FOUND),  # the state of a LangGraph tutorial
    ({"context": (DOCUMENT,), "answer": "yes"}, FOUND),
    ({"query": "?", "result": "yes", "source_documents": [_Document()]}, FOUND),
    ({"result": "yes", "source_documents": [DOCUMENT]}, FOUND),
    ({"answer": "yes", "documents": [DOCUMENT]}, FOUND),
    ({"answer": "yes", "contexts": [DOCUMENT]}, FOUND),
    ({"answer": "yes", "context": ["one"]}, {"answer": "yes", "contexts": ["one"]}),
    ({"input": "?", "answer": "yes", "context": []}, {"answer": "yes", "contexts": []}),
    ({"answer": "yes", "context": ["one"], "took": 1}, {"answer": "yes", "contexts": ["one"], "took": 1}),
    # what may mean two things stays as it is
    *((result, result) for result in (
        {"answer": "yes", "context": "one text"}, {"answer": "yes", "context": [{"body": "one"}]},
        {"answer": "yes", "context": ["one"], "documents": ["two"]}, {"answer": "yes", "contexts": ["one"], "context": ["two"]},
    )),
]  # fmt: skip


@pytest.mark.parametrize(("result", "fields"), RESULTS)
def test_documents_are_found_where_chains_put_them(result, fields):
    assert fields_of_result(result) == fields


@pytest.mark.parametrize(("name", "settings", "answer"), [
    ("chain", {}, "sync Capital?"),
    ("Chain", {}, "sync Capital?"),
    ("holder.inner.invoke", {}, "sync Capital?"),
    ("engine", {}, "async Capital?"),
    ("both", {}, "async Capital?"),
    ("chain", {"input": "{input: question}"}, "sync {'input': 'Capital?'}"),
    ("chain", {"input": "params.k", "params": {"k": 5}}, "sync 5"),
])  # fmt: skip
async def test_an_object_gets_the_question_unless_input_says_otherwise(plugin, name, settings, answer):
    assert (await answered(plugin, name, **settings)).answer == answer


@pytest.mark.parametrize(
    ("name", "told"), [("number", "something that can be called"), ("Needs", "a class that needs no arguments"), ("absent", "importable")]
)
async def test_what_cannot_be_called_is_refused(plugin, name, told):
    with pytest.raises(ConfigError, match=told):
        await answered(plugin, name)


class _Response:
    def __init__(self, status, headers=None):
        self.status_code, self.headers = status, headers or {}


class _StatusError(Exception):
    def __init__(self, status=None, response=None, wait=None):
        if status is not None:
            self.status_code = status
        if response is not None:
            self.response = response
        if wait is not None:
            self.retry_after = wait


class TransportError(Exception):
    """As httpx has one above all that goes wrong on the way."""


class ReadError(TransportError): ...


@pytest.mark.parametrize(("error", "kind", "wait"), [
    (ConnectionError("down"), "network", None),
    (TimeoutError("slow"), "network", None),
    (ReadError("cut"), "network", None),
    (_StatusError(429), "rate_limit", None),
    (_StatusError(503), "server_error", None),
    (_StatusError(400), "bad_request", None),
    (_StatusError(response=_Response(503, {"Retry-After": "4"})), "server_error", 4.0),
    (_StatusError(wait=2.5), "rate_limit", 2.5),
    (ValueError("no index"), "bad_request", None),
    (OSError("disk"), "bad_request", None),
])  # fmt: skip
def test_which_exceptions_may_pass(error, kind, wait):
    failure = failure_of_exception(error)
    assert (failure.kind, failure.retry_after) == (kind, wait)


@pytest.mark.parametrize(("usage", "counts"), [
    ({"tokens_in": 3, "cost_usd": 0.1}, {"tokens_in": 3, "cost_usd": 0.1}),
    (
        {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": None}},
        {"prompt_tokens": 9, "completion_tokens": 2, "cached_tokens": 4},
    ),
    (
        {"input_tokens": 9, "output_tokens": 2, "output_token_details": {"reasoning": 1}, "service_tier": None},
        {"input_tokens": 9, "output_tokens": 2, "reasoning_tokens": 1},
    ),
])  # fmt: skip
def test_nested_counts_of_tokens_are_taken_out(usage, counts):
    assert token_usage(usage) == counts
