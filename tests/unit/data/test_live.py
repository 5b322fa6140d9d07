"""Systems that are asked, collected with a journal: what a Python one may be and return, and which exceptions are met again."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from ragpipe.core.errors import ConfigError, DataError, Incomplete, RagpipeError
from ragpipe.core.sample import Sample
from ragpipe.data.live_system import LiveMethod, failure_of_exception, open_methods
from ragpipe.data.python_system import fields_of_result
from ragpipe.data.system_settings import HttpSystem, PythonSystem
from ragpipe.runs.collect_outputs import CollectStage, token_usage
from ragpipe.runs.collected_outputs import collected_outputs, has_failures
from ragpipe.store.journal import HEADER
from tests.support.waiting import HANGS_AFTER_S

SAMPLES = [Sample(id=f"s{i}", question=f"question {i}", references=["secret"]) for i in range(6)]


@pytest.fixture
def plugin(code_here):
    (code_here / "myrag.py").write_text(
        "import time\n"
        "def text(sample): return 'answer to ' + sample['question']\n"
        "async def full(sample): return {'answer': 'a', 'contexts': ['one', 'two'], 'seen': None} if 0 else {'answer': 'a', 'contexts': ['one', 'two']}\n"
        "def keys(sample): return ' '.join(sorted(sample))\n"
        "def _first(sample): return sample['id'] == 's0'\n"
        "def broken(sample):\n    if _first(sample): return 'well'\n    raise ValueError('no index')\n"
        "def number(sample): return 'well' if _first(sample) else 7\n"
        "def slow(sample): time.sleep(0 if _first(sample) else 0.3); return 'well'\n"
    )


async def collect(settings, journal, plugins=("myrag",), samples=SAMPLES):
    """The one output of each sample."""
    await CollectStage(open_methods(settings, plugins), journal).run(lambda: iter(samples))
    return {name: output for name, (output,) in collected_outputs(journal).items()}


async def test_a_system_never_sees_labels(plugin, tmp_path):
    found = await collect(PythonSystem(kind="python", callable="myrag:keys"), tmp_path / "j.jsonl")
    assert found["s0"].answer == "history id meta params question"


@pytest.mark.parametrize(("function", "limit", "error"), [
    ("broken", 5.0, "ValueError: no index"), ("number", 5.0, "expected a text or a mapping"),
    ("slow", 0.05, "timeout after 0.05 s"),
])  # fmt: skip
async def test_what_goes_wrong_is_that_outputs_error(plugin, tmp_path, function, limit, error):
    found = await collect(PythonSystem(kind="python", callable=f"myrag:{function}", timeout_s=limit), tmp_path / "j.jsonl")
    assert found.pop("s0").answer == "well"
    assert all(error in (output.error or "") and output.answer is None for output in found.values())


@pytest.mark.parametrize(("function", "error"), [
    ("nan", "timings.search"), ("infinite", "chunks[0].score"), ("half", "answer"), ("half_key", "usage"),
])  # fmt: skip
async def test_what_no_file_can_hold_is_that_outputs_error(code_here, function, error):
    """One such answer among good ones; the journal is read back, as every later start does."""
    (code_here / "odd.py").write_text(
        "def _of(sample, bad): return bad if sample['id'] == 's2' else {'answer': 'good'}\n"
        "def nan(sample): return _of(sample, {'answer': 'a', 'timings': {'search': float('nan')}})\n"
        "def infinite(sample): return _of(sample, {'chunks': [{'text': 't', 'score': float('-inf')}]})\n"
        "def half(sample): return _of(sample, 'half a sign \\ud83d')\n"
        "def half_key(sample): return _of(sample, {'answer': 'a', 'usage': {'\\ud83d': 1.0}})\n"
    )
    found = await collect(PythonSystem(kind="python", callable=f"odd:{function}"), code_here / f"{function}.jsonl", ("odd",))
    assert {name: output.answer for name, output in found.items() if output.error is None} == {f"s{i}": "good" for i in range(6) if i != 2}
    assert error in (found["s2"].error or "")


@pytest.mark.parametrize("bad", [
    '{"sample_id": "s1"}',
    '{"failed": false, "output": "{}"}',
    '{"sample_id": 1, "method": "a", "repeat": 1, "failed": 0, "output": ""}',
    '{"sample_id": "s1", "method": "a", "repeat": true, "failed": false, "output": "{}"}',
])  # fmt: skip
async def test_a_journal_edited_by_hand_is_refused_with_its_line(tmp_path, bad):
    journal = tmp_path / "j.jsonl"
    journal.write_bytes(HEADER + f"{bad}\n".encode())
    settings = PythonSystem(kind="python", callable="a:b", concurrency=1)
    with pytest.raises(DataError, match=r"j\.jsonl:2"):
        await CollectStage([LiveMethod(settings, Flaky(set()))], journal).run(lambda: iter(SAMPLES))


@pytest.mark.slow
def test_a_callable_that_hangs_does_not_keep_the_process(tmp_path):
    (tmp_path / "myrag.py").write_text("import time\ndef hang(sample): time.sleep(3600)\n")
    (tmp_path / "q.jsonl").write_text('{"id": "a", "question": "Why?"}\n')
    words = "dataset=jsonl dataset.path=q.jsonl metrics=[faithfulness] system=python system.callable=myrag:hang"
    command = [sys.executable, "-m", "ragpipe", *words.split(), "plugins=[myrag]", "system.timeout_s=0.1"]
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{Path(__file__).parents[3]}"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, timeout=HANGS_AFTER_S, check=False, capture_output=True)
    assert done.returncode == 4, "its only case has no answer"


async def test_as_many_answers_are_under_way_as_asked_for(code_here):
    """More than asyncio's own pool has threads."""
    (code_here / "wide.py").write_text(
        "import threading\nmeet = threading.Barrier(40)\ndef answer(sample):\n"
        "    if sample['id'] != 's0': meet.wait(10)\n    return 'met'\n"
    )
    settings = PythonSystem(kind="python", callable="wide:answer", concurrency=40)
    stage = CollectStage(open_methods(settings, ["wide"]), code_here / "j.jsonl")
    await stage.run(lambda: (Sample(id=f"s{i}", question="q") for i in range(41)))
    assert {output.answer for (output,) in collected_outputs(code_here / "j.jsonl").values()} == {"met"}


