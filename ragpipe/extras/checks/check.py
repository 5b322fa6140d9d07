"""What all checks over a finished run share: their settings, the changed cases that are judged again, their values, the document and its
page."""

from __future__ import annotations

import heapq
import math
import random
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
from ragpipe.datasets.dataset import Record
from ragpipe.engine.evaluation import Evaluation
from ragpipe.engine.run_policies import RejudgePolicy
from ragpipe.engine.run_spec import RunSpec
from ragpipe.engine.runs.finished_run import FinishedRun, open_run
from ragpipe.engine.sources.case_sources import RunSource
from ragpipe.engine.task_settings import FinishedRunTask, SettingsT, task_settings, unnamed_judge
from ragpipe.extras.checks.edits import Change, Subject
from ragpipe.metrics.base import Metric
from ragpipe.patterns.refusals import load_refusals, read_refusal
from ragpipe.reports.console import Console
from ragpipe.reports.model import (
    EVERYWHERE,
    PAGES,
    TERMINAL,
    Cell,
    Media,
    Note,
    Report,
    Section,
    Table,
    TableColumn,
    TableRow,
    Verbatim,
)
from ragpipe.reports.number_format import percent_with_interval, whole
from ragpipe.reports.render.markdown_report import render_sections
from ragpipe.reports.render.terminal import print_report
from ragpipe.schema.format_version import FORMAT
from ragpipe.schema.sample import Case, CaseKey
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
_ROWS = 32_768  # read at once
_STATES = {"not_noticed": "NOT NOTICED", "biased": "BIASED"}
_LONGEST = 5_000  # characters from which an answer is no refusal


@dataclass(frozen=True, slots=True)
class Pair:
    """A changed output and the one that it is held against, and the `cases` of both. `group` and `part` are those of an attack; `before`,
    `after` and `in_reference` those of an `Edit`."""

    change: str
    base: OutputKey
    changed: OutputKey
    group: str = ""
    part: str = ""
    before: str = ""
    after: str = ""
    in_reference: bool = False
    cases: tuple[Case, ...] = ()

    @classmethod
    def of(cls, change: str, base: Case, changed: Case, **fields: Any) -> Pair:
        """The pair of two cases, with these further fields."""
        return cls(change, base.key[:3], changed.key[:3], cases=(base, changed), **fields)


class ChangedCases(RunSource):
    """The source of cases that are made of those of a finished run. Everything follows from the frozen cases and the arguments alone.
    Raises DataError where the run's tables are missing or were changed.

    `word` says what was done to the cases, in the name of the data set. `recipe` is what the changes follow from beside the cases, for the
    digest. `make` gives the pairs from `pool` drawn cases, in the order of the tables; None: those as they are. `needs` says what a
    run must have for it.
    """

    def __init__(
        self,
        finished: FinishedRun,
        task: str,
        word: str,
        *,
        recipe: Sequence[Any],
        pool: int,
        make: Callable[[list[Case]], Sequence[Pair]] | None = None,
        needs: str = "",
    ):
        super().__init__(finished.folder, finished.manifest)
        data = finished.manifest["data"]
        self.name, self.linked_from = f"{data['name']}, {word}", None
        self._pool_size, self._make, self._needs = pool, make, needs
        self._digest = sha256([task, data.get("frozen") or data["tables"], *recipe, SEED])

    @property
    def digest(self) -> str:
        return self._digest

    def tables_digest(self, identity: dict[str, Any]) -> str:
        return self._digest

    @cached_property
    def pairs(self) -> Sequence[Pair]:
        """Each changed output with the one that it is held against, made when first asked for. Raises DataError where there is none."""
        pairs = self._make(list(self._pool())) if self._make is not None else ()
        if self._make is not None and not pairs:
            found, fix = "no case to which one of the changes applies", "another run, or other changes"
            problem = Problem(str(self._source.root), "outputs", found, self._needs, fix)
            raise DataError("there is nothing to change", [problem])
        return pairs

    def write(self, folder: RunFolder, identity: dict[str, Any]) -> None:
        """The cases of one sample beside each other, changed ones after what they are held against."""
        pairs = self.pairs
        cases = [pair.cases[place] for place in (0, 1) for pair in pairs] if self._make is not None else self._pool()
        by_sample: dict[str, dict[CaseKey, Case]] = {}
        for case in cases:
            by_sample.setdefault(case.sample.id, {}).setdefault(case.key, case)
        where = str(self._source.outputs)
        records = (Record(c.sample, c.output, where) for of_one in by_sample.values() for c in of_one.values())
        load_dataset(records, samples=folder.samples, outputs=folder.outputs)

    def restore(self, folder: RunFolder, fault: str) -> None:
        self.write(folder, {})

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


