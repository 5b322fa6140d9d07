"""`task=store`: statistics of the call store, pruning, and exchange with another store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from ragpipe.core.errors import ConfigError, DataError, FormatMismatch, Problem, RagpipeError
from ragpipe.core.settings import ConfigOrigins, NoOrigins, Settings, own_values, setting_keys, validated
from ragpipe.core.usage import Usage
from ragpipe.report.console import Console
from ragpipe.report.styled_text import price, whole
from ragpipe.runs.manifest import COMPLETE, read_manifest
from ragpipe.runs.run_list import all_runs, find_named_run
from ragpipe.runs.settings import StoreSettings
from ragpipe.store.call_database import StorePlace, call_database
from ragpipe.store.call_store import Choice, census, prunable, prune
from ragpipe.store.files import json_unless_same
from ragpipe.store.run_folder import RUN_ID, RunFolder
from ragpipe.store.run_tables import batches
from ragpipe.store.transfer import export_calls, import_calls

Text = Annotated[str, Field(min_length=1)]


class StoreTaskSettings(Settings):
    """What to do with the store. conf/task/store.yaml says which action reads which key."""

    model_config = ConfigDict(populate_by_name=True)

    action: Literal["stats", "prune", "export", "import", "migrate"] = Field(description="What to do with the store.")
    output_dir: Text = Field(description="Folder that holds the runs.")
    run: Text | None = Field(
        default=None,
        description="Run whose calls are meant, named as for the other tasks; for `prune` and `export` its id is enough. null: all runs.",
    )
    to: Text | None = Field(
        default=None, description="File to write: .json for stats, .jsonl for export. null: stats are only printed."
    )
    source: Text | None = Field(
        default=None, alias="from", description="File to import, as export wrote it. null: for all other actions."
    )
    older_than_days: float | None = Field(
        default=None,
        ge=0,
        le=100_000,
        description="For `prune`: only calls that are older, 0 to 100,000 days. null: of any age.",
    )
    unused: bool = Field(default=False, description="For `prune`: whether only calls that no run below `output_dir` uses go.")
    dry_run: bool = Field(default=True, description="For `prune`: whether calls are only counted and nothing is deleted.")


@dataclass(frozen=True)
class StoreTask:
    """The place of the store, and what to do with it."""

    place: StorePlace
    settings: StoreTaskSettings

    @property
    def run_id(self) -> str | None:
        """The id of the run that the user named. That of a run whose folder is gone is enough: the store has its calls."""
        name = self.settings.run
        is_id = name is None or RUN_ID.fullmatch(name)
        return name if is_id else find_named_run(str(name), Path(self.settings.output_dir)).run_id


Keys = StoreTaskSettings


def validate(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> StoreTask:
    """Check the keys of this task. Raises ConfigError."""
    origins = origins or NoOrigins()
    problems: list[Problem] = []
    settings = validated(StoreTaskSettings, own_values(StoreTaskSettings, plain), "", origins, problems)
    problems += _unknown_keys(origins)
    store = validated(StoreSettings, plain.get("store", {}), "store", origins, problems)
    if settings is not None:
        problems += _missing_keys(settings, origins)
    if settings is None or store is None or problems:
        raise ConfigError("task=store cannot begin; nothing was changed", problems)
    return StoreTask(store.place(settings.output_dir), settings)


def _unknown_keys(origins: ConfigOrigins) -> Iterator[Problem]:
    """Keys of the command line that this task does not have: a misspelt condition would prune more than was meant."""
    names = setting_keys(StoreTaskSettings)
    for key in getattr(origins, "chosen", ()):
        if key.partition(".")[0] not in {*names, "task", "store", "log_level"}:
            unknown, expected = "a key that task=store does not know", ", ".join(sorted(names))
            yield Problem(origins.location(key), key, unknown, expected, "see conf/task/store.yaml")


def _missing_keys(settings: StoreTaskSettings, origins: ConfigOrigins) -> Iterator[Problem]:
    """What the chosen action needs and does not have."""
    files = {"export": ("to", settings.to), "import": ("from", settings.source)}
    if settings.action in files:
        key, value = files[settings.action]
        if not value or Path(value).suffix != ".jsonl":
            text = "nothing" if value is None else repr(value)
            yield Problem(origins.location(key), key, text, "a .jsonl file", f"{key}=FILE.jsonl")
    if settings.action == "stats" and settings.to and Path(settings.to).suffix != ".json":
        yield Problem(origins.location("to"), "to", repr(settings.to), "a .json file", "to=FILE.json")
    chooses = settings.unused or settings.older_than_days is not None or settings.run is not None
    if settings.action == "prune" and not chooses:
        fix = "set older_than_days, run or unused=true"
        yield Problem(origins.location("action"), "action", "prune of everything", "a choice of calls", fix)


def run(task: StoreTask, console: Console) -> int:
    """Do the action and print what was done. Returns 0. Raises DataError, OutputError, FolderLocked."""
    _ACTIONS[task.settings.action](task, console)
    return 0


def _print_stats(task: StoreTask, console: Console) -> None:
    stats = census(task.place, {folder.run_id for folder in all_runs(Path(task.settings.output_dir))})
    size = f"{stats['bytes'] / 2**20:,.1f} MiB"
    console.say(f"{stats['file']}: {size}, {stats['oldest'] or '-'} to {stats['newest'] or '-'}")
    groups = [("replies", "", stats["replies"]), ("failures", "", stats["failures"])]
    groups += [("status", status, counts) for status, counts in stats["by_status"].items() if status != "ok"]
    groups += [("judge", judge, counts) for judge, counts in stats["by_judge"].items()]
    calls = [(of, name, whole(n["calls"]), whole(n["tokens_in"] + n["tokens_out"])) for of, name, n in groups]
    console.table(("of", "name", "calls", "tokens"), calls, left=(0, 1))
    spend = [("paid", "in all", Usage.from_json(stats["paid"]))]
    for run_id, document in stats["paid_by_run"].items():
        spend.append(("run", run_id if document["folder"] else f"{run_id} (no folder)", Usage.from_json(document)))
    paid = [(of, name, whole(n.calls), whole(n.replies), whole(n.tokens), price(n)) for of, name, n in spend]
    console.table(("of", "name", "calls", "replies", "tokens", "paid"), paid, left=(0, 1))
    if stats["damaged"]:
        count = whole(stats["damaged"])
        console.warn(f"{count} stored replies are damaged: they count as not there, and are asked again")
    if stats["paid"].get("damaged"):
        console.warn(f"{whole(stats['paid']['damaged'])} payments are damaged: they are in no sum")
    console.say("claims: " + ", ".join(f"{whole(count)} {state}" for state, count in stats["claims"].items()))
    if task.settings.to:
        json_unless_same(Path(task.settings.to), stats)
        console.say(f"written: {task.settings.to}")


def _prune(task: StoreTask, console: Console) -> None:
    settings = task.settings
    used = referenced_keys(Path(settings.output_dir)) if settings.unused else None
    choice = Choice(settings.older_than_days, task.run_id, used)
    pruned = prunable(task.place, choice) if settings.dry_run else prune(task.place, choice)
    paid = Usage.from_json(pruned["paid"])
    text = f"{whole(pruned['calls'])} calls, {whole(paid.tokens)} tokens, {price(paid)}"
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
    count = export_calls(task.place, Path(task.settings.to), run_id=run_id)
    console.say(f"{whole(count)} calls{f' of run {run_id}' if run_id else ''}: {task.settings.to}")


def _import(task: StoreTask, console: Console) -> None:
    assert task.settings.source
    new, known = import_calls(task.place, Path(task.settings.source))
    console.say(f"{whole(new)} calls imported, {whole(known)} were in the store already: {task.place}")


def _migrate(task: StoreTask, console: Console) -> None:
    """Make the tables of a new store, or bring those of an older one to this version."""
    console.say(f"{task.place}: {call_database(task.place).make()}")


_ACTIONS: dict[str, Callable[[StoreTask, Console], None]] = {
    "stats": _print_stats,
    "prune": _prune,
    "export": _export,
    "import": _import,
    "migrate": _migrate,
}


_BATCH = 65_536  # rows read at once


def referenced_keys(root: Path) -> Iterator[str]:
    """The keys in judge_inputs of every iteration of every run.

    Raises DataError, before the first key, for a run that is not finished or cannot be read: it is unknown what it will take
    from the store when it is started again.
    """
    runs = list(all_runs(root))
    if problems := [problem for folder in runs for problem in _unfinished(folder)]:
        raise DataError("what is unused cannot be known", problems[:10])
    return (key for folder in runs for key in _keys(folder))


def _unfinished(folder: RunFolder) -> Sequence[Problem]:
    """Why it is unknown which calls this run uses; nothing for a finished run."""
    try:
        states = read_manifest(folder).get("iterations", {})
        if states and all(state == COMPLETE for state in states.values()):
            return ()
    except FormatMismatch as error:
        return error.problems
    except (RagpipeError, OSError, AttributeError):
        pass
    fix = "finish this run, delete its folder, or choose by older_than_days or run"
    return [Problem(str(folder.root), "run", "not finished, or not readable", "a finished run", fix)]


def _keys(folder: RunFolder) -> Iterator[str]:
    for number in folder.iterations():
        for batch in batches(folder.iteration(number).judge_inputs, ["key"], size=_BATCH):
            yield from batch.column(0).to_pylist()
