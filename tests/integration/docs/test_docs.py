"""Every example of the pages is run: what a page shows is what happens. What is made from the code is of this code."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from ragpipe.cli.command_line import compose_task, main
from ragpipe.core import registry
from ragpipe.data.dataset import Record, open_dataset
from ragpipe.data.settings import DatasetSettings
from ragpipe.example_rag.__main__ import main as example_rag
from ragpipe.testing.openai_server import OpenAIServer, running
from tests.support.docs_site import docs_script
from tests.support.example_server import asks_example_rag, at_address, example_rag_served, run_curl
from tests.support.minilm import needs_files
from tests.support.pages import DOCS, ROOT, Section, Step, commands, commands_with_codes, missing, sections
from tests.support.thoroughness import THOROUGH, some_of

EXTRAS = ("batch", "checks", "models", "test_sets", "traces", "weights")
PAGES = (
    "README.md", "command-line.md", "comparing.md", "configuration.md", "costs.md", "datasets.md", "diagnosis.md",
    *(f"extras/{name}.md" for name in EXTRAS if (DOCS / "extras" / f"{name}.md").exists()),
    "install.md", "migrating-from-deepeval.md", "migrating-from-promptfoo.md", "migrating-from-ragas.md", "monitoring.md",
    "python.md", "rejudging.md", "reports.md", "scoring.md", "systems.md", "tutorial.md",
)  # fmt: skip
NOT_RUN = (
    "git clone ", "mkdir my-rag", "cd my-rag", "hf download ", "python -m pip ", "export ", "python -m pytest", "python benchmarks/",
    "sh monitor.sh", "tail ",
)  # fmt: skip
"""What other tests run (tests/slow/ci the scripts of docs/ci), or only a reader can."""
SHELL = ("mkdir ", "cp ", "sh eval/")
"""Commands that are given to a shell; `../ragpipe` is this repository."""
SCRIPT = "sh eval/"
"""Starts half a dozen processes, as tests/slow/ci does with the same script: the pages that show it do so in thorough runs."""
MORE_SECTIONS = {
    "adding-a-metric.md": ["Your own metric", "A metric that asks a judge"], "calibrating.md": ["Walk-through"],
    "gates.md": ["Gates", "Against a baseline", "Ready-made modes", "Tiers", "Success criteria"],
    "how-a-run-works.md": ["The call store"], "judges.md": ["Judges", "Your own endpoint", "Ask in another way", "Juries", "The rules judge"],
    "prompts.md": ["A rubric without code", "Change a prompt", "Citations, sources and refusals"],
    "reproducibility.md": ["Explain"],
}  # fmt: skip
"""Sections that are run, of pages whose others show parts of files, or need what people have done."""
RUN = [section for page in PAGES for section in sections(page)] + [
    section for page, titles in MORE_SECTIONS.items() for section in sections(page) if section.title in titles
]
FIRST = ("README.md", "tutorial.md")
"""What a new user reads first: each command is run on every change, and of the other pages a share."""
QUICKSTART = "python -m ragpipe +experiment=quickstart"
"""So many pages begin with it that it is run once for all of them."""


def ragpipe_commands(section: Section) -> set[str]:
    lines = {line for step in section.steps if step.kind == "commands" for line in commands(step.text)}
    return {line for line in lines if line.startswith("python -m ragpipe ")} - {QUICKSTART}


IN_TUTORIAL = set().union(*(ragpipe_commands(section) for section in RUN if section.page == "tutorial.md"))
TRIED = {
    *(str(section) for section in RUN if section.page == "tutorial.md"),
    *(str(section) for section in RUN if section.page == "README.md" and not (set() < ragpipe_commands(section) <= IN_TUTORIAL)),
    *some_of((str(section) for section in RUN if section.page not in FIRST), 24),
}


def marks(section: Section) -> list[pytest.MarkDecorator]:
    limit = pytest.mark.timeout(400)
    return [limit] if str(section) in TRIED else [limit, pytest.mark.thorough]


SECTIONS = [pytest.param(section, id=str(section), marks=marks(section)) for section in RUN]
COMPOSED = [
    pytest.param(line, id=f"{page.name}: {line}", marks=[needs_files] if "embedder=minilm" in line else [])
    for page in sorted(DOCS.glob("*.md"))
    for section in sections(page.name)
    if section not in RUN
    for step in section.steps
    if step.kind == "commands"
    for line in commands(step.text)
    if line.startswith("python -m ragpipe ") and "scoring.calibration=" not in line  # the walk-through makes one
    if "plugins=[mine]" not in line  # tests/slow/cli/test_plugins.py writes the package of the page and runs them
]


@pytest.fixture(scope="session")
def provider() -> Iterator[OpenAIServer]:
    """The local server, in the place of the provider that a page names; with a Batch API where that extra is there."""
    kind = OpenAIServer
    if find_spec("tests.extras.batch"):
        kind = import_module("tests.extras.batch.batch_server").BatchServer
    with running(kind()) as server:
        yield server


@pytest.fixture(scope="session")
def example_address() -> Iterator[str]:
    """The example RAG over HTTP, in the place of the one that a page starts."""
    with example_rag_served() as address:
        yield address


@pytest.fixture
def here(code_here, monkeypatch) -> Path:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("BOT_TOKEN", "b0t")
    monkeypatch.setenv("RAGPIPE_TEST_KEY", "sk-test")
    (code_here / "data").mkdir()
    (code_here / "data" / "nightly.jsonl").write_text('{"id": "n1", "question": "q", "answer": "a", "contexts": ["a"]}\n')
    return code_here


@pytest.mark.slow
@pytest.mark.parametrize("section", SECTIONS)
def test_what_a_page_shows_happens(section: Section, here, provider: OpenAIServer, request, finished_runs, capfd) -> None:
    tmp_path = here
    printed, mapped, bot = "", None, Bot()
    for step in steps_of(section):
        if step.kind == "file":
            file = tmp_path / step.path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(step.text, encoding="utf-8")
            mapped = file if step.path.startswith("conf/dataset/") else mapped
        elif step.kind in ("request", "response"):
            setattr(bot, step.kind, json.loads(step.text))
        elif step.kind == "python":
            capfd.readouterr()
            exec(compile(step.text, section.page, "exec"), {})
            printed = "".join(capfd.readouterr())
        elif step.kind == "same":
            assert mapped is not None, "a native form without a mapping before it"
            assert read(yaml.safe_load(mapped.read_text())) == read_native(step.text, tmp_path)
        elif step.kind == "commands":
            capfd.readouterr()
            for line, expected in commands_with_codes(step.text):
                if line.startswith(NOT_RUN):
                    continue
                if line == QUICKSTART and not (tmp_path / "outputs").exists():
                    quickstart = finished_runs.of(*shlex.split(QUICKSTART)[3:])
                    quickstart.copy_outputs(tmp_path)
                    print(quickstart.printed)
                    continue
                if line.startswith("curl "):
                    assert run_curl(line, request.getfixturevalue("example_address")) == expected
                    continue
                if line.startswith(SHELL):
                    assert run_in_shell(line) == expected
                    continue
                words = shlex.split(line)
                if words[2] == "ragpipe.example_rag":
                    assert words[-1] == "&" or example_rag(words[3:]) == expected
                    continue
                assert words[:3] == ["python", "-m", "ragpipe"], line
                if {"judge=llm", "judge=my", "judge=local"} & set(words):
                    words += [f"judge.api_base={provider.url}", "judge.api_key_env=RAGPIPE_TEST_KEY"]
                if asks_example_rag(line):
                    words = at_address(words, request.getfixturevalue("example_address"))
                with bot.serving(words):
                    code = main(words[3:])
                assert code == expected, capfd.readouterr().err
            printed = "".join(capfd.readouterr())
        elif step.kind == "shows":
            assert missing(step.text, printed) is None, printed
        elif step.kind == "data":
            assert read_native(step.text, tmp_path)
        else:
            raise AssertionError(f"a block that nothing checks: {step}")


def steps_of(section: Section) -> list[Step]:
    """The steps of a section; outside of thorough runs without those of `SCRIPT` and what they show."""
    steps = section.steps
    if THOROUGH:
        return steps
    scripts = {place for place, step in enumerate(steps) if step.kind == "commands" and SCRIPT in step.text}
    shown = {place + 1 for place in scripts if steps[place + 1 : place + 2] and steps[place + 1].kind == "shows"}
    return [step for place, step in enumerate(steps) if place not in scripts | shown]


@pytest.fixture(scope="session")
def page_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page_run")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(folder)
        assert main(["dataset=demo", "dataset.limit=2", "metrics=[faithfulness]", "name=my"]) == 0
    return folder / "outputs" / "my"


@pytest.mark.slow
@pytest.mark.parametrize("line", COMPOSED)
def test_a_command_that_is_not_run_has_options_and_keys_that_exist(line: str, here, page_run: Path, monkeypatch) -> None:
    """What needs the work of people, Ray, or a run that the page does not make: names of options, keys and types of values are checked."""
    for runner in registry.everything("runner").values():
        monkeypatch.setattr(runner, "missing", lambda _: iter(()))
    for group, name, text in (("experiment", "x", "name: x"), ("judge", "mine", "defaults: [evidence]")):
        file = here / "conf" / group / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"# @package _g{'lobal_' if group == 'experiment' else 'roup_'}\n{text}\n", encoding="utf-8")
    for run in {"my", *re.findall(r"(?:outputs/|\b(?:run|base|candidate)=)(\w+)", line)}:
        shutil.copytree(page_run, here / "outputs" / run, symlinks=True, dirs_exist_ok=True)
    words = shlex.split(line.replace("<draw>", "0f3c"))[3:]
    if "-m" in words:  # of a sweep its first job
        words = [re.sub(r"(=[^,\[{]+),.*", r"\1", word) for word in words if word != "-m"]
    assert compose_task(words, config_dir=str(here / "conf"))


def run_in_shell(line: str) -> int:
    """The exit code of a line as a shell runs it here, with this Python as `python`; what it prints is printed."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-c", line.replace("../ragpipe", str(ROOT))], capture_output=True, text=True,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    print(done.stdout, done.stderr, sep="\n")
    return done.returncode