def test_a_callable_outside_the_listed_plugins_is_not_imported():
    with pytest.raises(ConfigError, match=r"system\.callable"):
        PythonSystem(kind="python", callable="os:getcwd").opened(("myrag",))
    assert "antigravity" not in sys.modules
    with pytest.raises(ConfigError, match="plugins"):
        PythonSystem(kind="python", callable="antigravity:x").opened(())
    assert "antigravity" not in sys.modules


async def test_an_output_that_cannot_be_kept_ends_the_collection(plugin, tmp_path, monkeypatch):
    settings = PythonSystem(kind="python", callable="myrag:text", concurrency=1)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ragpipe.runs.collect_outputs.append_output", full)
    stage = CollectStage(open_methods(settings, ("myrag",)), tmp_path / "j.jsonl")
    with pytest.raises(RagpipeError, match=r"sample 's0' could not be kept.*No space left"):
        await stage.run(lambda: iter(SAMPLES))
    assert stage.collected == 0


@pytest.mark.parametrize("raised", [TimeoutError("my index, 5 s"), asyncio.CancelledError("by a pool")])
async def test_what_a_system_raises_itself_is_neither_the_time_limit_nor_the_end(tmp_path, raised):
    settings = PythonSystem(kind="python", callable="a:b", timeout_s=60, retries=0)
    stage = CollectStage([LiveMethod(settings, Flaky({"s1"}, raised))], tmp_path / "j.jsonl")
    assert await stage.run(lambda: iter(SAMPLES)) == {"default": 6}
    errors = {name: output.error for name, (output,) in collected_outputs(tmp_path / "j.jsonl").items()}
    assert str(errors.pop("s1")).partition(" (test_live.py:")[0] == f"{type(raised).__name__}: {raised}"
    assert errors == {f"s{i}": None for i in (0, 2, 3, 4, 5)}


def test_a_missing_header_variable_is_refused(monkeypatch):
    monkeypatch.delenv("RAG_TOKEN", raising=False)
    with pytest.raises(ConfigError, match="RAG_TOKEN"):
        HttpSystem(kind="http", url="http://127.0.0.1:1/x", headers_env={"Authorization": "RAG_TOKEN"}).opened(())


class Flaky:
    """A system that fails for some samples; remembers whom it was asked for."""

    def __init__(self, failing, error=None):
        self.failing, self.error, self.asked = failing, error or ValueError("down"), list[str]()

    async def answer(self, sample):
        self.asked.append(sample.id)
        if sample.id in self.failing:
            raise self.error
        return {"answer": sample.id}

    async def close(self): ...


