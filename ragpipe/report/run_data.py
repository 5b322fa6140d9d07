"""A run folder as data: frames and dictionaries. Reading a folder of unknown origin runs no code and follows no link in it."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragpipe.core.errors import DataError
from ragpipe.store.run_folder import LATEST, RunFolder, manifest_of
from ragpipe.store.run_tables import open_table, read_json, run_file_error

if TYPE_CHECKING:
    import pandas as pd
from collections.abc import Callable

from ragpipe.report.notebook import Comparison, run_html, run_lines
from ragpipe.report.report_data import headline_names, read_case_figures


class Run:
    """The results of one iteration.

    `.cases`, `.samples` and `.outputs` are pandas frames to look at, `.records`, `.scores` and `.judge_inputs` those of the files;
    `.metrics`, `.low_scores`, `.cost`, `.gates`, `.verdict` and `.manifest` are dictionaries, and so is `.final`, the metrics over all
    iterations. Each is read on first access. Raises DataError for a file that is missing or broken.
    """

    def __init__(self, path: Path, iteration: int, compare: Callable[[Path, Path], Comparison]):
        self.path = path
        self.iteration = iteration
        self.folder = path / f"iteration-{iteration}"
        self._compare = compare

    def __repr__(self) -> str:
        name = f"Run({str(self.path)!r}, iteration={self.iteration})"
        with suppress(DataError):  # a run that was stopped has no verdict yet
            return "\n".join([name, *run_lines(self.metrics, self.verdict["sentence"], self._page)])
        return name

    def _repr_html_(self) -> str:
        """What a notebook shows: the verdict of the run, its methods on one axis, the gates, and a link to the report."""
        return run_html(self.metrics, self.gates, self.verdict["sentence"], self._page)

    @property
    def _page(self) -> Path:
        """The report, from the working folder."""
        return Path(os.path.relpath(self.path / "report.html"))

    def compare(self, base: str | Path | Run) -> Comparison:
        """Whether this run is better than `base`, case by case, as `ragpipe.compare` says. Raises as that."""
        return self._compare(base.path if isinstance(base, Run) else Path(base), self.path)

    @cached_property
    def cases(self) -> pd.DataFrame:
        """One row per case with what decides: the headline score, whether it passed, what failed, answer, cost and latency (of the
        system, as recorded)."""
        records = self.records
        operations = read_case_figures(self.folder / "records.parquet", self.metrics, self.iteration).operations
        columns = {"case": "sample_id", **{name: name for name in ("question", "method", "repeat", "iteration")}}
        frame = records[list(columns.values())].set_axis(list(columns), axis=1)
        for score in headline_names(self.metrics)[:1]:
            passed = "overall_passed" if score == "overall_score" else f"{score}.passed"
            frame = frame.assign(**{score: records[score], "passed": records.get(passed)})
        lists = {name: records[name].map(", ".join) for name in ("failed_by", "failure_modes")}
        return frame.assign(**lists, answer=records["answer"], n_contexts=records["n_chunks"]).assign(
            cost_usd=operations["cost_usd"], latency_ms=operations["latency_ms"]
        )

    @cached_property
    def samples(self) -> pd.DataFrame:
        """One row per question with what the data set says of it."""
        return _opened(_frame(self.path / "samples.parquet"))

    @cached_property
    def outputs(self) -> pd.DataFrame:
        """One row per output: the answer, the texts and the ids of its contexts as lists (None where none were recorded), times and
        usage in a column each."""
        table = _frame(self.path / "outputs.parquet")
        frame = _opened(table.drop(columns=["sample_row", "chunks", "timings", "usage"]))
        for key, name in (("text", "contexts"), ("id", "context_ids")):
            frame[name] = [None if listed is None else [chunk[key] for chunk in listed] for listed in table["chunks"]]
        for name in ("timings", "usage"):
            objects = [json.loads(text) if text else {} for text in table[name]]
            for key in dict.fromkeys(key for each in objects for key in each):
                frame[f"{name}.{key}"] = [each.get(key) for each in objects]
        return frame

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


def load_run(
    path: str | Path, *, iteration: int | None = None, compare: Callable[[Path, Path], Comparison] = lambda *_: Comparison()
) -> Run:
    """Open a run folder (`outputs/x/latest`), by default its newest iteration. `compare` compares a base and this run.

    Raises DataError when the folder is no run, FormatMismatch when it has another format.
    """
    root = Path(path).resolve()
    if root.is_file() and root.name == LATEST:  # a file system without links has the name of the run as text
        root = RunFolder.find(root).root.resolve()
    if root.name.startswith("iteration-") and root.name[10:].isdigit() and iteration is None:
        root, iteration = root.parent, int(root.name[10:])
    run = Run(root, iteration or max(RunFolder(root).iterations(), default=1), compare)
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


_OBJECTS = (
    "history", "gains", "anchors", "required_support_groups", "expected", "meta", "citations", "recorded"
)  # fmt: skip


def _opened(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with JSON texts as what they say, and without columns that are empty throughout."""
    for name in frame.columns.intersection(_OBJECTS):
        frame[name] = frame[name].map(json.loads, na_action="ignore")
    return frame.dropna(axis="columns", how="all")
