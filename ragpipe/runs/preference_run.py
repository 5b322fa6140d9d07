"""The preference run of a comparison: pairs of answers of two sides are the cases, and one metric asks which is better."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import yaml

from ragpipe.comparison.preference import pair_name
from ragpipe.comparison.settings import CompareSettings
from ragpipe.comparison.side import paired_cases
from ragpipe.core.digest import sha256
from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.registry import option_files
from ragpipe.core.sample import OUTPUT_KEY, Case, Chunk, PairedOutput
from ragpipe.core.settings import ConfigOrigins
from ragpipe.data.dataset import Record
from ragpipe.judge.rules.settings import RulesSettings
from ragpipe.report.console import Console
from ragpipe.runs.case_sources import CaseSource
from ragpipe.runs.evaluation import Evaluation
from ragpipe.runs.finished_run import open_run, read_config, unnamed_judge
from ragpipe.runs.load_dataset import load_dataset
from ragpipe.runs.manifest import checked_manifest
from ragpipe.runs.measured_cases import CaseReader
from ragpipe.runs.run_list import Methods, paired_answers
from ragpipe.runs.spec import EvaluatePolicy, RunSpec
from ragpipe.store.run_folder import RunFolder
from ragpipe.store.run_tables import read_columns
from ragpipe.store.table_rows import PAIRS

METRIC = "preference"
_TITLE = "nobody can be asked for a preference; nothing was started"
_CHANGEABLE = ("judge", "jury", "metrics.preference", "metrics", "scoring", "iterations", "report")
_OWN = ("compare", "base", "candidate")
_VERSION = 1  # of how pairs are made


class PairSource(CaseSource):
    """The cases that two runs share, each the candidate's output beside the base's answer and with the contexts of both; between the
    `methods` of one run (then `base` is `candidate`) those of every two of them, named `b vs a`.

    `of` are the methods of base and candidate whose cases are paired, None for all. `pair` names these and the frozen tables.
    Where one gave an error, so has the pair. Raises DataError for tables that cannot be read.
    """

    def __init__(self, base: RunFolder, candidate: RunFolder, of: Sequence[Methods]):
        self._folders, self._of = (base, candidate), of
        self._same_run = base.root == candidate.root
        names = dict.fromkeys(str(checked_manifest(folder)["name"]) for folder in self._folders)
        self.name = f"pairs of {' and '.join(names)}"
        self.pair = paired_answers(base, candidate, of)

    @property
    def digest(self) -> str:
        """Of both sides' frozen tables and of what is paired."""
        return sha256([METRIC, _VERSION, self.pair, [list(methods) for methods in self._of]])

    def tables_digest(self, identity: dict[str, Any]) -> str:
        return self.digest

    def write(self, folder: RunFolder, identity: dict[str, Any]) -> None:
        records = (record for methods in self._of for record in self._records(*methods))
        load_dataset(records, samples=folder.samples, outputs=folder.outputs, schema=PAIRS)

    def _records(self, base_method: str | None, candidate_method: str | None) -> Iterator[Record]:
        base, candidate = self._folders
        (at_base, of_base), (at_candidate, of_candidate) = _chosen(base, base_method), _chosen(candidate, candidate_method)
        pairs = paired_cases(of_base, of_candidate)
        name = pair_name(base_method, candidate_method) if self._same_run else None
        with (
            closing(CaseReader(base.samples, base.outputs)) as one,
            closing(CaseReader(candidate.samples, candidate.outputs)) as other,
        ):
            for row, of_row in zip(at_base[pairs.base].tolist(), at_candidate[pairs.candidate].tolist(), strict=True):
                case = other.case_at(of_row)
                yield Record(case.sample, paired_output(one.case_at(row), case, name), str(candidate.outputs))


def _chosen(folder: RunFolder, method: str | None) -> tuple[np.ndarray[Any, np.dtype[np.int64]], pa.Table]:
    """The rows of the outputs of a method, and their keys."""
    keys = read_columns(folder.outputs, OUTPUT_KEY)
    rows = np.arange(len(keys)) if method is None else np.flatnonzero(pc.equal(keys["method"], method).to_numpy())
    return rows.astype(np.int64), keys.take(pa.array(rows)).combine_chunks()


