"""Several live methods in one run: what each is, what each is asked, and whose answers another run keeps."""

import json
import re
from typing import Any

import pytest

import ragpipe
from ragpipe.cli.command_line import main
from ragpipe.core.errors import DataError
from ragpipe.core.sample import Output, Sample
from ragpipe.data.live_system import open_methods
from ragpipe.data.system_settings import HttpSystem, PythonSystem
from ragpipe.runs.collect_outputs import CollectStage
from ragpipe.runs.collected_outputs import collected_outputs
from ragpipe.runs.identity import kept_methods, method_identities, system_versions, with_sources

SAMPLES = [Sample(id=f"s{i}", question=f"question {i}") for i in range(3)]
THREE: dict[str, Any] = {
    "kind": "python", "callable": "modes:answer", "params": {"k": 5, "mode": "plain"}, "version": "1",
    "methods": {
        "plain": {},
        "wide": {"params": {"k": 20}, "repeats": 2},
        "closed_book": {"callable": "modes:closed", "retrieves": False, "version": "7"},
    },
}  # fmt: skip


@pytest.fixture
def plugin(code_here):
    (code_here / "modes.py").write_text(
        "def answer(sample):\n"
        "    asked = sample['params'].pop('k')\n"  # a system may change what it gets
        "    return {'answer': f\"{sample['params']['mode']} {asked}\", 'contexts': ['one']}\n"
        "def closed(sample): return 'by heart'\n"
    )
    return code_here


def test_a_method_may_be_of_another_kind():
    http = HttpSystem(
        kind="http", url="http://127.0.0.1:1/ask", timeout_s=5,
        methods={"web": {}, "here": {"kind": "python", "callable": "modes:answer"}},
    )  # fmt: skip
    web, here = http.each_method()
    assert isinstance(web, HttpSystem)
    assert isinstance(here, PythonSystem)
    assert (web.timeout_s, here.timeout_s) == (5, 5)


async def collect(settings, journal):
    plugins = [settings.callable.partition(":")[0]]
    await CollectStage(open_methods(settings, plugins), journal).run(lambda: iter(SAMPLES))
    return collected_outputs(journal, settings.method_names)


async def test_each_method_is_asked_with_its_params_and_the_tables_have_their_order(plugin):
    """The order of the section, not of the alphabet; a parameter that one question changes is whole for the next."""
    outputs = await collect(PythonSystem(**THREE), plugin / "j.jsonl")
    found = [(o.sample_id, o.method, o.repeat, o.answer, o.chunks and len(o.chunks)) for group in outputs.values() for o in group]
    assert found == [
        row
        for i in range(3)
        for row in (
            (f"s{i}", "plain", 1, "plain 5", 1), (f"s{i}", "wide", 1, "plain 20", 1), (f"s{i}", "wide", 2, "plain 20", 1),
            (f"s{i}", "closed_book", 1, "by heart", None),
        )
    ]  # fmt: skip


def identity(**changes):
    settings = PythonSystem(**{**THREE, **changes})
    return {"dataset": {}, "data": "d", "ragpipe": "1", "format": 1, "system": settings.identity()}


@pytest.mark.parametrize(("changes", "kept"), [
    ({}, ["plain", "wide", "closed_book"]),
    ({"methods": {**THREE["methods"], "wide": {"params": {"k": 30}}}}, ["plain", "closed_book"]),
    ({"methods": {**THREE["methods"], "new": {}}}, ["plain", "wide", "closed_book"]),
    ({"methods": {"plain": {}}}, ["plain"]),
    ({"methods": {}, "method": "plain"}, ["plain"]),
    ({"version": "2"}, ["closed_book"]),
    ({"params": {"k": 6}}, []),
    ({"prices": {"input": 1.0, "output": 2.0}}, ["plain", "wide", "closed_book"]),
    ({"concurrency": 9, "retries": 0}, ["plain", "wide", "closed_book"]),
])  # fmt: skip
def test_the_answers_of_a_method_that_is_as_it_was_are_kept(changes, kept):
    assert kept_methods(identity(), identity(**changes), frozenset()) == kept


def test_other_questions_keep_no_answer():
    assert kept_methods(identity(), {**identity(), "data": "e"}, frozenset()) == []


def test_an_edited_source_counts_unless_the_version_alone_does():
    before = with_sources(identity(), {"plain": {"modes": "1" * 64}, "wide": {"modes": "1" * 64}})
    after = with_sources(identity(), {"plain": {"modes": "2" * 64}, "wide": {"modes": "1" * 64}})
    assert kept_methods(before, after, frozenset()) == ["wide", "closed_book"]
    assert kept_methods(before, after, frozenset({"plain"})) == ["plain", "wide", "closed_book"]
    versions = system_versions(after["system"], {"plain": ["1"], "closed_book": ["7"]})
    assert {name: len(texts) for name, texts in versions.items()} == {"plain": 2, "closed_book": 1, "wide": 1}