class Bot:
    """The HTTP system of a page: gives the response that the page shows for the request that it shows."""

    request: object = None
    response: object = None

    @contextmanager
    def serving(self, words: list[str]) -> Iterator[None]:
        """Answers while it is entered, when the page has a response; the command's address is changed to its port."""
        if self.response is None:
            yield
            return
        bot = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                fits = body == bot.request and self.headers["Authorization"] == "Bearer b0t"
                reply = json.dumps(bot.response).encode()
                self.send_response(200 if fits else 400)
                self.send_header("Content-Length", str(len(reply)))
                self.end_headers()
                self.wfile.write(reply)

            def log_message(self, *_: object) -> None: ...

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        words.append(f"system.url=http://127.0.0.1:{server.server_port}/ask")
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()


def read(section: dict[str, object]) -> list[tuple[object, object]]:
    return [seen(record) for record in open_dataset(DatasetSettings.model_validate(section), Path.cwd())]


def read_native(text: str, folder: Path) -> list[tuple[object, object]]:
    (folder / "native.jsonl").write_text(text, encoding="utf-8")
    return read({"path": "native.jsonl"})


def seen(record: Record) -> tuple[object, object]:
    return record.sample, record.output


@pytest.mark.parametrize("page", ["README.md", "CHANGELOG.md", *sorted(str(p.relative_to(ROOT)) for p in DOCS.rglob("*.md"))])
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?://)([^)#]+)", text):
        assert ((ROOT / page).parent / target).exists(), f"{page} links to {target}"
    for target in re.findall(r"`((?:ragpipe|conf|docs|benchmarks|tests)/[\w/]+\.(?:py|yaml|md))`", text):
        shown_as_an_example = f"`{target}`:" in text
        assert shown_as_an_example or (ROOT / target).exists(), f"{page} speaks of {target}"


