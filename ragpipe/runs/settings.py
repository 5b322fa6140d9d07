"""The settings of a run: the keys outside of any section, the store, and all of them together."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, SerializeAsAny, ValidationInfo, field_validator

from ragpipe.core.errors import Problem
from ragpipe.core.resources import prompts_dir
from ragpipe.core.settings import NotInIdentity, Settings
from ragpipe.core.usage import Price
from ragpipe.data.settings import DatasetSettings
from ragpipe.data.system_settings import AnySystem
from ragpipe.judge.embedder import AnyEmbedder
from ragpipe.judge.jury import JurySettings
from ragpipe.judge.pricing import rates_for
from ragpipe.judge.prompt_library import PromptLibrary
from ragpipe.judge.question import AnyJudge
from ragpipe.judge.settings import JudgeSettings
from ragpipe.metrics.base import Metric
from ragpipe.report.settings import ReportSettings
from ragpipe.score.settings import ScoringSettings
from ragpipe.store.call_database import StorePlace, store_folder_of, store_place_of
from ragpipe.store.places import DEFAULT_CACHE, is_remote, publishing_fault

if TYPE_CHECKING:
    from ragpipe.judge.question import Transport
    from ragpipe.runs.plan import Plan


class AnyRunner(Settings):
    """The base of the settings of every runner, one class per `kind` (`core/registry.py`). No figure depends on it."""

    implementation: ClassVar[str] = ""
    """The `module:function` that opens it, called with a `WorkerStart` (runs/workers.py), these settings and what warns the user: an
    asynchronous context manager that gives a `SliceRunner`. Empty: the run's own process measures the cases."""

    if TYPE_CHECKING:
        kind: str  # each class declares its own, in its place among the keys

    def missing(self) -> Iterator[tuple[str, str, str, str]]:
        """What this start lacks for it: key, what was found, what was expected, how to fix it."""
        yield from ()

    def stays_here(self, *, computes: bool, shares_store: bool) -> str | None:
        """Why the run's own process measures the cases all the same; None where this runner does. `computes`: a model
        computes in the process that measures; `shares_store`: other machines reach the call store."""
        return None


class LocalRunner(AnyRunner):
    """The run's own process."""

    kind: Literal["local"] = Field(default="local", description="The run's own process measures the cases.")


class AnyTransport(Settings):
    """The base of the settings of every transport, one class per `kind` (`core/registry.py`)."""

    asks: ClassVar[bool] = True
    """Whether the judge's provider is asked at all."""
    prices_of: ClassVar[str] = ""
    """The section whose `prices` are those of its replies; empty where it is the judge's."""

    if TYPE_CHECKING:
        kind: str  # each class declares its own, in its place among the keys

    def open(self, judge: JudgeSettings, store: Path, **start: Any) -> Transport:
        """The transport to a language model, with `store`, the folder beside the call store. `start` is what every start
        has: `run_id`, the run that pays for new calls; `tell`, which gets the notices for the user; `budget`, what new calls
        may spend, None without a limit."""
        raise NotImplementedError

    def refusal(self, judge: AnyJudge) -> Problem | None:
        """Why this judge cannot be asked by it; None where it can."""
        return None

    def key_variable(self, judge: JudgeSettings) -> str | None:
        """The environment variable that holds the key; None when none is sent, or litellm finds its own."""
        return judge.key_variable

    def rates(self, judge: JudgeSettings) -> Price:
        """The prices of its replies."""
        return rates_for(judge)

    def open_cases(self, judge: JudgeSettings) -> int:
        """The number of cases that are open at once: so many that a slot is taken as soon as it is free."""
        return max(8, 2 * judge.concurrency)

    def plan_lines(self, judge: AnyJudge, plan: Plan) -> list[str]:
        """What `task=plan` says of it, chosen or not, where the run asks a provider."""
        return []


class LiveTransportSettings(AnyTransport):
    """Questions go to the provider one by one."""

    kind: Literal["live"] = Field(default="live", description="Questions go to the provider one by one.")

    def open(self, judge: JudgeSettings, store: Path, **start: Any) -> Transport:
        from ragpipe.judge.live_transport import LiveTransport

        return LiveTransport(judge, **start)