def paired_output(base: Case, candidate: Case, method: str | None = None) -> PairedOutput:
    """The pair of two cases of a sample. `method` is its name; None for the candidate's."""
    output, other = candidate.output, base.output
    error = output.error or (None if other.error is None else f"the base: {other.error}")
    return PairedOutput(
        sample_id=output.sample_id,
        method=method or output.method,
        repeat=output.repeat,
        answer=output.answer,
        chunks=None if output.chunks is None and other.chunks is None else _both(base.contexts, candidate.contexts),
        version=output.version,
        error=error,
        retrieves=output.retrieves or other.retrieves,
        other_answer=other.answer,
    )


def _both(base: Sequence[Chunk], candidate: Sequence[Chunk]) -> list[Chunk]:
    """The chunks of both, each text once, by rank; which side they are from decides nothing."""
    by_text: dict[str, Chunk] = {}
    for chunk in sorted((*base, *candidate), key=lambda chunk: (chunk.rank, chunk.text)):
        by_text.setdefault(chunk.text or f"id {chunk.id}", chunk)
    chunks = by_text.values()
    return [
        chunk.model_copy(update={"rank": rank, "id": f"{rank}:{chunk.id}", "score": None})
        for rank, chunk in enumerate(chunks, 1)
    ]


@dataclass(frozen=True)
class _Origins:
    """The places of settings as the user's, and further keys that count as chosen."""

    origins: ConfigOrigins
    chosen: tuple[str, ...]

    def location(self, key: str) -> str:
        return self.origins.location(key)

    def typed_text(self, key: str) -> str | None:
        return self.origins.typed_text(key)


def open_preference(
    plain: Mapping[str, Any], origins: ConfigOrigins, base: RunFolder, candidate: RunFolder, settings: CompareSettings
) -> RunSpec:
    """The preference run of two runs, or of the methods of one, by the user's judge: its configuration is the candidate's with the
    metric `preference` alone. Raises ConfigError and DataError."""
    shipped = yaml.safe_load(option_files("metrics")[METRIC].read_text(encoding="utf-8"))[METRIC]
    given = plain.get("metrics") or {}
    section = {**shipped, **(given.get(METRIC) or {} if isinstance(given, Mapping) else {})}
    slices = (read_config(candidate).get("scoring") or {}).get("slices", [])
    composed = {
        **plain,
        "run": str(candidate.root.absolute()),
        "metrics": {METRIC: section},
        "scoring": {**(plain.get("scoring") or {}), "slices": slices, "gates": {}},
    }
    chosen = (*getattr(origins, "chosen", ()), "metrics", "scoring", "iterations")
    finished = open_run(composed, _Origins(origins, chosen), changeable=_CHANGEABLE, task="compare", task_keys=_OWN)
    is_named = any(key.partition(".")[0] == "jury" for key in finished.overrides)
    problem = None if is_named else unnamed_judge(finished, origins, without_a_call="transport=stored")
    if isinstance(finished.config.judge, RulesSettings):
        found, expected = "the rules judge, which cannot say which of two answers is better", "a judge that reads them"
        problem = Problem(origins.location("judge"), "judge", found, expected, "judge=llm judge.model=...")
    if problem is not None:
        raise ConfigError(_TITLE, [problem])
    return RunSpec.of_changed_cases(finished, PairSource(base, candidate, _paired_methods(candidate, settings)))


def _paired_methods(folder: RunFolder, settings: CompareSettings) -> list[Methods]:
    """Which methods are paired: base and candidates, or every two methods of the run in `folder`."""
    if settings.kind == "runs":
        return [(settings.base_method, None)]
    methods = pc.unique(read_columns(folder.outputs, ["method"])["method"]).to_pylist()
    base = settings.base_method or methods[0]
    others = [name for name in methods if name != base]
    return list(combinations((base, *others), 2))


def ask_for_preference(spec: RunSpec, console: Console) -> int:
    """Judge the pairs as a run of their own. Returns and raises what an evaluation does."""
    console.say(f"preference: {spec.source.name}, asked in both orders")
    return Evaluation(spec, EvaluatePolicy(), console).run()
