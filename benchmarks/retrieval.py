"""Retrieval metrics from string ids, beside pytrec_eval and ir_measures, in one process.

    python benchmarks/retrieval.py [--queries 100000] [--small]

Each side starts from the same columns of strings (per query: retrieved
ids with scores, relevant ids with gains) and ends with per-query values and their means of the same measures at 1, 3, 5
and 10. What a side needs in between (dicts for pytrec_eval, rows for ir_measures, arrays for ragpipe) is its own time.
Processor time is measured (all sides are single-threaded), the best of three interleaved rounds; ir_measures and ranx
(if installed) run once, on the first fifth of the queries, and are held against ragpipe on the same fifth.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import random
import time
from collections.abc import Callable

import numpy as np
from measured import say

from ragpipe.metrics.shared.ranking import from_ids, rank_values

CUTS = (1, 3, 5, 10)
Columns = tuple[list[str], list[list[str]], list[list[float]], list[list[str]], list[list[int]]]
NAMES = {"hit": "success", "recall": "recall", "precision": "P", "ndcg": "ndcg_cut", "map": "map_cut"}


def made_up(queries: int, depth: int = 20) -> Columns:
    """Seeded runs: `depth` ids a query from 100,000 documents, one to five graded gold ids, about half of them found."""
    draw = random.Random(0)
    names = [f"document-{i}" for i in range(100_000)]
    keys, ids, scores, gold, gains = [], [], [], [], []
    for q in range(queries):
        found = draw.sample(names, depth)
        relevant = {draw.choice(found) if draw.random() < 0.5 else draw.choice(names) for _ in range(draw.randint(1, 5))}
        keys.append(f"query-{q}")
        ids.append(found)
        scores.append([round(draw.random(), 4) for _ in range(depth)])
        gold.append(sorted(relevant))
        gains.append([draw.randint(1, 3) for _ in relevant])
    return keys, ids, scores, gold, gains


def ragpipe_side(data: Columns) -> dict[str, float]:
    _, ids, scores, gold, gains = data
    ranked = [
        [name for _, name in sorted(zip(some, names, strict=True), reverse=True)]
        for names, some in zip(ids, scores, strict=True)
    ]
    labels = [dict(zip(names, some, strict=True)) for names, some in zip(gold, gains, strict=True)]
    return {name: float(np.mean(column)) for name, column in rank_values(from_ids(ranked, labels), CUTS).items()}


def pytrec_eval_side(data: Columns) -> dict[str, float]:
    import pytrec_eval

    keys, ids, scores, gold, gains = data
    qrels = {q: dict(zip(names, some, strict=True)) for q, names, some in zip(keys, gold, gains, strict=True)}
    run = {q: dict(zip(names, some, strict=True)) for q, names, some in zip(keys, ids, scores, strict=True)}
    cuts = ",".join(map(str, CUTS))
    evaluator = pytrec_eval.RelevanceEvaluator(qrels, {f"{n}.{cuts}" for n in NAMES.values()} | {"recip_rank"})
    rows = list(evaluator.evaluate(run).values())
    pairs = {f"{ours}@{k}": f"{theirs}_{k}" for ours, theirs in NAMES.items() for k in CUTS} | {"mrr": "recip_rank"}
    return {ours: float(np.mean([row[theirs] for row in rows])) for ours, theirs in pairs.items()}


def ir_measures_side(data: Columns) -> dict[str, float]:
    import ir_measures
    from ir_measures import AP, RR, P, R, Success, nDCG

    keys, ids, scores, gold, gains = data
    per_query = list(zip(keys, ids, scores, gold, gains, strict=True))
    qrels = (ir_measures.Qrel(q, d, g) for q, _, _, ds, gs in per_query for d, g in zip(ds, gs, strict=True))
    run = (ir_measures.ScoredDoc(q, d, s) for q, ds, ss, _, _ in per_query for d, s in zip(ds, ss, strict=True))
    asked = {
        f"{n}@{k}": m @ k
        for n, m in {"hit": Success, "recall": R, "precision": P, "ndcg": nDCG, "map": AP}.items()
        for k in CUTS
    }
    found = ir_measures.calc([*asked.values(), RR], list(qrels), list(run))
    return {name: float(found.aggregated[m]) for name, m in {**asked, "mrr": RR}.items()}


def ranx_side(data: Columns) -> dict[str, float]:
    from ranx import Qrels, Run, evaluate

    keys, ids, scores, gold, gains = data
    qrels = Qrels({q: dict(zip(names, some, strict=True)) for q, names, some in zip(keys, gold, gains, strict=True)})
    run = Run({q: dict(zip(names, some, strict=True)) for q, names, some in zip(keys, ids, scores, strict=True)})
    pairs = {"hit": "hit_rate", "recall": "recall", "precision": "precision", "ndcg": "ndcg", "map": "map"}
    names = {f"{ours}@{k}": f"{theirs}@{k}" for ours, theirs in pairs.items() for k in CUTS} | {"mrr": "mrr"}
    found = evaluate(qrels, run, list(names.values()))
    return {ours: float(found[theirs]) for ours, theirs in names.items()}


def timed(side: Callable[[Columns], dict[str, float]], data: Columns) -> tuple[float, dict[str, float]]:
    gc.collect()
    start = time.process_time()
    found = side(data)
    return time.process_time() - start, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=100_000)
    parser.add_argument("--small", action="store_true", help="the smallest size: does it work?")
    args = parser.parse_args()
    queries = 500 if args.small else args.queries
    data = made_up(queries)
    small: Columns = tuple(column[:100] for column in data)  # type: ignore[assignment]
    for side in (ragpipe_side, pytrec_eval_side, ir_measures_side):
        side(small)  # imports and first-use costs are nobody's
    rounds = [(timed(ragpipe_side, data), timed(pytrec_eval_side, data)) for _ in range(3)]
    (ours, mine), peer = min((r[0] for r in rounds), key=lambda t: t[0]), min(r[1][0] for r in rounds)
    compared(f"pytrec_eval, {queries:,} queries x 20 ids", peer / ours, rounds[0][1][1], mine, 3)
    part: Columns = tuple(column[: max(queries // 5, 100)] for column in data)  # type: ignore[assignment]
    ours, mine = min((timed(ragpipe_side, part) for _ in range(3)), key=lambda t: t[0])
    seconds, found = timed(ir_measures_side, part)
    compared(f"ir_measures, {len(part[0]):,} queries", seconds / ours, found, mine, 30)
    if importlib.util.find_spec("ranx"):
        ranx_side(small)
        seconds, found = timed(ranx_side, part)
        compared(f"ranx, {len(part[0]):,} queries", seconds / ours, found, mine, None)


def compared(name: str, ratio: float, found: dict[str, float], mine: dict[str, float], goal: float | None) -> None:
    apart = max(abs(found[measure] - mine[measure]) for measure in mine)
    say(name, ratio, f"x ours (apart {apart:.0e})", at_least=goal)


if __name__ == "__main__":
    main()