class StoredTransportSettings(AnyTransport):
    """Only stored replies are used."""

    asks: ClassVar[bool] = False
    kind: Literal["stored"] = Field(default="stored", description="Only stored replies are used; a missing one is an error.")

    def open(self, judge: JudgeSettings, store: Path, **start: Any) -> Transport:
        from ragpipe.judge.session import StoredTransport

        return StoredTransport()


_FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._\-]{0,63}\Z")
_NO_PLUGINS = frozenset({"ragpipe", *sys.stdlib_module_names})
_MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*\Z")


class StoreSettings(Settings):
    """The `store` section: where judge replies are kept for all runs (a folder of a local disk, never NFS, or a database), and a recording of some."""

    path: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="Folder of the judge replies of all runs, on a local disk. null: `.store` in `output_dir`."
    )
    url: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description=(
            "Address of a database of the judge replies instead of a file, for runs on several hosts, without a password; an extra "
            "or a plugin opens it. null: a file in `path`."
        ),
    )
    recorded: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description=(
            "File of recorded replies that come before those of the store, and that is only read; `package:` names a file of "
            "ragpipe. null: none."
        ),
    )

    @field_validator("url")
    @classmethod
    def _can_be_opened(cls, url: str | None, info: ValidationInfo) -> str | None:
        if url is None:
            return None
        store_place_of(url, None, "")
        if info.data.get("path") is not None:
            raise ValueError("one place: store.path is a folder, store.url a database; the other one is null")
        return url

    def place(self, output_dir: str) -> StorePlace:
        """Where the call store of the runs in this folder is."""
        return store_place_of(self.url, self.path, output_dir)

    def folder(self, output_dir: str) -> Path:
        """The folder on this machine of what stands beside the store: drift files, budgets, what is under way."""
        return store_folder_of(self.path, output_dir)


class TopSettings(Settings):
    """The keys outside of any section."""

    name: str = Field(
        default="run",
        description=(
            "Name of the experiment and of its folder below `output_dir`: letters, digits, '.', '_', '-', at most "
            "64, beginning with a letter or digit."
        ),
    )
    output_dir: Annotated[str, NotInIdentity] = Field(
        default="outputs", min_length=1, description="Folder that holds the runs, relative to where the command is started."
    )
    iterations: Annotated[int, NotInIdentity] = Field(
        default=1, ge=1, le=1000, description="How often the same outputs are judged, 1 to 1,000. Every iteration is paid for."
    )
    seed: Annotated[int, NotInIdentity] = Field(
        default=0,
        ge=0,
        le=2**32 - 1,
        description="Seed of `dataset.sample` where that has none of its own, and of test sets, 0 to 4,294,967,295.",
    )
    plugins: Annotated[list[str], NotInIdentity] = Field(
        default_factory=list, description="Your own Python packages, whose metrics and systems may be named. Default: none."
    )
    prompt_dirs: Annotated[list[str], NotInIdentity] = Field(
        default_factory=list,
        description="Your own folders of prompt templates, searched before the shipped one. Default: none.",
    )
    publish: Annotated[Annotated[str, Field(min_length=1)] | None, NotInIdentity] = Field(
        default=None,
        description=(
            "Address to which the sealed run folder is copied at the end, as `<publish>/<name>/<run id>`: s3://bucket/prefix. "
            "null: nowhere."
        ),
    )
    log_level: Annotated[Literal["debug", "info", "warning", "error"], NotInIdentity] = Field(
        default="warning", description="Least severe messages of the log that are printed."
    )
    on_metric_error: Annotated[Literal["stop", "record"], NotInIdentity] = Field(
        default="stop",
        description=(
            "What an unexpected exception of a metric does. stop: the run ends; record: the score becomes an "
            "error and the run goes on."
        ),
    )
    retry_errors: Annotated[bool, NotInIdentity] = Field(
        default=False, description="Whether questions that failed for good are asked again. Default: their failure is kept."
    )
    lock_wait_s: Annotated[float | None, NotInIdentity] = Field(
        default=None,
        ge=0,
        le=1e7,
        allow_inf_nan=False,
        description=(
            "Seconds to wait for a run folder that another process uses, 0 to 10,000,000. null: none, and one day "
            "for the jobs of a sweep."
        ),
    )
    keep_messages: bool = Field(
        default=True, description="Whether the messages of every question are kept in judge_inputs.parquet."
    )
    task: Annotated[str, NotInIdentity] = Field(
        default="evaluate", description="What to do: the name of an option of the group `task`."
    )

    @field_validator("name")
    @classmethod
    def _folder_name(cls, value: str) -> str:
        if not _FOLDER.match(value) or value.endswith("."):
            raise ValueError("a folder's name: letters, digits, '.', '_', '-', at most 64, beginning with a letter or digit")
        return value

    @field_validator("output_dir")
    @classmethod
    def _on_a_local_disk(cls, folder: str) -> str:
        if is_remote(folder):
            raise ValueError("a folder of this machine: a run works on a local disk, and publish=ADDRESS copies it at the end")
        return folder

    @field_validator("publish")
    @classmethod
    def _to_an_address(cls, address: str | None) -> str | None:
        if address is not None and (expected := publishing_fault(address)):
            raise ValueError(expected)
        return address

    @field_validator("plugins")
    @classmethod
    def _importable(cls, plugins: list[str]) -> list[str]:
        for name in plugins:
            if not _MODULE.match(name):
                raise ValueError(f"names of Python packages, found {name!r}")
            if name.partition(".")[0] in _NO_PLUGINS:
                raise ValueError(f"packages of yours; {name!r} is none: it would let a configuration name any function in it")
            if not _is_importable(name):
                raise ValueError(f"packages that can be imported; {name!r} cannot: install it or set PYTHONPATH")
        return plugins

    @field_validator("prompt_dirs")
    @classmethod
    def _folders(cls, folders: list[str]) -> list[str]:
        for folder in folders:
            if not Path(folder).is_dir():
                raise ValueError(f"folders; {folder!r} is none (relative to {Path.cwd()})")
        return folders


