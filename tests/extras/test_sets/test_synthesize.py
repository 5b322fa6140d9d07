"""`task=synthesize`: what it writes and refuses; with a model, at the wire, what is kept, dropped, counted and asked again."""

import json

import pytest

from ragpipe.cli.command_line import main
from ragpipe.core.resources import data_path
from ragpipe.testing.openai_server import serving
from tests.support.harness import Server, asked_again, committed, finish, kill_after

pytestmark = pytest.mark.slow  # several whole runs

DOCUMENTS = "synthesize.documents=package:handbook"


def cases_of(folder):
    return [json.loads(line) for line in (folder / "cases.jsonl").read_text(encoding="utf-8").splitlines()]


def test_a_set_is_written_once(here, capfd):
    words = ["task=synthesize", DOCUMENTS, "synthesize.dir=set", "synthesize.counts.complete=4", "synthesize.counts.edge=0"]
    assert main(words) == 0
    card = json.loads((here / "set" / "card.json").read_text(encoding="utf-8"))
    cases = cases_of(here / "set")
    assert card["cases"] == len(cases)
    assert card["counts"]["question_type"]["complete"] == 4
    assert "edge" not in card["counts"]["question_type"]
    assert len(card["sources"]) == len(list(data_path("package:handbook").rglob("*.md")))
    assert card["sha256"] in capfd.readouterr().out
    assert main(words) == 2  # never over a set
    assert main([*words[:2], "synthesize.dir=again", *words[3:]]) == 0
    assert json.loads((here / "again" / "card.json").read_text(encoding="utf-8"))["sha256"] == card["sha256"]


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize(("words", "expected"), [
    (["synthesize.counts.quote_only=50", "synthesize.counts.conflict=90"],
     ["synthesize.counts.quote_only=6", "90 cases are asked for", "nothing was written"]),
    (["synthesize.counts.free=3"], ["synthesize.model=true"]),
    (["synthesize.templates=[complete.v7]"], ["no such file", "complete.v1"]),
    (["synthesize.documents=nowhere"], ["no folder"]),
    (["synthesize.count.edge=3"], ["counts"]),
])  # fmt: skip
def test_what_is_refused(words, expected, here, capfd):
    assert main(["task=synthesize", DOCUMENTS, "synthesize.dir=set", *words]) == 2
    printed = capfd.readouterr().err
    assert [text for text in expected if text not in printed] == []
    assert not (here / "set").exists()


NOTE = """---
title: Kestrel leak sensor
---
# Kestrel leak sensor

We made Kestrel for floors and cupboards.

## Warranty

Kestrel has a warranty of three years. Damage by frost is covered up to 200 EUR, and by hail not at all.

## Cleaning

Wipe the contacts with a soft cloth and vinegar every six months. Strong cleaning agents must never be used.

## Facts

- **Weight:** 68 g
- **Colour:** white
"""


def asked(question, quote, answer):
    return {"question": question, "quote": quote, "answer": answer}


GOOD = asked("Up to what sum does Kestrel cover frost?", "Damage by frost is covered up to 200 EUR", "Up to 200 EUR.")
INVENTED = asked("Is Kestrel waterproof?", "Kestrel is waterproof for years", "Yes.")
CLEAN = asked("What are the contacts of Kestrel wiped with?", "with a soft cloth and vinegar", "Cloth and vinegar.")


def free(match, *questions):
    return {"match": rf"(?s){match}.*Task: write", "reply": json.dumps({"questions": questions})}


def reworded(match, question):
    return {"match": rf"(?s){match}.*Task: say the same", "reply": json.dumps({"question": question})}


SCRIPT = [
    free("warranty of three years", INVENTED, GOOD),
    free("soft cloth", CLEAN),
    reworded(r"\bweight\b", "How heavy is a Kestrel leak sensor, by its weight?"),
    reworded(r"\bcolour\b", "Which paint does it have?"),  # the name is lost
]


@pytest.fixture
def start(here, monkeypatch):
    monkeypatch.setenv("RAGPIPE_TEST_KEY", "sk-test")
    (here / "docs").mkdir()
    (here / "docs" / "kestrel.md").write_text(NOTE, encoding="utf-8")

    def run(server, folder, *words):
        counts = [f"synthesize.counts.{kind}=0" for kind in ("policy", "no_context", "edge", "partial_entities")]
        return main([
            "task=synthesize", "synthesize.documents=docs", f"synthesize.dir={folder}", *counts, "synthesize.counts.complete=4",
            "synthesize.model=true", "judge=llm", "judge.model=openai/test-model-2026-01-01", f"judge.api_base={server.url}",
            "judge.api_key_env=RAGPIPE_TEST_KEY", *words,
        ])  # fmt: skip

    return run


