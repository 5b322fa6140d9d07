"""Messages between a driver and the processes that describe blocks of cases for its scoring, row group by row group."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ragpipe.engine.workers.plain_messages import packed_message
from ragpipe.schema.sample import OUTPUT_KEY
from ragpipe.schema.score import ScoreSpec
from ragpipe.schema.settings import Settings
from ragpipe.scoring.case_blocks import DETAILS, CaseBlock
from ragpipe.scoring.case_records import scored_of
from ragpipe.scoring.described_blocks import DescribedBlock, facts_of
from ragpipe.scoring.dimensions import Fields
from ragpipe.scoring.pointer_checks import LABEL_COLUMNS, ContextCounts
from ragpipe.scoring.rules.diagnosis import Findings
from ragpipe.scoring.rules.low_scores import FLAGS
from ragpipe.scoring.settings import ScoringSettings

if TYPE_CHECKING:
    from ragpipe.stages.score_iteration import ScoreInputs

_OF_RECORDS = (*OUTPUT_KEY, "answer", "abstained", "timings", "usage", "citations", "retrieves")
_OF_OUTPUTS = ("sample_row", "attempts")
_OF_CHUNKS = ("id", "doc_id", "rel_path", "rank")


class ScoreStart(Settings):
    """What a worker is told first. All of it is data: a worker needs neither the configuration of the run nor its metrics.

    Attributes:
        folder: the folder of the iteration.
        samples, outputs: the tables of the run.
        root: the run folder where scoring reads more than these tables; None: it reads nothing else.
        specs: the declared scores in config order.
        settings: how to score.
        iteration: the number of the iteration.
        block: the most cases that are described at once.
    """

    folder: Path
    samples: Path
    outputs: Path
    root: Path | None
    specs: tuple[ScoreSpec, ...]
    settings: ScoringSettings
    iteration: int
    block: int

    @classmethod
    def of(cls, inputs: ScoreInputs) -> ScoreStart:
        """What a worker is told of what the driver scores."""
        return cls(
            folder=inputs.folder.absolute(),
            samples=inputs.samples.absolute(),
            outputs=inputs.outputs.absolute(),
            root=inputs.sources.folder.root.absolute() if inputs.sources else None,
            specs=tuple(inputs.specs),
            settings=inputs.settings,
            iteration=inputs.iteration,
            block=inputs.block,
        )

    def values(self) -> dict[str, Any]:
        """As a JSON object."""
        return self.model_dump(mode="json")

    @classmethod
    def from_values(cls, values: dict[str, Any]) -> ScoreStart:
        """From the JSON object. Raises ValueError, among them ValidationError."""
        return cls.model_validate_json(json.dumps(values, allow_nan=False))


@dataclass(frozen=True)
class RowGroupTask:
    """A row group of the outputs to describe. `judge_ms` is what the judge took for each case, NaN where unknown; None: of no case
    it is known."""

    group: int
    judge_ms: NDArray[np.float64] | None

    def message(self) -> bytes:
        """As a message."""
        times = None if self.judge_ms is None else [None if ms != ms else ms for ms in self.judge_ms.tolist()]
        return packed_message({"group": self.group, "judge_ms": times})

    @classmethod
    def of(cls, values: dict[str, Any]) -> RowGroupTask:
        """From the JSON object of a message."""
        times = values["judge_ms"]
        return cls(values["group"], None if times is None else np.array(times, dtype=np.float64))


def described_message(blocks: Sequence[DescribedBlock]) -> bytes:
    """The blocks of a row group."""
    values: list[dict[str, Any]] = []
    pieces: list[memoryview] = []
    for described in blocks:
        tables = [_packed(table) for table in _tables(described)]
        counts = {method: list(counts) for method, counts in described.contexts.items()}
        values.append({"sizes": [len(table) for table in tables], "n_failed": described.n_failed, "contexts": counts})
        pieces += tables
    return packed_message({"blocks": values}, *pieces)


def described_of(values: dict[str, Any], content: bytes, start: ScoreStart) -> list[DescribedBlock] | None:
    """The blocks that a message tells of; None where something was wrong with one. Of what a block was read from it has what the driver
    looks at."""
    if "blocks" not in values:
        return None
    ends = iter(pairwise(accumulate((size for block in values["blocks"] for size in block["sizes"]), initial=0)))
    buffer = pa.py_buffer(content)
    blocks = []
    for block in values["blocks"]:
        pieces = [buffer.slice(begin, end - begin) for _, (begin, end) in zip(block["sizes"], ends, strict=False)]
        contexts = {method: ContextCounts(*counts) for method, counts in block["contexts"].items()}
        tables = [pa.ipc.open_stream(piece).read_all() for piece in pieces]
        blocks.append(_described(tables, block["n_failed"], contexts, start))
    return blocks


def _packed(table: pa.Table) -> memoryview:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return memoryview(sink.getvalue())


def _tables(described: DescribedBlock) -> list[pa.Table]:
    """What the driver needs of a block: its records, what they do not have of the outputs and of the overall score, the labels of the
    samples, the details that have flags, and what the rules say."""
    block, overall, findings = described.block, described.scored.overall, described.findings
    beside = {
        **{name: block.outputs[name] for name in _OF_OUTPUTS},
        "chunks": block.chunks.lists(_OF_CHUNKS),
        "overall": overall.scores,
        "status": overall.status,
    }
    return [
        described.records,
        pa.table(beside),
        block.samples.select(LABEL_COLUMNS),
        _flagged(block),
        *(pa.table(dict(columns)) for columns in (findings.modes, findings.diagnoses, findings.items)),
    ]


def _flagged(block: CaseBlock) -> pa.Table:
    """The scores whose details may have flags: of all details, low scores look at these alone."""
    if DETAILS not in block.scores.column_names:
        return pa.table({})
    scores = block.scores.select(["score_name", DETAILS]).append_column("case", pa.array(block.cases))
    return scores.filter(pc.fill_null(pc.match_substring(scores[DETAILS], f'"{FLAGS}'), False))


def _described(
    tables: Sequence[pa.Table], n_failed: int, contexts: Mapping[str, ContextCounts], start: ScoreStart
) -> DescribedBlock:
    records, beside, labels, scores, *found = tables
    columns = _arrays(records)
    outputs = {name: columns[name] for name in _OF_RECORDS} | {"error": columns["system_error"]}
    outputs |= {name: beside[name] for name in (*_OF_OUTPUTS, "chunks")}
    cases = scores["case"].to_numpy() if scores.num_columns else np.empty(0, dtype=np.int64)
    block = CaseBlock(pa.table(outputs), labels, scores, cases)
    names = [spec.name for spec in start.settings.all_specs(start.specs)]
    scored = scored_of(columns, names, beside["overall"].to_numpy(), beside["status"].to_numpy())
    truths = ({name: table[name].to_numpy() for name in table.column_names} for table in found)
    facts = facts_of(block, columns, scored, start.specs)
    return DescribedBlock(block, Fields(columns), scored, facts, Findings(*truths), n_failed, contexts, records)


def _arrays(table: pa.Table) -> dict[str, pa.Array]:
    """The columns of a table in one piece."""
    return {name: table[name].combine_chunks() for name in table.column_names}
