"""No reader, no terminal, no locale, no home, another working directory; and texts that try to drive what shows them."""

import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.core.singleton import Singleton
from hydra.core.utils import JobRuntime
from hydra.version import VersionBase
from markdown_it import MarkdownIt
from omegaconf import OmegaConf

import ragpipe
from ragpipe.cli.command_line import compose, main
from ragpipe.core.errors import ConfigError
from tests.support.checks import Bench, check_folder
from tests.support.harness import ROOT, environment, run_folder
from tests.support.waiting import HANGS_AFTER_S

pytestmark = pytest.mark.slow
Make = Callable[..., Bench]


def _shell(command: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command in bash with nothing else in its environment than what is named."""
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PY": sys.executable, **environment}
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], cwd=cwd, env=environ, capture_output=True, text=True, timeout=HANGS_AFTER_S, encoding="utf-8",
        errors="surrogateescape",
    )  # fmt: skip


def _words(b: Bench) -> str:
    out = b.folder / "out"
    return f"dataset=jsonl 'dataset.path={b.data}' 'metrics=[faithfulness]' judge=rules name=torture 'output_dir={out}'"


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("ending", ["| head -1", "| true", ">&-", "2>&-", ">&- 2>&- <&-", ">/dev/full"])
def test_nobody_reads_what_it_says(bench: Make, ending: str) -> None:
    b = bench()
    done = _shell(f"$PY -m ragpipe {_words(b)} {ending}", b.folder)
    assert done.returncode == 0, done.stderr
    assert not re.search("Traceback|BrokenPipe", done.stderr)
    assert (run_folder(b.folder / "out") / "report.md").stat().st_size > 200
    check_folder(b.folder)


def test_no_locale_no_home_a_narrow_terminal_and_another_folder(bench: Make, tmp_path: Path) -> None:
    b = bench()
    text = b.data.read_text().replace("Case 1 says 3 things", "Случай один 漢字 🙂 говорит")
    b.data.write_text(text, encoding="utf-8")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = _shell(f"$PY -m ragpipe {_words(b)}", elsewhere, LC_ALL="C", LANG="C", PYTHONIOENCODING="ascii", COLUMNS="10", TERM="dumb")
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
    b.server.script = [{"match": "<script|=HYPER|!.x|could not be read", "reply": "\x1b[31m![z](http://evil.example/z.png) <b>no</b> JSON"}]
    b.fault("400:match=oc.env")
    ran = b.run("scoring.coverage_floor=0", "scoring.slices=[category,difficulty]")
    assert ran.code == 0, ran.text
    assert sum(row["status"] == "error" for row in ran.rows()) == 4
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u202e]", ran.text.replace("\r", ""))
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
    assert (plan.code, plan.requests) == (0, [])
    assert "\x1b" not in plan.text
    b.data.write_text(
        json.dumps({"id": "a", "question": "q", "answer": ["\x1b[31m"]}) + "\n" + '{"id": "\x1b]0;x\x07", broken\n', encoding="utf-8"
    )
    ran = b.run()
    assert ran.code == 2
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", ran.text)
    assert "cases.jsonl:2" in ran.text


RUN = ["dataset=jsonl", "dataset.path=mine.jsonl", "metrics=[retrieval]"]
WRONG = [
    [*RUN, "judge.threshold=hot"], [*RUN, "name=${nowhere}"], [*RUN, "hydra.run.dir=x"], ["dataset=none"], [*RUN, "name=${oc.env:A_KEY}"],
    [*RUN, "name='"], ["+experiment=broken"], [*RUN, "seed=1,2"], [*RUN, "task=plan", "--x"],
]  # fmt: skip


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("A_KEY", "not-said")
    record = {"id": "a", "question": "q?", "answer": "x", "contexts": ["x"], "relevant_chunks": ["c1"]}
    (tmp_path / "mine.jsonl").write_text(json.dumps(record) + "\n")
    (tmp_path / "conf/experiment").mkdir(parents=True)
    (tmp_path / "conf/experiment/broken.yaml").write_text("a: [\n")
    (tmp_path / "own").mkdir()
    (tmp_path / "own/cfg.yaml").write_text("opt: {_target_: torch.optim.Adam, lr: 0.1}\nrun: ${eval:'6 * 7'}\n")
    return tmp_path


def state() -> dict[str, Any]:
    """What of the process ragpipe, Hydra and OmegaConf could leave changed."""
    root = logging.getLogger()
    return {
        "hydra": GlobalHydra.instance().hydra, "config": HydraConfig.instance().cfg,
        "resolvers": [name for name in ("now", "hydra", "python_version", "eval", "oc.env") if OmegaConf.has_resolver(name)],
        "singletons": {*Singleton._instances},
        "runtime": JobRuntime.instance().get("name"), "version": VersionBase.instance().version_base, "cwd": os.getcwd(),
        "environ": {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}, "handlers": list(root.handlers), "level": root.level, "filters": list(warnings.filters),
        "signals": {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}, "path": list(sys.path),
        "streams": (sys.stdout, sys.stderr), "threads": {t.name for t in threading.enumerate() if not t.daemon},
        "excepthook": sys.excepthook,
    }  # fmt: skip


@pytest.fixture
def settled(here: Path) -> dict[str, Any]:
    """The state once all is imported that any of it imports: what an import does to the process, it does once."""
    for singleton in (GlobalHydra, HydraConfig, JobRuntime, VersionBase, ConfigStore):
        singleton.instance()
    Plugins.instance()
    ragpipe.run([*RUN, "name=first"])
    return state()


def differences(before: dict[str, Any]) -> list[str]:
    now = state()
    return [key for key in before if before[key] != now[key]]


@pytest.mark.thorough
def test_a_run_leaves_the_process_as_it_was(settled: dict[str, Any]) -> None:
    ragpipe.run([*RUN, "name=second"])
    assert differences(settled) == []
    assert main([*RUN, "name=third"]) == 0
    assert differences(settled) == []


@pytest.mark.thorough(tried=3)
@pytest.mark.parametrize("words", WRONG, ids=lambda words: words[-1])
def test_so_does_one_that_is_refused(words: list[str], settled: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        compose(words)
    assert differences(settled) == []
    assert main(words) == 2
    if words[-1] != "seed=1,2":  # which is right there
        assert main(["-m", *words, "iterations=1,2"]) == 2
    assert differences(settled) == []


@pytest.mark.thorough
def test_four_threads_at_once(here: Path, settled: dict[str, Any]) -> None:
    """Four runs and two that are refused, started together; a fifth thread resolves with the programme's own resolver."""
    found: dict[str, Any] = {}
    gate, stop = threading.Barrier(7), threading.Event()
    OmegaConf.register_new_resolver("mine", lambda: "mine")

    def run(number: int) -> None:
        gate.wait()
        try:
            words = [*RUN, f"name=thread{number}"] if number < 4 else WRONG[number - 4]
            found[str(number)] = len(ragpipe.run(words).records)
        except BaseException as error:
            found[str(number)] = error

    def resolve() -> None:
        gate.wait()
        wrong = 0
        while not stop.wait(0.001):
            wrong += OmegaConf.create({"a": "${mine:}", "b": "${oc.env:A_KEY}"}) != {"a": "mine", "b": "not-said"}
        found["wrong"] = wrong

    threads = [threading.Thread(target=run, args=(i,)) for i in range(6)]
    other = threading.Thread(target=resolve)
    for thread in (*threads, other):
        thread.start()
    for thread in threads:
        thread.join(60)
    stop.set()
    other.join(10)
    OmegaConf.clear_resolver("mine")
    assert [found[str(i)] for i in range(4)] == [1, 1, 1, 1], found
    assert [type(found[str(i)]) for i in (4, 5)] == [ConfigError, ConfigError], found
    assert (found["wrong"], differences(settled)) == (0, [])


PROGRAMME = """
import sys, hydra, ragpipe
from hydra.core.hydra_config import HydraConfig

@hydra.main(config_path="own", config_name="cfg", version_base="1.3")
def train(cfg):
    before = HydraConfig.get().job.name
    run = ragpipe.run(["dataset=jsonl", "dataset.path=mine.jsonl", "metrics=[retrieval]"])
    assert HydraConfig.get().job.name == before == "programme", HydraConfig.get().job.name
    print("trained", cfg.opt._target_, len(run.records))

train()
"""


def test_inside_a_programme_that_hydra_started(here: Path) -> None:
    (here / "own/cfg.yaml").write_text("opt: {_target_: torch.optim.Adam}\n")
    (here / "programme.py").write_text(PROGRAMME)
    for words in (["hydra.run.dir=trained"], ["-m", "hydra.sweep.dir=swept", "+x=1,2"]):
        done = subprocess.run(
            [sys.executable, "programme.py", *words], cwd=here, env=environment(), capture_output=True, text=True, timeout=100
        )
        assert done.returncode == 0, done.stderr
        assert "trained torch.optim.Adam 1" in done.stdout
