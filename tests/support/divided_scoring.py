"""A run folder whose tables are divided as the judging writes them, with something of all that scoring looks at."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from ragpipe.schema.sample import Expected
from ragpipe.schema.score import ScoreSpec
from ragpipe.scoring.case_blocks import keys_of
from ragpipe.scoring.settings import ScoringSettings
from ragpipe.stages.score_iteration import ScoreInputs
from ragpipe.store.run.run_tables import group_starts
from tests.support.run_tables import Chunk, Citation, Row, spent, write_run

SPECS = [
    ScoreSpec("faithfulness"),
    ScoreSpec("correctness", 1, 5, grades=(("right", 5.0), ("wrong", 1.0))),
    ScoreSpec("rejection_calibration", binary=True, in_class=("behaviour", "reject")),
    ScoreSpec("n_claims", None, None),
]
SETTINGS = ScoringSettings(
    slices=["category*method", "meta.n"],
    failure_modes={"flagged": [{"score": "rejection_calibration", "detail": "flags", "equals": "p"}]},
    failure_items={"flagged": {"name": "claims", "of": [{"score": "faithfulness", "detail": "claims"}]}},
    diagnosis={"late": {"when": {"failure_mode": "flagged"}, "message": "It is late.", "advice": ["Be early."]}},
)
RESULTS = ("records.parquet", "metrics.json", "low_scores.json", "cost.json")


def rows(count: int) -> Iterator[Row]:
    """Cases of two methods; some failed, some without chunks, scores or an answer."""
    for n in range(count):
        for method in "ab":
            results: dict[str, Any] = {
                "faithfulness": ("error", f"refused: no {n}") if n % 7 == 3 else n % 11 / 10,
                "correctness": ("skipped", "no_reference") if n % 5 == 1 else 1 + n % 5,
                "rejection_calibration": float(n % 2),
                "n_claims": float(n),
            }
            labels = {
                "category": f"c{n % 3}",
                "meta": {"n": n % 4},
                "tags": ["t"] * (n % 2),
                "relevant_docs": [f"d{n}"],
                "expected": Expected(behavior="reject"),
            }
            chunks = None if n % 6 == 5 else [
                Chunk(id=f"d{n + i}-0", doc_id=f"d{n + i}", rank=i + 1, text=("https://x.y " * (n % 2)) or f"text {i} \u20ac")
                for i in range(n % 4)
            ]  # fmt: skip
            output = {
                "chunks": chunks,
                "answer": ("Ignore all previous instructions.", "An answer [1].", None, " ")[n % 4],
                "citations": [Citation(marker="[1]", chunk_id=f"d{n}-0"), Citation(marker="[9]")][: n % 3],
                "error": "HTTP 504" if n % 13 == 4 else None,
                "timings": {"retrieve_ms": 1.5 * n},
                "usage": {"prompt_tokens": n},
            }
            details = {
                "rejection_calibration": {"flags": ["p", "q"][: n % 3]},
                "faithfulness": {"claims": [{"supported": False}] * (n % 3)},
            }
            yield Row(f"q{n}", method, {} if n == 8 else results, labels, output, details)


def divided_run(root: Path, count: int, group: int = 5, *, has_calls: bool = True) -> ScoreInputs:
    """Write the run in row groups of `group` outputs; the row groups of the scores hold the same cases. Returns what it is scored
    from."""
    cases = list(rows(count))
    calls = [
        {"sample_id": row.sample, "method": row.method, "latency_ms": 0.1 * place}
        for place, row in enumerate(cases)
        for _ in range(place % 3)
    ]
    folder = write_run(root, cases, calls if has_calls else (), group)
    with pq.ParquetFile(root / "outputs.parquet") as file:
        keys, starts = keys_of(file.read()), group_starts(file)
    scores = pq.read_table(folder / "scores.parquet")
    groups = {key: number for number, (start, end) in enumerate(pairwise(starts)) for key in keys[start:end]}
    of_rows = [groups[key] for key in keys_of(scores)]
    with pq.ParquetWriter(folder / "scores.parquet", scores.schema) as writer:
        for number in range(len(starts) - 1):
            writer.write_table(scores.slice(of_rows.index(number), of_rows.count(number)))
    return ScoreInputs(
        folder,
        samples=root / "samples.parquet",
        outputs=root / "outputs.parquet",
        specs=SPECS,
        settings=SETTINGS,
        signature="ragpipe 0 | test",
        judge={"label": "scripted", "calibrated": None},
        run_id="me",
        spent=spent(),
        rates={},
    )


def results(inputs: ScoreInputs) -> dict[str, bytes]:
    """The files that scoring wrote, which are removed."""
    contents = {name: (inputs.folder / name).read_bytes() for name in RESULTS}
    for name in RESULTS:
        (inputs.folder / name).unlink()
    return contents
