"""What all checks over a finished run share: their settings, the changed cases that are judged again, the document and its page."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from ragpipe.config.settings import RunConfig
from ragpipe.core.digest import sha256
from ragpipe.core.errors import ConfigError, DataError, Problem
from ragpipe.core.validation import ConfigOrigins, NoOrigins
from ragpipe.engine.evaluation import Evaluation
from ragpipe.engine.run_policies import RejudgePolicy
from ragpipe.engine.run_spec import RunSpec
from ragpipe.engine.runs.finished_run import FinishedRun, open_run
from ragpipe.engine.sources.case_sources import check_frozen_tables
from ragpipe.engine.task_settings import FinishedRunTask, SettingsT, task_settings, unnamed_judge
from ragpipe.metrics.base import Metric
from ragpipe.patterns.refusals import load_refusals, read_refusal
from ragpipe.reports.console import Console
from ragpipe.reports.model import EVERYWHERE, Cell, Media, Report, Section, Table, TableColumn, TableRow
from ragpipe.reports.number_format import whole
from ragpipe.reports.render.markdown_report import render_sections
from ragpipe.reports.render.terminal import print_report
from ragpipe.schema.format_version import FORMAT
from ragpipe.schema.sample import Case, CaseKey, Output, Sample
from ragpipe.stages.case_reader import CaseReader
from ragpipe.stages.combine_iterations import scored_iterations
from ragpipe.stages.load_dataset import load_dataset
from ragpipe.stages.seal_run import seal_added
from ragpipe.stats.intervals import Interval, estimate_rate
from ragpipe.store.files.atomic import json_unless_same, write_unless_same
from ragpipe.store.run.folder_lock import FolderLock
from ragpipe.store.run.run_folder import RunFolder, make_folder
from ragpipe.store.run.run_tables import batches, read_json

OutputKey = tuple[str, str, int]
"""Sample, method and repeat."""
SEED = 1
"""Of the draw of cases and of their changes: the same run gives the same cases, and a larger `n` holds those of a smaller one."""
HAIR = 1e-9  # of a score's range: a smaller change is rounding
BATCH = 32_768  # rows read at once
_LONGEST = 5_000  # characters from which an answer is no refusal


@dataclass(frozen=True, slots=True)
class Pair:
    """A changed output and the one that it is held against. `group` and `part` are those of an attack; `before`, `after` and
    `in_reference` those of an `Edit`."""

    change: str
    base: OutputKey
    changed: OutputKey
    group: str = ""
    part: str = ""
    before: str = ""
    after: str = ""
    in_reference: bool = False


@dataclass(frozen=True, slots=True)
class ChangedCase:
    """A case, what one change made of it, and the pair of both."""

    pair: Pair
    base: Case
    case: Case

    @classmethod
    def of(cls, change: str, base: Case, case: Case, **fields: Any) -> ChangedCase:
        """The pair follows from the cases, and has these further fields."""
        return cls(Pair(change, base.key[:3], case.key[:3], **fields), base, case)


@dataclass(frozen=True, slots=True)
class _Record:
    sample: Sample
    output: Output
    where: str


class ChangedCases:
    """A source of cases (see `ragpipe.engine.sources.case_sources.CaseSource`) that are made of those of a finished run. Everything
    follows from the frozen cases and the arguments alone. Raises DataError where the run's tables are missing or were changed.

    `word` says what was done to the cases, in the name of the data set. `recipe` is what the changes follow from beside the cases, for the
    digest. `make` gives the changed cases from `pool` drawn ones, in the order of the tables; None: those as they are.
    """

    linked_from: RunFolder | None = None

    def __init__(
        self,
        finished: FinishedRun,
        task: str,
        word: str,
        *,
        recipe: Sequence[Any],
        pool: int,
        make: Callable[[list[Case]], Sequence[ChangedCase]] | None = None,
    ):
        self._source, data = finished.folder, finished.manifest["data"]
        check_frozen_tables(self._source)
        self._pool_size, self._make = pool, make
        self.name = f"{data['name']}, {word}"
        self.collected_at: str | None = data.get("collected_at")
        self.digest = sha256([task, data.get("frozen") or data["tables"], *recipe, SEED])

    @cached_property
    def changed(self) -> Sequence[ChangedCase]:
        """The changed cases, made when first asked for. Raises DataError where there is none."""
        return self._make(list(self._pool())) if self._make is not None else ()

    @property
    def pairs(self) -> list[Pair]:
        """Each changed output with the one that it is held against. Raises DataError."""
        return [changed.pair for changed in self.changed]

    def tables_digest(self, identity: dict[str, Any]) -> str:
        return self.digest

    def write(self, folder: RunFolder, identity: dict[str, Any]) -> None:
        """The cases of one sample beside each other, changed ones after what they are held against."""
        cases = (
            self._pool() if self._make is None else [*(c.base for c in self.changed), *(c.case for c in self.changed)]
        )
        by_sample: dict[str, dict[CaseKey, Case]] = {}
        for case in cases:
            by_sample.setdefault(case.sample.id, {}).setdefault(case.key, case)
        where = str(self._source.outputs)
        records = (_Record(c.sample, c.output, where) for of_one in by_sample.values() for c in of_one.values())
        load_dataset(records, samples=folder.samples, outputs=folder.outputs)

    def restore(self, folder: RunFolder, fault: str) -> None:
        self.write(folder, {})

    def retry_failures(self, folder: RunFolder) -> bool:
        return False

    def adopt_judged(self, folder: RunFolder) -> dict[str, str]:
        return {}

    def check_unchanged(self) -> None:
        """Frozen tables do not change."""

    def _pool(self) -> Iterator[Case]:
        """The cases that may be drawn, in the order of the tables: where there are more, a seeded choice."""
        reader = CaseReader(self._source.samples, self._source.outputs)
        try:
            keys = [(drawn_order(key), key) for block in range(reader.blocks) for key in reader.keys(block)]
            chosen = {key for _, key in heapq.nsmallest(self._pool_size, keys)}
            for block in range(reader.blocks):
                if chosen.intersection(reader.keys(block)):
                    yield from (case for case in reader.block(block) if case.key in chosen)
        finally:
            reader.close()


def drawn_order(key: CaseKey) -> str:
    """Where a case stands in the order of the draw: it depends on nothing but its key."""
    return sha256([SEED, *key[:3]])


def is_usable(case: Case) -> bool:
    """Whether the system answered: its output has no error, and an answer with words that does not decline."""
    answer = case.answer
    has_answer = case.output.error is None and any(c.isalnum() for c in answer)
    if not has_answer or len(answer) > _LONGEST:
        return has_answer
    reading = read_refusal(answer, load_refusals("refusals.v3"))
    return reading.covered and not reading.refused


def renamed(base: Case, changed: Case, name: str) -> Case:
    """The changed case under a name of its own: the method `<method>~<name>`, and where the sample is another one the sample
    `<id>~<name>`. Recorded judgements, times and costs are the original's: they go."""
    sample, output = changed.sample, changed.output
    update: dict[str, Any] = {"recorded": {}, "timings": {}, "usage": {}, "method": f"{output.method}~{name}"}
    if sample != base.sample:
        sample = sample.model_copy(update={"id": f"{sample.id}~{name}"})
        update["sample_id"] = sample.id
    return Case(sample, output.model_copy(update=update), changed.iteration)


