"""`task=synthesize` with a language model, at the wire: what is kept and dropped, what is counted, what is asked again."""

import json

import pytest

from ragpipe.cli.command_line import main
from ragpipe.testing.openai_server import serving

pytestmark = pytest.mark.slow  # several whole runs

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
GOOD = {
    "question": "Up to what sum does Kestrel cover frost?",
    "quote": "Damage by frost is covered up to 200 EUR",
    "answer": "Up to 200 EUR.",
}
INVENTED = {"question": "Is Kestrel waterproof?", "quote": "Kestrel is waterproof for years", "answer": "Yes."}
CLEAN = {
    "question": "What are the contacts of Kestrel wiped with?",
    "quote": "with a soft cloth and vinegar",
    "answer": "Cloth and vinegar.",
}


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


def cases_of(folder):
    return [json.loads(line) for line in (folder / "cases.jsonl").read_text(encoding="utf-8").splitlines()]


def test_what_holds_is_kept_and_the_rest_is_counted(start, tmp_path, capfd):
    with serving(script=[*SCRIPT, {"match": "Task: say the same", "reply": '{"question": "What?"}'}]) as server:
        assert start(server, "set", "synthesize.counts.free=2") == 0
        asked = len(server.log)
        assert start(server, "again", "synthesize.counts.free=2") == 0
        assert len(server.log) == asked, "every reply was in the call store"
    printed = capfd.readouterr().out
    assert "plan: 5 cases, about 5 new calls" in printed
    cases = cases_of(tmp_path / "set")
    assert cases == cases_of(tmp_path / "again")
    card = json.loads((tmp_path / "set" / "card.json").read_text(encoding="utf-8"))
    assert card["model"]["rephrased"] == {"asked": 4, "kept": 1, "dropped": {"name_lost": 3}}
    assert card["model"]["free"] == {"asked": 3, "kept": 2, "dropped": {"quote_not_found": 1}}
    by_model = [case for case in cases if case["meta"]["origin"]["kind"] == "model"]
    assert {case["question"] for case in by_model} == {
        GOOD["question"], CLEAN["question"], "How heavy is a Kestrel leak sensor, by its weight?",
    }  # fmt: skip
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
    hail = {"question": "Is hail covered for Kestrel?", "quote": "and by hail not at all", "answer": "No."}
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
