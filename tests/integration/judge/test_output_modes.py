"""Output modes and refused parameters: settled by the first call, remembered, never in a key; and parameters of which a plan
says what it does not know."""

import pytest

from ragpipe.cli.command_line import main
from ragpipe.core.errors import ProviderUnusable
from ragpipe.judge.answer_parsing import read_answer
from ragpipe.judge.answers import Claims, Grade15, Groundedness, TwoAxes, Verdicts, YesNo
from tests.support.asking import CLIENTS, ask, question, settings
from tests.support.harness import arguments, write_cases

pytestmark = pytest.mark.slow  # whole runs, several per test


@pytest.mark.thorough(tried=3)
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(("faults", "mode", "extra"), [
    ([], "json_schema", 0), (["no_json_schema"], "json_object", 1), (["no_response_format"], "plain", 2),
])  # fmt: skip
async def test_the_first_call_settles_the_mode(serve, client, faults, mode, extra):
    server = serve(*faults, latency_ms=2)
    calls = await ask(settings(server.url, client=client, concurrency=4), *(question(f"a {i}") for i in range(12)))
    assert {(c.status, c.output_mode) for c in calls} == {("ok", mode)}
    assert server.tries == 12 + extra
    assert sorted(c.attempts for c in calls)[-1] == 1 + extra
    for call in calls:
        read_answer(call.text, Grade15)


async def test_each_answer_type_goes_its_own_way_down(serve):
    """A schema that is refused, by an error that names no parameter, says nothing of the others."""
    server = serve("no_json_schema:match=supported")  # a field of Verdicts
    told = []
    asked = [question("a"), question("one. two.", Verdicts), question("b"), question("c. d.", Verdicts), question("e", Claims)]
    calls = await ask(settings(server.url, concurrency=1), *asked, tell=told.append)
    modes = ["json_schema", "json_object", "json_schema", "json_object", "json_schema"]
    assert [(c.status, c.output_mode) for c in calls] == [("ok", mode) for mode in modes]
    assert (server.tries, len(told)) == (6, 1)
    assert "json_schema was refused for grade / rate: it is asked as json_object from here on" in told[0]


async def test_a_provider_without_schemas_is_not_asked_for_them_by_every_answer_type(serve):
    server = serve("no_json_schema")
    types = [Grade15, Claims, Verdicts, TwoAxes, Groundedness]
    calls = await ask(settings(server.url, concurrency=1), *(question("One. Two.", t) for t in types))
    assert {(c.status, c.output_mode) for c in calls} == {("ok", "json_object")}
    assert server.tries == 5 + 2


async def test_a_fixed_mode_is_kept_or_refused_with_a_hint(serve):
    server = serve("no_json_schema")
    with pytest.raises(ProviderUnusable, match=r"judge\.output_mode: auto"):
        await ask(settings(server.url, output_mode="json_schema"))
    (call,) = await ask(settings(serve().url, output_mode="plain"))
    assert (call.status, call.output_mode) == ("ok", "plain")


@pytest.mark.thorough(tried=2)
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("fault", ["no_temperature", "no_json_schema", "no_max_tokens"])
async def test_one_refusal_after_answers_is_about_its_case_alone(serve, client, fault):
    """Its text may repeat the case's words; what all others are answered with is not refused."""
    server = serve(f"{fault}:match=odd one")
    texts = ["a", "b", "the odd one", "c"]
    calls = await ask(settings(server.url, client=client, concurrency=1), *(question(text) for text in texts))
    assert [call.status for call in calls] == ["ok", "ok", "bad_request", "ok"]
    assert {call.output_mode for call in calls} == {"json_schema"}
    assert {name for call in calls for name in call.sent} == {"temperature", "max_tokens"}
    assert server.tries == 4


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("client", CLIENTS)
async def test_a_parameter_that_the_error_names_is_refused_at_any_time(serve, client):
    with pytest.raises(ProviderUnusable, match=r"judge\.temperature: null"):
        await ask(settings(serve("no_temperature:after=1,param=temperature").url, client=client, concurrency=1),
                  question("a"), question("b"))  # fmt: skip
    (call,) = await ask(settings(serve("no_temperature:param=messages[0].content").url, client=client))
    assert call.status == "bad_request"


async def test_what_was_really_sent_is_recorded(serve):
    server = serve("no_temperature")
    server.keep_bodies = True
    (call,) = await ask(settings(server.url, temperature=None, seed=11, max_tokens=99))
    assert call.sent == {"seed": 11, "max_tokens": 99}
    body = server.bodies[call.wire_hash]  # the wire hash is the sha256 of the body that the server got
    assert {k: body[k] for k in ("seed", "max_tokens")} == call.sent
    assert "temperature" not in body
    assert body["model"] == "test-model-2024-07-18"


async def test_both_clients_ask_the_same(serve):
    server = serve()
    direct, litellm = [await ask(settings(server.url, client=c), question("a")) for c in ("direct", "litellm")]
    for name in ("text", "sent", "tokens_in", "tokens_out"):
        assert getattr(direct[0], name) == getattr(litellm[0], name)
    assert len({line["question"] for line in server.log}) == 1


async def test_a_text_answer_asks_for_no_form(serve):
    server = serve()
    server.keep_bodies = True
    (call,) = await ask(settings(server.url), question("Reply with YES or NO.", YesNo))
    assert "response_format" not in server.bodies[call.wire_hash]
    assert call.output_mode == "plain"


def test_a_plan_says_what_its_tokens_are_without(serve, tmp_path, capsys):
    words = write_cases(tmp_path / "cases.jsonl", 10), tmp_path / "out", serve().url

    def planned(*extra: str) -> str:
        assert main(arguments(*words, "task=plan", *extra, metrics="faithfulness")) == 0
        return " ".join("".join(capsys.readouterr()).split())

    assert "are without the thoughts" in planned("judge.reasoning_effort=low")
    assert "without the reasons step by step" in planned("metrics.faithfulness.reasoning=true")
    assert "are without the" not in planned() + planned("judge.reasoning_effort=none")
    assert main(arguments(*words, "judge.reasoning_effort=low", metrics="faithfulness")) == 0, capsys.readouterr()
    assert "are without the" not in planned("judge.reasoning_effort=low"), "its replies are measured"
    assert "are without the thoughts" in planned("judge.reasoning_effort=high"), "they say nothing of another effort"
