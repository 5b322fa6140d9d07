"""The details of a score in a form to show: tables and lists of whatever a metric keeps there, its claims and quotes.

Details are read as those of a stranger's run: what has not the form that metrics write is shown as it is, or left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_ITEMS_SHOWN = 60  # items of one list, and rows of one table
_QUOTE_KEYS = ("evidence", "quote", "span")  # keys under which metrics keep quotes from a context
_FINDING_KEYS = frozenset({*_QUOTE_KEYS, "claim"})
MARKS = {
    "contradicts": "contradicts a claim",
    "supports": "supports a claim",
    "quoted": "quoted by a judge",
    "contradicted": "a contradicted claim",
    "unsupported": "a claim without support",
}
"""What is marked in contexts (the first three) and answers, each with its meaning; where marks overlap the first one counts."""


@dataclass(frozen=True)
class Passage:
    """A quote of a judge, and in words where it occurs."""

    quote: str
    place: str

    def __str__(self) -> str:
        return f'"{self.quote}": {self.place}'


@dataclass(frozen=True)
class ContradictedClaim:
    """A claim of which the judge says that the contexts contradict it, with the passages that it quotes for that."""

    claim: str
    passages: tuple[Passage, ...]


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


def may_have_findings(details: Mapping[str, Any]) -> bool:
    """Whether there can be quotes or claims in these details. Most scores keep single numbers only, and a page has millions."""
    return any(isinstance(value, dict | list) for value in details.values()) or not _FINDING_KEYS.isdisjoint(details)


def evidence_quotes(*details: Any) -> list[tuple[str, str]]:
    """The quotes behind the verdicts of some scores, each with what its passage does: `contradicts`, `supports`, or `quoted`
    for neither and for a judge that does not tell. They are in the order of `MARKS`."""
    quotes: list[tuple[str, str]] = []
    for item in (item for values in details for item in _objects(values)):
        texts = [passage.quote for passage in passages_of(item.get("evidence"))]
        if "places" not in item:  # else it is a quote of the object around it
            texts += [text for key in _QUOTE_KEYS for text in _texts_under(item, key)]
        quotes += [(text, passage_mark(item)) for text in texts]
    return sorted(quotes, key=lambda quote: list(MARKS).index(quote[1]))


def unsupported_claims(*details: Any) -> list[tuple[str, str]]:
    """The claims that nothing supports, by some scores, each with its mark: `contradicted` ones first, then `unsupported`."""
    claims = {claim.claim: "contradicted" for values in details for claim in contradicted_claims(values)}
    for item in (item for values in details for item in _objects(values)):
        texts = [item.get("claim")] if item.get("supported") is False else []
        listed = item.get("unsupported_claims")
        for text in texts + (listed if isinstance(listed, list) else []):
            if isinstance(text, str):
                claims.setdefault(text, "unsupported")
    return list(claims.items())


def contradicted_claims(details: Any) -> Iterator[ContradictedClaim]:
    """The claims that the contexts contradict, in order; none from a judge that does not tell them from the others."""
    for item in _objects(details):
        if item.get("verdict") == "contradicted" and isinstance(item.get("claim"), str):
            yield ContradictedClaim(item["claim"], tuple(passages_of(item.get("evidence"))))


def passages_of(evidence: Any) -> list[Passage]:
    """The quotes of a claim that were looked up in the contexts; none of any other value."""
    quotes = [item for item in evidence if isinstance(item, dict)] if isinstance(evidence, list) else []
    return [
        Passage(item["quote"], place_words(item.get("places"))) for item in quotes if isinstance(item.get("quote"), str)
    ]


def place_words(places: Any) -> str:
    """Where a quote occurs: `context 2 (chunk c7), characters 10 to 45 and 60 to 72`, or `no context word for word`."""
    stretches: dict[str, list[str]] = {}
    for place in places if isinstance(places, list) else ():
        if isinstance(place, dict):
            name = f"context {place.get('rank')} (chunk {place.get('chunk')})"
            stretches.setdefault(name, []).append(f"{place.get('start')} to {place.get('end')}")
    contexts = (f"{name}, characters {' and '.join(parts)}" for name, parts in stretches.items())
    return "; ".join(contexts) or "no context word for word"


def passage_mark(item: Mapping[str, Any]) -> str:
    """What the passages of a finding do: `contradicts`, `supports`, or `quoted` where the judge says neither."""
    if item.get("verdict") == "contradicted":
        return "contradicts"
    return "supports" if item.get("supported") is True else "quoted"


def _texts_under(item: Mapping[str, Any], key: str) -> list[str]:
    value = item.get(key)
    return [text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str) and text.strip()]


def _objects(value: Any) -> Iterator[Mapping[str, Any]]:
    """Every object in the details down to five levels, outer ones first."""
    level: list[Any] = [value]
    for _ in range(5):
        yield from (item for item in level if isinstance(item, dict))
        parts = (item.values() if isinstance(item, dict) else item if isinstance(item, list) else () for item in level)
        level = [child for part in parts for child in part if isinstance(child, dict | list)]
        if not level:
            return


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
    if passages := passages_of(value):
        return "\n".join(map(str, passages))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
