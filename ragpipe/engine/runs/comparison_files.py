"""Comparing run folders: opening the sides, and writing what was found to `outputs/<name>/comparisons/<id>/`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragpipe.comparing.change_sources import ChangeSources
from ragpipe.comparing.comparison import (
    COMPARED_CASES_SCHEMA,
    Comparison,
    compare_sides,
    compared_cases,
    comparison_document,
)
from ragpipe.comparing.settings import CompareSettings
from ragpipe.comparing.side import TITLE, Side, opened_side
from ragpipe.core.digest import sha256
from ragpipe.core.errors import ConfigError, Problem, RagpipeError
from ragpipe.engine.integrity import check_unmodified
from ragpipe.engine.runs.manifest import checked_manifest
from ragpipe.reports.compare.compare_page import compare_page
from ragpipe.reports.comparison_summary import summary_markdown
from ragpipe.reports.exports.junit import comparison_junit
from ragpipe.store.files.atomic import sweep_temporaries
from ragpipe.store.files.page_writer import write_page
from ragpipe.store.files.parquet_writer import parquet_writer
from ragpipe.store.files.write_if_changed import json_unless_same, open_unless_same, write_unless_same
from ragpipe.store.run.run_folder import COMPARISONS, RunFolder, make_folder

_OTHER_RUNS = 100
"""Runs that are looked at for `compare.why`."""


@dataclass(frozen=True)
class ComparedRuns:
    """A comparison with its open sides: `document` is the content of `comparison.json`."""

    document: dict[str, Any]
    base: Side
    candidates: Sequence[Side]
    comparisons: Sequence[Comparison]


@contextmanager
def compared_runs(
    base: RunFolder, candidates: Sequence[RunFolder], settings: CompareSettings
) -> Iterator[ComparedRuns]:
    """Compare runs, or the methods of `base` where `settings.kind` says so. The tables are open inside.

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
            methods: list[str | None] = [*settings.candidate_methods] or [None]
            sides = [opened(base, settings.base_method)]
            sides += [opened(folder, method) for folder in candidates for method in methods]
        comparisons = compare_sides(sides[0], sides[1:], settings)
        if settings.why:
            others = [] if settings.kind == "methods" else list(_other_runs(sides, stack))
            for candidate, comparison in zip(sides[1:], comparisons, strict=True):
                sources = ChangeSources(sides[0], candidate, comparison.pairs, others)
                headline = [name for name, score in comparison.document["scores"].items() if score["headline"]]
                comparison.document["why"] = {name: sources.of(name) for name in headline}
        document = comparison_document(settings.kind, sides[0], sides[1:], comparisons, settings)
        yield ComparedRuns(document, sides[0], sides[1:], comparisons)


def _other_runs(sides: Sequence[Side], stack: ExitStack) -> Iterator[Side]:
    """The newest runs beside those that are compared: one of them may have the answers of one and the judge of another. What
    cannot be read is none."""
    compared = {side.folder.root.resolve() for side in sides}
    homes = dict.fromkeys(root.parent for root in compared)
    paths = [path for home in homes for path in home.iterdir() if path not in compared and not path.is_symlink()]
    paths = [path for path in paths if (path / "manifest.json").is_file()]
    for path in sorted(paths, key=lambda path: -path.stat().st_mtime)[:_OTHER_RUNS]:
        with suppress(RagpipeError, KeyError):
            yield stack.enter_context(opened_side(RunFolder(path), checked_manifest(RunFolder(path))))


def write_comparison(compared: ComparedRuns, *, single_file_mb: float) -> Path:
    """Write the files of a comparison beside the (last) candidate, and return their folder. A page with more than
    `single_file_mb` megabytes of data has side files.

    The same comparison has the same folder; files that would not change are left alone. Raises OutputError.
    """
    document = compared.document
    sides = [[side["run_id"], side["method"]] for side in (document["base"], *document["candidates"])]
    name = sha256({"sides": sides, "settings": document["settings"], "kind": document["kind"]})[:12]
    folder = compared.candidates[-1].folder.root.parent / COMPARISONS / name
    make_folder(folder)
    sweep_temporaries(folder)
    json_unless_same(folder / "comparison.json", document)
    with (
        open_unless_same(folder / "comparison.parquet") as file,
        parquet_writer(file, COMPARED_CASES_SCHEMA, compression="zstd") as writer,
    ):
        for table in compared_cases(compared.comparisons):
            writer.write_table(table)
    write_unless_same(folder / "comparison.md", summary_markdown(document))
    write_unless_same(folder / "comparison.junit.xml", comparison_junit(document))
    page = compare_page(document, compared.base, compared.candidates, compared.comparisons)
    write_page(folder / "compare.html", page, single_file_mb=single_file_mb)
    return folder


def _methods(folder: RunFolder, side: Side, settings: CompareSettings) -> list[str]:
    """The base method, then those that are compared with it. Raises ConfigError where there are fewer than two."""
    base = settings.base_method or side.methods[0]
    others = [name for name in settings.candidate_methods or side.methods if name != base]
    if not others:
        fix = "compare=runs base=RUN candidate=RUN compares two runs"
        actual = f"one method, {base}"
        raise ConfigError(TITLE, [Problem(str(folder.root), "method", actual, "two methods or more", fix)])
    return [base, *others]
