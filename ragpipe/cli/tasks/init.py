"""`task=init dir=my`: a folder to start from. Empty-handed, with an experiment, a data file of three lines and a judge; with
`from=FILE`, for that file."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, Field, field_validator, model_validator

from ragpipe.cli.option_files import start_text, write_new
from ragpipe.core.errors import Problem
from ragpipe.core.settings import ConfigOrigins, NoOrigins, Settings, task_settings

if TYPE_CHECKING:
    from ragpipe.report.console import Console

_WAY = "`python -m ragpipe FILE dataset.filter=...` obeys such words, and so does the command that runs the folder; `as` names the option"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_\-]{0,40}\Z")


class InitSettings(Settings):
    """`dir` is the folder to make; its last part becomes the name of the experiment, of the data and of the judge."""

    model_config = ConfigDict(serialize_by_alias=True)

    dir: str = Field(min_length=1, description="Folder to make. Its last part names the experiment, the data and the judge.")
    source: str | None = Field(
        default=None,
        alias="from",
        min_length=1,
        description="File or folder of data that the options are written for. null: three lines of example data.",
    )
    read_as: str | None = Field(
        default=None,
        alias="as",
        min_length=1,
        description="Option of the group `dataset` that reads the file. null: the one that its structure tells.",
    )

    @field_validator("dir")
    @classmethod
    def _name(cls, value: str) -> str:
        if not _NAME.match(Path(value).name):
            raise ValueError("a folder whose last part has letters, digits, '_' and '-' only and begins with a letter")
        return value

    @model_validator(mode="after")
    def _as_needs_from(self) -> InitSettings:
        if self.read_as and not self.source:
            raise ValueError("`as` says how the file of `from` is read")
        return self


Keys = InitSettings


def validate(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> InitSettings:
    """Check the keys of this task. Raises ConfigError."""
    title = "task=init cannot write a folder; nothing was written"
    origins = origins or NoOrigins()
    problems = [
        Problem(origins.location(key), key, "a word for reading data", "keys of task=init: from, as, dir", _WAY)
        for key in getattr(origins, "chosen", ())
        if key.partition(".")[0] == "dataset"
    ]
    return task_settings(InitSettings, plain, origins, title=title, known_problems=problems)


def run(config: InitSettings, console: Console) -> int:
    """Write the folder and print what to type next. Returns 0. Raises ConfigError when the folder is not empty, DataError for
    a file that cannot be read, OutputError."""
    folder = Path(config.dir)
    if config.source is not None:
        from ragpipe.cli.file_start import start_from
        from ragpipe.cli.first_run import say_next, say_start
        from ragpipe.cli.option_files import check_option

        if config.read_as:
            check_option(config.read_as, "as")
        start = start_from(Path(config.source), folder, config.read_as or "")
        say_start(start, config.source, console)
        say_next(start, console)
        return 0
    name = folder.name
    files = {
        f"{name}.jsonl": start_text("cases.jsonl"),
        f"dataset/{name}.yaml": start_text("dataset.yaml").format(name=name),
        f"judge/{name}.yaml": start_text("judge.yaml").format(name=name),
        f"experiment/{name}.yaml": start_text("experiment.yaml").format(name=name, folder=config.dir),
    }
    write_new(folder, files)
    console.say(_next_steps(name, shlex.quote(config.dir), [*sorted(files), "schema/ (for your editor)"]))
    return 0


def _next_steps(name: str, folder: str, files: list[str]) -> str:
    lines = [f"written to {folder}/:", *(f"  {file}" for file in files), "", "next:"]
    start = f"python -m ragpipe --config-dir {folder} +experiment={name}"
    return "\n".join(
        [
            *lines,
            f"  {start}",
            "      evaluates the three lines with the rules judge (no key, no network)",
            f"  edit {folder}/judge/{name}.yaml (two lines: the model and the variable that holds its key), then",
            f"  {start} judge={name}",
            f"  {start} task=plan",
            "      shows the first case as it was read, and what a run will cost",
        ]
    )