OF_OTHERS = {
    "agreement.json", "agreement.md", "agreement.html", "selftest.json", "selftest.md", "selftest.html", "weights.json", "weights.md",
    "outputs.journal.jsonl", ".system-budget.jsonl", "iteration-1/journal.jsonl", "index.json", "index.parquet", "baseline.parquet",
    "calibration.json", "draw.json", "draw.parquet", "label.html", "labels.parquet",
}  # fmt: skip
"""What other tasks make of a run, and what a live system, an index manifest, a gate or an iteration that goes on leave."""


@pytest.mark.slow
@pytest.mark.parametrize("page", ["file-formats.md", "metrics.md", "configuration.md"])
def test_a_generated_page_is_up_to_date(page: str) -> None:
    assert (DOCS / page).read_text(encoding="utf-8") == docs_script("generate.py").PAGES[page](), "run `python docs/generate.py`"


@pytest.mark.slow
def test_a_run_holds_the_files_and_columns_of_the_page(here: Path) -> None:
    words = ["-m", "dataset=demo", "dataset.limit=2", "metrics=[faithfulness]", "name=x"]
    assert main([*words, "scoring.composites.ragas_score=null"]) == 0  # the page shows the columns of one score
    run, page = here / "outputs" / "x" / "latest", (DOCS / "file-formats.md").read_text(encoding="utf-8")
    listed = [name.replace("-N", "-1") for name in re.findall(r"`([^`]+)`", page.split("\n## ")[0].split("|---|---|")[1])]
    files = {name for name in listed if re.fullmatch(r"[\w./\-]+\.(json|jsonl|yaml|parquet|md|html)|prompts/", name)}
    there = {str(path.relative_to(run)) for path in run.rglob("*") if path.is_file() and "prompts" not in path.parts}
    assert there | {"prompts/"} | OF_OTHERS == files
    described = dict(section.split("\n", 1) for section in re.split(r"\n## ", page)[1:])
    for name in (name for name in described if name.endswith(".parquet") and name not in OF_OTHERS | {"history.parquet"}):
        columns = re.findall(r"^\| `([^`]+)` \|", described[name], re.M)
        folders = (run, run / "iteration-1", *(run.parent / "sweeps").iterdir())
        (path,) = (folder / name for folder in folders if (folder / name).exists())
        assert pq.read_schema(path).names == columns, name  # others: test_rejudge.py, test_history.py
    metrics = json.loads((run / "iteration-1" / "metrics.json").read_text())
    score = metrics["overall"]["scores"]["faithfulness"]
    keys = {*metrics, *metrics["declared"]["faithfulness"], *metrics["shared"], *score}
    missing = {key for key in keys if f"`{key}`" not in described["metrics.json"]}
    for name, path in (("cost.json", run / "iteration-1" / "cost.json"), ("gates.json", run / "gates.json")):
        missing |= {f"{name}: {key}" for key in json.loads(path.read_text()) if f"`{key}`" not in described[name]}
    assert not missing
