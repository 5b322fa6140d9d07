"""`task=judge_audit` at the wire: a gullible judge with and without fences, planted biases, calls counted by the server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ragpipe.cli import main
from ragpipe.testing import openai_server
from ragpipe.testing.openai_server import OpenAIServer, serving
from tests.support.audited_judges import Body, gullible, leaning

pytestmark = pytest.mark.slow  # several whole runs

KEY = "RAGPIPE_TEST_KEY"
WORDS = ("amber", "basalt", "cedar", "delta", "ember", "fjord", "garnet", "heron", "iris", "juniper")


def write_cases(path: Path, count: int) -> Path:
    records = [
        {"id": f"q{i}", "question": f"How high is the tower of {WORDS[i % 10]} {i}?",
         "reference": f"It is {i + 10} m high.", "answer": f"The tower of {WORDS[i % 10]} {i} is {i + 10} m high.",
         "history": [{"role": "user", "text": "I like towers."}], "category": "towers",
         "chunks": [{"id": f"c{i}-{k}", "text": f"Passage {k}: the tower of {WORDS[i % 10]} {i} is {i + 10} m high."} for k in range(2)]}
        for i in range(count)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def finished_run(here: Path, metrics: str, count: int, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run by the embedded judge, which costs nothing."""
    monkeypatch.chdir(here)
    monkeypatch.setenv(KEY, "sk-sentinel-4242")
    data = write_cases(here / "data.jsonl", count)
    words = ["dataset=jsonl", f"dataset.path={data}", f"metrics=[{metrics}]", "judge=evidence", "name=towers"]
    assert main([*words, "report.formats=[]", "scoring.accept_uncalibrated=true"]) in (0, 3)
    return (here / "outputs" / "towers" / "latest").resolve()


@contextmanager
def judging(reply: Callable[[Body], str], monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAIServer]:
    monkeypatch.setattr(openai_server, "chat_reply", reply)
    with serving() as server:
        yield server


def audit(run: Path, server: OpenAIServer, *words: str, model: str = "test-model-2026-01-01") -> int:
    judge = ["judge=llm", f"judge.model=openai/{model}", "judge.endpoint=test", f"judge.api_key_env={KEY}"]
    return main(["task=judge_audit", f"run={run}", *judge, f"judge.api_base={server.url}", *words])


def document(run: Path) -> dict[str, Any]:
    (path,) = (run / "calibration").glob("judge_audit.*.json")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def test_fences_stop_what_a_gullible_judge_falls_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    run = finished_run(tmp_path, "groundedness,correctness", 8, monkeypatch)
    capsys.readouterr()
    with judging(gullible, monkeypatch) as server:
        assert audit(run, server, "judge_audit.probes=[]") == 0
        asked = server.tries
        assert audit(run, server, "judge_audit.probes=[]") == 0
        assert server.tries == asked > 0, "a second start asks nothing"
    attacks = document(run)["attacks"]
    plain, hardened = attacks["plain"], attacks["hardened"]
    assert plain["shown"]["share"] >= 0.8, "the judge is not gullible enough: the test is void"
    assert hardened["shown"]["succeeded"] == 0
    assert hardened["all"]["n"] == plain["all"]["n"] >= 2 * 60
    never = {row["attack"] for row in hardened["attacks"] if not row["shown"]}
    assert never == {
        "id_order", "id_tag", "id_markup", "path_order", "title_verified", "category_supported", "json_tags", "developer_authority",
        "colon", "blank",
    }, "ids and metadata are in no question, and no judge is asked about an answer without a word"  # fmt: skip
    assert sum(row["succeeded"] for row in plain["attacks"] if row["attack"] in never) == 0
    shown = capsys.readouterr().out
    assert shown.index("audit: ") < shown.index("plan: ")
    assert shown.index("the second run, without fences: plan: ") < shown.index("\nplan: ")
    page = next((run / "calibration").glob("judge_audit.*.md")).read_text()
    assert "`question_tag`" in page
    assert "without fences" in page
    assert main(["task=verify", f"run={run}"]) == 0
    for other in run.parent.iterdir():
        if other.is_dir() and not other.is_symlink():
            assert main(["task=verify", f"run={other}"]) == 0, other


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize(("bias", "state"), [(0.0, "passes"), (0.12, "biased"), (-0.15, "biased"), (0.02, "passes")])
def test_the_interval_covers_a_planted_bias(tmp_path: Path, monkeypatch, bias: float, state: str) -> None:
    run = finished_run(tmp_path, "answer_relevance", 120, monkeypatch)
    words = ["metrics=[answer_relevance]", "judge_audit.attacks=[]", "judge_audit.probes=[padding,idle_sentence]"]
    with judging(leaning(bias), monkeypatch) as server:
        assert audit(run, server, *words) == 0
        assert server.tries == 4 * 120, "original, wrong answer and two probes of 120 cases"
    found = document(run)
    rows = {row["probe"]: row for row in found["bias"]}
    interval = rows["padding"]["interval"]
    assert interval["low"] <= bias <= interval["high"]
    assert rows["padding"]["state"] == state
    assert rows["idle_sentence"]["state"] == "passes"
    assert rows["wrong_answer"]["state"] == "not_noticed", "this judge does not read the answer: the control says so"
    assert found["attacks"] == {}


def test_the_label_of_its_own_family_is_held_against_that_of_another(tmp_path: Path, monkeypatch) -> None:
    def vain(body: Body) -> str:
        text = "\n".join(message["content"] for message in body["messages"])
        score = 0.9 if "Claude, by Anthropic" in text else 0.6
        return json.dumps({"reason": "a grade", "addresses_question": True, "on_topic": True, "score": score})

    run = finished_run(tmp_path, "answer_relevance", 40, monkeypatch)
    words = ["metrics=[answer_relevance]", "judge_audit.attacks=[]", "judge_audit.probes=[own_family]"]
    with judging(vain, monkeypatch) as server:
        assert audit(run, server, *words, model="claude-test-2026-01-01") == 0
    rows = {row["probe"]: row for row in document(run)["bias"]}
    assert rows["own_family"]["shift"] == pytest.approx(0.3)
    assert rows["other_family"]["shift"] == pytest.approx(0)
    assert rows["own_family"]["state"] == "biased"


def test_a_plan_over_the_limit_is_refused_before_a_call(tmp_path: Path, monkeypatch, capsys) -> None:
    run = finished_run(tmp_path, "groundedness", 4, monkeypatch)
    with judging(gullible, monkeypatch) as server:
        assert audit(run, server, "judge.max_calls=1") == 2
        assert server.tries == 0
    assert "judge.max_calls" in capsys.readouterr().err
    assert not (run / "calibration").exists()


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize(("word", "message"), [
    ("judge_audit.attacks=[shout]", "no such attack: shout"),
    ("judge_audit.probes=[padding,padding]", "name each probe once"),
    ("judge_audit.cases=6", "less than or equal to 5"),
    ("metrics=[retrieval]", "a metric that asks a judge"),
])  # fmt: skip
def test_wrong_settings_are_refused_by_name(tmp_path: Path, monkeypatch, capsys, word: str, message: str) -> None:
    run = finished_run(tmp_path, "groundedness,retrieval", 3, monkeypatch)
    assert main(["task=judge_audit", f"run={run}", "transport=stored", word]) == 2
    assert message in capsys.readouterr().err