def test_what_holds_is_kept_and_the_rest_is_counted(start, tmp_path, capfd):
    with serving(script=[*SCRIPT, reworded("", "What?")]) as server:
        assert start(server, "set", "synthesize.counts.free=2") == 0
        before = len(server.log)
        assert start(server, "again", "synthesize.counts.free=2") == 0
        assert len(server.log) == before, "every reply was in the call store"
    printed = capfd.readouterr().out
    assert "plan: 5 cases, about 5 new calls" in printed
    cases = cases_of(tmp_path / "set")
    assert cases == cases_of(tmp_path / "again")
    card = json.loads((tmp_path / "set" / "card.json").read_text(encoding="utf-8"))
    assert card["model"]["rephrased"] == {"asked": 4, "kept": 1, "dropped": {"name_lost": 3}}
    assert card["model"]["free"] == {"asked": 3, "kept": 2, "dropped": {"quote_not_found": 1}}
    by_model = [case for case in cases if case["meta"]["origin"]["kind"] == "model"]
    expected = {GOOD["question"], CLEAN["question"], "How heavy is a Kestrel leak sensor, by its weight?"}
    assert {case["question"] for case in by_model} == expected
    frost = next(case for case in cases if case["question"] == GOOD["question"])
    assert frost["anchors"][0]["snippets"] == [GOOD["quote"]]
    assert frost["references"] == [GOOD["answer"]]
    assert frost["meta"]["origin"]["source"].startswith("synthesize/ask.v1@")
    weight = next(case for case in by_model if "weight" in case["question"])
    assert weight["meta"]["origin"]["template"] == "complete.v1/value_of_subject"
    assert INVENTED["question"] not in (tmp_path / "set" / "cases.jsonl").read_text(encoding="utf-8")


def test_too_few_free_questions_write_nothing(start, tmp_path, capfd):
    with serving(script=SCRIPT) as server:
        assert start(server, "set", "synthesize.counts.free=3", "synthesize.rephrase=0") == 2
    assert "the model gave too few questions" in capfd.readouterr().err
    assert not (tmp_path / "set").exists()


def test_a_failure_that_passes_can_be_resumed(start, tmp_path, capfd):
    hail = asked("Is hail covered for Kestrel?", "and by hail not at all", "No.")
    good = [free("warranty of three years", GOOD, hail), free("soft cloth", CLEAN)]
    words = ("synthesize.counts.free=3", "synthesize.rephrase=0", "judge.retries=0")
    with serving(script=[{"match": "soft cloth", "reply": "", "status": 503}, *good]) as server:
        assert start(server, "set", *words) in (4, 5)
        assert "to go on where it stopped" in capfd.readouterr().err
        assert not (tmp_path / "set").exists()
        answered = sum(request["status"] == 200 for request in server.log)
        server.script = good
        before = len(server.log)
        assert start(server, "set", *words) == 0
        assert len(server.log) - before == 2 - answered, "only what has no reply is asked"
    assert len([case for case in cases_of(tmp_path / "set") if case["question_type"] == "free"]) == 3


def test_the_embedded_judge_writes_no_questions(start, tmp_path, capfd):
    words = ["task=synthesize", "synthesize.documents=docs", "synthesize.dir=set", "synthesize.model=true", "judge=rules"]
    assert main(words) == 2
    assert "the rules judge writes no questions" in capfd.readouterr().err


def test_no_reply_is_paid_twice_where_it_is_killed(tmp_path):
    script = tmp_path / "script.json"
    script.write_text(json.dumps([reworded("", "What?")]), encoding="utf-8")
    kills: list[tuple[float, frozenset[str]]] = []
    with Server(tmp_path / "log.jsonl", ("--latency-ms", "150", "--script", str(script))) as server:
        words = [
            "task=synthesize", "synthesize.documents=package:handbook", "synthesize.dir=set", "synthesize.counts.policy=40",
            "synthesize.model=true", "judge=llm", "judge.model=openai/test-model-2026-01-01", f"judge.api_base={server.url}",
            "judge.endpoint=test", "judge.api_key_env=RAGPIPE_TEST_KEY", "judge.concurrency=4", "output_dir=out",
        ]  # fmt: skip
        for _ in range(2):
            moment = kill_after(words, tmp_path, server, calls=20)
            assert moment is not None
            kills.append((moment, committed(tmp_path / "out")))
        code, text = finish(words, tmp_path)
        assert code == 0, text
        assert [len(stored) > 0 for _, stored in kills] == [True, True]
        assert asked_again(server.requests(), kills) == []
        asked = len(server.requests())
        code, text = finish([*words, "synthesize.dir=again"], tmp_path)
        assert (code, len(server.requests())) == (0, asked), text
    assert (tmp_path / "set" / "cases.jsonl").read_bytes() == (tmp_path / "again" / "cases.jsonl").read_bytes()
