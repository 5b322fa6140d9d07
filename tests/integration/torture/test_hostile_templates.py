"""Templates of somebody who means harm or errs: nothing is called or read, and a fault is named with file and line."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ragpipe.cli.command_line import compose
from ragpipe.core.errors import OutputError, PromptError, PromptTooLong
from ragpipe.core.fences import fence
from ragpipe.core.resources import prompts_dir
from ragpipe.core.sample import Chunk
from ragpipe.judge.prompt import MAX_RENDERED
from ragpipe.judge.prompt_library import PromptLibrary
from ragpipe.runs.manifest import copy_prompts
from tests.integration.cli.test_finished import written
from tests.support.checks import Bench, places_of
from tests.support.harness import environment, start
from tests.support.place import output_of
from tests.support.waiting import HANGS_AFTER_S

HEAD = "---\nroles: {q: text, items: claims, contexts: sources}\n---\n[[user]]\n"
VALUES = {"q": "What?", "items": ["a", "b"], "contexts": [Chunk(id="c1", text="one", rank=1), Chunk(id="c2", text="two", rank=2)]}


def write(folder: Path, body: str, name: str = "ask.v1", head: str = HEAD) -> PromptLibrary:
    (folder / "t").mkdir(exist_ok=True)
    (folder / "t" / f"{name}.jinja").write_text(head + body + "\n")
    return PromptLibrary([folder])


REFUSED = [  # what stands in the third line of the block, and what is said of it
    ("{{ q | centre(9) }}", "the filter 'centre'"), ("{{ 'a' if q is callabel }}", "the test 'callabel'"), ("{{ q | random }}", "the filter 'random'"),
    ("{{ q.upper() }}", "a call"), ("{% macro m() %}x{% endmacro %}{{ m() }}", "a call"), ("{% for a in items recursive %}{{ loop(items) }}{% endfor %}", "a call"),
    ("{{ q", "print statement"), ("{% if q %}", "endif"), ("{% for a in items %}", "endfor"), ("{% endif %}", "unknown tag 'endif'"),
    ("{{ question }}", "['question'] without a role"), ("{{ range(9) }}", "a call"),
    ("{% include q %}", "an include whose name is computed"), ("{% extends q %}", "an include whose name is computed"),
    ("{{ " + "(" * 3000 + "q" + ")" * 3000 + " }}", "Recursion"), ("x" * 70_000, "64,000"),
    ("{% include '/shared/preamble.v1.jinja' %}", "include of '/shared"), ("{% include '../x.jinja' %}", "include of '../x.jinja'"),
    ("{% include 'shared/../../x.jinja' %}", "include of"), ("{% include 'no/such.jinja' %}", "include of 'no/such.jinja'"),
]  # fmt: skip
EXACT = ("the filter", "the test", "a call", "print statement", "unknown tag", "without a role")


@pytest.mark.parametrize(("line", "says"), REFUSED, ids=[f"{i} {row[1]}" for i, row in enumerate(REFUSED)])
def test_refused_with_file_and_line(line: str, says: str, tmp_path: Path) -> None:
    library = write(tmp_path, f"{{{{ q }}}}\nplain\n{line}")
    with pytest.raises(PromptError) as caught:
        library.load("t", "ask", "v1")
    problem = caught.value.problems[0]
    assert says in problem.found + problem.expected, problem
    path, _, found = problem.where.rpartition(":")
    assert path == str(tmp_path / "t/ask.v1.jinja")
    assert int(found) == 7 if any(words in says for words in EXACT) else 1 <= int(found) <= 8


UNSAFE = [  # nothing is called, and of an object only its fields are seen
    "{{ q.format(1) }}", "{{ q.upper() }}", "{{ contexts[0].model_dump() }}", "{{ contexts[0]['model_dump']() }}", "{{ q.__class__ }}",
    "{{ contexts[0].parse_raw(q, proto='pickle', allow_pickle=true) }}", "{{ (contexts[0] | attr('parse_raw'))(q) }}",
    "{{ (contexts | map(attribute='parse_raw') | first)(q) }}", "{{ contexts[0].parse_raw }}", "{{ items.append('c') }}",
    "{{ q.__class__.__mro__ }}", "{{ contexts[0].__init__.__globals__ }}", "{% set m = loop %}{{ m }}", "{{ self.__init__ }}", "{{ ragpipe }}",
]  # fmt: skip


@pytest.mark.parametrize("body", UNSAFE)
def test_nothing_but_the_values_can_be_reached(body: str, tmp_path: Path) -> None:
    with pytest.raises(PromptError) as caught:
        write(tmp_path, "{{ q }}" + body).load("t", "ask", "v1").render(**VALUES)
    assert str(tmp_path / "t/ask.v1.jinja") in caught.value.problems[0].where
    assert VALUES["items"] == ["a", "b"]


@pytest.mark.parametrize("text", [
    "no head", "---\na: &a [1]\n---\n[[user]]\nx", "---\nroles: [q]\n---\n[[user]]\n{{ q }}", "---\n{roles: {1: text}}\n---\n[[user]]\n{{ q }}",
    "---\nroles: {q: !!python/name:os.system x}\n---\n[[user]]\n{{ q }}", "---\nroles: {q: [\n---\n[[user]]\nx",
    "---\nx: " + "[" * 500 + "]" * 500 + "\n---\n[[user]]\nx",
    "---\na0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}, *a{i - 1}]\n" for i in range(1, 40)) + "---\n[[user]]\nx",
])  # fmt: skip
def test_a_head_is_checked_like_any_yaml(text: str, tmp_path: Path) -> None:
    with pytest.raises(PromptError) as caught:
        write(tmp_path, "", head=text).load("t", "ask", "v1")
    assert str(tmp_path / "t/ask.v1.jinja") in caught.value.problems[0].where


def test_faults_of_templates_name_their_file(tmp_path: Path) -> None:
    library = write(tmp_path, "")
    (tmp_path / "t/ask.v1.jinja").write_bytes(HEAD.encode() + b"{{ q }}\ncaf\xe9\n")
    with pytest.raises(PromptError, match=r"ask\.v1\.jinja:6.*\n.*0xe9"):
        library.load("t", "ask", "v1")
    own = "{% include 't/a.jinja' %}{{ q }}"
    write(tmp_path, own)
    (tmp_path / "t/a.jinja").write_text("{% include 't/b.jinja' %}")
    (tmp_path / "t/b.jinja").write_text("{% include 't/a.jinja' %}")
    with pytest.raises(PromptError, match="includes itself"):
        PromptLibrary([tmp_path]).load("t", "ask", "v1")
    (tmp_path / "t/e.jinja").write_text("one\n{{ q | shout }}")
    with pytest.raises(PromptError, match=r"t/e\.jinja:2"):
        write(tmp_path, own.replace("t/a", "t/e")).load("t", "ask", "v1")
    prompt = write(tmp_path, "{{ q }}{{ items }}").load("t", "ask", "v1")
    assert len(prompt.render(q="x" * (MAX_RENDERED - 100), items=["a"])) == 1
    with pytest.raises(PromptTooLong, match=r"ask: the variable q has 4,000,001 characters"):
        prompt.render(q="x" * (MAX_RENDERED + 1), items=["a"])


GOOD = [  # a template, and the text that Jinja itself would give; values are fenced
    ("{% for c in contexts %}[{{ loop.index }}/{{ loop.length }}]{% if not loop.last %}, {% endif %}{% endfor %}{{ q }}", "[1/2], [2/2]<Q>"),
    ("{% if items | length > 1 and q is defined %}several{% elif q %}one{% else %}none{% endif %}{{ q }}", "several<Q>"),
    ("{{ q | upper | lower | trim | replace('w', 'v') | capitalize }}", "<Vhat?>"),
    ("{{ items | join(', ') }}{{ contexts | join(' | ', attribute='text') }}{{ q | length - 1 }}", "<a, b><one | two>4"),
    ("{% set n = contexts | length %}{{ n }} {{ contexts[0].rank }}{{ items | first }}{{ items | last }}{{ q[:2] }}", "2 1<a><b><Wh>"),
    ("{{ items | sort(reverse=true) | join }}{{ contexts | map(attribute='rank') | list | tojson }}{{ q }}", "<ba><[1,2]><Q>"),
    ("{% for a in items if a != 'a' %}{{ a }}{% else %}none{% endfor %}{% for k in [] %}{% else %}none{% endfor %}{{ q }}", "<b>none<Q>"),
    ("{{ 'yes' if q in ('What?', 'Why?') else 'no' }}{{ items | reverse | join('-') }}", "<yes><b-a>"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "expected"), GOOD)
def test_what_an_author_needs(body: str, expected: str, tmp_path: Path) -> None:
    (message,) = write(tmp_path, body).load("t", "ask", "v1").render(**VALUES)
    text = message["content"]
    for value in ("What?", "Vhat?", "a, b", "one | two", "a", "b", "ba", "[1,2]", "b-a", "yes", "Wh"):
        text = text.replace(fence(value), "<Q>" if value == "What?" else f"<{value}>")
    assert text == expected


@pytest.mark.thorough
@pytest.mark.slow
def test_one_text_too_long_costs_its_case_alone(bench, capfd: pytest.CaptureFixture[str]) -> None:
    b: Bench = bench(cases=4)
    lines = b.data.read_text().splitlines()
    record = json.loads(lines[1])
    record["answer"] = "long " * 900_000
    b.data.write_text("\n".join([lines[0], json.dumps(record), *lines[2:]]) + "\n")
    shown = " ".join(output_of(b.args("task=plan"), 0, capfd))
    assert "1 case is too long for a question, first q00001" in " ".join(shown.split()), shown
    ran = b.run("scoring.coverage_floor=0.5")
    assert ran.code == 0, ran.text
    status = {row["sample_id"]: (row["status"], row["reason"]) for row in ran.rows()}
    assert [status[f"q0000{i}"][0] for i in range(4)] == ["ok", "error", "ok", "ok"]
    for part in ("too_long", "q00001", "faithfulness/extract", "variable answer has", "4,500,000"):
        assert part in status["q00001"][1]
    assert b.run("scoring.coverage_floor=0.5").requests == []


@pytest.mark.slow
def test_a_strangers_run_folder_is_read_by_the_same_rules(here: Path, capsys) -> None:
    folder, _ = written(here / "runs", "dataset=demo", "metrics=[answer_relevance]")
    template = folder.prompts / "answer_relevance/direct.v2.jinja"
    kept, config = template.read_text(), folder.config.read_text()
    for change, says in [
        (lambda: template.write_text(kept + "{{ answer.upper() }}\n"), "direct.v2.jinja"),
        (lambda: template.write_text(kept + "{% include '/shared/preamble.v1.jinja' %}\n"), "include of '/shared"),
        (lambda: folder.config.write_text(config.replace("direct: v2", "direct: v2/../../../outside")), "direct"),
        (lambda: folder.config.write_text(config.replace("direct: v2", "direct: ../v2")), "direct"),
        (lambda: folder.config.write_text(config.replace("  answer_relevance:", "  ../../x:")), "../../x"),
        (lambda: folder.config.write_text(config.replace("name: run", "name: ../../x")), "name"),
    ]:
        assert change()
        for task in ("rescore", "verify"):
            err = output_of([f"task={task}", f"run={folder.root}"], 2, capsys).err
            assert (says in err, "Traceback" in err) == (True, False), err
        template.write_text(kept)
        folder.config.write_text(config)
    assert not (here / "outside.jinja").exists()


@pytest.mark.slow
def test_no_template_is_copied_through_a_link(here: Path, capsys) -> None:
    """A link `prompts/<metric>` in a run folder that waits for its run would lead every template somewhere else."""
    config = compose(["dataset=demo", "metrics=[answer_relevance]"])
    (here / "elsewhere").mkdir()
    (here / "run/prompts").mkdir(parents=True)
    (here / "run/prompts/answer_relevance").symlink_to(here / "elsewhere")
    with pytest.raises(OutputError, match="symbolic link"):
        copy_prompts(config, here / "run/prompts")
    assert list((here / "elsewhere").iterdir()) == []
    shutil.rmtree(here / "run")
    copy_prompts(config, here / "run/prompts")
    copied = {str(p.relative_to(here / "run/prompts")) for p in (here / "run").rglob("*.jinja")}
    shared = {f"shared/{name}.jinja" for name in ("preamble.v2", "earlier_turns.v1", "worked_examples.v1")}
    assert copied == {"answer_relevance/direct.v2.jinja", *shared}
    assert (prompts_dir() / "shared/preamble.v2.jinja").is_file()


Make = Callable[..., Bench]
SENTINEL = "Zq7-plain-words-no-shape-91"  # looks like no provider's key: only its variable tells that it is one
VARIABLE = "RAGPIPE_TEST_KEY"


@pytest.fixture
def keyed(bench: Make, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Bench]:
    def make(**options: object) -> Bench:
        made = bench(**options)
        monkeypatch.setenv(VARIABLE, SENTINEL)
        return made

    return make


FAILING = ["401", "403:after=5", "400:match=zebra", "500:match=zebra", "reset:match=zebra", f"other_model:name={SENTINEL}"]


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("log_level", ["warning", "debug"])
@pytest.mark.slow
def test_no_run_leaves_the_key_anywhere(keyed: Make, log_level: str) -> None:
    """Good and failing runs, one that echoes the key in its errors, its model's name and its replies."""
    b = keyed(cases=8, zebras=(2,))
    for fault in FAILING:
        b.fault(fault)
        ran = b.run("judge.retries=0", f"log_level={log_level}", f"name={fault.split(':')[0]}")
        assert SENTINEL not in ran.text, fault
    b.fault()
    b.server.script = [{"match": "zebra", "reply": f'{{"claims": ["the key is {SENTINEL}"]}}', "times": 1}]
    ran = b.run(f"log_level={log_level}", "judge.season=echo")
    assert ran.code == 0
    assert SENTINEL not in ran.text
    assert any(r["sample_id"] == "q00002" and "the key is" in (r["reply"] or "") for r in ran.rows("judge_inputs"))
    assert places_of(b.folder, SENTINEL) == []
    assert len({r["auth"] for r in b.server.log}) == 1, "the key did go over the wire"