def known_names(names: Sequence[str] | None, known: Iterable[str], kind: str) -> None:
    """Raises ValueError for a name that is not known, and for one that comes twice."""
    if unknown := [name for name in names or () if name not in known]:
        raise ValueError(f"no such {kind}: {', '.join(unknown)}; there are {', '.join(known)}")
    if names is not None and len(set(names)) < len(names):
        raise ValueError(f"name each {kind} once; null takes all")


def open_check(
    settings_class: type[SettingsT],
    plain: Mapping[str, Any],
    origins: ConfigOrigins | None,
    task: str,
    *,
    changeable: Sequence[str] = ("judge", "embedder", "metrics", "report", "iterations"),
    needs_prompts: bool = True,
) -> FinishedRunTask[SettingsT]:
    """The settings of the section `task` and the finished run, with the user's judge over its own.

    `changeable` are the sections of the run's configuration that the user may change; `needs_prompts` refuses a run none of whose metrics
    asks a judge. Raises ConfigError and DataError.
    """
    origins, title = origins or NoOrigins(), f"task={task} is wrong; nothing was started"
    settings = task_settings(settings_class, plain, origins, title=title, section=task)
    finished = open_run(plain, origins, changeable=changeable, task=task, task_keys=(task,))
    if problem := unnamed_judge(finished, origins, without_a_call="transport=stored"):
        raise ConfigError(title, [problem])
    if needs_prompts and not judged_metrics(finished.config):
        metrics, expected = ", ".join(finished.config.metrics) or "none", "a metric that asks a judge"
        raise ConfigError(title, [Problem(origins.location("metrics"), "metrics", metrics, expected)])
    return FinishedRunTask(finished, settings)


