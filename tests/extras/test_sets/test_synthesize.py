"""`task=synthesize`: what it writes, its exit codes, and what it refuses."""

import json
from pathlib import Path

import pytest

from ragpipe.cli.command_line import main

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
    assert len(card["sources"]) == len(list(Path(card_documents()).rglob("*.md")))
    assert card["sha256"] in capfd.readouterr().out
    assert main(words) == 2  # never over a set
    assert main([*words[:2], "synthesize.dir=again", *words[3:]]) == 0
    assert json.loads((here / "again" / "card.json").read_text(encoding="utf-8"))["sha256"] == card["sha256"]


def card_documents():
    from ragpipe.core.resources import data_path

    return str(data_path("package:handbook"))


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
