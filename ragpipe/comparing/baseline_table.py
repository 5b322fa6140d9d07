"""`baseline.parquet`: what the gates of a run need of the runs that they hold it against, kept in the run's own folder.

One row per baseline, shared case and score. What the baseline was judged by, and how many of its cases the run left out, stands in
the table's metadata, so that the folder alone says whether the two may be compared.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ragpipe.comparing.judge_drift import TIMES
from ragpipe.comparing.pairing import answer_digests, one_method_each, paired_cases
from ragpipe.comparing.side import silent_values
from ragpipe.core.digest import canonical_json, sha256
from ragpipe.core.errors import DataError, Problem
from ragpipe.schema.sample import OUTPUT_KEY
from ragpipe.schema.table_schemas import SAMPLES
from ragpipe.scoring.composites import OVERALL
from ragpipe.scoring.iterations.per_case_repeats import cases_of, chosen_cases, open_records, repeats
from ragpipe.store.files.atomic import open_unless_same
from ragpipe.store.files.parquet_parts import parquet_writer
from ragpipe.store.run.run_folder import RunFolder
from ragpipe.store.run.run_tables import open_table, read_columns, read_json, run_file_error

Floats = NDArray[np.float64]
Labels = Mapping[str, Sequence[str]]

_COLUMNS = (
    ("run_id", pa.string(), "the baseline"),
    ("sample_id", pa.string(), "the sample's id"),
    ("method", pa.string(), "the method, as the baseline names it"),
    ("repeat", pa.int64(), "which output of this method for this sample, from 1"),
    ("sample_sha256", pa.string(), "digest of the question, its references and labels"),
    ("answer_sha256", pa.string(), "digest of the question, the answer and the texts of its chunks"),
    ("score", pa.string(), "name of the score"),
    ("value", pa.float64(), "mean over the iterations, in the native scale; null where there is none"),
    ("pass_rate", pa.float64(), "share of the verdicts over the iterations that are passes; null without a verdict"),
    ("is_lost", pa.bool_(), "whether there is no value because a judgement, or the system, failed"),
    ("is_silent", pa.bool_(), "whether the value says no more than that the answer states nothing"),
)
_SCHEMA = pa.schema([pa.field(name, kind, metadata={"description": text}) for name, kind, text in _COLUMNS])
_IDENTITY = b"ragpipe.baselines"
_LEFT_OUT = "left_out"
_KEPT = ("judge_identity", "embedder", "parser", "metrics", "scoring")
"""Parts of a baseline's identity that say whether its scores may be compared."""
_READ_BY_NO_METRIC = {
    "id", "category", "subcategory", "difficulty", "question_type", "vault", "tags", "meta",
}  # fmt: skip


@dataclass
class BaselineNeeds:
    """What gates need of one baseline: their scores, and which cases each of them is about (`Gate.labels`)."""

    scores: set[str] = field(default_factory=set)
    wheres: list[Labels] = field(default_factory=list)


class LeftOut(NamedTuple):
    """The cases of a baseline that a gate is about: how many, how many of them the run does not have, and the sample of the first
    of these, None where there is none."""

    chosen: int
    missing: int
    first: str | None


@dataclass(frozen=True)
class Baseline:
    """One baseline as a run keeps it: `manifest` (run id, name, identity, prompts, cases that the run left out), and the rows of its
    table."""

    manifest: Mapping[str, Any]
    rows: pa.Table

    def score(self, name: str) -> pa.Table:
        """The rows of one score, one per shared case."""
        return self.rows.filter(pc.equal(self.rows["score"], name))

    def left_out(self, where: Labels) -> LeftOut:
        """The cases of the baseline that a gate is about and the run does not have, by the labels that they have in the baseline."""
        return LeftOut(*self.manifest[_LEFT_OUT][canonical_json(where)])

    def holds(self, needs: BaselineNeeds) -> bool:
        """Whether the copy has all that is needed."""
        known = self.manifest[_LEFT_OUT]
        return needs.scores <= {*self.rows["score"].to_pylist()} and all(
            canonical_json(where) in known for where in needs.wheres
        )


def read_baselines(path: Path) -> dict[str, Baseline]:
    """The baselines of a table by run id. Raises DataError for a table that ragpipe did not write."""
    with open_table(path, _SCHEMA.names) as file:
        kept = (file.schema_arrow.metadata or {}).get(_IDENTITY)
        table = file.read(columns=_SCHEMA.names)
    manifests = json.loads(kept) if kept is not None else {"": {}}
    if not all(_LEFT_OUT in manifest for manifest in manifests.values()):
        raise run_file_error(path, "no identity of a baseline", "the table that ragpipe wrote")
    return {
        run_id: Baseline(manifest, table.filter(pc.equal(table["run_id"], run_id)))
        for run_id, manifest in manifests.items()
    }