@pytest.mark.slow
def test_no_other_command_leaves_the_key_anywhere(keyed: Make, monkeypatch: pytest.MonkeyPatch, capfd) -> None:
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    b = keyed(cases=4)
    words = b.args()
    for command, expected in [
        (["--cfg", "job", "--resolve", *words], 0),
        (["--cfg", "all", *words, "judge.season=${oc.env:" + VARIABLE + "}", "--resolve"], 0),
        (["--info", "all", *words], 0),
        (["task=plan", *words], 0),
        (["task=init", "dir=my"], 0),
        (["-m", *words, "scoring.thresholds.faithfulness=0.5,0.9"], 0),
        ([*words, "judge.season=${oc.env:" + VARIABLE + "}"], 2),
        ([*words, f"judge.season={SENTINEL}"], 2),
        ([*words, f"name={SENTINEL}"], 2),
        (["-m", *words, f"judge.season=a,{SENTINEL}"], 2),
        ([*words, f"+{SENTINEL}=1"], 2),
        ([f"--config-dir={SENTINEL}", *words], 2),
        ([f"+experiment={SENTINEL}"], 2),
        (["task=init", f"dir={SENTINEL}"], 2),
    ]:
        text = "".join(output_of(command, expected, capfd))
        assert SENTINEL not in text, command
        assert places_of(b.folder, SENTINEL) == [], command


