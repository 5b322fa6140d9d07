"""TREC runs (`query Q0 document rank score tag`) and qrels (`query iteration document relevance`).

One record per query: of a run `{query, tag, hits: [{doc, rank, score}]}`, hits in the order of the rank column (equal ranks
in the order of the file); of qrels `{query, judged: [{doc, relevance}]}`. trec_eval itself sorts by score and ignores the
rank column, therefore the score is kept beside it. The file is held in memory.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from ragpipe.datasets.fault_list import Faults
from ragpipe.datasets.text_lines import DataFile, text_lines

_COLUMNS = {
    4: "4 columns: query, iteration, document, relevance",
    6: "6 columns: query, Q0, document, rank, score, tag",
}
_SPACE = re.compile(r"[ \t\r\f\v]+")
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def read_trec_rows(file: DataFile, faults: Faults) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line of the query's first mention, record)."""
    groups: dict[str, tuple[int, str, list[tuple[float, float, str]]]] = {}
    seen: dict[tuple[str, str], int] = {}
    width = 0
    for number, line in text_lines(file, faults):
        parts = _SPACE.split(line.strip(" \t\r\n\f\v"))
        if parts == [""]:
            continue
        width = width or (len(parts) if len(parts) in (4, 6) else 0)
        if len(parts) != (width or 6):
            expected = _COLUMNS.get(width, "6 columns (a run) or 4 (qrels)")
            faults.add(file.at(number), "line", f"{len(parts)} columns", expected)
            continue
        query, _, doc = parts[:3]
        if (first := seen.setdefault((query, doc), number)) != number:
            faults.add(
                file.at(number),
                "document",
                f"{doc!r} a second time for query {query!r}",
                f"once; it stands on line {first}",
            )
            continue
        values = _values(parts[3:], file.at(number), faults)
        if values is not None:
            groups.setdefault(query, (number, parts[-1], []))[2].append((*values, doc))
    for query, (number, tag, ranked) in groups.items():
        if width == 4:
            yield (
                number,
                {"query": query, "judged": [{"doc": doc, "relevance": int(level)} for level, _, doc in ranked]},
            )
        else:
            ranked.sort(key=lambda hit: hit[0])
            hits = [{"doc": doc, "rank": int(rank), "score": score} for rank, score, doc in ranked]
            yield number, {"query": query, "tag": tag, "hits": hits}


def _values(parts: list[str], where: str, faults: Faults) -> tuple[float, float] | None:
    key = "rank" if len(parts) > 1 else "relevance"
    if not _WHOLE.fullmatch(parts[0]):
        faults.add(where, key, repr(parts[0][:40]), "a whole number")
        return None
    if len(parts) == 1:
        return int(parts[0]), 0.0
    if not _NUMBER.fullmatch(parts[1]) or not math.isfinite(score := float(parts[1])):
        faults.add(where, "score", repr(parts[1][:40]), "a finite number")
        return None
    return int(parts[0]), score
