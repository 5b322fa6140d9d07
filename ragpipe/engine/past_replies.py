"""How long the judge's replies were in the newest runs of an output folder, by template: what a plan expects of it."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from ragpipe.core.errors import RagpipeError
from ragpipe.stages.plan_calls import PastReplies
from ragpipe.store.run.run_folder import RunFolder
from ragpipe.store.run.run_tables import read_columns

RUNS = 8
"""The newest runs that are looked at."""
_COLUMNS = ["judge", "template_sha256", "status", "turn", "tokens_out"]


def past_replies(output_dir: Path, judge: str) -> dict[str, PastReplies]:
    """By the hash of a template, the replies of a judge (its printable name) in the newest run of each experiment. A table that
    cannot be read is passed over: a plan needs none."""
    totals: defaultdict[str, list[float]] = defaultdict(lambda: [0, 0.0])
    tables = [RunFolder(path).iteration(1).judge_inputs for path in output_dir.glob("*/latest")]
    for path in sorted((path for path in tables if path.is_file()), key=_age)[:RUNS]:
        try:
            replies = _by_template(read_columns(path, _COLUMNS), judge)
        except (RagpipeError, OSError, ValueError):
            continue
        for row in replies.to_pylist():
            totals[row["template_sha256"]][0] += row["tokens_out_count"]
            totals[row["template_sha256"]][1] += row["tokens_out_sum"]
    return {template: PastReplies(int(n), tokens / n) for template, (n, tokens) in totals.items()}


def _by_template(calls: pa.Table, judge: str) -> pa.Table:
    """Number and completion tokens of the judge's replies to each template, without repairs and failures."""
    is_reply = (
        (pc.field("judge") == judge)
        & (pc.field("status") == "ok")
        & (pc.field("turn") == "ask")
        & pc.field("template_sha256").is_valid()
        & pc.field("tokens_out").is_valid()
    )
    grouped = calls.filter(is_reply).group_by("template_sha256", use_threads=False)
    return grouped.aggregate([("tokens_out", "count"), ("tokens_out", "sum")])


def _age(path: Path) -> float:
    return -path.stat().st_mtime
