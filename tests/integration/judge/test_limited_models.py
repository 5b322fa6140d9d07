"""Models with each limitation: the run ends with right scores or a clear error, and no call is made without need.

The server's judge finds in the question what the case was given, so the right scores are known by hand and do not depend
on the form of the request. Calls are counted from the server's own log.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ragpipe.cli.command_line import main
from ragpipe.testing import openai_server
from ragpipe.testing.openai_faults import answer_schema_of, chat_reply
from tests.support.harness import arguments

pytestmark = pytest.mark.slow  # whole runs

METRICS = "faithfulness,answer_relevance,chunk_faithfulness"
CASES = 6
RIGHT = {  # case number modulo 2 -> scores, by what `_cases` plants and `_oracle` finds
    0: {"faithfulness": 1.0, "answer_relevance": 0.75, "chunk_faithfulness": 1.0},
    1: {"faithfulness": 0.0, "answer_relevance": 0.25, "chunk_faithfulness": 0.0},
}


@pytest.fixture(autouse=True)
def _oracle(monkeypatch):
    """The judge at the server: right by the word `granted`, which only cases with an even number hold."""

    def judge(body: dict[str, Any]) -> str:
        granted = "granted" in json.dumps(body["messages"])
        if answer_schema_of(body) is None:
            return "YES" if granted else "NO"
        return json.dumps(_decided(json.loads(chat_reply(body)), granted))

    monkeypatch.setattr(openai_server, "chat_reply", judge)


def _decided(value: Any, granted: bool) -> Any:
    if isinstance(value, list):
        return [_decided(item, granted) for item in value]
    if not isinstance(value, dict):
        return granted if isinstance(value, bool) else value
    fixed = {"verdict": "supported" if granted else "not_supported", "score": 0.75 if granted else 0.25}
    return {name: fixed.get(name, _decided(item, granted)) for name, item in value.items()}


def _cases(path: Path, *, long: int = 0) -> Path:
    """Cases with two claims and one context each; the last `long` ones have a context of 30,000 characters."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        for i in range(CASES):
            word = "granted" if i % 2 == 0 else "refused"
            context = f"Permit {i} was {word} in May." + " More of the same." * (1_700 if i >= CASES - long else 0)
            record = {
                "id": f"q{i}", "question": f"What of permit {i}?", "contexts": [context],
                "answer": f"Permit {i} was {word}. It was {word} in May.",
            }  # fmt: skip
            file.write(json.dumps(record) + "\n")
    return path


def _run(
    tmp_path: Path, server: Any, *extra: str, cases: Path | None = None, metrics: str = METRICS, concurrency: int = 6
) -> tuple[int, Path]:
    data = cases or _cases(tmp_path / "cases.jsonl")
    code = main(arguments(data, tmp_path / "out", server.url, *extra, concurrency=concurrency, metrics=metrics))
    return code, tmp_path / "out" / "torture" / "latest" / "iteration-1"


def _scores(folder: Path) -> dict[str, dict[int, float | str]]:
    """By metric and number of the case, its value or the reason why it has none."""
    found: dict[str, dict[int, float | str]] = {}
    for row in pq.read_table(folder / "scores.parquet").to_pylist():
        said = row["value"] if row["status"] == "ok" else row["reason"].partition(":")[0]
        found.setdefault(row["score_name"], {})[int(row["sample_id"][1:])] = said
    return found


def _assert_right(folder: Path, metrics: str = METRICS) -> None:
    assert _scores(folder) == {name: {n: RIGHT[n % 2][name] for n in range(CASES)} for name in metrics.split(",")}


def _surplus(server: Any) -> int:
    """Requests with a body that was already answered."""
    answered = Counter(line["body"] for line in server.log if line["status"] == 200)
    return sum(times - 1 for times in answered.values())


def _refusals(server: Any) -> int:
    return sum(line["status"] == 400 for line in server.log)


@pytest.mark.thorough(tried=2)
@pytest.mark.parametrize("client", ["direct", "litellm"])
@pytest.mark.parametrize(("fault", "refusals"), [
    ("no_system_role", 1), ("no_max_tokens", 1), ("thinks", 0), ("no_seed", 0),
])  # fmt: skip
def test_what_a_model_does_not_take_is_learned_once(serve, tmp_path, client, fault, refusals):
    server = serve(fault, latency_ms=5)
    code, folder = _run(tmp_path, server, f"judge.client={client}")
    assert code == 0
    _assert_right(folder)
    assert (_refusals(server), _surplus(server)) == (refusals, 0)
    assert server.tries == CASES * 4 + refusals


def test_without_a_system_role_the_whole_text_goes_to_the_user(serve, tmp_path):
    texts = []
    for name, roles, server in (("told", ["system", "user"], serve()), ("merged", ["user"], serve("no_system_role"))):
        server.keep_bodies = True
        code, folder = _run(tmp_path / name, server, metrics="answer_relevance")
        assert code == 0
        _assert_right(folder, "answer_relevance")
        asked = [body["messages"] for body in server.bodies.values()]
        asked = [messages for messages in asked if [message["role"] for message in messages] == roles]
        texts.append(sorted("\n\n".join(message["content"] for message in messages) for messages in asked))
    assert texts[0] == texts[1]
    assert len(texts[0]) == CASES


def test_a_small_window_that_is_unknown_refuses_what_is_too_long(serve, tmp_path, capfd):
    """Three of six cases are too long, and each is refused once."""
    server = serve("small_context:tokens=5000")
    cases = _cases(tmp_path / "long.jsonl", long=3)
    code, folder = _run(tmp_path, server, cases=cases, metrics="chunk_faithfulness", concurrency=1)
    assert code == 4, capfd.readouterr().err  # too few cases have a score
    assert _scores(folder) == {"chunk_faithfulness": {0: 1.0, 1: 0.0, 2: 1.0, 3: "too_long", 4: "too_long", 5: "too_long"}}
    assert (_refusals(server), server.tries) == (3, 6)


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("model_window", [5000, 100_000])  # a server that refuses, and one that would cut in silence
def test_a_question_beyond_a_window_that_was_given_is_not_sent(serve, tmp_path, model_window, capfd):
    server = serve(f"small_context:tokens={model_window}")
    cases = _cases(tmp_path / "long.jsonl", long=2)
    code, folder = _run(tmp_path, server, "judge.capabilities.context_tokens=5000", cases=cases, metrics="chunk_faithfulness")
    assert code == 4, capfd.readouterr().err
    assert _scores(folder) == {"chunk_faithfulness": {0: 1.0, 1: 0.0, 2: 1.0, 3: 0.0, 4: "too_long", 5: "too_long"}}
    assert (_refusals(server), server.tries) == (0, 4)
    reasons = [row["reason"] for row in pq.read_table(folder / "scores.parquet").to_pylist() if row["status"] == "error"]
    assert all("context window of 5,000 (judge.capabilities.context_tokens)" in reason for reason in reasons)
    code, folder = _run(tmp_path, server, "judge.capabilities.context_tokens=100000", cases=cases, metrics="chunk_faithfulness")
    if model_window > 5000:  # nothing was stored for what was not sent: a larger window asks it
        assert (code, server.tries) == (0, CASES)
        _assert_right(folder, "chunk_faithfulness")
