"""From a log to a frozen set: what is dropped, drawn and said, that order is nothing; `task=build_dataset` as it is typed."""

import json
import random
from collections import Counter
from pathlib import Path

import pytest

from ragpipe.cli.command_line import main
from ragpipe.core.errors import DataError
from ragpipe.data.dataset import open_dataset
from ragpipe.data.settings import DatasetSettings
from ragpipe.extras.test_sets.build_dataset import BuildSettings, build_test_set
from ragpipe.extras.test_sets.log_scan import normalised_text

TOPICS = ("returns", "orders", "repairs", "deliveries")
WORDS = ["lamp", "bicycle", "coat", "chair", "kettle", "tent", "desk", "shelf", "boots", "ticket"]
VERBS = ["return", "exchange", "cancel", "insure", "repair", "order", "reserve", "clean", "assemble", "recycle", "upgrade", "sell"]


def line(number):
    """A line of a log; no two questions are near: each has its own pair of words."""
    verb, word = VERBS[number % len(VERBS)], WORDS[number // len(VERBS) % len(WORDS)]
    return {
        "id": f"t{number}", "question": f"{verb} {word}: {verb[::-1]} {word[::-1]}?", "category": TOPICS[number % 4],
        "answer": f"Answer {number}.", "recorded": {"grade": number % 5},
    }  # fmt: skip


LOG = [line(number) for number in range(120)]


@pytest.fixture
def build(tmp_path):
    """Write a log, build a set from it, and read the cases back."""

    def built(log, dataset=None, **settings):
        number = len(list(tmp_path.iterdir()))
        path = tmp_path / f"log-{number}.jsonl"
        path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in log), encoding="utf-8")
        source = open_dataset(DatasetSettings(name="log", path=str(path), **(dataset or {})), Path())
        out = tmp_path / f"set-{number}"
        seed = settings.pop("seed", 1)
        made = build_test_set(source, BuildSettings(dir=str(out), **settings), seed=seed, chunk_text=None)
        return made, cases_in(out)

    return built


def cases_in(folder):
    return [json.loads(line) for line in (folder / "cases.jsonl").read_text(encoding="utf-8").splitlines()]


def step(made, name):
    (row,) = [row for row in made.card["steps"] if row["step"] == name]
    return row["kept"], row["dropped"]


def test_the_order_of_the_lines_is_nothing_and_the_seed_is_all(build):
    shuffled = random.Random(3).sample(LOG, len(LOG))
    first, cases = build(LOG, n=30)
    assert len(cases) == 30
    assert build(shuffled, n=30)[0].sha256 == first.sha256
    assert build(LOG, n=30, seed=2)[0].sha256 != first.sha256
    more = [case["id"] for case in build(LOG, n=40)[1]]
    assert more[:30] == [case["id"] for case in cases]
    fewer = [record for record in LOG if record["id"] in more or record["id"] < "t5"]
    assert [case["id"] for case in build(fewer, n=30)[1]] == more[:30]


@pytest.mark.slow
def test_a_draw_is_even(build):
    """Over 60 seeds each of 120 questions is drawn 15 times of 60 on average; five standard deviations are 16.8."""
    counts = Counter(case["id"] for seed in range(60) for case in build(LOG, n=30, seed=seed)[1])
    assert counts.total() == 1800
    assert len(counts) == 120
    assert all(abs(count - 15) < 5 * (60 * 0.25 * 0.75) ** 0.5 for count in counts.values())


def test_duplicates_are_counted_and_one_stands_for_all(build):
    first, second = (line(number)["question"] for number in (0, 1))
    forms = [{**line(0), "id": "a", "question": first.upper()}, {**line(1), "id": "b", "question": f" {second}!"}]
    made, cases = build([*LOG[:20], *forms, LOG[3], LOG[3]], n=None)
    assert step(made, "records read") == (24, 0)
    assert step(made, "samples") == (22, 2)  # t3 was written three times
    assert step(made, "duplicates") == (20, 2)
    assert len(cases) == 20
    assert len({case["id"] for case in cases} & {"a", "t0"}) == 1
    assert build(random.Random(1).sample([*LOG[:20], *forms], 22), n=None)[0].sha256 == made.sha256


