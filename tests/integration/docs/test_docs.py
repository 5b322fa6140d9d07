"""Every example of the pages is run: what a page shows is what happens."""

from __future__ import annotations

import json
import re
import shlex
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from ragpipe.cli import main
from ragpipe.datasets.dataset import Record, open_dataset
from ragpipe.datasets.settings import DatasetSettings
from ragpipe.testing.openai_server import OpenAIServer, serving
from tests.support.pages import DOCS, ROOT, Section, commands, missing, sections

PAGES = (
    "README.md",
    "adding-a-metric.md",
    "citations.md",
    "comparing.md",
    "configuration.md",
    "datasets.md",
    "diagnosis.md",
    "offline-judge.md",
    "iterations.md",
    "latency.md",
    "python.md",
    "reports.md",
    "scoring.md",
    "sweeps.md",
    "systems.md",
    "weights.md",
)
NOT_RUN = ("python -m pip install", "export ", "python -m pytest", "python benchmarks/")
FAST = ("adding-a-metric.md", "datasets.md", "systems.md")
"""Pages without many whole runs; the examples of all others are slow."""
SECTIONS = [
    pytest.param(section, id=str(section), marks=[] if str(section).startswith(FAST) else [pytest.mark.slow])
    for page in PAGES
    for section in sections(page)
]


@pytest.fixture(scope="session")
def provider() -> Iterator[OpenAIServer]:
    """The local server, in the place of the provider that a page names."""
    with serving() as server:
        yield server


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder to start in, with the variables that the pages name; modules written there are forgotten after."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("BOT_TOKEN", "Bearer b0t")
    monkeypatch.setenv("RAGPIPE_TEST_KEY", "sk-test")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "nightly.jsonl").write_text(
        '{"id": "n1", "question": "q", "answer": "a", "contexts": ["a"]}\n'
    )
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize("section", SECTIONS)
def test_what_a_page_shows_happens(
    section: Section, here: Path, provider: OpenAIServer, capfd: pytest.CaptureFixture[str]
) -> None:
    tmp_path = here
    printed, mapped, bot = "", None, Bot()
    for step in section.steps:
        if step.kind == "file":
            file = tmp_path / step.path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(step.text, encoding="utf-8")
            mapped = file if step.path.startswith("conf/dataset/") else mapped
        elif step.kind in ("request", "response"):
            setattr(bot, step.kind, json.loads(step.text))
        elif step.kind == "python":
            exec(compile(step.text, section.page, "exec"), {})
        elif step.kind == "same":
            assert mapped is not None, "a native form without a mapping before it"
            assert read(yaml.safe_load(mapped.read_text())) == read_native(step.text, tmp_path)
        elif step.kind == "commands":
            capfd.readouterr()
            for line in commands(step.text):
                if line.startswith(NOT_RUN):
                    continue
                words = shlex.split(line)
                assert words[:3] == ["python", "-m", "ragpipe"], line
                if {"judge=llm", "judge=my", "judge=local"} & set(words):
                    words += [f"judge.api_base={provider.url}", "judge.api_key_env=RAGPIPE_TEST_KEY"]
                with bot.serving(words):
                    code = main(words[3:])
                assert code == (2 if "broken" in line else 0), capfd.readouterr().err
            printed = "".join(capfd.readouterr())
        elif step.kind == "shows":
            assert missing(step.text, printed) is None, printed
        elif step.kind == "data":
            assert read_native(step.text, tmp_path)
        else:
            raise AssertionError(f"a block that nothing checks: {step}")


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


@pytest.mark.parametrize(
    "page", ["README.md", "CHANGELOG.md", *sorted(str(p.relative_to(ROOT)) for p in DOCS.rglob("*.md"))]
)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?://)([^)#]+)", text):
        assert ((ROOT / page).parent / target).exists(), f"{page} links to {target}"
    for target in re.findall(r"`((?:ragpipe|conf|docs|benchmarks|tests)/[\w/]+\.(?:py|yaml|md))`", text):
        shown_as_an_example = f"`{target}`:" in text
        assert shown_as_an_example or (ROOT / target).exists(), f"{page} speaks of {target}"
