"""A run folder as data: frames and dictionaries. Reading a folder of unknown origin runs no code and follows no link in it."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragpipe.store.run_folder import LATEST, RunFolder, manifest_of
from ragpipe.store.run_tables import open_table, read_json, run_file_error

if TYPE_CHECKING:
    import pandas as pd
from collections.abc import Mapping, Sequence
from html import escape

from ragpipe.report.report_data import heading, method_groups, score_cell


class Run:
    """The results of one iteration.

    `.records`, `.scores` and `.judge_inputs` are pandas frames; `.metrics`, `.low_scores`, `.cost`, `.gates`, `.verdict` and
    `.manifest` are dictionaries, and so is `.final`, the metrics over all iterations. Each is read on first access. Raises DataError
    for a file that is missing or broken.
    """

    def __init__(self, path: Path, iteration: int):
        self.path = path
        self.iteration = iteration
        self.folder = path / f"iteration-{iteration}"

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}, iteration={self.iteration})"

    def _repr_html_(self) -> str:
        """What a notebook shows: the verdict of the run, the scores of this iteration, and the gates."""
        return notebook_html(self.path, self.metrics, self.gates, self.verdict["sentence"])

    @cached_property
    def records(self) -> pd.DataFrame:
        """One wide row per case."""
        return _frame(self.folder / "records.parquet")

    @cached_property
    def scores(self) -> pd.DataFrame:
        """One row per case and score."""
        return _frame(self.folder / "scores.parquet")

    @cached_property
    def judge_inputs(self) -> pd.DataFrame:
        """One row per use of a judge's reply."""
        return _frame(self.folder / "judge_inputs.parquet")

    @cached_property
    def metrics(self) -> dict[str, Any]:
        return read_json(self.folder / "metrics.json")

    @cached_property
    def low_scores(self) -> dict[str, Any]:
        return read_json(self.folder / "low_scores.json")

    @cached_property
    def cost(self) -> dict[str, Any]:
        return read_json(self.folder / "cost.json")

    @cached_property
    def final(self) -> dict[str, Any]:
        """`final/metrics.json`: every score over all iterations, with spread and flips."""
        return read_json(self.path / "final" / "metrics.json")

    @cached_property
    def gates(self) -> dict[str, Any]:
        """The gates over all iterations of the run."""
        return read_json(self.path / "gates.json")

    @cached_property
    def verdict(self) -> dict[str, Any]:
        """What the reports of the run begin with, and its reasons."""
        return read_json(self.path / "verdict.json")

    @cached_property
    def manifest(self) -> dict[str, Any]:
        return read_json(self.path / "manifest.json")


def load_run(path: str | Path, *, iteration: int | None = None) -> Run:
    """Open a run folder (`outputs/x/latest`), by default its newest iteration.

    Raises DataError when the folder is no run, FormatMismatch when it has another format.
    """
    root = Path(path).resolve()
    if root.is_file() and root.name == LATEST:  # a file system without links has the name of the run as text
        root = RunFolder.find(root).root.resolve()
    if root.name.startswith("iteration-") and root.name[10:].isdigit() and iteration is None:
        root, iteration = root.parent, int(root.name[10:])
    run = Run(root, iteration or max(RunFolder(root).iterations(), default=1))
    if run.folder.is_symlink() or not run.folder.is_dir():
        expected = "a run folder with iteration-<n>/ in it, such as outputs/<name>/latest"
        raise run_file_error(run.folder, "no such folder", expected)
    manifest_of(root / "manifest.json")
    return run


def _frame(path: Path) -> pd.DataFrame:
    with open_table(path) as file:
        table = file.read()
    # index and types do not come from metadata in the file, which anybody may have written
    frame: pd.DataFrame = table.replace_schema_metadata(None).to_pandas(ignore_metadata=True)
    return frame


def notebook_html(path: Path, metrics: Mapping[str, Any], gates: Mapping[str, Any], verdict: str) -> str:
    """One row per score, one column per method: mean with its interval, and the share that passed. No script, no style
    sheet, every text escaped.

    Args:
        path: the run folder.
        metrics: `metrics.json` of the iteration.
        gates: `gates.json` of the run.
        verdict: the sentence of its `verdict.json`.
    """
    groups = method_groups(metrics)
    rows = []
    for name in metrics["overall"]["scores"]:
        cells = [score_cell(group["scores"].get(name)) for group in groups.values()]
        if any(each.mean != "-" for each in cells):
            rows.append([escape(heading(name, metrics, ())), *("<br>".join(map(escape, cell.lines)) for cell in cells)])
    texts = (f"gate {gate['name']}: {gate['outcome']}. {gate['sentence']}" for gate in gates["gates"])
    return "".join(
        [
            f"<div><p><b>{escape(verdict)}</b></p>",
            _table(["score", *groups], rows),
            *(f"<p>{escape(text)}</p>" for text in texts),
            f"<p><small>{escape(metrics['signature'])}</small></p>",
            f"<p><small>{escape(str(path))} (report.html there has every case)</small></p></div>",
        ]
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; cells are HTML already, heads are texts."""
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "".join(f"<tr>{''.join(f'<td>{text}</td>' for text in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
