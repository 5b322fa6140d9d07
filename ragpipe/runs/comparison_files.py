"""Comparing run folders: opening the sides, and writing what was found to `outputs/<name>/comparisons/<id>/`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from ragpipe.comparison.comparison import COMPARED_CASES_SCHEMA, Comparison, compare_sides, compared_cases, comparison_document
from ragpipe.comparison.run_agreement import agreement, questions
from ragpipe.comparison.settings import CompareSettings
from ragpipe.comparison.side import TITLE, Side, opened_side, paired_cases
from ragpipe.core.digest import sha256
from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.usage import Usage
from ragpipe.core.version import FORMAT
from ragpipe.report.compare_page import compare_page
from ragpipe.report.comparison_summary import summary_markdown
from ragpipe.report.exports import comparison_junit
from ragpipe.report.page_file import write_page
from ragpipe.runs.manifest import checked_manifest, scored_iterations
from ragpipe.runs.run_list import check_unmodified, find_preference
from ragpipe.store.files import json_unless_same, open_unless_same, sweep_temporaries, write_unless_same
from ragpipe.store.parquet_parts import parquet_writer
from ragpipe.store.run_folder import COMPARISONS, RunFolder, make_folder
from ragpipe.store.run_tables import read_json


@dataclass(frozen=True)
class ComparedRuns:
    """A comparison with its open sides: `document` is the content of `comparison.json`."""

    document: dict[str, Any]
    base: Side
    candidates: Sequence[Side]
    comparisons: Sequence[Comparison]


@contextmanager
def compared_runs(
    base: RunFolder, candidates: Sequence[RunFolder], settings: CompareSettings, preferences: Sequence[RunFolder] = ()
) -> Iterator[ComparedRuns]:
    """Compare runs, or the methods of `base` where `settings.kind` says so. The tables are open inside. `preferences` are the runs in which
    a judge was asked just now; where there is none, the newest ones count.

    Raises ConfigError where a candidate differs in what is not accepted, DataError for what cannot be read.
    """
    with ExitStack() as stack:

        def opened(folder: RunFolder, method: str | None) -> Side:
            manifest = checked_manifest(folder)
            check_unmodified(folder, manifest["iterations"])
            return stack.enter_context(opened_side(folder, manifest, method))

        if settings.kind == "methods":
            sides = [opened(base, method) for method in _methods(base, opened(base, None), settings)]
        else:
            sides = [opened(base, settings.base_method), *(opened(folder, None) for folder in candidates)]
        pairs = list(combinations(sides, 2)) if settings.kind == "methods" else [(sides[0], side) for side in sides[1:]]
        found = [find_preference(base, side.folder, (of.method, side.method), preferences) for of, side in pairs]
        runs = {folder: opened(folder, None) for folder in found if folder is not None}
        asked = [None if folder is None else runs[folder] for folder in found]
        comparisons = compare_sides(sides[0], sides[1:], settings, asked[: len(sides) - 1])
        known = [
            (run, of, side, paired_cases(of.cases, side.cases))
            for run, (of, side) in zip(asked, pairs, strict=True)
            if run is not None
        ]
        document = comparison_document(settings.kind, sides[0], sides[1:], comparisons, settings, known)
        yield ComparedRuns(document, sides[0], sides[1:], comparisons)


def write_comparison(compared: ComparedRuns) -> Path:
    """Write the files of a comparison beside the (last) candidate, and return their folder, which the same comparison has
    again. Raises OutputError."""
    document = compared.document
    sides = [(side["run_id"], side["method"]) for side in (document["base"], *document["candidates"])]
    name = comparison_id(sides, document["settings"], document["kind"])
    folder = compared.candidates[-1].folder.root.parent / COMPARISONS / name
    make_folder(folder)
    sweep_temporaries(folder)
    json_unless_same(folder / "comparison.json", document)
    verdicts = [
        {**{key: document["candidates"][item["candidate"]][key] for key in ("name", "run_id", "method")}, **item["verdict"]}
        for item in document["comparisons"]
    ]
    json_unless_same(folder / "verdict.json", {"format": FORMAT, "verdicts": verdicts})
    with (
        open_unless_same(folder / "comparison.parquet") as file,
        parquet_writer(file, COMPARED_CASES_SCHEMA, compression="zstd") as writer,
    ):
        for table in compared_cases(compared.comparisons):
            writer.write_table(table)
    write_unless_same(folder / "comparison.md", summary_markdown(document))
    write_unless_same(folder / "comparison.junit.xml", comparison_junit(document))
    page = compare_page(document, compared.base, compared.candidates, compared.comparisons)
    write_page(folder / "compare.html", page)
    return folder


def comparison_id(sides: Sequence[tuple[str, str | None]], settings: Mapping[str, Any], kind: str) -> str:
    """The name of the folder of a comparison: `sides` are run ids with methods, the base first, `settings` as its document has them."""
    return sha256({"sides": list(map(list, sides)), "settings": dict(settings), "kind": kind})[:12]


def _methods(folder: RunFolder, side: Side, settings: CompareSettings) -> list[str]:
    """The base method, then those that are compared with it. Raises ConfigError where there are fewer than two."""
    base = settings.base_method or side.methods[0]
    others = [name for name in side.methods if name != base]
    if not others:
        fix = "compare=runs base=RUN candidate=RUN compares two runs"
        actual = f"one method, {base}"
        raise ConfigError(TITLE, [Problem(str(folder.root), "method", actual, "two methods or more", fix)])
    return [base, *others]


def compare_runs(old: RunFolder, new: RunFolder, *, scoring_only: bool = False) -> dict[str, Any] | None:
    """What `agreement.json` holds: every score of both runs, their questions and their costs; with `scoring_only` scores and changed
    verdicts alone: what another scoring of the same replies changes.

    An iteration is compared with the one of the same number. None where no iteration is scored in both, or those of a run were not
    combined. Raises DataError for a file that cannot be read.
    """
    is_combined = old.final.metrics.is_file() and new.final.metrics.is_file()
    shared = sorted({*scored_iterations(old)} & {*scored_iterations(new)}) if is_combined else []
    if not shared:
        return None
    records = [{number: folder.iteration(number).records for number in shared} for folder in (old, new)]
    changes = agreement(*records, old_scores=_scores(old), new_scores=_scores(new), verdicts_only=scoring_only)
    if scoring_only:
        runs = {name: {"run_id": _run(folder)["run_id"]} for name, folder in (("old", old), ("new", new))}
        return {**runs, "iterations": shared, **changes}
    inputs = [[folder.iteration(number).judge_inputs for number in shared] for folder in (old, new)]
    return {
        "format": FORMAT,
        "old": _run(old),
        "new": _run(new),
        "iterations": shared,
        **changes,
        "questions": questions(*inputs),
        "cost": {"old": _usage(old), "new": _usage(new)},
    }


def _scores(folder: RunFolder) -> dict[str, Any]:
    """The run's scores over all cases, each with its declaration."""
    metrics = read_json(folder.final.metrics)
    return {name: {**metrics["declared"][name], **score} for name, score in metrics["overall"]["scores"].items()}


def _run(folder: RunFolder) -> dict[str, Any]:
    metrics = read_json(folder.final.metrics)
    judge = metrics["judge"]
    return {
        "run_id": str(read_json(folder.manifest)["run_id"]),  # whatever its folder is called
        "judge": judge["label"],
        "calibrated": judge["calibrated"],
        "n_cases": metrics["n_cases"],
        "signature": metrics["signature"],
    }


def _usage(folder: RunFolder) -> dict[str, Any]:
    used = read_json(folder.final.cost)["total"]["used"]
    counts = {name: used[name] for name in ("calls_computed", "calls_failed")}
    return {**counts, **Usage.from_json(used).as_json()}