@pytest.mark.thorough
@pytest.mark.slow
def test_the_other_client_keeps_the_key_to_itself(keyed: Make) -> None:
    b = keyed(cases=6, zebras=(2,))
    b.options = ["judge.client=litellm", "judge.retries=0", "log_level=debug"]
    for fault in FAILING:
        b.fault(fault)
        process = start(b.args(f"name={fault.split(':')[0]}"), b.folder)
        text, _ = process.communicate(timeout=HANGS_AFTER_S)
        assert SENTINEL not in text, fault
    assert places_of(b.folder, SENTINEL) == []


def test_the_search_finds_what_it_looks_for(tmp_path: Path) -> None:
    """The check itself: a text in a compressed Parquet column is no match of its bytes, and is found all the same."""
    pq.write_table(pa.table({"a": [f"x{SENTINEL}y" * 3, "漢"]}), tmp_path / "t.parquet", compression="zstd")
    (tmp_path / f"f-{SENTINEL}").write_text("nothing")
    assert len(places_of(tmp_path, SENTINEL)) == 2


NOISE = (
    "Task was destroyed", "never awaited", "never retrieved", "Unclosed", "Event loop is closed", "Exception ignored", "Traceback",
    "unclosed",
)  # fmt: skip

TWICE = """
import asyncio, sys
import ragpipe
from ragpipe.core.errors import ConfigError, ProviderUnusable
words = sys.argv[1:]
for wrong, kind, told in ((words, ProviderUnusable, "RAGPIPE_TEST_KEY"), ([*words, "judge.concurrency=no"], ConfigError, "judge.concurrency")):
    try:
        ragpipe.run(wrong)
    except kind as error:
        assert told in str(error)
    else:
        raise SystemExit("nothing was raised")
one = ragpipe.run(words)
assert one.scores.shape[0] == 6, one.scores
two = ragpipe.run([*words, "judge.season=s2"])
assert two.path != one.path

async def notebook():
    three = ragpipe.run([*words, "judge.season=s3"])
    await asyncio.sleep(0)
    return three

three = asyncio.run(notebook())
again = ragpipe.load(one.path.parent / "latest")
assert again.path == three.path
assert list(again.records["sample_id"]) == [f"q{i:05d}" for i in range(6)]
assert set(again.scores["status"]) == {"ok"}
assert len(again.judge_inputs) == 12
assert again.cost["used"]["calls"] == 12
print("done")
"""