def changed_case(change: Change, subject: Subject) -> Pair | None:
    """What a change makes of a case; None where it does not apply. What chance decides is the same at every start."""
    case = subject.case
    edit = change.edit(subject, random.Random(sha256([SEED, change.name, *case.key[:3]])))
    if edit is None or edit.output == case.output:
        return None
    changed = renamed(case, Case(case.sample, edit.output, case.iteration), change.name)
    said = {"before": edit.before, "after": edit.after, "in_reference": edit.in_reference}
    return Pair.of(change.name, case, changed, **said)


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
    """The settings of the section `task` and the finished run, with the user's judge over its own, and other sections that are
    `changeable`. `needs_prompts` refuses a run none of whose metrics asks a judge. Raises ConfigError and DataError."""
    origins, title = origins or NoOrigins(), f"task={task} is wrong; nothing was started"
    settings = task_settings(settings_class, plain, origins, title=title, section=task)
    finished = open_run(plain, origins, changeable=changeable, task=task, task_keys=(task,))
    if problem := unnamed_judge(finished, origins, without_a_call="transport=stored"):
        raise ConfigError(title, [problem])
    if needs_prompts and not judged_metrics(finished.config):
        metrics, expected = ", ".join(finished.config.metrics) or "none", "a metric that asks a judge"
        raise ConfigError(title, [Problem(origins.location("metrics"), "metrics", metrics, expected)])
    return FinishedRunTask(finished, settings)


def judged_metrics(config: RunConfig) -> dict[str, Metric]:
    """The metrics with prompts: only what asks a judge can be audited or spot-checked."""
    return {name: metric for name, metric in config.metrics.items() if metric.prompts()}


def judge_cases(spec: RunSpec, finished: FinishedRun, console: Console) -> int:
    """Judge cases as a run of their own, which takes up the replies of the finished one. Returns and raises what an evaluation does."""
    return Evaluation(spec, RejudgePolicy(finished), console).run()


@dataclass(frozen=True, slots=True)
class Scored:
    """The values of one score that has a range: for each output one per iteration that gave one."""

    name: str
    low: float
    high: float
    higher_is_better: bool
    values: Mapping[OutputKey, Sequence[float]]

    @property
    def span(self) -> float:
        """The width of the range."""
        return self.high - self.low

    def mean(self, output: OutputKey) -> float | None:
        """The mean over the iterations; None without a value."""
        values = self.values.get(output)
        return math.fsum(values) / len(values) if values else None

    def share(self, output: OutputKey) -> float | None:
        """The mean as a share of the range, 1 the best; None without a value."""
        if (mean := self.mean(output)) is None:
            return None
        share = (mean - self.low) / self.span
        return share if self.higher_is_better else 1 - share


def scored_values(folder: RunFolder) -> dict[str, Scored]:
    """The scores of a check's run by name, those with a range. Raises DataError for a table that cannot be read."""
    values: dict[str, dict[OutputKey, list[float]]] = {}
    columns = ("sample_id", "method", "repeat", "score_name", "value")
    for number in scored_iterations(folder):
        for batch in batches(folder.iteration(number).scores, columns, size=_ROWS):
            for row in batch.filter(pc.is_valid(batch.column("value"))).to_pylist():
                key = (row["sample_id"], row["method"], row["repeat"])
                values.setdefault(row["score_name"], {}).setdefault(key, []).append(row["value"])
    return {
        name: Scored(name, said["low"], said["high"], said["higher_is_better"], values.get(name, {}))
        for name, said in read_json(folder.final.metrics)["declared"].items()
        if said["low"] is not None and said["high"] is not None
    }


def inputs_of(folder: RunFolder, metric: str) -> dict[OutputKey, frozenset[str]]:
    """The payloads of the questions that a metric asked about each output."""
    payloads: dict[OutputKey, set[str]] = {}
    columns = ("sample_id", "method", "repeat", "metric", "payload_id")
    for number in scored_iterations(folder):
        for batch in batches(folder.iteration(number).judge_inputs, columns, size=_ROWS):
            for row in batch.filter(pc.equal(batch.column("metric"), metric)).to_pylist():
                payloads.setdefault((row["sample_id"], row["method"], row["repeat"]), set()).add(row["payload_id"])
    return {key: frozenset(ids) for key, ids in payloads.items()}


def write_check(
    name: str,
    title: str,
    finished: FinishedRun,
    folder: RunFolder,
    settings: Mapping[str, Any],
    sections: Callable[[Mapping[str, Any]], Sequence[Section]],
    console: Console,
    **figures: Any,
) -> None:
    """Print what a check found in its run `folder`, and write and seal its document and its page: of a self-test there, of others beside
    the calibration of the finished run.

    The document says what was checked in which run by which judge. Its figures are `changes` (what was done to how many cases), `results`
    (a row for each change and score: what is expected, `n` cases that count, of how many it was `found`, the state), `cases` (those that
    went otherwise than expected) and what one check has alone.
    """
    document = {
        "format": FORMAT,
        "check": name,
        "source_run": finished.run_id,
        "run_id": folder.run_id,
        "judge": read_json(folder.final.metrics)["judge"]["label"],
        "iterations": len(scored_iterations(folder)),
        "settings": dict(settings),
        **figures,
    }
    page, is_own = sections(document), name == "selftest"
    print_report(Report("", "", "", None, (), tuple(page)), console)
    home, stem = (folder, name) if is_own else (finished.folder, f"calibration/{name}.{folder.run_id}")
    paths = [home.root / f"{stem}.json", home.root / f"{stem}.md"]
    with FolderLock(home.root):
        make_folder(paths[0].parent)
        json_unless_same(paths[0], document)
        write_unless_same(paths[1], render_sections(title, page))
        seal_added(home, paths)
    for path in paths:
        console.say(f"written: {path}")