def test_the_same_question_after_another_history_is_another(build):
    turns = [{"role": "user", "text": "The lamp is broken."}]
    same = {"question": "And now?", "answer": "-"}
    log = [{"id": "a", **same}, {"id": "b", **same, "history": turns}, {"id": "c", **same, "history": turns}]
    made, cases = build(log, n=None)
    assert step(made, "duplicates") == (2, 1)
    assert len(cases) == 2


def test_fewer_questions_than_wanted_are_said(build):
    made, cases = build(LOG[:9], n=10)
    assert len(cases) == 9
    assert made.notes == ["9 of 10 cases: 9 distinct questions to draw from, candidates: 9"]


def test_outputs_and_origin(build):
    _, cases = build(LOG[:1], n=None)
    origin = {"kind": "log", "source": "log", "seed": 1}
    assert cases == [{**line(0), "method": "default", "meta": {"origin": origin}}]
    _made, cases = build(LOG[:1], n=None, answers="drop")
    assert cases == [{"id": "t0", "question": line(0)["question"], "category": "returns", "meta": {"origin": origin}}]
    again = [{**cases[0], "meta": {"origin": {"kind": "template", "source": "x"}}}]
    assert build(again, n=None)[1][0]["meta"] == {"origin": {"kind": "template", "source": "x"}}


def test_a_log_without_ids_in_which_one_question_has_many_answers(build):
    log = [{"question": "Who?", "answer": answer, "meta": {"n": number}} for number, answer in enumerate("cba")]
    log += [{"question": "Who?", "answer": "z", "method": "m2"}]
    made, cases = build(log, n=None)
    assert len(cases) == 1
    assert [output["answer"] for output in cases[0]["outputs"]] == ["a", "z"]
    assert build(log[::-1], n=None)[0].sha256 == made.sha256


def test_personal_data_is_replaced_counted_or_dropped(build):
    log = [*LOG[:6], {"id": "p1", "question": "Is ann@example.org known here?", "answer": "Call +49 171 2345678.", "meta": {"user": "u1", "x": 1}},
           {"id": "p2", "question": "Is bob@example.org known here?", "answer": "No."}]  # fmt: skip
    made, cases = build(log, n=None)
    texts = json.dumps(cases)
    assert "example.org" not in texts
    assert "2345678" not in texts
    assert len(cases) == 7  # with placeholders the two questions are one
    assert made.card["personal_data"]["EMAIL"] == 1
    assert step(made, "personal data") == (None, 1)
    made, cases = build(log, n=None, personal_data="drop")
    assert len(cases) == 6
    assert step(made, "personal data") == (None, 2)
    made, cases = build(log, n=None, personal_data="keep", drop_meta=["user"])
    assert len(cases) == 8
    assert "ann@example.org" in json.dumps(cases)
    assert next(case["meta"] for case in cases if case["id"] == "p1").keys() == {"x", "origin"}
    with pytest.raises(DataError, match=r"(?s)build\.drop_meta: usr.*user, x"):
        build(log, n=None, drop_meta=["usr"])


def test_a_filter_is_applied_first(build):
    made, cases = build(LOG, n=None, dataset={"filter": "category == 'orders'"})
    assert step(made, "filter") == (30, 90)
    assert {case["category"] for case in cases} == {"orders"}
    with pytest.raises(DataError, match="none passes the filter"):
        build(LOG, dataset={"filter": "category == 'x'"})