class RunConfig(TopSettings):
    """Everything a run needs, checked. Made by `validate_config`."""

    dataset: DatasetSettings = Field(description="The cases: which files, and how their records become questions and outputs.")
    system: SerializeAsAny[AnySystem] = Field(description="The system under test: where the outputs come from.")
    judge: SerializeAsAny[AnyJudge] = Field(description="The judge: who answers the metrics' questions.")
    transport: Annotated[SerializeAsAny[AnyTransport], NotInIdentity] = Field(
        description="Whether questions reach the judge's provider or only stored replies are used."
    )
    runner: Annotated[SerializeAsAny[AnyRunner], NotInIdentity] = Field(
        default_factory=LocalRunner, description="Which processes measure the cases. No figure depends on it."
    )
    embedder: SerializeAsAny[AnyEmbedder] = Field(description="What turns texts into vectors.")
    metrics: Annotated[dict[str, Metric], NotInIdentity] = Field(description="The metrics to measure, by name.")
    scoring: ScoringSettings = Field(
        description="How values become scores, passes, one overall score and gates. Changing it asks no new question."
    )
    report: Annotated[ReportSettings, NotInIdentity] = Field(
        description="What is printed and written at the end. No number depends on it."
    )
    store: Annotated[StoreSettings, NotInIdentity] = Field(description="Where the judge replies of all runs are kept.")

    @property
    def cache(self) -> Path:
        """The folder of the copies of files that are fetched from object stores."""
        return Path(self.output_dir) / DEFAULT_CACHE.name

    @property
    def prompts(self) -> PromptLibrary:
        """The user's prompt folders, then the shipped one."""
        return prompt_library(self.prompt_dirs)

    def identity(self) -> dict[str, Any]:
        """The sections that can change a number, as plain JSON: what goes into a run's id beside data and metrics."""
        return {key: value for key, value in super().identity().items() if key != "name"}


RUN_KEYS = (*RunConfig.model_fields, JurySettings.section)
"""The keys of a composed configuration. The section `jury` becomes the judge when it is checked."""


def prompt_library(prompt_dirs: Sequence[str]) -> PromptLibrary:
    """Templates of the given folders first, then of the shipped one."""
    return PromptLibrary([*(Path(name).absolute() for name in prompt_dirs), prompts_dir()])


def _is_importable(package: str) -> bool:
    try:
        return importlib.util.find_spec(package.partition(".")[0]) is not None
    except (ImportError, ValueError):
        return False