@pytest.mark.slow
def test_three_runs_in_one_process_after_two_that_failed_one_of_them_inside_a_loop(bench: Make) -> None:
    b = bench(cases=6)
    b.fault("401:first=1")
    command = [sys.executable, "-X", "dev", "-W", "default", "-c", TWICE, *b.args()]
    done = subprocess.run(command, cwd=b.folder, env=environment(), capture_output=True, text=True, timeout=HANGS_AFTER_S)
    assert (done.returncode, "done" in done.stdout) == (0, True), done.stderr
    assert [word for word in NOISE if word in done.stderr] == [], done.stderr
    assert len(b.server.log) == 1 + 36, "the refused one, then three seasons of twelve questions"


SCRIPTS = {
    "漢字-１２３": "日本語の答え。もう一つ。", "עברית 123": "\u202bתשובה\u202c ועוד.", "👩‍👩‍👧‍👦🏳️‍🌈": "🙂 Emoji. 🧪 And more.",
    "a\u2028b\u2029c": "Line\u2028separator. Para\u2029graph.", "e\u0301 vs é": "Combining e\u0301. Composed é.", "tab\tand\u00a0space": "A\tb. C\u000bd\u000ce\x1cf.",
    "\ufeffbom inside\ufeff": "\ufeffBOM. \u200bzero\u200dwidth.", "007": "None", "1e5": "NaN", "null": "null",
}  # fmt: skip


