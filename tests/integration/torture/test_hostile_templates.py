"""Templates of somebody who means harm: refused with file and line, or ended in bounded time and memory."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ragpipe.cli import main
from ragpipe.core.errors import PromptError, PromptTooLong
from ragpipe.core.resources import prompts_dir
from ragpipe.prompting.fences import fence
from ragpipe.prompting.library import PromptLibrary
from ragpipe.prompting.template_language import FILTERS, MAX_RENDERED
from ragpipe.schema.sample import Chunk
from tests.support.checks import Bench
from tests.support.harness import ROOT, environment
from tests.support.process_memory import PEAK_MIB

HEAD = "---\nroles: {q: text, items: claims, contexts: sources}\n---\n[[user]]\n"
VALUES = {
    "q": "What?",
    "items": ["a", "b"],
    "contexts": [Chunk(id="c1", text="one", rank=1), Chunk(id="c2", text="two", rank=2)],
}


def write(folder: Path, body: str, name: str = "ask.v1", head: str = HEAD) -> PromptLibrary:
    (folder / "t").mkdir(exist_ok=True)
    (folder / "t" / f"{name}.jinja").write_text(head + body + "\n")
    return PromptLibrary([folder])


REFUSED = [  # what stands in the third line of the block, and what is said of it
    ("{{ q | center(2000000000) }}", "the filter 'center'"), ("{{ '%2000000000d' | format(1) }}", "the filter 'format'"),
    ("{{ 'a' * 2000000000 }}", "the operator *"), ("{{ q ~ q }}", "the operator ~"), ("{{ 2 ** 9999999 }}", "the operator **"),
    ("{{ 'x' % q }}", "the operator %"), ("{{ q | indent(2000000000) }}", "the filter 'indent'"), ("{{ q.format(1) }}", "a call"),
    ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "a macro"), ("{% call q() %}{% endcall %}", "a call block"),
    ("{% for a in items recursive %}{{ loop(items) }}{% endfor %}", "a recursive loop"), ("{{ range(9) }}", "a call"),
    ("{% filter upper %}{{ q }}{% endfilter %}", "a filter block"), ("{% set a %}{{ q }}{% endset %}", "a set block"),
    ("{% import 't/x.jinja' as x %}", "an import"), ("{% from 't/x.jinja' import x %}", "an import"),
    ("{% extends q %}", "an extends"), ("{% extends 't/x.jinja' %}", "an extends"), ("{% block b %}{% endblock %}", "a block"),
    ("{% include q %}", "an include whose name is computed"), ("{% include ['a', 'b'] %}", "an include whose name is computed"),
    ("{{ q.__class__ }}", "the attribute '__class__'"), ("{{ q._x }}", "the attribute '_x'"), ("{{ q | attr('x') }}", "the filter 'attr'"),
    ("{{ [q, q] | join }}", "a list of values that are not written out"), ("{{ {'a': q} }}", "a mapping in braces"),
    ("{{ q | ragpipe.each(1) }}", "the filter 'ragpipe.each'"), ("{{ q is callable }}", "the test 'callable'"),
    ("{% set a, b = q %}", "a set of more than one name"), ("{{ q | join(*items) }}", "arguments given by * or **"),
    ("{% with a = q %}{{ a }}{% endwith %}", "a with block"), ("{{ q | pprint }}", "the filter 'pprint'"), ("{{ q", "print statement"),
    ("{% autoescape true %}{{ q }}{% endautoescape %}", "an autoescape block"), ("{{ 1 + 'a' }}", "no numbers"),
    ("{{ 1 / 0 }}", "the operator /"), ("{{ " + "(" * 3000 + "q" + ")" * 3000 + " }}", "Recursion"),
    ("{% if q %}" * 120 + "{% endif %}" * 120, "levels"), ("{{ q }}" * 6000, "5,000 parts"), ("x" * 70_000, "64,000"),
    ("{% for a in items %}{% for b in items %}{% for c in items %}{% endfor %}{% endfor %}{% endfor %}", "2 deep"),
    ("{% include '/shared/preamble.v1.jinja' %}", "include of '/shared"), ("{% include '../x.jinja' %}", "include of '../x.jinja'"),
    ("{% include 'shared/../../x.jinja' %}", "include of"), ("{% include 'no/such.jinja' %}", "include of 'no/such.jinja'"),
]  # fmt: skip


@pytest.mark.timeout(60)  # what unfolds without end would never come back
@pytest.mark.parametrize(("line", "says"), REFUSED, ids=[f"{i} {row[1]}" for i, row in enumerate(REFUSED)])
def test_refused_with_file_and_line(line: str, says: str, tmp_path: Path) -> None:
    library = write(tmp_path, f"{{{{ q }}}}\nplain\n{line}")
    with pytest.raises(PromptError) as caught:
        library.load("t", "ask", "v1").render(q="x")
    problem = caught.value.problems[0]
    assert says in problem.found + problem.expected, problem
    assert str(tmp_path / "t/ask.v1.jinja") in problem.where
    if "{% " in line or "operator" in says or "filter" in says:
        first, last = (1, 8)
        found = int(problem.where.rpartition(":")[2])
        assert first <= found <= last
        exact = ("the operator *", "the filter 'center'", "a macro", "an import", "a call")
        assert says not in exact or found == 7, problem.where


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


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    library = write(tmp_path, "")
    (tmp_path / "t/ask.v1.jinja").write_bytes(HEAD.encode() + b"{{ q }}\ncaf\xe9\n")
    with pytest.raises(PromptError, match=r"ask\.v1\.jinja:6.*\n.*0xe9"):
        library.load("t", "ask", "v1")


def test_included_templates_are_weighed_with_what_includes_them(tmp_path: Path) -> None:
    own = "{% include 't/a.jinja' %}{{ q }}"
    write(tmp_path, own)
    (tmp_path / "t/a.jinja").write_text("{% include 't/b.jinja' %}")
    (tmp_path / "t/b.jinja").write_text("{% include 't/a.jinja' %}")
    with pytest.raises(PromptError, match="includes itself"):
        PromptLibrary([tmp_path]).load("t", "ask", "v1")
    for i in range(20):
        (tmp_path / f"t/c{i}.jinja").write_text(f"{{% include 't/c{i + 1}.jinja' %}}" * 3)
    (tmp_path / "t/c20.jinja").write_text("x")
    with pytest.raises(PromptError, match="5,000 parts"):
        write(tmp_path, own.replace("t/a", "t/c0")).load("t", "ask", "v1")
    for i in range(4):
        (tmp_path / f"t/d{i}.jinja").write_text(
            f"{{% for a in items %}}{{% include 't/d{i + 1}.jinja' %}}{{% endfor %}}"
        )
    (tmp_path / "t/d4.jinja").write_text("x")
    with pytest.raises(PromptError, match="2 deep"):
        write(tmp_path, own.replace("t/a", "t/d0")).load("t", "ask", "v1")
    (tmp_path / "t/e.jinja").write_text("one\n{{ q ~ q }}")
    with pytest.raises(PromptError, match=r"t/e\.jinja:2"):
        write(tmp_path, own.replace("t/a", "t/e")).load("t", "ask", "v1")


BOUNDED = [
    "{% for a in items %}{% for b in items %}{% endfor %}{% endfor %}{{ q }}",
    "{% for a in q %}{% endfor %}{{ q }}",
    "{% for a in items %}{{ a }}{% for b in items %}{{ b }}{% endfor %}{% endfor %}",
    "{% set a = q | replace('x', q) %}{{ a }}",
    "{% set a = q | replace('', q) %}{{ a }}",
    "{% set a = items | join(q) %}{{ a }}",
    "{% set a = q %}" + "{% set a = a | tojson %}" * 60 + "{{ a }}",
    "{% set a = q %}" + "".join(f"{{% set b{i} = a | upper %}}" for i in range(900)) + "{{ q }}",
    "{% for a in items %}{% if q | upper in q | lower %}{% endif %}{% endfor %}{{ q }}",
    "{{ q | truncate(2000000000, end=q) }}{{ q | truncate(5, end=q) }}",
    "{{ items | sort | unique | reverse | map(attribute='x') | join(q) }}",
    "{% set n = 1 %}" + "{% set n = n + n %}" * 900 + "{{ n }}{{ q }}",
    "{{ q | length - 1 }}{{ 9 - q }}",
    "{{ contexts[0].model_dump }}{{ q }}",
    "{{ q[99999999999] }}",
    "{{ 4 is divisibleby(0) }}{{ q }}",
]
LIMITED = (
    PEAK_MIB
    + """