def nothing_to(what: str, finished: FinishedRun, found: str, expected: str, fix: str) -> DataError:
    """The error for a run without a case for the check."""
    return DataError(
        f"there is nothing to {what}", [Problem(str(finished.folder.root), "outputs", found, expected, fix)]
    )


def judged_metrics(config: RunConfig) -> dict[str, Metric]:
    """The metrics with prompts: only what asks a judge can be audited or spot-checked."""
    return {name: metric for name, metric in config.metrics.items() if metric.prompts()}


def judge_cases(spec: RunSpec, finished: FinishedRun, console: Console) -> int:
    """Judge the cases of a check as a run of their own, which takes up the replies of the finished one. Returns the exit code of an
    evaluation; raises what that raises."""
    return Evaluation(spec, RejudgePolicy(finished), console).run()


def document_of_check(
    check: str, finished: FinishedRun, folder: RunFolder, settings: Mapping[str, Any], **figures: Any
) -> dict[str, Any]:
    """The document of a check: what was checked in which run by which judge, and its figures.

    Those are `changes` (what was done to how many cases), `results` (a row for each change and score: what is expected, `n` cases that
    count, of how many it was `found`, the state), `cases` (those that went otherwise than expected) and what one check has alone.
    """
    return {
        "format": FORMAT,
        "check": check,
        "source_run": finished.run_id,
        "run_id": folder.run_id,
        "judge": read_json(folder.final.metrics)["judge"]["label"],
        "iterations": len(scored_iterations(folder)),
        "settings": dict(settings),
        **figures,
    }


def write_check(
    folder: RunFolder, stem: str, document: Mapping[str, Any], title: str, sections: Sequence[Section], console: Console
) -> None:
    """Print what a check found, write its document and its page into the folder of a run (`stem` with `.json` and `.md`), and seal
    them."""
    print_report(Report("", "", "", None, (), tuple(sections)), console)
    path = folder.root / f"{stem}.json"
    paths = [path, path.with_suffix(".md")]
    with FolderLock(folder.root):
        make_folder(path.parent)
        json_unless_same(path, document)
        write_unless_same(paths[1], render_sections(title, sections))
        seal_added(folder, paths)
    for path in paths:
        console.say(f"written: {path}")


def table(
    heads: Sequence[str],
    rows: Iterable[Sequence[Cell] | TableRow],
    *,
    texts: int = 1,
    title: str = "",
    shown_in: Media = EVERYWHERE,
) -> Table:
    """A table whose first `texts` columns are words and name a row, the others figures."""
    columns = tuple(TableColumn(head, is_text=place < texts or not head) for place, head in enumerate(heads))
    made = tuple(row if isinstance(row, TableRow) else TableRow(tuple(row)) for row in rows)
    return Table(columns, made, title=title, key_columns=texts, shown_in=shown_in)


def found_of(row: Mapping[str, Any]) -> str:
    """`17 of 18`."""
    return f"{whole(row['found'])} of {whole(row['n'])}"


def rate_json(hits: Sequence[bool], clusters: Iterable[str]) -> dict[str, Any]:
    """How often something was found: `n`, `found`, `share`, the Wilson `interval` of the share, clustered, and the number of `clusters`."""
    if not hits:
        return {"n": 0, "found": 0, "share": None, "interval": None, "clusters": 0}
    rate = estimate_rate(np.array(hits, dtype=np.float64), cluster_numbers(clusters))
    figures = {"share": rate.mean, "interval": interval_json(rate.interval), "clusters": rate.clusters}
    return {"n": len(hits), "found": int(sum(hits)), **figures}


def values_by_output(folder: RunFolder, score: str) -> dict[OutputKey, list[float]]:
    """The values of a score by output, one for each iteration that gave one. Raises DataError for a table that cannot be read."""
    values: dict[OutputKey, list[float]] = {}
    columns = ("sample_id", "method", "repeat", "score_name", "value")
    for number in scored_iterations(folder):
        for batch in batches(folder.iteration(number).scores, columns, size=BATCH):
            for row in batch.filter(pc.equal(batch.column("score_name"), score)).to_pylist():
                if row["value"] is not None:
                    values.setdefault((row["sample_id"], row["method"], row["repeat"]), []).append(row["value"])
    return values


def cluster_numbers(names: Iterable[str]) -> NDArray[np.int64]:
    """A number for each name, the same for the same name: the clusters of an interval."""
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int64)


def interval_json(interval: Interval | None) -> dict[str, Any] | None:
    """An interval as the documents have it."""
    if interval is None:
        return None
    return {"level": interval.level, "low": interval.low, "high": interval.high, "too_few": interval.too_few}
