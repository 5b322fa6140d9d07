"""`python -m ragpipe FILE`: what stands before and after the run of a file's own options."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import yaml

from ragpipe.cli.file_start import FileStart, experiment_for, folder_for, read_mapping, start_from, yaml_path
from ragpipe.cli.option_files import (
    NEEDS_MODEL,
    StartFolder,
    check_option,
    check_same_option,
    check_words,
    read_folder,
    write_again,
)
from ragpipe.cli.profile_report import print_first_case
from ragpipe.core import registry
from ragpipe.core.errors import ConfigError, DataError
from ragpipe.core.text import on_one_line
from ragpipe.report.console import Console
from ragpipe.report.styled_text import plural


def begin(source: str, option: str, arguments: Sequence[str], console: Console) -> StartFolder | None:
    """The folder with the file's options, written now or before; None where there is nothing to run yet, which is printed.

    A folder that was written for this file is used as it is; only its metrics are chosen again where its mapping was edited and its
    experiment was not. Without answers in the file only a live system can be run; a
    guessed mapping is run where it gives a question and an answer in every record, else once somebody has edited it.

    Args:
        source: the file or folder of data.
        option: the option of `dataset` that reads it; empty: told by its structure.
        arguments: the other arguments of the command line.
        console: where to print.

    Raises DataError for a file that cannot be used, ConfigError for an argument that no run has, an option that the
    folder was not written with and a folder of another origin, OutputError.
    """
    check_words(arguments)
    is_live = any(argument.startswith("system=") for argument in arguments)
    folder = folder_for(Path(source))
    if folder.exists():
        written = read_folder(folder, Path(source))
        check_same_option(option, written, source)
        edited = f", edited since: {', '.join(written.edited)}" if written.edited else ""
        console.say(f"{folder}/ was written for this file before{edited}: it is used as it is")
        if written.mapping in written.edited:
            written = choose_again(written, Path(source), arguments, console)
        if written.is_runnable or written.edited or is_live:
            if written.is_runnable:
                say_guesses(written, console)
            return written
        console.say(f"its mapping is not complete: fill in {folder}/{written.mapping}, then start the same command again")
        console.say("where nothing is to be filled in, it runs by")
        console.say(f"  {composed_command(written)}")
        return None
    if option:
        check_option(option)
    start = start_from(Path(source), folder, option, arguments)
    say_start(start, source, console)
    if start.folder.is_runnable or (is_live and start.reading is not None):
        return start.folder
    say_next(start, console, again=f"python -m ragpipe {shlex.join([source, *arguments])}")
    return None


def choose_again(folder: StartFolder, source: Path, arguments: Sequence[str], console: Console) -> StartFolder:
    """The folder with the metrics that its edited mapping allows: a label that was mapped by hand makes more of them possible.

    Nothing changes where the experiment was edited too, where the mapping names another file, and where it cannot be read: the
    run then says why. Raises OutputError.
    """
    if f"experiment/{folder.name}.yaml" in folder.edited:
        return folder
    try:
        plain = yaml.safe_load((folder.root / folder.mapping).read_text(encoding="utf-8"))
        if not isinstance(plain, dict) or plain.get("path") != yaml_path(source, folder.root):
            return folder
        reading = read_mapping(plain, source, arguments)
    except (OSError, ValueError, yaml.YAMLError, ConfigError, DataError):
        return folder
    text, left_out = experiment_for(folder, source, reading)
    console.say("its metrics were chosen again for what the mapping reads")
    chosen = folder.model_copy(update={"is_runnable": reading.cases > 0, "left_out": left_out, "guessed": {}})
    return write_again(chosen, text)


_MODELS = ("a ", "an ")  # how a model of any kind is named among the needs
_LABELS = "labels that the data lack"
_OTHER_MODELS = "an embedder or a model of tokens"
_MODEL_METRICS = ("correctness", "answer_relevance", "context_relevance")
_NAMES_SHOWN = 6


def say_start(start: FileStart, source: str, console: Console) -> None:
    """Print what the file is, its first case as it was mapped, and what was written."""
    if start.recognised is None:
        why = start.refusal or "a shape that ragpipe does not know"
        console.say(on_one_line(f"{source}: {why}; its mapping was guessed from the names in it", 1000))
    else:
        names = ", ".join(start.recognised.evidence[:_NAMES_SHOWN])
        by = f" (by {names})" if names else ""
        console.say(f"{source}: {start.recognised.description}{by}; read by dataset={start.recognised.option}")
    if start.first:
        print_first_case(start.first, console)
    if start.reading is not None:
        reading = start.reading
        methods = f", methods: {', '.join(reading.methods)}" if len(reading.methods) > 1 else ""
        console.say(f"{plural(reading.samples, 'question')}, {plural(reading.cases, 'answer')}{methods}")
    console.say(f"written to {start.folder.root}/: {', '.join(start.folder.files)}")
    if start.reading is not None:
        say_guesses(start.folder, console)
    for line in start.remarks:
        console.say(on_one_line(line, 1000))
    if start.misfit:
        console.say(f"the guesses do not fit the file: {start.misfit}")


def say_next(start: FileStart, console: Console, again: str = "") -> None:
    """Print the lines to fill in, or the commands that come next. `again` is the command that wrote the folder, where the same one
    runs it."""
    command = composed_command(start.folder)
    if start.to_fill_in:
        console.say("check these lines, and fill in `???`:")
        for line in start.to_fill_in:
            console.say(f"  {line}")
        if again:
            console.say("then the same command again: it chooses the metrics that the data allow, and runs them")
            console.say(f"  {again}")
            return
        console.say("then:")
    elif start.reading is not None and not start.reading.cases:
        console.say(
            "it holds questions and no answers of a system: there is nothing to judge yet. Ask a live system, for example"
        )
        console.say(f"  {command} system=python system.callable=myrag:answer 'plugins=[myrag]'")
        console.say(f"  {command} system=http system.url=http://127.0.0.1:8000/ask")
        return
    else:
        console.say("next:")
    console.say(f"  {command} task=plan   # what the data hold, what each metric needs")
    console.say(f"  {command}")


def say_guesses(folder: StartFolder, console: Console) -> None:
    """Print which fields of a mapping that is run were guessed from names, and where to correct them."""
    if folder.guessed and folder.mapping not in folder.edited:
        pairs = ", ".join(f"{field} <- {path}" for field, path in folder.guessed.items())
        console.say(f"guessed: {pairs}; correct them in {folder.root}/{folder.mapping}")


def say_left_out(folder: StartFolder, console: Console) -> None:
    """Print the metrics that the experiment leaves out, at most three lines: those whose labels the data lack, those that a
    language model would measure, those that need a model of another kind."""
    by_need: dict[str, list[str]] = {_LABELS: [], NEEDS_MODEL: [], _OTHER_MODELS: []}
    for metric, need in folder.left_out.items():
        parts = need.split(", ")
        lacks_label = any(not part.startswith(_MODELS) for part in parts)
        by_need[_LABELS if lacks_label else NEEDS_MODEL if NEEDS_MODEL in parts else _OTHER_MODELS].append(metric)
    for need, metrics in by_need.items():
        where = f"; what each needs is in {folder.root}/experiment/{folder.name}.yaml" if need == _LABELS else ""
        if metrics:
            console.say(f"not measured, needs {need}: {', '.join(metrics)}{where}")


def say_go_on(folder: StartFolder, arguments: Sequence[str], console: Console) -> None:
    """Print the two commands to go on with. They repeat arguments about the system, the data and a mode, not those about judge and metrics."""
    kept = [argument for argument in arguments if not argument.startswith(("judge", "metrics=", "dataset="))]
    command = " ".join([composed_command(folder), *map(shlex.quote, kept)])
    console.say("to go on:")
    wanted = [name for name in _MODEL_METRICS if folder.left_out.get(name) == NEEDS_MODEL]
    metrics = "" if brings_metrics(kept) else f" 'metrics=[{','.join(['faithfulness', *wanted])}]'"
    console.say("  export OPENAI_API_KEY=...   # the key of a language model as judge; its name is judge.api_key_env")
    console.say(f"  {command} judge=llm judge.model=openai/gpt-4o-mini-2024-07-18{metrics}")
    console.say(f"  {command} task=plan   # what the data hold, what each metric needs, what a run costs")


def brings_metrics(arguments: Sequence[str]) -> bool:
    """Whether a mode among the arguments chooses the metrics, in place of those that were chosen for the file."""
    modes = registry.option_files("mode")
    named = [modes.get(argument.removeprefix("+mode=")) for argument in arguments if argument.startswith("+mode=")]
    return any("override /metrics" in path.read_text(encoding="utf-8") for path in named if path is not None)


def composed_command(folder: StartFolder) -> str:
    """The command that runs the folder's experiment."""
    return f"python -m ragpipe --config-dir {shlex.quote(str(folder.root))} +experiment={folder.name}"
