"""Do citations and labels point at what was retrieved, and do contexts hold text? What makes whole scores 0 without a word.

Ids that were mapped in another form than the retriever's (`doc-1` and `DOC-1`), citations that name something else than
chunks, and contexts that are addresses only give figures that look like a bad system. They are counted over a whole run.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic_core import from_json

from ragpipe.score.case_blocks import RetrievedChunks
from ragpipe.store.run_tables import read_columns

MOST = 0.5  # of all citations or contexts, from which on it is said
NEARLY_ALL = 0.9  # of the ids of a label: a retriever may well miss most of them
SHOWN = 3  # ids named in a warning
NAMES = 20  # ids of a kind that are listed
CITATIONS = "citations"
KEPT = 100_000  # different ids of a kind held; of larger runs nothing is said of labels
_FIELDS = ("relevant_docs", "relevant_chunks", "gains", "anchors", "required_support_groups")
LABEL_COLUMNS = ("id", *_FIELDS)
_ADDRESSES = re.compile(r"\s*(?:(?:\[\d{1,4}\]|[-*•]|\d{1,3}\.)?\s*(?:https?://|www\.)\S+\s*)+", re.I)
# what every text of addresses begins with, for a quick look at many texts: it is true of some others too
_MAY_BE_ADDRESSES = r"^[^A-Za-z]*(?i:http|www)"
_CITED = re.compile(r"\[\s*\^?(\d{1,4})\s*\]")


@dataclass(frozen=True, slots=True)
class Dangling:
    """Ids that lead nowhere: those of a label that were retrieved in no case, or citations of a chunk that was not retrieved.

    `missing` of `total`, `first` is the id of the first sample with one, `names` are some of the ids. `alike` is an example of
    two ids that differ in their form only, empty where there is none: then the ids are at fault, not the retriever.
    """

    field: str
    missing: int
    total: int
    first: str
    names: tuple[str, ...]
    alike: str

    @property
    def is_fault(self) -> bool:
        """Whether the ids are probably wrong: most citations or nearly all labels lead nowhere, or an id is written otherwise."""
        return self.missing > (MOST if self.field == CITATIONS else NEARLY_ALL) * self.total or bool(self.alike)

    def __str__(self) -> str:
        what, asked = (f"ids of {self.field} were retrieved in no case", "do labels and retrieved chunks have the same ids?")
        if self.field == CITATIONS:
            what, asked = ("citations name a chunk that was not retrieved", "are they ids of chunks as `contexts` has them?")
        named = ", ".join(repr(name[:80]) for name in self.names[:SHOWN]) + (", ..." if len(self.names) > SHOWN else "")
        return f"{self.missing:,} of {self.total:,} {what} ({named}), first in {self.first!r}: {asked} {self.alike}".rstrip()


class ContextCounts(NamedTuple):
    """Of some cases the contexts that hold text, and those among them that are nothing but addresses."""

    n_texts: int
    n_addresses: int


class Pointers:
    """Counts over the cases of a run; `warnings` says what most of them have wrong, `dangling` every id that leads nowhere."""

    def __init__(self) -> None:
        self._citations = 0
        self._dangling: Counter[str] = Counter()
        self._first_dangling = ""
        self._gold: dict[str, dict[str, str]] = {}  # by field: an id, and the first sample that has it
        self._retrieved: set[str] = set()
        self._contexts: Counter[str] = Counter()
        self._addresses: Counter[str] = Counter()

    def add(self, outputs: pa.Table, samples: pa.Table, chunks: RetrievedChunks, contexts: Mapping[str, ContextCounts]) -> None:
        """Count consecutive cases, given by their rows of both tables, their chunks and their `context_counts`. A case whose chunks
        are not recorded says nothing: what was retrieved is unknown."""
        self._cite(outputs["citations"].to_pylist(), outputs["sample_id"], chunks)
        for method, (n_texts, n_addresses) in contexts.items():
            self._contexts[method] += n_texts
            self._addresses[method] += n_addresses
        self._label(samples, chunks)

    def dangling(self) -> list[Dangling]:
        """The ids that lead nowhere, citations first; of labels of a run with too many ids nothing is said."""
        found = []
        if names := tuple(name for name, _ in self._dangling.most_common()):
            missing, alike = sum(self._dangling.values()), _alike(names, self._retrieved)
            found.append(Dangling(CITATIONS, missing, self._citations, self._first_dangling, names[:NAMES], alike))
        for field, gold in self._gold.items():
            missing_ids = sorted(gold.keys() - self._retrieved)
            if missing_ids and max(len(gold), len(self._retrieved)) < KEPT:
                if (same := _of_same_ids(found, missing_ids, len(gold))) is not None:
                    found[same] = replace(found[same], field=f"{found[same].field}, {field}")
                    continue
                first = next(sample for name, sample in gold.items() if name not in self._retrieved)
                alike = _alike(missing_ids, self._retrieved)
                names = tuple(missing_ids[:NAMES])
                found.append(Dangling(field, len(missing_ids), len(gold), first, names, alike))
        return found

    def notes(self) -> list[str]:
        """One line for the ids that lead nowhere without being at fault, such as what no case retrieved."""
        parts = [f"{d.missing:,} of {d.total:,} of {d.field}" for d in self.dangling() if not d.is_fault]
        first = next((d.first for d in self.dangling() if not d.is_fault), "")
        return [f"ids that no chunk has: {'; '.join(parts)}; first in {first!r}"] if parts else []

    def warnings(self) -> list[str]:
        """One line for each thing that most of the run has wrong, with some of the ids."""
        lines = [str(dangling) for dangling in self.dangling() if dangling.is_fault]
        for method, count in self._addresses.items():
            if count > MOST * self._contexts[method]:
                lines.append(
                    f"method {method}: {count:,} of {self._contexts[method]:,} contexts are nothing but addresses (URLs): no "
                    "judge can see what they say, and scores that rest on contexts say nothing of this method"
                )
        return lines

    def _cite(self, citations: Sequence[str | None], sample_ids: pa.ChunkedArray, chunks: RetrievedChunks) -> None:
        """Citations by id, or by a mark `[n]` of a rank; others name nothing that could be looked up."""
        recorded = chunks.recorded
        citing = [case for case, text in enumerate(citations) if text and text != "[]" and recorded[case]]
        if not citing:
            return
        ids, ranks = chunks.column("id").to_pylist(), chunks.column("rank").to_pylist()
        ends = np.cumsum(chunks.counts)
        starts = ends - chunks.counts
        for case in citing:
            start, end = int(starts[case]), int(ends[case])
            self._look_up(from_json(citations[case] or ""), set(ids[start:end]), set(map(str, ranks[start:end])))
            if self._dangling and not self._first_dangling:
                self._first_dangling = sample_ids[case].as_py()

    def _look_up(self, citations: Sequence[Mapping[str, Any]], ids: set[str], ranks: set[str]) -> None:
        for citation in citations:
            name, mark = citation.get("chunk_id"), _CITED.fullmatch((citation.get("marker") or "").strip())
            if name or mark:
                self._citations += 1
                if (name not in ids) if name else (mark is not None and mark[1] not in ranks):
                    self._dangling[name or mark[0]] += 1  # type: ignore[index]

    def _label(self, samples: pa.Table, chunks: RetrievedChunks) -> None:
        """Collect the gold ids of the cases that retrieved something, and from the first block with some what was retrieved."""
        labels = samples.select(LABEL_COLUMNS).take(pa.array(np.flatnonzero(chunks.counts)))
        for field, ids in _gold_ids(labels).items():
            gold = self._gold.setdefault(field, {})
            for name, case in _firsts(ids).items() if len(gold) < KEPT else ():
                if name not in gold:
                    gold[name] = labels["id"][case].as_py()
        if self._gold and len(self._retrieved) < KEPT:
            for column in ("id", "doc_id", "rel_path"):
                self._retrieved.update(name for name in pc.unique(chunks.column(column)).to_pylist() if name)


def context_counts(methods: pa.ChunkedArray, chunks: RetrievedChunks) -> dict[str, ContextCounts]:
    """The contexts of consecutive cases that hold text, and those among them that are addresses, by method; those alone of which
    chunks are recorded."""
    encoded = methods.combine_chunks().dictionary_encode()
    names, codes = encoded.dictionary.to_pylist(), encoded.indices.to_numpy(zero_copy_only=False)
    texts = chunks.column("text")
    likely = np.flatnonzero(
        pc.fill_null(pc.match_substring_regex(texts, _MAY_BE_ADDRESSES), False).to_numpy(zero_copy_only=False)
    )
    matches = [_ADDRESSES.fullmatch(text) is not None for text in texts.take(pa.array(likely)).to_pylist()]
    n_texts = np.bincount(codes[chunks.cases[chunks.with_text]], minlength=len(names))
    n_addresses = np.bincount(codes[chunks.cases[likely[matches]]], minlength=len(names))
    return {
        names[code]: ContextCounts(int(n_texts[code]), int(n_addresses[code]))
        for code in dict.fromkeys(codes[chunks.recorded].tolist())
    }


def _gold_ids(samples: pa.Table) -> dict[str, pa.ListArray]:
    lists = {
        "relevant_docs": samples["relevant_docs"].combine_chunks(),
        "relevant_chunks": samples["relevant_chunks"].combine_chunks(),
        "gains": _lists(samples["gains"], lambda gains: [name for name, gain in gains.items() if gain > 0]),
        "anchors": _lists(samples["anchors"], lambda anchors: [anchor["rel_path"] for anchor in anchors]),
        "required_support_groups": _lists(
            samples["required_support_groups"],
            lambda groups: [one if isinstance(one, str) else one["rel_path"] for group in groups for one in group],
        ),
    }
    return {field: ids for field, ids in lists.items() if len(ids.flatten())}


def _firsts(ids: pa.ListArray) -> dict[str, int]:
    """Each different id with the place of the first list that has it, in this order."""
    encoded = ids.flatten().dictionary_encode()
    places = np.unique(encoded.indices.to_numpy(zero_copy_only=False), return_index=True)[1]
    lists = pc.list_parent_indices(ids).to_numpy(zero_copy_only=False)[places].tolist()
    return dict(zip(encoded.dictionary.to_pylist(), lists, strict=True))


def _of_same_ids(found: Sequence[Dangling], missing: Sequence[str], total: int) -> int | None:
    """The place of the finding about the same ids under another label, such as `gains` beside `relevant_docs`."""
    same = (place for place, other in enumerate(found) if (other.missing, other.total) == (len(missing), total))
    return next((place for place in same if found[place].names == tuple(missing[:NAMES])), None)


def _lists(column: pa.ChunkedArray, ids: Callable[[Any], list[str]]) -> pa.ListArray:
    """The ids in each JSON text; equal texts are read once."""
    encoded = column.combine_chunks().dictionary_encode()
    lists = pa.array([ids(from_json(text)) for text in encoded.dictionary.to_pylist()], type=pa.list_(pa.string()))
    return lists.take(encoded.indices)


def _alike(missing: Collection[str], retrieved: Collection[str]) -> str:
    """An example of two ids that differ in their form only; empty when there is none."""
    forms = {_plain(name): name for name in retrieved}
    for name in sorted(missing):
        similar = forms.get(_plain(name))
        if similar is None or similar == name:
            continue
        if unicodedata.normalize("NFC", name) == unicodedata.normalize("NFC", similar):
            return f"{name!r} and a retrieved id look the same and differ in Unicode form (NFC, NFD)"
        return f"{name!r} differs from the retrieved {similar!r} in case, blanks or Unicode form only"
    return ""


def _plain(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold().strip()


_REPEATED = 0.05  # the share of samples whose question came before from which on it is warned of


def repeated_questions(samples: Path) -> list[str]:
    """That questions come again under other ids: intervals take them for independent, and are too narrow."""
    table = read_columns(samples, ["question", "history"])
    plain = pc.utf8_lower(pc.utf8_trim_whitespace(table["question"]))
    count = len(pc.unique(pc.binary_join_element_wise(plain, pc.fill_null(table["history"], ""), "\0")))
    if len(table) - count < _REPEATED * len(table) or len(table) == count:
        return []
    return [
        f"{len(table):,} samples hold {count:,} different questions: repeated ones count as independent, so intervals are too narrow"
    ]
