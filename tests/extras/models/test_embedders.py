"""Vectors by a provider, against the local server: its log is the bill. Keys, retries and budgets are those of a judge. And
vectors by sentence_transformers, beside the NumPy MiniLM: the same weights have the same vectors and the same keys."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from ragpipe.cli.command_line import main
from ragpipe.extras.models.embedders import ApiEmbedder, SentenceTransformers, SentenceTransformersVectors
from ragpipe.judge.embedder import MiniLM
from ragpipe.judge.live_transport import conflicting_base_url
from ragpipe.store.call_store import census
from ragpipe.testing.openai_server import serving
from tests.integration.judge.test_embedded_runs import command, values, write
from tests.support.harness import arguments, write_cases
from tests.support.minilm import needs_files
from tests.unit.judge.test_minilm import STORED


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    monkeypatch.setenv("RAGPIPE_TEST_KEY", "sk-sentinel-4242")


def embedder(server, *words):
    """The words of the embedder at this server."""
    return ["embedder=litellm", "embedder.model=openai/vectors-2026-01-01", f"embedder.api_base={server.url}",
            "embedder.api_key_env=RAGPIPE_TEST_KEY", *words]  # fmt: skip


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


@pytest.mark.slow  # litellm takes seconds to import
def test_questions_and_their_vectors_by_a_provider(here, capsys):
    script = [{"match": "write 3 different questions", "reply": json.dumps({"questions": ["What is near?", "abc", "xyz"]})}]
    with serving(script=script) as server:
        words = arguments(
            write(here / "d.jsonl"), here / "out", server.url, "metrics.answer_relevance.method=questions",
            *embedder(server, "embedder.prices={input: 1.0, output: 0}"), metrics="answer_relevance",
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


def _cosine(one, other):
    """Over the counts of letters, as the test server has them."""
    a, b = ([text.lower().count(chr(97 + i)) for i in range(26)] for text in (one, other))
    return sum(x * y for x, y in zip(a, b, strict=True)) / (sum(x * x for x in a) * sum(y * y for y in b)) ** 0.5


@pytest.mark.slow
def test_a_provider_of_vectors_is_retried_and_its_key_is_nowhere(here, capsys):
    with serving(faults=["429:rate=0.5"]) as server:
        assert main(command(here, "semantic_similarity", *embedder(server, "embedder.retries=20"))) == 0
    found = values((here / "outputs" / "run" / "latest").resolve(), "semantic_similarity")
    assert found["the same"] == 100.0
    assert found["far"] == round(100 * _cosine("Bees make honey.", "Paris is the capital."), 2)
    everything = [p.read_bytes() for p in here.rglob("*") if p.is_file()] + ["".join(capsys.readouterr()).encode()]
    assert not [text for text in everything if b"sk-sentinel-4242" in text]


@pytest.mark.slow
def test_a_refused_key_names_the_embedders_setting(here, capsys):
    with serving(faults=["401:rate=1"]) as server:
        assert main(command(here, "semantic_similarity", *embedder(server))) == 5
    told = capsys.readouterr().err
    assert "embedder.api_key_env" in told
    assert "judge." not in told


@pytest.mark.slow
def test_an_embedder_is_paid_from_the_judges_budget(here, capsys):
    with serving() as server:
        words = arguments(
            write_cases(Path("data.jsonl"), 12), here / "out", server.url, "judge.prices={input: 100.0, output: 400.0}",
            "judge.max_tokens=300", *embedder(server), "metrics.answer_relevance.method=questions", metrics="answer_relevance",
            concurrency=6,
        )  # fmt: skip
        assert main([*words, "judge.budget.usd=5"]) == 2
        assert "embedder.prices" in capsys.readouterr().err
        assert main([*words, "judge.budget.calls=5", "embedder.budget.calls=5"]) == 2
        assert server.arrivals == 0
        assert main([*words, "judge.budget.calls=20"]) == 4
        usages = [line["usage"] for line in server.log if line["usage"]]
        assert len(usages) <= 20
        paid = census(Path("out/.store/calls.sqlite"), ())["paid"]
        tokens = [sum(u.get(name, 0) for u in usages) for name in ("prompt_tokens", "completion_tokens")]
        assert [paid["tokens_in"], paid["tokens_out"], paid["replies"]] == [*tokens, len(usages)]
        models = {line["model"] for line in server.log}
        assert models == {"test-model-2026-01-01", "vectors-2026-01-01"}


@pytest.mark.slow
@pytest.mark.oracles
@needs_files
def test_the_runtime_of_sentence_transformers_gives_the_same():
    pytest.importorskip("sentence_transformers")
    settings = SentenceTransformers()
    assert settings.identity_of_embedder() == MiniLM().identity_of_embedder()  # and so their vectors have the same keys
    found = SentenceTransformersVectors(settings)(STORED["texts"])
    assert np.allclose([vector[:8] for vector in found], STORED["first_numbers"], atol=1e-6)