import resource, sys, time
from pathlib import Path
resource.setrlimit(resource.RLIMIT_AS, (3_000_000_000, 3_000_000_000))
from ragpipe.core.errors import PromptError, PromptTooLong
from ragpipe.prompting.library import PromptLibrary
from ragpipe.schema.sample import Chunk
library = PromptLibrary([Path(sys.argv[1])])
many = [str(i) for i in range(30_000)]
values = {"q": 'x"' * 1_900_000, "items": many, "contexts": [Chunk(id="c", text="x", rank=1)]}
for number in range(int(sys.argv[2])):
    prompt = library.load("t", "ask", f"v{number}")
    start = time.process_time()
    try:
        done = str(sum(len(m["content"]) for m in prompt.render(**values)))
    except (PromptError, PromptTooLong) as error:
        done = type(error).__name__
    print(number, done, round(time.process_time() - start, 1), flush=True)
print("peak", peak_mib(), flush=True)
"""
)


@pytest.mark.slow
def test_whatever_the_values_a_rendering_ends_in_bounded_time_and_memory(tmp_path: Path) -> None:
    """One process with 3 GB of address space; 3,800,000 characters and 30,000 items, over all of them."""
    for number, body in enumerate(BOUNDED):
        write(tmp_path, body, f"ask.v{number}")
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path), str(len(BOUNDED))], text=True, capture_output=True, timeout=115,
        env=environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [row[0] for row in rows] == [*map(str, range(len(BOUNDED))), "peak"]
    assert [row for row in rows[:-1] if float(row[2]) > 15] == []
    assert [row for row in rows[:-1] if row[1].isdigit() and int(row[1]) > MAX_RENDERED] == []
    assert int(rows[-1][1]) < 1_500, "MiB"


GOOD = [  # a template, and the text that Jinja itself would give; values are fenced
    ("{% for c in contexts %}[{{ loop.index }}/{{ loop.length }}]{% if not loop.last %}, {% endif %}{% endfor %}{{ q }}", "[1/2], [2/2]<Q>"),
    ("{% if items | length > 1 and q is defined %}several{% elif q %}one{% else %}none{% endif %}{{ q }}", "several<Q>"),
    ("{{ q | upper | lower | trim | replace('w', 'v') | capitalize }}", "<Vhat?>"),
    ("{{ items | join(', ') }}{{ contexts | join(' | ', attribute='text') }}{{ q | length - 1 }}", "<a, b><one | two>4"),
    ("{% set n = contexts | length %}{{ n }} {{ contexts[0].rank }}{{ items | first }}{{ items | last }}{{ q[:2] }}", "2 1<a><b><Wh>"),
    ("{{ items | sort(reverse=true) | join }}{{ contexts | map(attribute='rank') | tojson }}{{ q }}", "<ba><[1,2]><Q>"),
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


def test_the_page_names_every_filter() -> None:
    page = (ROOT / "docs/prompts.md").read_text(encoding="utf-8")
    assert [name for name in FILTERS if f"`{name}`" not in page] == []


def test_a_text_over_the_limit_names_the_variable_and_its_length(tmp_path: Path) -> None:
    prompt = write(tmp_path, "{{ q }}{{ items }}").load("t", "ask", "v1")
    assert len(prompt.render(q="x" * (MAX_RENDERED - 100), items=["a"])) == 1
    with pytest.raises(PromptTooLong, match=r"ask: the variable q has 4,000,001 characters"):
        prompt.render(q="x" * (MAX_RENDERED + 1), items=["a"])


@pytest.mark.thorough
@pytest.mark.slow
def test_one_text_too_long_costs_its_case_alone(bench, capfd: pytest.CaptureFixture[str]) -> None:
    b: Bench = bench(cases=4)
    lines = b.data.read_text().splitlines()
    record = json.loads(lines[1])
    record["answer"] = "long " * 900_000
    b.data.write_text("\n".join([lines[0], json.dumps(record), *lines[2:]]) + "\n")
    assert main(b.args("task=plan")) == 0
    shown = " ".join(capfd.readouterr())
    assert "1 case is too long for a question, first q00001" in " ".join(shown.split()), shown
    ran = b.run("scoring.coverage_floor=0.5")
    assert ran.code == 0, ran.text
    status = {row["sample_id"]: (row["status"], row["reason"]) for row in ran.rows()}
    assert [status[f"q0000{i}"][0] for i in range(4)] == ["ok", "error", "ok", "ok"]
    reason = status["q00001"][1]
    assert [
        part
        for part in ("too_long", "q00001", "faithfulness/extract", "variable answer has", "4,500,000")
        if part not in reason
    ] == [], reason
    assert b.run("scoring.coverage_floor=0.5").requests == []


@pytest.mark.slow
def test_a_strangers_run_folder_is_read_by_the_same_rules(tmp_path: Path, monkeypatch, capsys) -> None:
    from tests.integration.tasks.test_finished import written

    monkeypatch.chdir(tmp_path)
    folder, _ = written(tmp_path / "runs", "dataset=demo", "metrics=[answer_relevance]")
    template = folder.prompts / "answer_relevance/direct.v2.jinja"
    kept, config = template.read_text(), folder.config.read_text()
    for change, says in [
        (lambda: template.write_text(kept + "{{ 'a' * 2000000000 }}\n"), "direct.v2.jinja"),
        (lambda: template.write_text(kept + "{% include '/shared/preamble.v1.jinja' %}\n"), "include of '/shared"),
        (lambda: folder.config.write_text(config.replace("direct: v2", "direct: v2/../../../outside")), "direct"),
        (lambda: folder.config.write_text(config.replace("direct: v2", "direct: ../v2")), "direct"),
        (lambda: folder.config.write_text(config.replace("  answer_relevance:", "  ../../x:")), "../../x"),
        (lambda: folder.config.write_text(config.replace("name: run", "name: ../../x")), "name"),
    ]:
        before = change()
        assert before
        for task in ("rescore", "verify"):
            assert main([f"task={task}", f"run={folder.root}"]) == 2
            err = capsys.readouterr().err
            assert says in err
            assert "Traceback" not in err
        template.write_text(kept)
        folder.config.write_text(config)
    assert not (tmp_path / "outside.jinja").exists()


@pytest.mark.slow
def test_no_template_is_copied_through_a_link(tmp_path: Path, monkeypatch, capsys) -> None:
    """A link `prompts/<metric>` in a run folder that waits for its run would lead every template somewhere else."""
    from ragpipe.cli import compose
    from ragpipe.core.errors import OutputError
    from ragpipe.engine.runs.manifest import copy_prompts

    monkeypatch.chdir(tmp_path)
    config = compose(["dataset=demo", "metrics=[answer_relevance]"])
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run/prompts").mkdir(parents=True)
    (tmp_path / "run/prompts/answer_relevance").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutputError, match="symbolic link"):
        copy_prompts(config, tmp_path / "run/prompts")
    assert list((tmp_path / "elsewhere").iterdir()) == []
    shutil.rmtree(tmp_path / "run")
    copy_prompts(config, tmp_path / "run/prompts")
    copied = {str(p.relative_to(tmp_path / "run/prompts")) for p in (tmp_path / "run").rglob("*.jinja")}
    shared = {f"shared/{name}.jinja" for name in ("preamble.v2", "earlier_turns.v1", "worked_examples.v1")}
    assert copied == {"answer_relevance/direct.v2.jinja", *shared}
    assert (prompts_dir() / "shared/preamble.v2.jinja").is_file()
