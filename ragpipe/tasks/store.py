"""`task=store`: what the call store holds, what may go, replies for another store, and why a question was asked again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from ragpipe.config.settings import StoreSettings
from ragpipe.core.errors import ConfigError, DataError, Problem
from ragpipe.core.validation import ConfigOrigins, NoOrigins, validated
from ragpipe.engine.cache_miss import explain_cache_miss
from ragpipe.engine.referenced_calls import referenced_keys
from ragpipe.engine.run_list import all_runs, readable_runs
from ragpipe.reports.console import Console
from ragpipe.reports.number_format import price, whole
from ragpipe.schema.settings import Settings
from ragpipe.schema.usage import Usage
from ragpipe.store.calls.prune import Choice, prunable, prune
from ragpipe.store.calls.store_stats import census
from ragpipe.store.calls.transfer import export_calls, import_calls
from ragpipe.store.files.write_if_changed import json_unless_same
from ragpipe.store.run.run_folder import RunFolder

Text = Annotated[str, Field(min_length=1)]


class StoreTaskSettings(Settings):
    """What to do with the store. conf/task/store.yaml says which key is for which action."""

    model_config = ConfigDict(populate_by_name=True)

    action: Literal["stats", "prune", "export", "import", "why"] = Field(description="What to do with the store.")
    output_dir: Text = Field(description="Folder that holds the runs.")
    run: Text | None = Field(default=None, description="Run folder, or run id, whose calls are meant. null: all runs.")
    to: Text | None = Field(
        default=None,
        description="File to write: .json for stats, .parquet or .jsonl for export. null: stats are only printed.",
    )
    source: Text | None = Field(
        default=None, alias="from", description="File to import, as export wrote it. null: for all other actions."
    )
    case: Text | None = Field(default=None, description="For `why`: id of the sample. null: `key` names the call.")
    method: Text | None = Field(default=None, description="For `why`: method of the case. null: it has one.")
    repeat: int | None = Field(
        default=None, ge=1, description="For `why`: number of the output, from 1. null: the method gave one."
    )
    metric: Text | None = Field(
        default=None, description="For `why`: metric that asked. null: the case has one question."
    )
    step: Text | None = Field(default=None, description="For `why`: prompt step that asked. null: the metric has one.")
    iteration: int = Field(default=1, ge=1, description="For `why`: number of the iteration, from 1.")
    key: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = Field(
        default=None, description="For `why`: key of the call, 64 hexadecimal digits. null: `run` and `case` name it."
    )
    older_than_days: float | None = Field(
        default=None,
        ge=0,
        le=100_000,
        description="For `prune`: only calls that are older, 0 to 100,000 days. null: of any age.",
    )
    judge_label: Text | None = Field(
        default=None, description="For `prune`: only calls of this judge, as stats names it. null: of any judge."
    )
    failures: bool = Field(default=False, description="For `prune`: whether only failed calls go.")
    unused: bool = Field(
        default=False, description="For `prune`: whether only calls that no run below `output_dir` uses go."
    )
    dry_run: bool = Field(
        default=True, description="For `prune`: whether calls are only counted and nothing is deleted."
    )


@dataclass(frozen=True)
class StoreTask:
    """The store's file and what to do with it."""

    path: Path
    settings: StoreTaskSettings

    @property
    def run_id(self) -> str | None:
        """The id of the run that was named by its folder or by its id."""
        name = self.settings.run
        return RunFolder.find(Path(name)).run_id if name and Path(name).exists() else name


_NEEDS = {
    "export": ("to", (".parquet", ".jsonl"), "to=FILE.parquet or to=FILE.jsonl"),
    "import": ("source", (".parquet", ".jsonl"), "from=FILE.parquet or from=FILE.jsonl"),
}


