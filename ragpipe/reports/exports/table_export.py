"""The tables of a run for other programs: each as CSV or JSON Lines in `export/`, which is laid out as the run folder."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from ragpipe.reports.exports.csv_export import write_csv
from ragpipe.reports.exports.json_lines import write_json_lines
from ragpipe.store.files.atomic import sweep_temporaries
from ragpipe.store.run.run_folder import IterationFolder, RunFolder, make_folder

_WRITERS: dict[str, tuple[str, Callable[[Path, Path], None]]] = {
    "csv": (".csv", write_csv),
    "json": (".jsonl", write_json_lines),
}


def export_tables(folder: RunFolder, formats: Collection[str], iterations: Iterable[int]) -> list[Path]:
    """Write all tables of the run and of these iterations in those of `formats` that are `csv` or `json`.

    Returns the files in a fixed order. Memory is bounded by a few hundred rows. Raises DataError for a table that is
    missing or broken, OutputError.
    """
    writers = [_WRITERS[name] for name in _WRITERS if name in formats]
    if not writers:
        return []
    paths = _export([folder.samples, folder.outputs], folder.export, writers)
    for number in iterations:
        iteration = folder.iteration(number)
        paths += _export(_tables(iteration), folder.export / iteration.root.name, writers)
    return paths


def _tables(folder: IterationFolder) -> list[Path]:
    return [folder.records, folder.scores, folder.judge_inputs]


def _export(tables: list[Path], target: Path, writers: list[tuple[str, Callable[[Path, Path], None]]]) -> list[Path]:
    make_folder(target)
    sweep_temporaries(target)
    paths = []
    for table in tables:
        for ending, write in writers:
            paths.append(target / (table.stem + ending))
            write(table, paths[-1])
    return paths