def test_faults_are_refused_or_left_out(build, tmp_path):
    bad = [{"id": "b1", "question": " "}, {"id": 7, "question": "x"}, {"id": "b3", "question": "q", "history": "x"}]
    bad += [{"id": "b4", "question": 3}]
    with pytest.raises(DataError, match=r"(?s)build\.faults=skip.*question.*id.*history"):
        build([*LOG, *bad], n=5)
    made, cases = build([*LOG, *bad], n=None, faults="skip")
    assert len(cases) == 120
    assert step(made, "faults left out") == (None, 4)
    assert any(note.startswith("left out because of question: 2, the first at ") for note in made.notes)
    assert build(LOG, n=None)[0].sha256 == made.sha256


def test_what_is_drawn_is_checked_completely(build):
    wrong = {**line(3), "timings": {"total": "fast"}}
    log = [*LOG[:3], wrong]
    with pytest.raises(DataError, match=r"timings\.total"):
        build(log, n=None)
    made, cases = build(log, n=4, faults="skip")
    assert len(cases) == 3
    assert made.notes[-1].startswith("left out because of timings.total: 1, the first at ")


def test_one_id_for_two_questions_is_refused(build):
    log = [{"id": "user-7", "question": "Who?", "answer": "a"}, {"id": "user-7", "question": "What else?", "answer": "b"}]
    with pytest.raises(DataError, match=r"(?s)the id of two questions.*map an id that names one question"):
        build(log, n=None)


@pytest.mark.parametrize(("text", "normalised"), [
    ("  How   are\tyou?\n", "how are you"), ("HOW ARE YOU", "how are you"), ("«Wo ist die Straße?»", "wo ist die strasse"),
    ("\uff37\uff28\uff39\uff1f", "why"),  # full-width letters
    ("cafe\u0301", "caf\u00e9"), ("\u00bfQu\u00e9 pasa?!", "qu\u00e9 pasa"), ("What is C++?", "what is c++"),
    ("is 3.5 > 2?", "is 3.5 > 2"), ("a\u00a0b", "a b"), ("???", "???"),
])  # fmt: skip
def test_questions_are_the_same_by_their_normalised_text(text, normalised):
    assert normalised_text(text) == normalised


TYPED = [
    {"trace": f"t{number}", "ask": {"text": text}, "reply": "x" * number, "grade": number}
    for number, text in enumerate(("Who is it?", "who is it", "When was it?", "Call +49 171 2345678?", "Where is it now?"))
]
MAPPING = """\
path: log.jsonl
name: bot
fields: {id: trace, question: ask.text, answer: reply, recorded: {fields: {grade: grade}}}
"""


TASK = ["task=build_dataset", "dataset=bot"]


@pytest.fixture
def log(here):
    (here / "conf" / "dataset").mkdir(parents=True)
    (here / "conf" / "dataset" / "bot.yaml").write_text(MAPPING, encoding="utf-8")
    (here / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in TYPED), encoding="utf-8")


@pytest.mark.slow
def test_a_set_is_built_said_and_used(log, capsys):
    assert main([*TASK, "build.dir=set", "build.n=null", "seed=4"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "duplicates 4 1" in out
    assert "personal data: 1 PHONE" in out
    assert "2345678" not in out + "".join(path.read_text() for path in Path("set").iterdir())
    card = json.loads(Path("set/card.json").read_text(encoding="utf-8"))
    assert card["seed"] == 4
    assert card["counts"] == {"origin.kind": {"log": 4}}
    assert card["sources"] == [{"path": "log.jsonl", "sha256": card["sources"][0]["sha256"]}]
    assert f"sha256 {card['sha256']}" in out
    assert cases_in(Path("set"))[0]["meta"]["origin"] == {"kind": "log", "source": "bot", "seed": 4}
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
    assert main([*TASK, *words]) == 2
    assert says in capsys.readouterr().err
    assert sorted(path.name for path in Path().iterdir()) == before


@pytest.mark.slow
def test_without_a_data_set(log, capsys):
    assert main(["task=build_dataset", "build.dir=s"]) == 2
    assert "no data set" in capsys.readouterr().err
