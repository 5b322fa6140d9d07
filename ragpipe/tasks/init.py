"""`task=init dir=my`: a folder with a working experiment, a data file of three lines and a judge, to start your own from."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, field_validator

from ragpipe.core.errors import ConfigError, OutputError, Problem
from ragpipe.core.resources import conf_dir
from ragpipe.core.validation import ConfigOrigins, NoOrigins
from ragpipe.engine.task_settings import task_settings
from ragpipe.schema.settings import Settings

if TYPE_CHECKING:
    from ragpipe.reports.console import Console

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_\-]{0,40}\Z")


class InitSettings(Settings):
    """`dir` is the folder to make; its last part becomes the name of the experiment, of the data and of the judge."""

    dir: str = Field(
        min_length=1, description="Folder to make. Its last part names the experiment, the data and the judge."
    )

    @field_validator("dir")
    @classmethod
    def _name(cls, value: str) -> str:
        if not _NAME.match(Path(value).name):
            raise ValueError("a folder whose last part has letters, digits, '_' and '-' only and begins with a letter")
        return value


def validate(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> InitSettings:
    """Check the key of this task. Raises ConfigError."""
    title = "task=init needs a folder; nothing was written"
    return task_settings(InitSettings, plain, origins or NoOrigins(), title=title)


def run(config: InitSettings, console: Console) -> int:
    """Write the folder and print what to type next. Returns 0. Raises ConfigError when the folder is not empty, OutputError."""
    folder = Path(config.dir)
    name = folder.name
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        existing = f"{config.dir!r}, which exists already"
        problem = Problem("command line", "dir", existing, "a new or empty folder", "choose another name")
        raise ConfigError("task=init overwrites nothing", [problem])
    files = {
        f"{name}.jsonl": "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in RECORDS),
        f"dataset/{name}.yaml": DATASET.format(name=name, path=json.dumps(str(folder.absolute() / f"{name}.jsonl"))),
        f"judge/{name}.yaml": JUDGE.format(name=name),
        f"experiment/{name}.yaml": EXPERIMENT.format(name=name, folder=config.dir),
    }
    schemas = {f"schema/{name}": text for name, text in _shipped_schemas().items()}
    try:
        for file, text in (files | schemas).items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            with open(folder / file, "x", encoding="utf-8") as stream:
                stream.write(text)
    except OSError as error:
        raise OutputError(f"cannot write {error.filename}: {error.strerror}") from error
    console.say(_next_steps(name, shlex.quote(config.dir), [*sorted(files), "schema/ (for your editor)"]))
    return 0


def _shipped_schemas() -> dict[str, str]:
    """The JSON Schemas that the YAML written here names, by file name."""
    folder = conf_dir() / "schema"
    return {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in folder.rglob("*.json")}


def _next_steps(name: str, folder: str, files: list[str]) -> str:
    lines = [f"written to {folder}/:", *(f"  {file}" for file in files), "", "next:"]
    start = f"python -m ragpipe --config-dir {folder} +experiment={name}"
    return "\n".join(
        [
            *lines,
            f"  {start}",
            "      evaluates the three lines with the embedded judge (no key, no network)",
            f"  edit {folder}/judge/{name}.yaml (two lines: the model and the variable that holds its key), then",
            f"  {start} judge={name}",
            f"  {start} task=plan",
            "      shows the first case as it was read, and what a run will cost",
        ]
    )


RECORDS: list[dict[str, Any]] = [
    {
        "id": "returns-1",
        "question": "How long may I return a purchase?",
        "reference": "Within 30 days, with the receipt.",
        "relevant_chunks": ["c1"],
        "method": "mine",
        "answer": "You can return a purchase within 30 days if you have the receipt.",
        "contexts": ["Purchases can be returned within 30 days with the receipt.", "Shops are open from 9 to 18."],
    },
    {
        "id": "returns-2",
        "question": "Does the shop refund the postage?",
        "reference": "No, postage is not refunded.",
        "relevant_chunks": ["c2"],
        "method": "mine",
        "answer": "Yes, the postage of 4.90 euros is refunded in full.",
        "contexts": ["Shops are open from 9 to 18.", "Postage is not refunded. The price of the goods is."],
    },
    {
        "id": "hours-1",
        "question": "When does the shop open on Sundays?",
        "reference": "The documents do not say.",
        "answerable": False,
        "method": "mine",
        "answer": "The documents do not say when the shop opens on Sundays.",
        "abstained": True,
        "contexts": ["Shops are open from 9 to 18 on weekdays."],
    },
]
"""A faithful answer, an answer that its source contradicts, and an answer that says it does not know."""

DATASET = """\
# yaml-language-server: $schema=../schema/dataset.json
# Your data: one JSON object a line with id, question, answer, contexts and, where you have them, reference and labels.
# Other shapes (CSV, Parquet, nested JSON, a run and its judgements) are mapped here, under `fields:`.
# Use: dataset={name}
name: {name}
path: {path}
"""

JUDGE = """\
# yaml-language-server: $schema=../schema/judge.json
# A language model as judge. Use: judge={name}
defaults:
  - llm
  - _self_

model: openai/gpt-4o-mini-2024-07-18   # 1. provider/model, pinned by a date, a digest or a revision
api_key_env: OPENAI_API_KEY            # 2. the NAME of the variable that holds the key, never the key
# api_base: http://127.0.0.1:8000/v1   # any OpenAI-compatible server (vLLM, Ollama, llama.cpp)
"""

EXPERIMENT = """\
# @package _global_
# yaml-language-server: $schema=../schema/run.json
# Evaluate the recorded answers of dataset/{name}.yaml.
# Use: python -m ragpipe --config-dir {folder} +experiment={name}
# (this folder, renamed to ./conf, is found without --config-dir)
defaults:
  - override /dataset: {name}
  - override /judge: evidence     # no key, no network; `{name}` for a language model
  - override /metrics: [retrieval, faithfulness]

name: {name}
"""
