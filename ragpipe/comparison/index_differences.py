"""Two indexes behind two runs: documents lost and new, the size of chunks, gold out of reach, and recall by type of the gold document."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ragpipe.comparison.score_differences import PairedScore, interval_document
from ragpipe.comparison.side import Pairs, Side
from ragpipe.core.sample import Sample
from ragpipe.data.index_manifest import IndexCoverage, gold_documents, read_index
from ragpipe.score.case_blocks import RetrievedChunks
from ragpipe.store.run_tables import batches, read_columns
from ragpipe.store.table_rows import INDEX, SAMPLES, sample_from, sample_json

_LISTED = 100  # documents named
_RECALL = re.compile(r"recall@(\d+)")
_VERSIONS = ("chunkers", "embeddings", "index_versions")
_Documents = Mapping[str, Mapping[str, Any]]


def index_differences(base: Side, candidate: Side, pairs: Pairs, scores: Sequence[PairedScore]) -> dict[str, Any] | None:
    """`index` of a comparison: the indexes of both runs by their manifests; None where a run has none, or both are the same.

    A document is in an index where it has a chunk there. `chunk_size` is the mean in tokens, or in characters of the retrieved chunks
    where a manifest has no tokens. `gold` counts the documents that labels of the shared samples name. Raises DataError.
    """
    before, after = (read_index(side.folder.index) for side in (base, candidate))
    if base.folder == candidate.folder or before is None or after is None:
        return None
    old, new = (_documents(side) for side in (base, candidate))
    if old == new and all(getattr(before, name) == getattr(after, name) for name in _VERSIONS):
        return None
    found, now = ({name for name, row in rows.items() if row["chunks"]} for rows in (old, new))
    gone, come, named = found - now, now - found, _named_gold(candidate, pairs, old, new)
    lost = [{"document": name, "n_samples": len(ids), "samples": ids[:_LISTED]} for name, ids in named.items() if name in gone]
    changed = [name for name in found & now if any(old[name][key] != new[name][key] for key in ("chunks", "tokens"))]
    return {
        "documents": {
            "base": len(found),
            "candidate": len(now),
            **_listed("lost", [name for name in old if name in gone]),
            **_listed("new", [name for name in new if name in come]),
            "n_rechunked": len(changed),
        },
        "chunks": {"base": before.overall.chunks_embedded, "candidate": after.overall.chunks_embedded},
        "chunk_size": _chunk_size((before, after), (base, candidate)),
        "versions": {name: [getattr(before, name), getattr(after, name)] for name in _VERSIONS},
        "gold": {
            "n": len(named),
            "n_lost": sum(name in gone for name in named),
            "n_found": sum(name in come for name in named),
            "lost": lost[:_LISTED],
        },
        "recall": _recall(pairs, scores, _types(named, old, new)),
    }


def _documents(side: Side) -> dict[str, dict[str, Any]]:
    return {row["document"]: row for row in read_columns(side.folder.index_documents, INDEX.names).to_pylist()}


def _listed(word: str, names: Sequence[str]) -> dict[str, Any]:
    return {f"n_{word}": len(names), word: list(names[:_LISTED])}


def _named_gold(side: Side, pairs: Pairs, old: _Documents, new: _Documents) -> dict[str, list[str]]:
    """By document the shared samples whose labels name it."""
    paths = {path: name for rows in (old, new) for name, row in rows.items() for path in row["rel_paths"]}
    shared = set(pairs.cases["sample_id"].to_pylist())
    return gold_documents((sample for sample in _samples(side) if sample.id in shared), paths)


def _samples(side: Side) -> Iterator[Sample]:
    labels = [name for name in SAMPLES.names if name in ("id", "question", "relevant_docs", "anchors")]
    for batch in batches(side.folder.samples, labels):
        yield from (sample_from(sample_json(row)) for row in batch.to_pylist())


def _chunk_size(indexes: Sequence[IndexCoverage], sides: Sequence[Side]) -> dict[str, Any]:
    tokens = [index.tokens.mean for index in indexes if index.tokens]
    unit, sizes = ("tokens", tokens) if len(tokens) == len(sides) else ("characters", [_characters(side) for side in sides])
    return {"unit": unit, "base": sizes[0], "candidate": sizes[1]}


def _characters(side: Side) -> float | None:
    """The mean length of the retrieved chunks; None where none has a text."""
    total = count = 0
    for batch in batches(side.folder.outputs, ["chunks"]):
        lengths = pc.utf8_length(RetrievedChunks(pa.chunked_array(batch.columns)).column("text"))
        total, count = total + (pc.sum(lengths).as_py() or 0), count + pc.count(lengths).as_py()
    return total / count if count else None


def _types(named: Mapping[str, Sequence[str]], old: _Documents, new: _Documents) -> dict[str, set[str]]:
    """By type of document the samples whose labels name one of that type."""
    types: dict[str, set[str]] = {}
    for name, ids in named.items():
        if kind := new.get(name, old.get(name, {})).get("doc_type"):
            types.setdefault(kind, set()).update(ids)
    return types


def _recall(pairs: Pairs, scores: Sequence[PairedScore], types: Mapping[str, set[str]]) -> dict[str, Any] | None:
    """Recall at the largest cut-off that both sides have, by type of the gold document, the largest drop first; None without recall or types."""
    ranked = sorted((int(match[1]), score.name, score) for score in scores if (match := _RECALL.fullmatch(score.name)))
    if not ranked or not types:
        return None
    score, ids = ranked[-1][2], pairs.cases["sample_id"].to_pylist()
    rows = []
    for kind, samples in sorted(types.items()):
        places = np.flatnonzero(score.measured & np.array([name in samples for name in ids], dtype=np.bool_))
        if len(places):
            paired = score.difference(places)
            means = {"base_mean": float(score.base[places].mean()), "candidate_mean": float(score.candidate[places].mean())}
            difference = {"difference": paired.difference, "interval": interval_document(paired.interval)}
            rows.append({"doc_type": kind, "n": len(places), **means, **difference})
    return {"score": score.name, "by_doc_type": sorted(rows, key=lambda row: row["difference"])}