async def test_what_failed_is_asked_again_by_the_next_collection(tmp_path):
    settings, journal = PythonSystem(kind="python", callable="a:b", concurrency=1), tmp_path / "j.jsonl"
    await CollectStage([LiveMethod(settings, Flaky({"s1", "s3"}))], journal).run(lambda: iter(SAMPLES))
    assert has_failures(journal)
    await CollectStage([LiveMethod(settings, second := Flaky(set()))], journal).run(lambda: iter(SAMPLES))
    assert second.asked == ["s1", "s3"]
    assert not has_failures(journal)
    assert {k: v.answer for k, (v,) in collected_outputs(journal).items()} == {s.id: s.id for s in SAMPLES}


async def test_a_system_that_is_down_ends_the_collection(tmp_path):
    samples = [Sample(id=f"s{i}", question="q") for i in range(50)]
    settings = PythonSystem(kind="python", callable="a:b", concurrency=2)
    down = Flaky({s.id for s in samples[3:]})
    with pytest.raises(Incomplete, match=r"7 times in a row.*ValueError: down"):
        await CollectStage([LiveMethod(settings, down)], tmp_path / "j.jsonl").run(lambda: iter(samples))
    assert len(down.asked) <= 3 + 7 + 2
    up = Flaky(set())
    await CollectStage([LiveMethod(settings, up)], tmp_path / "j.jsonl").run(lambda: iter(samples))
    assert len(up.asked) == 47


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
def forms(code_here):
    (code_here / "forms.py").write_text(MODULE)
    return code_here


async def answered(folder, name, **settings):
    python = PythonSystem(kind="python", callable=f"forms:{name}", **settings)
    return (await collect(python, folder / "j.jsonl", ["forms"], [SAMPLE]))["s1"]


@pytest.mark.parametrize("name", ["later", "lazy", "model", "data", "tuples", "pair"])
async def test_every_way_to_answer_gives_one_answer(forms, name):
    output = await answered(forms, name)
    assert (output.error, output.answer) == (None, "Paris it is")
    assert [chunk.text for chunk in output.chunks or []] == ["one"]


async def test_an_exception_is_told_with_its_file_and_line(forms):
    line = next(number for number, text in enumerate(MODULE.splitlines(), 1) if text.startswith("def fails"))
    output = await answered(forms, "fails")
    assert output.error == f"KeyError: 'index' (forms.py:{line})"


@pytest.mark.parametrize(("name", "fix"), [
    ("forms:tupels", "did you mean tuples?"), ("froms:tuples", "did you mean forms?"),
    ("forms.part:x", "is its folder on PYTHONPATH?"),
])  # fmt: skip
def test_a_callable_that_is_not_there(forms, name, fix):
    with pytest.raises(ConfigError) as caught:
        list(open_methods(PythonSystem(kind="python", callable=name), ["forms"]))
    assert caught.value.problems[0].fix == fix


DOCUMENT = {"id": None, "metadata": {"source": "a.md"}, "page_content": "one", "type": "Document"}


class _Document:
    """As LangChain has it."""

    page_content, metadata, id = "one", {"source": "a.md"}, None


FOUND = {"answer": "yes", "chunks": [{"text": "one", "doc_id": "a.md"}]}


@pytest.mark.parametrize(("result", "fields"), [
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
])  # fmt: skip
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
async def test_an_object_gets_the_question_unless_input_says_otherwise(forms, name, settings, answer):
    assert (await answered(forms, name, **settings)).answer == answer


@pytest.mark.parametrize(("name", "told"), [
    ("number", "something that can be called"), ("Needs", "a class that needs no arguments"), ("absent", "importable"),
    ("words", r"type[\s\S]*found: +generator[\s\S]*answer"),  # a stream of pieces
])  # fmt: skip
async def test_what_cannot_be_called_or_gives_a_stream_is_refused(forms, name, told):
    with pytest.raises(ConfigError, match=told):
        await answered(forms, name)


class _StatusError(Exception):
    """With those of `status_code`, `response` and `retry_after` that are given."""

    def __init__(self, **attributes):
        self.__dict__ |= attributes


class TransportError(Exception):
    """As httpx has one above all that goes wrong on the way."""


class ReadError(TransportError): ...


@pytest.mark.parametrize(("error", "kind", "wait"), [
    (ConnectionError("down"), "network", None),
    (TimeoutError("slow"), "network", None),
    (ReadError("cut"), "network", None),
    (_StatusError(status_code=429), "rate_limit", None),
    (_StatusError(status_code=503), "server_error", None),
    (_StatusError(status_code=400), "bad_request", None),
    (_StatusError(response=SimpleNamespace(status_code=503, headers={"Retry-After": "4"})), "server_error", 4.0),
    (_StatusError(retry_after=2.5), "rate_limit", 2.5),
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
