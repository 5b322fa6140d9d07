"""How long replies of the same judge were in earlier runs."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from ragpipe.core.errors import RagpipeError
from ragpipe.runs.manifest import read_manifest
from ragpipe.runs.plan import PastReplies
from ragpipe.store.run_folder import RunFolder
from ragpipe.store.run_tables import read_columns

RUNS = 8
"""The newest runs that are looked at."""


_COLUMNS = ["judge", "metric", "template_sha256", "status", "turn", "tokens_out", "sent"]


def past_replies(output_dir: Path, judge: str, effort: str | None = None) -> dict[tuple[str, bool], PastReplies]:
    """By the hash of a template, and whether it asked for the reasons step by step, the replies of a judge (its printable name) in
    the newest run of each experiment. Replies for which the model thought with another `effort` are left out, as are runs that
    cannot be read: a plan needs none."""
    totals: defaultdict[tuple[str, bool], list[float]] = defaultdict(lambda: [0, 0.0])
    folders = [RunFolder(path) for path in output_dir.glob("*/latest")]
    folders = [folder for folder in folders if folder.iteration(1).judge_inputs.is_file()]
    for folder in sorted(folders, key=_age)[:RUNS]:
        try:
            identity = read_manifest(folder)["identity"]
            replies = _by_template(read_columns(folder.iteration(1).judge_inputs, _COLUMNS), judge, effort)
        except (RagpipeError, OSError, ValueError, KeyError):
            continue
        for row in replies.to_pylist():
            reasoning = identity["metrics"].get(row["metric"], {}).get("parameters", {}).get("reasoning", False)
            total = totals[row["template_sha256"], bool(reasoning)]
            total[0] += row["tokens_out_count"]
            total[1] += row["tokens_out_sum"]
    return {asked: PastReplies(int(n), tokens / n) for asked, (n, tokens) in totals.items()}


def _by_template(calls: pa.Table, judge: str, effort: str | None) -> pa.Table:
    """Number and completion tokens of the judge's replies to each template, by metric, without repairs and failures."""
    is_reply = (
        (pc.field("judge") == judge)
        & (pc.field("status") == "ok")
        & (pc.field("turn") == "ask")
        & pc.field("template_sha256").is_valid()
        & pc.field("tokens_out").is_valid()
    )
    sent = pc.fill_null(calls["sent"], "{}")
    wanted = f'"reasoning_effort":"{effort}"' if effort else '"reasoning_effort"'
    has_effort = pc.match_substring(sent, wanted)
    calls = calls.filter(has_effort if effort else pc.invert(has_effort))
    grouped = calls.filter(is_reply).group_by(["template_sha256", "metric"], use_threads=False)
    return grouped.aggregate([("tokens_out", "count"), ("tokens_out", "sum")])


def _age(folder: RunFolder) -> float:
    return -folder.iteration(1).judge_inputs.stat().st_mtime
