"""One side of a comparison: the scored cases of a run, or those of one of its methods."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic_core import from_json

from ragpipe.comparison.headline import headline_scores
from ragpipe.comparison.run_differences import Alarm, ChangedKey, known_alarms
from ragpipe.comparison.settings import SMALLEST_RISE
from ragpipe.core.errors import DataError, Problem
from ragpipe.core.sample import OUTPUT_KEY, Sample, Turn, answer_digest
from ragpipe.core.score import NO_FACTUAL_CLAIMS
from ragpipe.core.text import on_one_line
from ragpipe.score.iterations import cases_of, members, open_records, repeats
from ragpipe.score.normalisation import OVERALL
from ragpipe.score.settings import ScoringSettings
from ragpipe.score.system_usage import suite_seconds
from ragpipe.stats.difference_verdict import DifferenceVerdict, DropVerdict
from ragpipe.stats.differences import FEWEST_CHANGED, paired_difference
from ragpipe.store.run_folder import RunFolder
from ragpipe.store.run_tables import batches, read_columns, read_json, schema_of
from ragpipe.store.table_rows import output_columns, output_from

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
Flags = NDArray[np.bool_]

TITLE = "the runs cannot be compared"


@dataclass(frozen=True)
class Side:
    """A run, or one method of it, with the open tables of its scored iterations.

    `cases` are the keys of its cases, `rows` their places among the `n_rows` of `records.parquet`. A case's value is its
    mean over the iterations.
    """

    folder: RunFolder
    method: str | None
    manifest: Mapping[str, Any]
    metrics: Mapping[str, Any]
    tables: Mapping[Path, pq.ParquetFile]
    cases: pa.Table
    rows: Whole
    n_rows: int

    @property
    def run_id(self) -> str:
        """The id of the run, whatever its folder is called."""
        return str(self.manifest["run_id"])

    @property
    def declared(self) -> Mapping[str, Mapping[str, Any]]:
        """Scale, direction and threshold of each score."""
        declared: Mapping[str, Mapping[str, Any]] = self.metrics["declared"]
        return declared

    @cached_property
    def methods(self) -> list[str]:
        """The methods of its cases, in the order of the data."""
        names: list[str] = pc.unique(self.cases["method"]).to_pylist()
        return names

    def values(self, name: str) -> tuple[Floats, Floats]:
        """Value and share of passed verdicts of each case, NaN where there is none; both over all iterations."""
        score = repeats(self.tables, name, self.n_rows)
        return score.means[self.rows], score.rates[self.rows]

    def lost(self, name: str) -> dict[str, Flags]:
        """By cause its cases whose judgement of a score was due and did not come out."""
        return {cause: flags[self.rows] for cause, flags in lost_values(self.records, name).items()}

    def groups(self, fields: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Whole]]:
        """The numbers of its cases in each group of each field, as `metrics.json` names them."""
        places = np.full(self.n_rows, -1, dtype=np.int64)
        places[self.rows] = np.arange(len(self.rows))
        named = members(self.records, fields)
        return {
            name: {label: places[rows][places[rows] >= 0] for label, rows in groups.items()} for name, groups in named.items()
        }

    def silent(self, name: str) -> Flags:
        """Its cases whose value says no more than that the answer states nothing; of a composite, where a part says so."""
        return silent_values(self.records, self.metrics, name)[self.rows]

    def headline(self, base: Side, names: Collection[str]) -> list[str]:
        """Those of `names` that are decided together where it is compared with this base: the headline scores."""
        return headline_scores(base.metrics, self.metrics, names)

    @cached_property
    def judged(self) -> set[str]:
        """The scores whose metric asks a judge."""
        metrics: Mapping[str, Any] = self.manifest["identity"]["metrics"]
        return {name for name, score in self.declared.items() if metrics.get(score["metric"], {}).get("prompts")}

    @cached_property
    def answers(self) -> NDArray[np.str_]:
        """The answer digest of each of its cases."""
        return np.array(list(answer_digests(self.folder)))[self.rows]

    @cached_property
    def judge_alarms(self) -> list[Alarm]:
        """When its judge drifted, as far as its call store knows."""
        return known_alarms(self.folder, self.manifest)

    @property
    def records(self) -> Path:
        """`records.parquet` of the first iteration: what does not change from one to the next."""
        return next(iter(self.tables))

    def document(self) -> dict[str, Any]:
        """What `comparison.json` says of a side."""
        return {
            "run_id": self.run_id,
            "name": str(self.manifest["name"]),
            "method": self.method or (self.methods[0] if len(self.methods) == 1 else None),
            "created_at": self.manifest["created_at"],
            "duration_s": self.manifest.get("duration_s"),
            "suite_s": suite_seconds(
                (self.metrics["by"].get("method", {}).get(self.method) or self.metrics["overall"])["operations"]
            ),
            "folder": self.folder.root.name,
            "iterations": list(self.metrics["iterations"]),
            "n_cases": len(self.rows),
            "data": self.manifest["data"]["name"],
            "judge": self.metrics["judge"],
            "signature": self.metrics["signature"],
        }


MODE: Mapping[str, Any] = {
    "low": 0.0, "high": 1.0, "higher_is_better": False, "binary": True, "metric": None, "smallest_effect": SMALLEST_RISE
}  # fmt: skip
"""What is declared of a failure mode where it is compared as a score: 1 for a case that has it, 0 for one that has not."""


@dataclass(frozen=True)
class Modes(Side):
    """The failure modes of the side `scores`, compared like scores: a value is the share of the iterations with the mode,
    none where a score that decides it failed. A case without the mode passes."""

    scores: Side

    @classmethod
    def of(cls, side: Side) -> Modes:
        """The failure modes that a side can decide."""
        declared = dict.fromkeys(side.metrics["overall"]["failure_modes"], MODE)
        metrics = {**side.metrics, "declared": declared, "composite_parts": {}}
        return cls(side.folder, side.method, side.manifest, metrics, side.tables, side.cases, side.rows, side.n_rows, side)

    def values(self, name: str) -> tuple[Floats, Floats]:
        """Of each case the value of a mode, and 1 less it."""
        values = self._values[name][self.rows]
        return values, 1 - values

    def lost(self, name: str) -> dict[str, Flags]:
        """By cause its cases in which a score that decides a mode failed."""
        causes = {cause: np.zeros(len(self.rows), dtype=np.bool_) for cause in LOST_CAUSES}
        for score in self.behind[name]:
            for cause, flags in self.scores.lost(score).items():
                causes[cause] |= flags
        return causes

    def silent(self, name: str) -> Flags:
        """None of its cases: a mode says of an answer that states nothing what it says of any other."""
        return np.zeros(len(self.rows), dtype=np.bool_)

    def headline(self, base: Side, names: Collection[str]) -> list[str]:
        """All of them."""
        return list(names)

    @cached_property
    def behind(self) -> dict[str, list[str]]:
        """By mode the scores that decide it."""
        settings = ScoringSettings.model_validate(self.manifest["identity"]["scoring"])
        return {mode: settings.scores_behind(mode, self.scores.declared) for mode in self.declared}

    @cached_property
    def judged(self) -> set[str]:
        """The modes that a score of a judge decides, or a composite."""
        by_judge = {*self.scores.judged, *self.scores.metrics["composite_parts"]}
        return {mode for mode, scores in self.behind.items() if by_judge.intersection(scores)}

    @property
    def answers(self) -> NDArray[np.str_]:
        """The answer digest of each of its cases."""
        return self.scores.answers

    def rule(self, name: str) -> dict[str, Any]:
        """The parts of the scoring that decide a mode."""
        return mode_rule(self.manifest["identity"]["scoring"], name, self.behind[name])

    @cached_property
    def _values(self) -> dict[str, Floats]:
        return mode_values(list(self.tables), self.behind)


def mode_rule(scoring: Mapping[str, Any], mode: str, behind: Sequence[str]) -> dict[str, Any]:
    """The parts of a scoring (`ScoringSettings.identity`) that decide a failure mode: its rule, and what the scores `behind` it pass by."""
    parts = ("thresholds", "passes_with", "composites")
    of_scores = {part: {name: scoring.get(part, {}).get(name) for name in behind} for part in parts}
    return {"failure_modes": {mode: scoring.get("failure_modes", {}).get(mode)}, **of_scores}


def mode_values(records: Sequence[Path], behind: Mapping[str, Sequence[str]]) -> dict[str, Floats]:
    """The values of all cases of some iterations, by failure mode, as `Modes` has them; `behind` are the scores that decide each."""
    found: dict[str, list[Floats]] = {mode: [] for mode in behind}
    for path in records:
        lists = pc.cast(read_columns(path, ["failure_modes"])["failure_modes"], pa.list_(pa.string())).combine_chunks()
        cases, names = pc.list_parent_indices(lists).to_numpy(), pc.list_flatten(lists)
        scores = {score for listed in behind.values() for score in listed}
        lost = {score: np.any(list(lost_values(path, score).values()), axis=0) for score in scores}
        for mode, of_iteration in found.items():
            values = np.zeros(len(lists))
            for score in behind[mode]:
                values[lost[score]] = np.nan
            values[cases[pc.equal(names, mode).to_numpy(zero_copy_only=False)]] = 1.0
            of_iteration.append(values)
    return {mode: _known_mean(np.stack(values)) for mode, values in found.items()}


def _known_mean(values: Floats) -> Floats:
    """The mean of each column over its rows with a value; NaN where there is none."""
    known = np.isfinite(values).sum(axis=0)
    return np.where(known > 0, np.nansum(values, axis=0) / np.maximum(known, 1), np.nan)


LOST_CAUSES = ("system error", "judge error", "not recorded")


def lost_values(records: Path, name: str) -> dict[str, Flags]:
    """By cause (`LOST_CAUSES`) the cases of an iteration whose judgement of a score was due and did not come out."""
    overall = name == OVERALL.name
    status, reason = ("overall_reason", "overall_reason") if overall else (f"{name}.status", f"{name}.reason")
    table = read_columns(records, [*dict.fromkeys((status, reason)), "system_error"])
    causes = (
        pc.is_valid(table["system_error"]),
        pc.starts_with(table[status], "part_error" if overall else "error"),
        pc.starts_with(table[reason], "not_recorded"),
    )
    flags = {cause: pc.fill_null(found, False).combine_chunks() for cause, found in zip(LOST_CAUSES, causes, strict=True)}
    return {cause: found.to_numpy(zero_copy_only=False) for cause, found in flags.items()}


def silent_values(records: Path, metrics: Mapping[str, Any], name: str) -> Flags:
    """The cases of an iteration in which a score, or one of its parts, has a value for an answer that states nothing."""
    parts = metrics["composite_parts"].get(name, {"measured": [] if name == OVERALL.name else [name]})["measured"]
    columns = [[f"{part}.reason", f"{part}.status"] for part in parts]
    table = read_columns(records, ["sample_id", *(column for pair in columns for column in pair)])
    silent = np.zeros(table.num_rows, dtype=np.bool_)
    for reason, status in columns:
        found = pc.and_(pc.equal(table[reason], NO_FACTUAL_CLAIMS), pc.equal(table[status], "ok"))
        silent |= pc.fill_null(found, False).combine_chunks().to_numpy(zero_copy_only=False)
    return silent


@contextmanager
def opened_side(folder: RunFolder, manifest: Mapping[str, Any], method: str | None = None) -> Iterator[Side]:
    """Open the tables of a run's scored iterations. `method`: the cases of this method alone.

    Raises DataError for a run that is not scored to its end, for tables that do not fit together, and for a method that
    the run does not have.
    """
    if not folder.final.metrics.is_file():
        raise _refused(folder, "not scored to its end", "a finished run", "start its command again")
    metrics = read_json(folder.final.metrics)
    records = [folder.iteration(number).records for number in metrics["iterations"]]
    cases = cases_of(records).names
    if method is not None and method not in (methods := pc.unique(cases["method"]).to_pylist()):
        names = ", ".join(sorted(methods))
        raise _refused(folder, f"no method {method!r}", f"one of {names}", "name one of these methods")
    with open_records(records, list(metrics["declared"])) as tables:
        yield side_of(folder, method, manifest, metrics, tables, cases)


def side_of(
    folder: RunFolder,
    method: str | None,
    manifest: Mapping[str, Any],
    metrics: Mapping[str, Any],
    tables: Mapping[Path, pq.ParquetFile],
    cases: pa.Table,
) -> Side:
    """A side of open tables, which hold `cases`; `method` as in `opened_side`."""
    rows = np.arange(len(cases)) if method is None else np.flatnonzero(pc.equal(cases["method"], method).to_numpy())
    table = cases.select(list(OUTPUT_KEY)).take(pa.array(rows)).combine_chunks()
    return Side(folder, method, manifest, metrics, tables, table, rows.astype(np.int64), len(cases))


def _refused(folder: RunFolder, actual: str, expected: str, fix: str) -> DataError:
    return DataError(TITLE, [Problem(str(folder.root), "run", actual, expected, fix)])


@dataclass(frozen=True)
class Pairs:
    """The cases that both sides have, in the order of the base.

    `base` and `candidate` are their row numbers, `cases` their keys as the candidate names them, `questions` the number of
    each case's question: methods and repeats of one question are not independent. `only_base` and `only_candidate` count
    the cases without a partner.
    """

    base: Whole
    candidate: Whole
    cases: pa.Table
    questions: Whole
    only_base: int
    only_candidate: int

    def __len__(self) -> int:
        return len(self.base)


def paired_cases(base: pa.Table, candidate: pa.Table) -> Pairs:
    """Pair the cases of two tables with the columns `sample_id`, `method` and `repeat`; with an `iteration` beside them they are
    judgements, and pairs are of the same one.

    Where each side has one method only, cases are paired by sample and repeat although the methods' names differ.
    """
    names = [name for name in (*OUTPUT_KEY, "iteration") if name in base.column_names]
    keys = [name for name in names if name != "method" or not one_method_each(base, candidate)]
    of_base, of_candidate = _key_codes(base, candidate, keys)
    _, at_base, at_candidate = np.intersect1d(of_base, of_candidate, return_indices=True)
    order = np.argsort(at_base, kind="stable")
    at_base, at_candidate = at_base[order].astype(np.int64), at_candidate[order].astype(np.int64)
    cases = candidate.select(names).take(pa.array(at_candidate)).combine_chunks()
    alone = len(base) - len(at_base), len(candidate) - len(at_base)
    return Pairs(at_base, at_candidate, cases, question_numbers(cases), *alone)


def question_numbers(cases: pa.Table) -> Whole:
    """The number of the question of each case, from 0."""
    codes = cases["sample_id"].combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    return np.asarray(codes, np.int64)


def one_method_each(base: pa.Table, candidate: pa.Table) -> bool:
    """Whether cases are paired whatever their methods are called: each side has one."""
    return all(pc.count_distinct(table["method"]).as_py() <= 1 for table in (base, candidate))


def _key_codes(base: pa.Table, candidate: pa.Table, names: list[str]) -> tuple[Whole, Whole]:
    """One number per case of each table; equal numbers are equal keys."""
    codes = np.zeros(len(base) + len(candidate), dtype=np.int64)
    for name in names:
        column = pa.chunked_array([*base[name].chunks, *candidate[name].chunks], type=base.schema.field(name).type)
        encoded = column.combine_chunks().dictionary_encode()
        codes = codes * max(1, len(encoded.dictionary)) + encoded.indices.to_numpy(zero_copy_only=False)
    return codes[: len(base)], codes[len(base) :]


_ID = 60


def data_differences(base: Side, candidate: Side) -> list[ChangedKey]:
    """What differs between the samples of two runs: those in one run only, and the columns that a shared one has otherwise.

    Answers are no data: what the systems gave is compared, never refused.
    """
    paths = base.folder.samples, candidate.folder.samples
    frozen = [side.manifest["data"].get("frozen", {}).get("samples.parquet") for side in (base, candidate)]
    if base.folder == candidate.folder or (frozen[0] and frozen[0] == frozen[1]):
        return []
    ids = [read_columns(path, ["id"])["id"].combine_chunks() for path in paths]
    at_candidate = pc.index_in(ids[0], value_set=ids[1])
    is_shared = at_candidate.is_valid().to_numpy(zero_copy_only=False)
    places = np.flatnonzero(is_shared), at_candidate.drop_null().to_numpy(zero_copy_only=False).astype(np.int64)
    shared = ids[0].take(pa.array(places[0]))
    alone = len(ids[0]) - len(shared), len(ids[1]) - len(shared)
    texts = f"{alone[0]:,} in the base only", f"{alone[1]:,} in the candidate only"
    differences = [ChangedKey("data", "samples", *texts)] if any(alone) else []
    return [*differences, *_changed_columns(*paths, *places, shared)]


def _changed_columns(
    old_path: Path, new_path: Path, old_places: Whole, new_places: Whole, ids: pa.Array
) -> Iterator[ChangedKey]:
    """A difference per column that some shared samples have otherwise, one column in memory at a time."""
    names = [set(schema_of(path).names) - {"id"} for path in (old_path, new_path)]
    for name in sorted(names[0] ^ names[1]):
        yield ChangedKey("data", name, *("a column" if name in side else "(absent)" for side in names))
    for name in sorted(names[0] & names[1]):
        old = read_columns(old_path, [name])[name].combine_chunks().take(pa.array(old_places))
        new = read_columns(new_path, [name])[name].combine_chunks().take(pa.array(new_places))
        if not old.equals(new):
            rows = [place for place, pair in enumerate(zip(old, new, strict=True)) if pair[0] != pair[1]]
            text = f"{len(rows):,} of {len(ids):,} shared samples, first {on_one_line(ids[rows[0]].as_py(), _ID)}"
            yield ChangedKey("data", name, text, "another value")


_DIGESTED = ("sample_row", "method", "answer", "chunks")


def answer_digests(folder: RunFolder) -> Iterator[str]:
    """The answer digests of all outputs of a run, in the order of the data."""
    columns = read_columns(folder.samples, ["id", "question", "history"])
    texts = zip(*(columns[name].to_pylist() for name in columns.column_names), strict=True)
    samples = [
        Sample(id=name, question=question, history=[Turn(**turn) for turn in from_json(history or "[]")])
        for name, question, history in texts
    ]
    for batch in batches(folder.outputs, output_columns(folder.outputs, _DIGESTED), size=2048):
        for row in batch.to_pylist():
            sample = samples[row["sample_row"]]
            yield answer_digest(sample, output_from({"sample_id": sample.id, **row}))


class EqualAnswers:
    """The pairs of two runs that were judged alike, and which of them have the same question, answer and chunks."""

    def __init__(self, base: Side, candidate: Side, pairs: Pairs):
        self._sides = base, candidate
        self._pairs = pairs

    def of(self, name: str) -> Flags | None:
        """The pairs with the same answer in which a judge alone can have changed a score; None for one that no judge decides.

        Of a composite these are the pairs whose other parts, those that no judge decides, are equal too. It is none where the two
        are weighted otherwise, and for a failure mode where the two have another rule.
        """
        base, candidate = self._sides
        if base.folder == candidate.folder:
            return None
        if isinstance(base, Modes) and isinstance(candidate, Modes) and base.rule(name) != candidate.rule(name):
            return None
        if name in candidate.judged:
            return self._same
        parts = [side.metrics["composite_parts"].get(name, {}).get("measured", []) for side in self._sides]
        weights = [[side.metrics["scoring"].get(key) for key in ("weights", "composites")] for side in self._sides]
        if not candidate.judged.intersection(parts[0]) or parts[0] != parts[1] or weights[0] != weights[1]:
            return None
        same = self._same.copy()
        for part in parts[0]:
            if part not in candidate.judged:
                before, after = base.values(part)[0][self._pairs.base], candidate.values(part)[0][self._pairs.candidate]
                same &= (before == after) | (np.isnan(before) & np.isnan(after))
        return same

    @cached_property
    def _same(self) -> Flags:
        base, candidate = self._sides
        return np.array(base.answers[self._pairs.base] == candidate.answers[self._pairs.candidate], dtype=np.bool_)


V = TypeVar("V", DifferenceVerdict, DropVerdict)


def of_the_system(
    decide: Callable[[Flags, Floats], V],
    base: Floats,
    candidate: Floats,
    questions: NDArray[np.int64],
    same: Flags | None,
    silent: tuple[Flags, Flags] | None,
    level: float,
) -> tuple[V, V, str | None]:
    """The verdict on all cases, the one to go by, and why they differ, or why there is none to go by.

    `judge_moved`: equal answers got other values, by more than noise, or the verdict does not hold without these. `states_nothing`:
    answers of one side alone state nothing, and the cases in which both state something decide otherwise, or there are none.

    Args:
        decide: the verdict on some of the cases, with these values of the candidate.
        base, candidate, questions: of the cases with a value on both sides.
        same: the cases with the same answer, which a judge alone can have given another value.
        silent: the cases whose answer states nothing, on each side.
        level: of the intervals.
    """
    everything = np.ones(len(base), dtype=np.bool_)
    verdict = decide(everything, candidate)
    if same is not None and np.any(base[same] != candidate[same]):
        paired = paired_difference(base[same], candidate[same], questions[same], level=level)
        if paired.changed >= FEWEST_CHANGED and paired.p_value is not None and paired.p_value <= 1 - level:
            return verdict, verdict, "judge_moved"
        own = decide(everything, np.where(same, base, candidate))
        if verdict.state != "inconclusive" and own.state != verdict.state:
            return verdict, verdict, "judge_moved"
    if silent is None or np.array_equal(*silent):
        return verdict, verdict, None
    stating = ~silent[0] & ~silent[1]
    narrowed = decide(stating, candidate) if np.any(stating) else verdict
    return verdict, narrowed, None if np.any(stating) and narrowed.state == verdict.state else "states_nothing"
