"""The first question to a live system: what every question would meet ends the run there, with what to write instead."""

import json

import pytest
from aiohttp import web

from ragpipe.cli.command_line import main
from ragpipe.core.errors import ConfigError, ProviderUnusable
from ragpipe.core.sample import Sample
from ragpipe.data.live_system import open_methods
from ragpipe.data.system_settings import HttpSystem, PythonSystem
from ragpipe.runs.collect_outputs import CollectStage
from ragpipe.runs.collected_outputs import collected_outputs
from tests.integration.data.test_endpoint import Endpoint, served

SAMPLES = [Sample(id=f"s{i}", question=f"question {i}") for i in range(6)]


async def collect(settings, journal, plugins=()):
    await CollectStage(open_methods(settings, plugins), journal).run(lambda: iter(SAMPLES))
    return {name: output for name, (output,) in collected_outputs(journal).items()}


@pytest.mark.parametrize(("answer", "settings", "told"), [
    (
        {"data": {"text": "Paris", "hits": [{"url": "a.md", "body": "t"}]}}, {},
        ["data.text: text", "data.hits: list of 1 objects (url, body)", "an answer at `answer`",
         'fields: {answer: data.text, contexts: "data.hits[].{id: url, text: body}"}'],
    ),
    ({"result": "Paris"}, {}, ["result: text", "fields: {answer: result}"]),
    (["Paris"], {}, ["list of 1 texts"]),
    ({"answer": "Paris"}, {"fields": {"answer": "length(answer[0])"}}, ["answer: text", "length"]),
    ({"answer": {"text": "Paris"}}, {}, ["the system's answer: answer", "a valid string"]),
])  # fmt: skip
async def test_an_answer_in_another_shape_is_shown_with_the_line_to_write(tmp_path, answer, settings, told):
    endpoint = Endpoint(answer=answer)
    async with served(endpoint.reply) as url:
        with pytest.raises(ConfigError) as refused:
            await collect(HttpSystem(kind="http", url=url, **settings), tmp_path / "j.jsonl")
    assert [text for text in told if text not in str(refused.value)] == []
    assert len(endpoint.times) == 1
    assert collected_outputs(tmp_path / "j.jsonl") == {}


@pytest.mark.parametrize(("status", "headers", "told"), [
    (401, {}, "system.bearer_env=NAME"),
    (403, {}, "a key that is accepted"),
    (404, {}, "an endpoint at this address"),
    (405, {}, "system.http_method=GET"),
    (308, {"Location": "http://other.example/ask"}, "system.url=http://other.example/ask"),
])  # fmt: skip
async def test_a_status_that_every_question_would_get_ends_the_run_at_once(tmp_path, status, headers, told):
    endpoint = Endpoint(lambda n: status, headers=headers)
    async with served(endpoint.reply) as url:
        with pytest.raises(ConfigError, match=f"HTTP {status}") as refused:
            await collect(HttpSystem(kind="http", url=url), tmp_path / "j.jsonl")
    assert told in str(refused.value)
    assert len(endpoint.times) == 1


async def test_a_question_that_is_refused_for_itself_does_not_end_the_run(tmp_path):
    """The first question is too long, the second has no answer: the third shows that all is well."""

    async def choosy(request):
        number = int((await request.json())["question"].split()[1])
        if number == 0:
            return web.json_response({"detail": "too long"}, status=413)
        return web.json_response({"answer": None if number == 1 else "Paris"})

    async with served(choosy) as url:
        outputs = await collect(HttpSystem(kind="http", url=url), tmp_path / "j.jsonl")
    assert [output.answer for output in outputs.values()] == [None, None, "Paris", "Paris", "Paris", "Paris"]
    assert "HTTP 413" in (outputs["s0"].error or "")


async def test_three_questions_that_all_fail_end_the_run_and_are_asked_again_later(tmp_path):
    asked, is_broken = list[str](), True

    async def answer(request):
        asked.append((await request.json())["question"][-1])
        return web.json_response({"detail": "no"}, status=422) if is_broken else web.json_response({"answer": "a"})

    async with served(answer) as url:
        settings = HttpSystem(kind="http", url=url, concurrency=1)
        with pytest.raises(ConfigError, match="answered none of the first 3 questions"):
            await collect(settings, tmp_path / "j.jsonl")
        assert asked == ["0", "1", "2"]
        is_broken = False
        outputs = await collect(settings, tmp_path / "j.jsonl")
    assert {output.answer for output in outputs.values()} == {"a"}
    assert asked[3:] == ["0", "1", "2", "3", "4", "5"]