def test_one_method_has_the_same_identity_alone_and_beside_others():
    alone = PythonSystem(kind="python", callable="modes:answer", method="plain", params=THREE["params"], version="1")
    assert method_identities(alone.identity())["plain"] == method_identities(identity()["system"])["plain"]


MOODY = """
def answer(sample):
    with open("asked.txt", "a") as file:
        file.write(sample["id"] + "\\n")
        total = file.tell() // 3
    grounded = sample["id"] == "q0" or total % 2 == 0
    return {"answer": "Paris is the capital of France." if grounded else "Lyon has nine bridges.",
            "contexts": ["Paris is the capital of France."], "repeat": 7}
"""


@pytest.fixture
def here(code_here):
    (code_here / "moody.py").write_text(MOODY)
    (code_here / "q.jsonl").write_text("".join(f'{{"id": "q{i}", "question": "Capital {i}?"}}\n' for i in range(3)))
    return code_here


async def test_only_the_repeats_that_are_missing_or_failed_are_asked_again(here):
    settings, journal = PythonSystem(kind="python", callable="moody:answer", repeats=3), here / "j.jsonl"
    await collect(settings, journal)
    lines = journal.read_text().splitlines()
    kept = [line for line in lines if not ('"s1"' in line and json.loads(line)["repeat"] == 2)]
    failed = Output(sample_id="s2", repeat=3, error="down").model_dump_json()
    kept.append(json.dumps({"sample_id": "s2", "method": "default", "repeat": 3, "failed": True, "output": failed}))
    journal.write_text("".join(f"{line}\n" for line in kept))
    (here / "asked.txt").unlink()
    found = await collect(settings, journal)
    assert sorted((here / "asked.txt").read_text().split()) == ["s1", "s2"]
    assert all(output.error is None for outputs in found.values() for output in outputs)


async def test_a_line_that_holds_no_output_is_named_with_its_repeat(here):
    journal = here / "j.jsonl"
    settings = PythonSystem(kind="python", callable="moody:answer", repeats=2)
    await collect(settings, journal)
    bad = {"sample_id": "s1", "method": "default", "repeat": 2, "failed": False, "output": '{"answer": null}'}
    with journal.open("a") as file:
        file.write(json.dumps(bad) + "\n")
    with pytest.raises(DataError, match=r"sample 's1', method 'default', repeat 2: output"):
        await collect(settings, journal)


@pytest.mark.slow
def test_the_answers_of_one_question_are_cases_in_one_cluster(here, capsys):
    """q0 is grounded both times; of q1 and q2 (asked 3rd, 4th, 5th and 6th) the even askings: the mean is 4 of 6, over
    three questions."""
    words = ["dataset=jsonl", "dataset.path=q.jsonl", "metrics=[faithfulness]", "name=moody", "system=python"]
    assert main([*words, "plugins=[moody]", "system.callable=moody:answer", "system.concurrency=1", "system.repeats=2"]) == 0
    run = ragpipe.load("outputs/moody/latest")
    expected = [("q0", 1, 1.0), ("q0", 2, 1.0), ("q1", 1, 0.0), ("q1", 2, 1.0), ("q2", 1, 0.0), ("q2", 2, 1.0)]
    assert list(zip(run.records["sample_id"], run.records["repeat"], run.records["faithfulness"], strict=True)) == expected
    assert (run.metrics["n_cases"], run.metrics["n_samples"]) == (6, 3)
    assert run.metrics["overall"]["scores"]["faithfulness"]["mean"] == pytest.approx(4 / 6)
    for table in ("scores", "judge_inputs"):
        assert set(zip(*(getattr(run, table)[name] for name in ("sample_id", "repeat")), strict=True)) == {
            (f"q{i}", repeat) for i in range(3) for repeat in (1, 2)
        }
    assert run.manifest["identity"]["system"]["repeats"] == 2
    capsys.readouterr()
    assert main(["task=explain", "run=outputs/moody/latest", "case=q1", "metric=faithfulness", "repeat=2"]) == 0
    assert re.match(r"(?s)q1/default repeat 2.*faithfulness = 1", capsys.readouterr().out)
    assert main(["task=explain", "run=outputs/moody/latest", "case=q1", "metric=faithfulness"]) == 0
    assert "faithfulness = 0" in capsys.readouterr().out
    assert main(["task=explain", "run=outputs/moody/latest", "case=q1", "repeat=3"]) == 2
    assert "one of 1, 2" in capsys.readouterr().err
    assert main(["task=verify", "run=outputs/moody/latest"]) == 0
