"""`python -m ragpipe FILE`: what stands before and after the run of a file's own options."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from ragpipe.reports.console import Console
from ragpipe.starting.file_start import folder_for, start_from
from ragpipe.starting.metrics_again import choose_again
from ragpipe.starting.start_folder import StartFolder, read_folder
from ragpipe.starting.start_messages import (
    composed_command,
    say_go_on,
    say_guesses,
    say_kept,
    say_left_out,
    say_next,
    say_start,
)
from ragpipe.starting.start_words import check_option, check_same_option, check_words


def begin(source: str, option: str, words: Sequence[str], console: Console) -> StartFolder | None:
    """The folder with the file's options, written now or before; None where there is nothing to run yet, which is printed.

    A folder that was written for this file is used as it is; only its metrics are chosen again where its mapping was edited and its
    experiment was not. Without answers in the file only a live system can be run; a
    guessed mapping is run where it gives a question and an answer in every record, else once somebody has edited it.

    Args:
        source: the file or folder of data.
        option: the option of `dataset` that reads it; empty: told by its structure.
        words: the other words of the command line.
        console: where to print.

    Raises DataError for a file that cannot be used, ConfigError for a word that no run has, an option that the
    folder was not written with and a folder of another origin, OutputError.
    """
    check_words(words)
    is_live = any(word.startswith("system=") for word in words)
    folder = folder_for(Path(source))
    if folder.exists():
        written = read_folder(folder, Path(source))
        check_same_option(option, written, source)
        say_kept(written, console)
        if written.mapping in written.edited:
            written = choose_again(written, Path(source), words, console)
        if written.is_runnable or written.edited or is_live:
            if written.is_runnable:
                say_guesses(written, console)
            return written
        console.say(
            f"its mapping is not complete: fill in {folder}/{written.mapping}, then start the same command again"
        )
        console.say("where nothing is to be filled in, it runs by")
        console.say(f"  {composed_command(written)}")
        return None
    if option:
        check_option(option)
    start = start_from(Path(source), folder, option, words)
    say_start(start, source, console)
    if start.folder.is_runnable or (is_live and start.reading is not None):
        return start.folder
    say_next(start, console, again=f"python -m ragpipe {shlex.join([source, *words])}")
    return None


def end(folder: StartFolder, words: Sequence[str], console: Console) -> None:
    """Print below the result of the run what was not measured and why, and the commands to go on with, which repeat the words that
    the run was started with."""
    say_left_out(folder, console)
    say_go_on(folder, words, console)
