"""No reader, no terminal, no locale, no home, another working directory; and texts that try to drive what shows them."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.support.checks import Bench, check_folder
from tests.support.harness import ROOT, run_folder
from tests.support.waiting import HANGS_AFTER_S

pytestmark = pytest.mark.slow  # several whole runs

Make = Callable[..., Bench]


def _shell(command: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command in bash with nothing else in its environment than what is named."""
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PY": sys.executable, **environment}
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], cwd=cwd, env=environ, capture_output=True, text=True, timeout=HANGS_AFTER_S, encoding="utf-8",
        errors="surrogateescape",
    )  # fmt: skip


def _words(b: Bench, metrics: str = "retrieval") -> str:
    return " ".join(
        f"'{w}'"
        for w in [
            "dataset=jsonl",
            f"dataset.path={b.data}",
            f"metrics=[{metrics}]",
            "judge=evidence",
            "name=torture",
            f"output_dir={b.folder / 'out'}",
        ]
    )


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize(
    "ending",
    ["| head -1", "| true", ">&-", "2>&-", ">&- 2>&- <&-",
     ">/dev/full"],
)  # fmt: skip
def test_nobody_reads_what_it_says(bench: Make, ending: str) -> None:
    b = bench()
    done = _shell(f"$PY -m ragpipe {_words(b, 'faithfulness')} {ending}", b.folder)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr
    assert (run_folder(b.folder / "out") / "report.md").stat().st_size > 200
    check_folder(b.folder)


def test_no_locale_no_home_a_narrow_terminal_and_another_folder(bench: Make, tmp_path: Path) -> None:
    b = bench()
    text = b.data.read_text().replace("Case 1 says 3 things", "Случай один 漢字 🙂 говорит")
    b.data.write_text(text, encoding="utf-8")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = _shell(
        f"$PY -m ragpipe {_words(b, 'faithfulness')}",
        elsewhere,
        LC_ALL="C",
        LANG="C",
        PYTHONIOENCODING="ascii",
        COLUMNS="10",
        TERM="dumb",
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout.isascii()
    assert list(elsewhere.iterdir()) == [], "nothing is left where it was started"
    assert (run_folder(b.folder / "out") / "report.md").is_file()


HOSTILE = [
    "\x1b]0;pwned\x07\x1b[2J\x1b[31mred", "[bold red]markup[/] [link=http://evil.example]x[/link]",
    "![x](http://evil.example/p.png) [y](javascript:alert(1))", "<script>alert(1)</script><img src=http://evil.example/i>",
    '=HYPERLINK("http://evil.example")', "`` ` ```\n# heading\n\n---\n| a | b |\n|---|---|", "\u202egnirts\u2028line\x9b2J",
    "{{ 7*7 }} ${oc.env:PATH} $(touch pwned) `touch pwned` %s {0}", "http://evil.example/auto www.evil.example",
]  # fmt: skip


def _hostile(b: Bench) -> None:
    records = []
    for place, text in enumerate(HOSTILE):
        records.append({
            "id": f"q{place} {text}", "question": f"What? {text}", "answer": f"Nothing. {text}", "method": "m " + text, "category": text,
            "difficulty": text, "reference": text, "contexts": [f"Passage {text}"], "tags": [text],
        })  # fmt: skip
    b.data.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")


def test_hostile_texts_drive_neither_terminal_nor_page(bench: Make) -> None:
    """Ids, methods, categories, answers and replies of the judge, which also fails to give scores for some."""
    b = bench()
    _hostile(b)
    b.server.script = [
        {
            "match": "<script|=HYPER|!.x|could not be read",
            "reply": "\x1b[31m![z](http://evil.example/z.png) <b>no</b> JSON",
        }
    ]
    b.fault("400:match=oc.env")
    ran = b.run("scoring.coverage_floor=0", "scoring.slices=[category,difficulty]")
    assert ran.code == 0, ran.text
    assert sum(row["status"] == "error" for row in ran.rows()) == 4
    shown = ran.text.replace("\r", "")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u202e]", shown)
    assert "pwned" not in {p.name for p in b.folder.rglob("*")}
    page = (ran.folder / "report.md").read_text(encoding="utf-8")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u202e]", page)
    assert "evil" in page, "the texts are there"
    _nothing_live(page)


def _nothing_live(page: str) -> None:
    """Read as the sites that show such pages do (tables, autolinks, HTML): no link, image or HTML speaks of the data."""
    tokens = MarkdownIt("commonmark", {"html": True}).enable(["table"]).parse(page)
    flat = [t for token in tokens for t in (token, *(token.children or []))]
    live = [t for t in flat if t.type in ("link_open", "image", "html_block", "html_inline")]
    bad = [t for t in live if "evil" in f"{t.attrs}{t.content}" or "script" in t.content]
    assert bad == []
    headings = [tokens[i + 1].content for i, t in enumerate(tokens) if t.type == "heading_open"]
    assert "heading" not in headings
    texts = [t.content for t in flat if t.type == "text"]
    assert not [t for t in texts if re.search(r"https?://evil|www\.evil", t)], "an autolink outside of code"


def test_hostile_texts_in_a_plan_and_an_error(bench: Make) -> None:
    b = bench()
    _hostile(b)
    plan = b.run("task=plan", "dataset.limit=1")
    assert plan.code == 0
    assert plan.requests == []
    assert "\x1b" not in plan.text
    b.data.write_text(
        json.dumps({"id": "a", "question": "q", "answer": ["\x1b[31m"]}) + "\n" + '{"id": "\x1b]0;x\x07", broken\n',
        encoding="utf-8",
    )
    ran = b.run()
    assert ran.code == 2
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", ran.text)
    assert "cases.jsonl:2" in ran.text


def test_a_broken_file_is_named_and_nothing_else_is_said(bench: Make) -> None:
    """Nor at the end of the process, when what was left half-written is thrown away."""
    b = bench()
    lines = b.data.read_text().splitlines()
    b.data.write_text("\n".join([*lines[:5], '{"id": broken', *lines[6:]]) + "\n")
    done = _shell(f"$PY -m ragpipe {_words(b, 'faithfulness')}", b.folder)
    assert done.returncode == 2
    assert "cases.jsonl:6" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert not (b.folder / "out" / "torture").exists()