async def test_a_system_that_is_down_from_the_start_is_told_after_short_waits(tmp_path, monkeypatch):
    """Later waits double; before the first answer they stay short, so that a wrong start is known soon."""
    monkeypatch.setattr("ragpipe.judge.attempts._MOST_BEFORE_AN_ANSWER", 0.01)
    waits = list[float]()

    async def wait(_, seconds):
        waits.append(seconds)

    monkeypatch.setattr("ragpipe.judge.attempts.AttemptRunner.sleep", wait)
    endpoint = Endpoint(lambda n: 503)
    async with served(endpoint.reply) as url:
        with pytest.raises(ProviderUnusable, match="answered none of the first 3 questions"):
            await collect(HttpSystem(kind="http", url=url), tmp_path / "j.jsonl")
    assert len(endpoint.times) == 3 * (1 + 8)  # the default of `retries`
    assert len(waits) == 3 * 8
    assert max(waits) <= 0.01


async def test_a_key_that_expires_while_answers_are_collected_ends_the_run(tmp_path):
    """It is no failure of the questions: none of them is kept as one."""
    async with served(Endpoint(lambda n: 200 if n < 4 else 401).reply) as url:
        with pytest.raises(ProviderUnusable, match="refuses the key"):
            await collect(HttpSystem(kind="http", url=url, concurrency=1), tmp_path / "j.jsonl")
    outputs = collected_outputs(tmp_path / "j.jsonl")
    assert sorted(outputs) == ["s0", "s1", "s2"]
    assert all(output.error is None for (output,) in outputs.values())


@pytest.mark.parametrize(("returned", "told"), [
    ("7", ["int: '7'", "return {'answer': text"]), ("{'answer': 'a', 'context': 'c'}", ["context: text", "rename context -> contexts"]),
    ("{'answer': 'a', 'context': ['c'], 'documents': ['d']}", ["context: list of 1 texts", "rename context -> contexts"]),
    ("{'result': 'a', 'sources': ['c']}", ["rename result -> answer, sources -> contexts"]),
    ("{'text': 'a'}", ["rename text -> answer"]), ("{'response': 'a', 'contexts': []}", ["rename response -> answer"]),
    ("{'answer': 'a', 'contexts': 'one'}", ["contexts", "a list"]),
])  # fmt: skip
async def test_a_callable_with_other_names_is_told_the_right_ones(code_here, returned, told):
    (code_here / "misnamed.py").write_text(f"def answer(sample): return {returned}\n")
    with pytest.raises(ConfigError) as refused:
        await collect(PythonSystem(kind="python", callable="misnamed:answer"), code_here / "j.jsonl", ("misnamed",))
    assert [text for text in told if text not in str(refused.value)] == []


@pytest.fixture
def here(code_here):
    (code_here / "probed.py").write_text(
        "import os\ndef answer(sample):\n    open('asked.txt', 'a').write(sample['id'])\n"
        "    return {'answer': 'a', ('contexts' if os.path.exists('right') else 'sources'): ['a']}\n"
    )
    (code_here / "q.jsonl").write_text("".join(json.dumps({"id": f"{i}", "question": "?"}) + "\n" for i in range(4)))
    return code_here


WORDS = "dataset=jsonl dataset.path=q.jsonl metrics=[faithfulness] system=python plugins=[probed] system.callable=probed:answer"


@pytest.mark.slow
def test_the_same_command_works_once_the_system_is_right(here, capfd):
    assert main(WORDS.split()) == 2
    assert "rename sources -> contexts" in capfd.readouterr().err
    assert (here / "asked.txt").read_text() == "0"
    (here / "right").touch()
    assert main(WORDS.split()) == 0


@pytest.mark.slow
@pytest.mark.parametrize(("model", "variable"), [
    ("openai/gpt-4o-mini-2024-07-18", "OPENAI_API_KEY"), ("anthropic/claude-3-5-haiku-20241022", "ANTHROPIC_API_KEY"),
])  # fmt: skip
def test_a_judge_without_its_key_is_refused_before_the_system_is_asked(here, monkeypatch, capfd, model, variable):
    monkeypatch.delenv(variable, raising=False)
    judge = ["judge=llm", f"judge.model={model}"]
    assert main([*WORDS.split(), *judge]) == 2
    said, told = (
        capfd.readouterr().err,
        (f"variable {variable} is not set", "judge.api_key_env", f"the key of {model}", f"export {variable}="),
    )
    assert [words for words in told if words not in said] == []
    assert main([*WORDS.split(), *judge, "task=plan"]) == 0
    assert f"{variable} is not set: the run would be refused" in capfd.readouterr().err
    dead = ["judge=llm", "judge.model=openai/m-2024-01-01", "judge.api_base=http://127.0.0.1:1/v1"]
    assert main([*WORDS.split(), *dead]) == 5
    assert not (here / "asked.txt").exists()
