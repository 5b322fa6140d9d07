"""Do citations and labels point at what was retrieved, and do contexts hold text? What makes whole scores 0 without a word.

Ids that were mapped in another form than the retriever's (`doc-1` and `DOC-1`), citations that name something else than
chunks, and contexts that are addresses only give figures that look like a bad system. They are counted over a whole run.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pydantic_core import from_json

from ragpipe.scoring.case_blocks import aligned

MOST = 0.5  # of all, from which on it is said
SHOWN = 3  # ids named in a warning
KEPT = 100_000  # different ids of a kind held; of larger runs nothing is said of labels
_ADDRESSES = re.compile(r"\s*(?:(?:\[\d{1,4}\]|[-*•]|\d{1,3}\.)?\s*(?:https?://|www\.)\S+\s*)+", re.I)
_CITED = re.compile(r"\[\s*\^?(\d{1,4})\s*\]")


class Pointers:
    """Counts over the cases of a run; `warnings` says what most of them have wrong."""

    def __init__(self) -> None:
        self._citations = 0
        self._dangling: Counter[str] = Counter()
        self._gold: dict[str, set[str]] = {}
        self._retrieved: set[str] = set()
        self._contexts: Counter[str] = Counter()
        self._addresses: Counter[str] = Counter()

    def add(self, outputs: pa.Table, samples: pa.Table) -> None:
        """Rows of `outputs.parquet` with the rows of `samples.parquet` that they belong to, in the same order."""
        columns = (outputs["method"], outputs["chunks"], outputs["citations"])
        cases = zip(*(column.to_pylist() for column in columns), strict=True)
        for (method, chunks, citations), labels in zip(cases, _labels(samples), strict=True):
            if chunks is None:  # not recorded: what was retrieved is unknown
                continue
            retrieved = from_json(chunks)
            self._cite(retrieved, from_json(citations) if citations else [])
            self._read(method, retrieved)
            if retrieved:
                self._label(retrieved, labels)

    def warnings(self) -> list[str]:
        """One line for each thing that most of the run has wrong, with some of the ids."""
        lines = []
        dangling = sum(self._dangling.values())
        if dangling > MOST * self._citations:
            ids = _named([name for name, _ in self._dangling.most_common(SHOWN)])
            lines.append(
                f"{dangling:,} of {self._citations:,} citations name a chunk that was not retrieved ({ids}): are they ids of "
                f"chunks as `contexts` has them? {_alike(self._dangling, self._retrieved)}".rstrip()
            )
        for field, gold in self._gold.items():
            missing = sorted(gold - self._retrieved)
            if len(missing) > MOST * len(gold) and max(len(gold), len(self._retrieved)) < KEPT:
                lines.append(
                    f"{len(missing):,} of {len(gold):,} ids of {field} were retrieved in no case ({_named(missing)}): do "
                    f"labels and retrieved chunks have the same ids? {_alike(missing, self._retrieved)}".rstrip()
                )
        for method, count in self._addresses.items():
            if count > MOST * self._contexts[method]:
                lines.append(
                    f"method {method}: {count:,} of {self._contexts[method]:,} contexts are nothing but addresses (URLs): no "
                    "judge can see what they say, and scores that rest on contexts say nothing of this method"
                )
        return lines

    def _cite(self, chunks: Sequence[Mapping[str, Any]], citations: Sequence[Mapping[str, Any]]) -> None:
        """Citations by id, or by a mark `[n]` of a rank; others name nothing that could be looked up."""
        ids, ranks = {chunk["id"] for chunk in chunks}, {str(chunk["rank"]) for chunk in chunks}
        for citation in citations:
            name, mark = citation.get("chunk_id"), _CITED.fullmatch((citation.get("marker") or "").strip())
            if name or mark:
                self._citations += 1
                if (name not in ids) if name else (mark is not None and mark[1] not in ranks):
                    self._dangling[name or mark[0]] += 1  # type: ignore[index]

    def _read(self, method: str, chunks: Sequence[Mapping[str, Any]]) -> None:
        texts = [text for chunk in chunks if (text := chunk.get("text"))]
        self._contexts[method] += len(texts)
        self._addresses[method] += sum(_ADDRESSES.fullmatch(text) is not None for text in texts)

    def _label(self, chunks: Sequence[Mapping[str, Any]], labels: Mapping[str, Collection[str]]) -> None:
        for field, names in labels.items():
            gold = self._gold.setdefault(field, set())
            if len(gold) < KEPT:
                gold.update(names)
        if len(self._retrieved) < KEPT and self._gold:
            keys = ("id", "doc_id", "rel_path")
            self._retrieved.update(chunk[key] for chunk in chunks for key in keys if chunk.get(key))


def pointer_warnings(samples: Path, outputs: Path) -> list[str]:
    """The warnings for frozen cases that are not judged yet."""
    pointers = Pointers()
    for output_rows, sample_rows in aligned(samples, outputs):
        pointers.add(output_rows, sample_rows)
    return pointers.warnings()


def _labels(samples: pa.Table) -> Iterator[dict[str, Collection[str]]]:
    """The gold ids of each sample by the field that names them."""
    names = ("relevant_docs", "relevant_chunks", "gains", "anchors")
    for docs, chunks, gains, anchors in zip(*(samples[name].to_pylist() for name in names), strict=True):
        by_field: dict[str, Collection[str]] = {"relevant_docs": docs or (), "relevant_chunks": chunks or ()}
        if gains:
            by_field["gains"] = [name for name, gain in from_json(gains).items() if gain > 0]
        if anchors:
            by_field["anchors"] = [anchor["rel_path"] for anchor in from_json(anchors)]
        yield {field: some for field, some in by_field.items() if some}


def _named(names: Sequence[str]) -> str:
    more = ", ..." if len(names) > SHOWN else ""
    return ", ".join(repr(name[:80]) for name in names[:SHOWN]) + more


def _alike(missing: Collection[str], retrieved: Collection[str]) -> str:
    """An example of two ids that differ in their form only; empty when there is none."""
    forms = {_plain(name): name for name in retrieved}
    for name in sorted(missing):
        similar = forms.get(_plain(name))
        if similar is None:
            continue
        if unicodedata.normalize("NFC", name) == unicodedata.normalize("NFC", similar):
            return f"{name!r} and a retrieved id look the same and differ in Unicode form (NFC, NFD)"
        return f"{name!r} differs from the retrieved {similar!r} in case, blanks or Unicode form only"
    return ""


def _plain(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold().strip()
