"""`task=build_dataset` as it is typed: what it prints, writes and refuses."""

import json
from pathlib import Path

import pytest

from ragpipe.cli.command_line import main

LOG = [
    {"trace": f"t{number}", "ask": {"text": text}, "reply": "x" * number, "grade": number}
    for number, text in enumerate(("Who is it?", "who is it", "When was it?", "Call +49 171 2345678?", "Where is it now?"))
]
MAPPING = """\
path: log.jsonl
name: bot
fields: {id: trace, question: ask.text, answer: reply, recorded: {fields: {grade: grade}}}
"""


@pytest.fixture
def log(here):
    (here / "conf" / "dataset").mkdir(parents=True)
    (here / "conf" / "dataset" / "bot.yaml").write_text(MAPPING, encoding="utf-8")
    return write(LOG)


def write(lines):
    path = Path("log.jsonl").absolute()
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def build(*words):
    return main(["task=build_dataset", "dataset=bot", *words])


def cases(folder):
    return [json.loads(line) for line in Path(folder, "cases.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.slow
def test_a_set_is_built_said_and_used(log, capsys):
    assert build("build.dir=set", "build.n=null", "seed=4") == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "duplicates 4 1" in out
    assert "personal data: 1 PHONE" in out
    assert "2345678" not in out + Path("set/card.json").read_text() + Path("set/card.md").read_text() + Path("set/cases.jsonl").read_text()
    card = json.loads(Path("set/card.json").read_text(encoding="utf-8"))
    assert card["seed"] == 4
    assert card["counts"] == {"origin.kind": {"log": 4}}
    assert card["sources"] == [{"path": "log.jsonl", "sha256": card["sources"][0]["sha256"]}]
    assert f"sha256 {card['sha256']}" in out
    assert cases("set")[0]["meta"]["origin"] == {"kind": "log", "source": "bot", "seed": 4}
    use = ["task=plan", "dataset=jsonl", "dataset.path=set/cases.jsonl", "metrics=[faithfulness]"]
    assert main([*use, f"dataset.sha256={card['sha256']}"]) == 0
    assert main([*use, f"dataset.sha256={'0' * 64}"]) == 2
    assert "not the one that the configuration names" in capsys.readouterr().err


@pytest.mark.thorough(tried=3)
@pytest.mark.slow
@pytest.mark.parametrize(("words", "says"), [
    (("build.n=3",), "build.dir"),
    (("build.dir=log.jsonl",), "a frozen set is never overwritten"),
    (("build.dir=s", "dataset.limit=3"), "null: a test set is drawn from all"),
    (("build.dir=s", "dataset.sample={n: 3}"), "null: a test set is drawn from all"),
    (("build.dir=s", "build.n=0"), "greater than or equal to 1"),
    (("build.dir=s", "build.nn=1"), "did you mean n?"),
    (("build.dir=s", "dataset.filter=\"question == 'x'\""), "none passes the filter"),
    (("build.dir=s", "dataset.path=nowhere.jsonl"), "nowhere.jsonl"),
])  # fmt: skip
def test_what_is_refused_writes_nothing(log, capsys, words, says):
    before = sorted(path.name for path in Path().iterdir())
    assert build(*words) == 2
    assert says in capsys.readouterr().err
    assert sorted(path.name for path in Path().iterdir()) == before


@pytest.mark.slow
def test_without_a_data_set(log, capsys):
    assert main(["task=build_dataset", "build.dir=s"]) == 2
    assert "no data set" in capsys.readouterr().err