@pytest.mark.slow
def test_texts_of_every_script_survive(bench: Make) -> None:
    b = bench()
    records = [{"id": i, "question": f"{i}?", "answer": a, "reference": a, "category": i, "contexts": [a, i]} for i, a in SCRIPTS.items()]
    b.data.write_text("".join(json.dumps(r, ensure_ascii=place % 2 == 0) + "\n" for place, r in enumerate(records)), encoding="utf-8")
    ran = b.run()
    assert ran.code == 0, ran.text
    rows = ran.rows("records")
    assert [row["sample_id"] for row in rows] == list(SCRIPTS)
    outputs = pq.read_table(ran.folder / "outputs.parquet").to_pylist()
    assert [row["answer"] for row in outputs] == list(SCRIPTS.values())
    assert {row["sample_id"]: row["category"] for row in rows} == {i: i for i in SCRIPTS}
    asked = {r["sample_id"]: r["messages"] for r in ran.rows("judge_inputs") if r["step"] == "extract"}
    for name, answer in SCRIPTS.items():
        assert answer in json.loads(asked[name])[-1]["content"]
    entries = json.loads((ran.folder / "iteration-1/.progress.json").read_bytes())["entries"]
    assert {e["queryLogId"] for e in entries} == set(SCRIPTS)
    assert b.run().requests == []
