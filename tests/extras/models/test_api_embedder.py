"""Vectors by a provider, against the local server: its log is the bill. Keys, retries and budgets are those of a judge."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from ragpipe.cli import compose, main
from ragpipe.core import registry
from ragpipe.engine.chosen_runner import stays_here
from ragpipe.extras.models.api_embedder import ApiTransport
from ragpipe.extras.models.embedder_settings import ApiEmbedder
from ragpipe.judging.cache_key import Question, key_parts, question_key
from ragpipe.judging.clients.factory import conflicting_base_url
from ragpipe.judging.vector_replies import Vector, text_payload
from ragpipe.store.calls.maintenance import census
from ragpipe.testing.openai_server import serving
from tests.integration.embedding.test_embedded_runs import KEY, here, values, write
from tests.integration.tasks.test_bill import Place, balances, place
from tests.support.harness import arguments, write_cases
from tests.support.serving import serve

__all__ = ["here", "place", "serve"]  # fixtures


def test_the_embedders_pinning_error_names_the_embedders_keys():
    """Following the advice must help: `judge.allow_unpinned` changes nothing for an embedder."""
    with pytest.raises(ValidationError, match=r"embedder\.allow_unpinned=true") as alias:
        ApiEmbedder(model="openai/text-embedding-3-small")
    assert "judge." not in str(alias.value)
    with pytest.raises(ValidationError, match=r"embedder\.revision") as local:
        ApiEmbedder(model="hosted_vllm/m", api_base="http://127.0.0.1:8000/v1")
    assert "judge." not in str(local.value)


def test_an_embedder_always_goes_through_litellm():
    settings = ApiEmbedder(model="openai/text-embedding-3-small", allow_unpinned=True)
    found = conflicting_base_url(settings, "embedder", {"OPENAI_BASE_URL": "http://x"})
    assert found.fix == "unset OPENAI_BASE_URL, or set embedder.api_base to that server"


@pytest.mark.slow
def test_texts_leave_from_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = registry.find("runner", "ray")
    if runner is None:
        pytest.skip("without the extra ray")
    monkeypatch.setattr(runner, "missing", lambda _: iter(()))  # where Ray is not installed too
    words = ["embedder=litellm", "embedder.model=openai/text-embedding-3-small", "embedder.allow_unpinned=true"]
    why = stays_here(compose(["+experiment=quickstart", "runner=ray", "runner.num_gpus=1", *words]))
    assert why is not None
    assert "calls leave from one process" in why


@pytest.mark.slow
async def test_an_answer_without_a_readable_vector_is_paid(serve, monkeypatch, here):
    server, payments = serve(), []
    good = server._vectors

    def twice(body):
        found = good(body)
        return {**found, "data": found["data"] * 2} if len(server.log) == 0 else found

    monkeypatch.setattr(server, "_vectors", twice)
    found = ApiEmbedder(
        model="openai/vectors-2024-07-18",
        api_base=server.url,
        api_key_env="RAGPIPE_TEST_KEY",
        prices={"input": 1.0, "output": 2.0},
        retries=2,
    )
    transport = ApiTransport(found, run_id="test-run")
    payload = text_payload("A text for a vector.")
    parts = key_parts(payload, {"judge": "test"}, 1, 1)
    asked = Question(question_key(parts), payload, Vector, "test", parts, "case-1/default / similarity / embed")
    try:
        async with transport.slot():
            call = await transport.ask(asked, payments.append)
    finally:
        await transport.close()
    assert (call.status, call.attempts, len(server.log)) == ("ok", 2, 2)
    assert [p.tokens_in for p in payments] == [line["usage"]["prompt_tokens"] for line in server.log]
    assert [p.tokens_out for p in payments] == [0, 0]


@pytest.mark.slow  # litellm takes seconds to import
def test_questions_and_their_vectors_by_a_provider(here, capsys):
    script = [{"match": "write 3 different questions", "reply": json.dumps({"questions": ["What is near?", "abc", "xyz"]})}]
    with serving(script=script) as server:
        words = arguments(
            write(here / "d.jsonl"), here / "out", server.url, "metrics.answer_relevance.method=questions",
            "embedder=litellm", "embedder.model=openai/vectors-2026-01-01", f"embedder.api_base={server.url}",
            f"embedder.api_key_env={KEY}", "embedder.prices={input: 1.0, output: 0}", metrics="answer_relevance",
        )  # fmt: skip
        assert main([*words, "task=plan"]) == 0
        assert "up to 12 texts to openai/vectors-2026-01-01" in capsys.readouterr().out  # the silent case asks nothing
        assert main(words) == 0
        asked = len(server.log)
        assert main([*words, "name=again"]) == 0
        assert len(server.log) == asked
    run = (here / "out" / "torture" / "latest").resolve()
    rows = pq.read_table(run / "iteration-1" / "judge_inputs.parquet").to_pylist()
    vectors = [row for row in rows if row["step"] == "embed"]
    # three questions of the data and two written ones: the third is one of the data's
    assert len({row["key"] for row in vectors}) == 5 == asked - 3
    assert {(row["template"], row["attempts"], row["output_mode"]) for row in vectors} == {(None, 1, "vector")}
    assert all(row["paid_usd"] == pytest.approx(row["tokens_in"] / 1e6) for row in vectors)
    found = values(run, "answer_relevance")
    assert found["silent"] == 0
    assert found["near"] == pytest.approx(sum(_cosine("What is near?", other) for other in ("What is near?", "abc", "xyz")) / 3, abs=1e-6)


def _cosine(one: str, other: str) -> float:
    """Over the counts of letters, as the test server has them."""
    a, b = ([text.lower().count(chr(97 + i)) for i in range(26)] for text in (one, other))
    return sum(x * y for x, y in zip(a, b, strict=True)) / (sum(x * x for x in a) * sum(y * y for y in b)) ** 0.5


def by_provider(here: Path, url: str, *words: str) -> list[str]:
    return [
        "dataset=jsonl", f"dataset.path={write(here / 'd.jsonl')}", "metrics=[semantic_similarity]", "embedder=litellm",
        "embedder.model=openai/vectors-2026-01-01", f"embedder.api_base={url}", f"embedder.api_key_env={KEY}", *words,
    ]  # fmt: skip


@pytest.mark.slow
def test_a_provider_of_vectors_is_retried_and_its_key_is_nowhere(here, capsys):
    with serving(faults=["429:rate=0.5"]) as server:
        assert main(by_provider(here, server.url, "embedder.retries=20")) == 0
    found = values((here / "outputs" / "run" / "latest").resolve(), "semantic_similarity")
    assert found["the same"] == 100.0
    assert found["far"] == round(100 * _cosine("Bees make honey.", "Paris is the capital."), 2)
    told = capsys.readouterr()
    everything = [p.read_bytes() for p in here.rglob("*") if p.is_file()] + [(told.out + told.err).encode()]
    assert not [text for text in everything if b"sk-sentinel-4242" in text]


@pytest.mark.slow
def test_a_refused_key_names_the_embedders_setting(here, capsys):
    with serving(faults=["401:rate=1"]) as server:
        assert main(by_provider(here, server.url)) == 5
    told = capsys.readouterr().err
    assert "embedder.api_key_env" in told
    assert "judge." not in told


@pytest.mark.slow
def test_an_embedder_is_paid_from_the_judges_budget(here, capsys):
    with serving() as server:
        embedder = [
            "embedder=litellm", "embedder.model=openai/vectors-2026-01-01", f"embedder.api_base={server.url}",
            "embedder.api_key_env=RAGPIPE_TEST_KEY",
        ]  # fmt: skip
        command = arguments(
            write_cases(Path("data.jsonl"), 12), here / "out", server.url, "judge.prices={input: 100.0, output: 400.0}",
            "judge.max_tokens=300", *embedder, "metrics.answer_relevance.method=questions", metrics="answer_relevance", concurrency=6,
        )  # fmt: skip
        assert main([*command, "judge.budget.usd=5"]) == 2
        assert "embedder.prices" in capsys.readouterr().err
        assert main([*command, "judge.budget.calls=5", "embedder.budget.calls=5"]) == 2
        assert server.arrivals == 0
        assert main([*command, "judge.budget.calls=20"]) == 4
        usages = [line["usage"] for line in server.log if line["usage"]]
        assert len(usages) <= 20
        paid = census(Path("out/.store/calls.sqlite"), ())["paid"]
        tokens = [sum(u.get(name, 0) for u in usages) for name in ("prompt_tokens", "completion_tokens")]
        assert [paid["tokens_in"], paid["tokens_out"], paid["replies"]] == [*tokens, len(usages)]
        models = {line["model"] for line in server.log}
        assert models == {"test-model-2026-01-01", "vectors-2026-01-01"}


@pytest.mark.thorough
@pytest.mark.slow  # litellm takes seconds to import
def test_a_vector_is_paid_by_the_iteration_that_asked_for_it(place: Place) -> None:
    """Iterations share the vectors of the questions; those of texts that a judge wrote are each iteration's own."""
    words = [word.replace("correctness", "answer_relevance") for word in place.words]
    embedder = [
        "metrics.answer_relevance.method=questions", "embedder=litellm", "embedder.model=openai/vectors-2026-01-01",
        f"embedder.api_base={place.server.url}", "embedder.api_key_env=RAGPIPE_TEST_KEY",
        "embedder.prices={input: 1000.0, output: 0}",
    ]  # fmt: skip
    assert main([*words, *embedder, "iterations=2"]) == 0
    bills = [json.loads((place.folder / f"iteration-{n}" / "cost.json").read_text()) for n in (1, 2)]
    for found in bills:
        balances(found)
    usages = [line["usage"] for line in place.server.log if line["usage"]]
    assert sum(found["spent"]["replies"] for found in bills) == len(usages)
    assert sum(found["spent"]["tokens_in"] for found in bills) == sum(u["prompt_tokens"] for u in usages)
    assert bills[0]["saved"]["calls"] == 0
    assert bills[1]["saved"]["calls"] >= 6, "the vectors of the six questions"