def table(
    heads: Sequence[str], rows: Iterable[Sequence[Cell] | TableRow], *, texts: int = 1, shown_in: Media = EVERYWHERE
) -> Table:
    """A table whose first `texts` columns are words and name a row, the others figures."""
    columns = tuple(TableColumn(head, is_text=place < texts or not head) for place, head in enumerate(heads))
    made = tuple(row if isinstance(row, TableRow) else TableRow(tuple(row)) for row in rows)
    return Table(columns, made, key_columns=texts, shown_in=shown_in)


def found_of(row: Mapping[str, Any]) -> str:
    """`17 of 18`."""
    return f"{whole(row['found'])} of {whole(row['n'])}"


def result_sections(document: Mapping[str, Any], said: str, *notes: Note) -> list[Section]:
    """What every check shows: on the page what was done, and a row for each change and score, with `said` on what is counted as found. A
    terminal leaves out computed scores that did on all cases what they must."""
    changes = {row["name"]: (row["what"], whole(row["n"]) if "n" in row else "") for row in document.get("changes", ())}
    order = {name: place for place, name in enumerate(changes)}
    rows = sorted(
        (*document.get("any_score", ()), *document["results"]), key=lambda row: order.get(str(row.get("change")), -1)
    )
    done = [(Verbatim(name), *said_of) for name, said_of in changes.items()]
    plain = [row.get("score") in document.get("computed_scores", ()) and row["found"] == row["n"] for row in rows]
    cells = [
        TableRow(_result_cells(row), shown_in=PAGES if is_plain else EVERYWHERE)
        for row, is_plain in zip(rows, plain, strict=True)
    ]
    heads = ("change", "score", "expected", "found", "% [95%]", "shift", "")
    left_out = (
        (Note("computed scores that did what they must are not listed here", shown_in=TERMINAL),) if any(plain) else ()
    )
    made = Section("changes", "Changes", (table(("change", "what is done", "cases"), done, texts=2, shown_in=PAGES),))
    return [
        *([made] if done else []),
        Section("results", "Results", (table(heads, cells, texts=3), Note(said), *left_out, *notes)),
    ]


def _result_cells(row: Mapping[str, Any]) -> tuple[Cell, ...]:
    """Shifts are in percent of the range, above 0 where the changed case scores better; between two judges in the score's own units."""
    interval, shift = row["interval"], row.get("mean_change", row.get("shift"))
    moved = f"{row['difference']:+.2f}" if "difference" in row else "-" if shift is None else f"{100 * shift:+.1f}%"
    if "shift" in row and interval:
        moved += f" [{100 * interval['low']:+.1f}, {100 * interval['high']:+.1f}]"
    left_out = sum(row.get(name, 0) for name in ("at_end", "no_value", "one_sided"))
    words = [
        _STATES.get(str(row.get("state")), row.get("state")),
        "" if row.get("kappa") is None else f"kappa {row['kappa']:.2f}",
        f"{left_out:,} left out" if left_out else "",
        "few questions" if interval and interval["too_few"] else "",
    ]
    names = (Verbatim(row.get("change", "as it was")), Verbatim(row["score"]) if "score" in row else "any score")
    rate = percent_with_interval(row) if "share" in row else "-"
    return (*names, row.get("expected", "worse"), found_of(row), rate, moved, ", ".join(filter(None, words)))


def rate_json(hits: Sequence[bool], clusters: Iterable[str]) -> dict[str, Any]:
    """How often something was found: `n`, `found`, `share`, the Wilson `interval` of the share, clustered, and the number of `clusters`."""
    if not hits:
        return {"n": 0, "found": 0, "share": None, "interval": None, "clusters": 0}
    rate = estimate_rate(np.array(hits, dtype=np.float64), cluster_numbers(clusters))
    figures = {"share": rate.mean, "interval": interval_json(rate.interval), "clusters": rate.clusters}
    return {"n": len(hits), "found": int(sum(hits)), **figures}


def cluster_numbers(names: Iterable[str]) -> NDArray[np.int64]:
    """A number for each name, the same for the same name: the clusters of an interval."""
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int64)


def interval_json(interval: Interval | None) -> dict[str, Any] | None:
    """An interval as the documents have it."""
    return None if interval is None else {name: getattr(interval, name) for name in ("level", "low", "high", "too_few")}