def validate(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> StoreTask:
    """Check the keys of this task. Raises ConfigError."""
    problems: list[Problem] = []
    origins = origins or NoOrigins()
    names = {field.alias or name for name, field in StoreTaskSettings.model_fields.items()}
    settings = validated(StoreTaskSettings, {k: v for k, v in plain.items() if k in names}, "", origins, problems)
    for said in getattr(origins, "chosen", ()):  # a misspelt choice would prune more than was meant
        if said.partition(".")[0] not in {*names, "task", "store", "log_level"}:
            fix = "see conf/task/store.yaml"
            problems.append(
                Problem(
                    origins.location(said), said, "a key that task=store does not know", ", ".join(sorted(names)), fix
                )
            )
    store = validated(StoreSettings, plain.get("store", {}), "store", origins, problems)
    if settings is not None:
        problems += _missing(settings, origins)
    if settings is None or store is None or problems:
        raise ConfigError("task=store cannot begin; nothing was changed", problems)
    return StoreTask(Path(store.path or Path(settings.output_dir) / ".store") / "calls.sqlite", settings)


def _missing(settings: StoreTaskSettings, origins: ConfigOrigins) -> list[Problem]:
    found = []
    if settings.action in _NEEDS:
        name, endings, fix = _NEEDS[settings.action]
        value = getattr(settings, name)
        if not value or Path(value).suffix not in endings:
            key = "from" if name == "source" else name
            found.append(Problem(origins.location(key), key, repr(value), "a .parquet or .jsonl file", fix))
    if settings.action == "stats" and settings.to and Path(settings.to).suffix != ".json":
        found.append(Problem(origins.location("to"), "to", repr(settings.to), "a .json file", "to=FILE.json"))
    chosen = (
        settings.older_than_days,
        settings.judge_label,
        settings.run,
        settings.failures or None,
        settings.unused or None,
    )
    if settings.action == "prune" and all(value is None for value in chosen):
        fix = "set older_than_days, judge_label, run, failures=true or unused=true"
        found.append(Problem(origins.location("action"), "action", "prune of everything", "a choice of calls", fix))
    if settings.action == "why" and not settings.key and not (settings.run and settings.case):
        fix = "set run=FOLDER and case=ID, or key=HASH"
        found.append(Problem(origins.location("key"), "key", "null", "a question", fix))
    return found


def run(task: StoreTask, console: Console) -> int:
    """Do it and say what was done. Returns 0. Raises DataError, OutputError, FolderLocked."""
    _ACTIONS[task.settings.action](task, console)
    return 0


def _stats(task: StoreTask, console: Console) -> None:
    found = census(task.path, {folder.run_id for folder in all_runs(Path(task.settings.output_dir))})
    console.say(
        f"{found['file']}: {found['bytes'] / 2**20:,.1f} MiB, {found['oldest'] or '-'} to {found['newest'] or '-'}"
    )
    lines = [("replies", "", found["replies"]), ("failures", "", found["failures"])]
    lines += [("status", name, count) for name, count in found["by_status"].items() if name != "ok"]
    lines += [("judge", name, count) for name, count in found["by_judge"].items()]
    console.table(
        ("of", "name", "calls", "tokens"),
        [
            (of, name, whole(count["calls"]), whole(count["tokens_in"] + count["tokens_out"]))
            for of, name, count in lines
        ],
        left=(0, 1),
    )
    bills = [("paid", "in all", found["paid"])]
    bills += [
        ("run", name + ("" if bill["folder"] else " (no folder)"), bill) for name, bill in found["paid_by_run"].items()
    ]
    console.table(
        ("of", "name", "calls", "replies", "tokens", "paid"),
        [
            (
                of,
                name,
                whole(bill["calls"]),
                whole(bill["replies"]),
                whole(bill["tokens_in"] + bill["tokens_out"]),
                price(Usage.from_json(bill)),
            )
            for of, name, bill in bills
        ],
        left=(0, 1),
    )
    if found["damaged"]:
        console.warn(
            f"{whole(found['damaged'])} stored replies are damaged: they count as not there, and are asked again"
        )
    if found["paid"].get("damaged"):
        console.warn(f"{whole(found['paid']['damaged'])} payments are damaged: they are in no sum")
    console.say("claims: " + ", ".join(f"{whole(n)} {state}" for state, n in found["claims"].items()))
    if task.settings.to:
        json_unless_same(Path(task.settings.to), found)
        console.say(f"written: {task.settings.to}")


def _prune(task: StoreTask, console: Console) -> None:
    settings = task.settings
    choice = Choice(
        settings.older_than_days,
        settings.judge_label,
        task.run_id,
        settings.failures,
        referenced_keys(Path(settings.output_dir)) if settings.unused else None,
    )
    found = prunable(task.path, choice) if settings.dry_run else prune(task.path, choice)
    paid = Usage.from_json(found["paid"])
    text = f"{whole(found['calls'])} calls, {whole(paid.tokens)} tokens, {price(paid)}"
    if settings.dry_run:
        console.say(
            f"would go: {text} (to ask them again costs about as much; the ledger keeps what was paid). Nothing was "
            "deleted: dry_run=false deletes"
        )
    else:
        console.say(f"deleted: {text}")


def _export(task: StoreTask, console: Console) -> None:
    assert task.settings.to
    run_id = task.run_id
    count = export_calls(task.path, Path(task.settings.to), run_id=run_id)
    console.say(f"{whole(count)} calls{f' of run {run_id}' if run_id else ''}: {task.settings.to}")


def _import(task: StoreTask, console: Console) -> None:
    assert task.settings.source
    new, old = import_calls(task.path, Path(task.settings.source))
    console.say(f"{whole(new)} calls taken in, {whole(old)} stood already: {task.path}")


def _why(task: StoreTask, console: Console) -> None:
    settings = task.settings
    place = {
        "sample_id": settings.case,
        "method": settings.method,
        "repeat": settings.repeat,
        "metric": settings.metric,
        "step": settings.step,
    }
    folder = RunFolder.find(Path(settings.run)) if settings.run and Path(settings.run).exists() else None
    if settings.key is None and folder is None:
        raise DataError(
            "there is no run",
            [Problem(str(settings.run), "run", "nothing there", "a run folder", "name a run folder, or set key=HASH")],
        )
    runs = readable_runs(Path(settings.output_dir), console.warn)
    wanted = {name: value for name, value in place.items() if value is not None}
    for line in explain_cache_miss(task.path, runs, folder, settings.iteration, wanted, settings.key):
        console.say(line)


_ACTIONS: dict[str, Callable[[StoreTask, Console], None]] = {
    "stats": _stats,
    "prune": _prune,
    "export": _export,
    "import": _import,
    "why": _why,
}
