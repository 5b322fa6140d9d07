"""The details of a score in a form to show: tables and lists of whatever a metric keeps there, and its quotes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_ITEMS_SHOWN = 60  # items of one list, and rows of one table
_QUOTE_KEYS = ("evidence", "quote", "span")  # keys under which metrics keep quotes from a context


@dataclass(frozen=True)
class DetailBlock:
    """One part of the details: a table (`heads` and `rows`), or a list of `items`. `more` is how many are left out."""

    name: str
    heads: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    items: tuple[str, ...] = ()
    more: int = 0


def detail_blocks(details: Mapping[str, Any]) -> list[DetailBlock]:
    """A table per list of objects, a list per other list, and last one table of all single values. Empty values are left
    out."""
    blocks, single = [], []
    for name, value in details.items():
        if isinstance(value, list):
            blocks += _list_blocks(name, value)
        elif value is not None and value != {}:
            single.append((name, value if isinstance(value, bool) else _text(value)))
    return [*blocks, DetailBlock("", ("", ""), tuple(single))] if single else blocks


def _list_blocks(name: str, values: Sequence[Any]) -> list[DetailBlock]:
    if not values:
        return []
    if all(isinstance(value, dict) for value in values):
        return [_table(name, values)]
    items = tuple(map(_text, values[:_ITEMS_SHOWN]))
    return [DetailBlock(name, items=items, more=max(0, len(values) - _ITEMS_SHOWN))]


def evidence_quotes(details: Any) -> Iterator[tuple[str, str]]:
    """The quotes behind the verdicts, each with its kind: `supports`, `against` or `quoted`."""
    for item in _objects(details):
        supported = item.get("supported")
        kind = "supports" if supported is True else "against" if supported is False else "quoted"
        for key in _QUOTE_KEYS:
            values = item.get(key)
            for text in values if isinstance(values, list) else [values]:
                if isinstance(text, str) and text.strip():
                    yield text, kind


def unsupported_claims(details: Any) -> Iterator[str]:
    """The claims that nothing supports."""
    for item in _objects(details):
        if item.get("supported") is False and isinstance(item.get("claim"), str):
            yield item["claim"]
        listed = item.get("unsupported_claims")
        yield from (text for text in listed if isinstance(text, str)) if isinstance(listed, list) else ()


def _objects(value: Any) -> Iterator[Mapping[str, Any]]:
    """Every object in the details down to five levels, outer ones first."""
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
        tuple(v if isinstance(v := item.get(head), bool) else _text(v) for head in heads)
        for item in items[:_ITEMS_SHOWN]
    )
    return DetailBlock(name, heads, rows, more=max(0, len(items) - _ITEMS_SHOWN))


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