def write_baselines(
    target: RunFolder,
    needs: Mapping[str, BaselineNeeds],
    folders: Mapping[str, RunFolder],
    kept: Mapping[str, Baseline],
) -> None:
    """Write `baseline.parquet` of a run whose cases are frozen; a table with the same content is left alone.

    Args:
        target: the run.
        needs: by the run id of each baseline what gates need of it.
        folders: the folders of the baselines that are read, by run id.
        kept: baselines that another copy has already, by run id; they come first.

    Raises DataError for a baseline that is not scored to its end or does not give one of the scores.
    """
    cases = read_columns(target.outputs, OUTPUT_KEY)
    tables, manifests = [], {}
    for run_id, need in needs.items():
        if run_id in kept and kept[run_id].holds(need):
            manifests[run_id] = dict(kept[run_id].manifest)
            rows = kept[run_id].rows
            tables.append(rows.filter(pc.is_in(rows["score"], pa.array(sorted(need.scores)))))
        else:
            tables.append(_rows(folders[run_id], run_id, sorted(need.scores), cases))
            manifests[run_id] = _manifest(folders[run_id]) | {
                _LEFT_OUT: {canonical_json(where): _left_out(folders[run_id], where, cases) for where in need.wheres}
            }
    schema = _SCHEMA.with_metadata({_IDENTITY: canonical_json(manifests)})
    with open_unless_same(target.baseline) as file, parquet_writer(file, schema, compression="zstd") as writer:
        for table in tables:
            writer.write_table(table.cast(schema))


def sample_digests(samples: Path) -> dict[str, str]:
    """By sample id the sha256 of all that a metric may read of the sample: question, earlier turns, references, labels."""
    names = [name for name in SAMPLES.names if name not in _READ_BY_NO_METRIC]
    table = read_columns(samples, ["id", *names])
    columns = [table[name].to_pylist() for name in names]
    return dict(zip(table["id"].to_pylist(), map(sha256, map(list, zip(*columns, strict=True))), strict=True))


def _manifest(folder: RunFolder) -> dict[str, Any]:
    manifest = read_json(folder.manifest)
    identity = {key: manifest["identity"].get(key) for key in _KEPT}
    return {
        "run_id": manifest["run_id"],
        "name": manifest["name"],
        "identity": identity,
        "prompts": manifest["prompts"],
        **{key: manifest[key] for key in TIMES if key in manifest},
    }


def _rows(folder: RunFolder, run_id: str, names: Sequence[str], cases: pa.Table) -> pa.Table:
    if not folder.final.metrics.is_file():
        raise _unusable(folder, "not scored to its end", "a finished run", "start its own command again")
    metrics = read_json(folder.final.metrics)
    if missing := [name for name in names if name not in metrics["declared"]]:
        known = ", ".join(metrics["declared"])
        raise _unusable(
            folder, f"no score {', '.join(missing)}", f"one of {known}", "hold the gate against another run"
        )
    records = [folder.iteration(number).records for number in metrics["iterations"]]
    keys = cases_of(records).names
    places = paired_cases(keys, cases).base
    shared, digests = keys.take(pa.array(places)), sample_digests(folder.samples)
    answers = np.array(list(answer_digests(folder)))[places]
    head = {
        "run_id": pa.array([run_id] * len(places), pa.string()),
        **{name: shared[name] for name in OUTPUT_KEY},
        "sample_sha256": pa.array([digests.get(sample) for sample in shared["sample_id"].to_pylist()], pa.string()),
        "answer_sha256": pa.array(answers, pa.string()),
    }
    tables = []
    with open_records(records, names) as opened:
        for name in names:
            score = repeats(opened, name, len(keys))
            values, rates = score.means[places], score.rates[places]
            figures = {
                "score": pa.array([name] * len(places), pa.string()),
                "value": pa.array(values, mask=np.isnan(values)),
                "pass_rate": pa.array(rates, mask=np.isnan(rates)),
                "is_lost": pa.array(lost_cases(records[0], name)[places] & np.isnan(values)),
                "is_silent": pa.array(silent_values(records[0], metrics, name)[places]),
            }
            tables.append(pa.table({**head, **figures}).cast(_SCHEMA))
    return pa.concat_tables(tables) if tables else _SCHEMA.empty_table()


def _left_out(folder: RunFolder, where: Labels, cases: pa.Table) -> LeftOut:
    """The cases of a baseline that `where` chooses and that are not among `cases`, those of the run."""
    records = [folder.iteration(number).records for number in read_json(folder.final.metrics)["iterations"]]
    keys = cases_of(records).names
    if "method" in where and one_method_each(keys, cases):  # the two are paired, and `where` names that of the run
        if not set(where["method"]) & set(cases["method"].to_pylist()):
            return LeftOut(0, 0, None)
        where = {name: labels for name, labels in where.items() if name != "method"}
    chosen = chosen_cases(records[0], where, len(keys))
    is_missing = chosen.copy()
    is_missing[paired_cases(keys, cases).base] = False
    places = np.flatnonzero(is_missing)
    first = keys["sample_id"][int(places[0])].as_py() if len(places) else None
    return LeftOut(int(np.sum(chosen)), len(places), first)


def lost_cases(records: Path, name: str) -> NDArray[np.bool_]:
    """The cases whose judgement of a score, or whose system, failed, in one iteration."""
    column = "overall_reason" if name == OVERALL.name else f"{name}.status"
    table = read_columns(records, [column, "system_error"])
    failed = pc.starts_with(table[column], "part_error" if name == OVERALL.name else "error")
    is_lost = pc.or_(pc.fill_null(failed, False), pc.is_valid(table["system_error"]))
    lost: NDArray[np.bool_] = is_lost.combine_chunks().to_numpy(zero_copy_only=False)
    return lost


def _unusable(folder: RunFolder, content: str, expected: str, fix: str) -> DataError:
    problem = Problem(str(folder.root), "scoring.gates", content, expected, fix)
    return DataError("a gate's baseline cannot be used", [problem])
