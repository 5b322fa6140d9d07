"""The details of a score as something to look at: whatever a metric keeps there, without knowing the metric."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SHOWN = 60  # items of one list, and rows of one table
_QUOTES = ("evidence", "quote", "span")  # keys under which metrics keep what they found in a context


@dataclass(frozen=True)
class DetailBlock:
    """One part of the details: a table (`heads` and `rows`), or a list of `items`. `more` is how many are left out."""

    name: str
    heads: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    items: tuple[str, ...] = ()
    more: int = 0


def detail_blocks(details: Mapping[str, Any]) -> list[DetailBlock]:
    """Tables for lists of objects, lists for lists, and one table of all that is single, which comes last."""
    found, single = [], []
    for name, value in details.items():
        if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            found.append(_table(name, value))
        elif isinstance(value, list):
            if value:
                items = tuple(_shown(item) for item in value[:SHOWN])
                found.append(DetailBlock(name, items=items, more=max(0, len(value) - SHOWN)))
        elif value is not None and value != {}:
            single.append((name, value if isinstance(value, bool) else _shown(value)))
    return [*found, DetailBlock("", ("", ""), tuple(single))] if single else found


def quotes(details: Any) -> Iterator[tuple[str, str]]:
    """The quotes that the details rest on, each with its kind: `supports`, `against` or `quoted`."""
    for item in _objects(details):
        said = item.get("supported")
        kind = "supports" if said is True else "against" if said is False else "quoted"
        for key in _QUOTES:
            given = item.get(key)
            for text in given if isinstance(given, list) else [given]:
                if isinstance(text, str) and text.strip():
                    yield text, kind


def unsupported(details: Any) -> Iterator[str]:
    """The claims that nothing supports."""
    for item in _objects(details):
        if item.get("supported") is False and isinstance(item.get("claim"), str):
            yield item["claim"]
        listed = item.get("unsupported_claims")
        yield from (text for text in listed if isinstance(text, str)) if isinstance(listed, list) else ()


def _objects(value: Any) -> Iterator[Mapping[str, Any]]:
    """Every object in the details, outer ones first; deeper than a few levels nothing is looked for."""
    level: list[Any] = [value]
    for _ in range(5):
        yield from (item for item in level if isinstance(item, dict))
        level = [
            child
            for item in level
            for child in (item.values() if isinstance(item, dict) else item if isinstance(item, list) else ())
        ]


def _table(name: str, items: Sequence[Mapping[str, Any]]) -> DetailBlock:
    heads = tuple(dict.fromkeys(key for item in items for key in item))
    rows = tuple(
        tuple(v if isinstance(v := item.get(head), bool) else _shown(v) for head in heads) for item in items[:SHOWN]
    )
    return DetailBlock(name, heads, rows, more=max(0, len(items) - SHOWN))


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
