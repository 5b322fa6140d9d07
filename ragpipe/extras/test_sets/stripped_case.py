"""Personal data taken out of a case: the same value is the same placeholder everywhere in the case."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ragpipe.datasets.native_form import content_id
from ragpipe.patterns.personal_data import find_personal_data

UNTOUCHED = frozenset(
    {
        "method",
        "version",
        "role",
        "marker",
        "doc_id",
        "chunk_id",
        "rel_path",
        "doc_type",
        "policy",
        "relevant_docs",
        "relevant_chunks",
    }
    | {
        "gains",
        "required_support_groups",
        "recency_conflict_rule",
        "folder_mode",
        "selected_folders",
        "recorded",
        "behavior",
    }
)
"""Fields that name methods and documents, and labels: a placeholder in them would break what refers to them."""


class Placeholders:
    """The placeholders of one case: `<EMAIL>` for the first address, `<EMAIL_2>` for the second, and so on.

    `counts` are the replaced places by kind.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._names: dict[tuple[str, str], str] = {}
        self._numbers: Counter[str] = Counter()

    def replaced(self, text: str) -> str:
        """The text with a placeholder for everything that is found in it."""
        pieces, end = [], 0
        for place in find_personal_data(text):
            pieces += [text[end : place.start], self._name_of(place.kind, place.identity)]
            end = place.end
            self.counts[place.kind] += 1
        return "".join([*pieces, text[end:]]) if pieces else text

    def _name_of(self, kind: str, identity: str) -> str:
        if (kind, identity) not in self._names:
            self._numbers[kind] += 1
            number = self._numbers[kind]
            self._names[kind, identity] = f"<{kind}>" if number == 1 else f"<{kind}_{number}>"
        return self._names[kind, identity]


def without_personal_data(case: Mapping[str, Any]) -> tuple[dict[str, Any], Counter[str]]:
    """A case of the native form with placeholders in all its texts, and the number of replaced places by kind.

    Names of methods and documents, ids of chunks and labels stay (`UNTOUCHED`). An id of the case that holds personal data
    becomes the hash of what the case asks.
    """
    placeholders = Placeholders()
    ordered = {name: case[name] for name in ("history", "question") if name in case}  # numbered as they are read
    ordered |= {name: value for name, value in case.items() if name not in ("id", *ordered)}
    stripped = _stripped(ordered, placeholders)
    counts = Counter(placeholders.counts)
    case_id = case["id"]
    if find_personal_data(case_id):
        counts["ID"] += 1
        case_id = content_id(stripped)
    names = [name for name in case if name != "id"]
    return {"id": case_id, **{name: stripped[name] for name in names}}, counts


def _stripped(value: Any, placeholders: Placeholders, *, is_chunk: bool = False) -> Any:
    if isinstance(value, str):
        return placeholders.replaced(value)
    if isinstance(value, Mapping):
        return {
            name: item
            if name in UNTOUCHED or (is_chunk and name == "id")
            else _stripped(item, placeholders, is_chunk=name in ("chunks", "contexts"))
            for name, item in value.items()
        }
    if isinstance(value, Sequence):
        return [_stripped(item, placeholders, is_chunk=is_chunk) for item in value]
    return value


def without_meta(case: Mapping[str, Any], names: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """A case without these names below `meta` (dotted for inner ones), and those of them that it had."""
    meta, dropped = case.get("meta"), []
    for name in names:
        if isinstance(meta, Mapping) and (rest := _without(meta, name.split("."))) is not None:
            meta = rest
            dropped.append(name)
    return ({**case, "meta": meta} if dropped else dict(case)), dropped


def _without(mapping: Mapping[str, Any], path: Sequence[str]) -> dict[str, Any] | None:
    """The mapping without the key at a path, None where it is not there."""
    if path[0] not in mapping:
        return None
    if len(path) == 1:
        return {name: item for name, item in mapping.items() if name != path[0]}
    inner = mapping[path[0]]
    rest = _without(inner, path[1:]) if isinstance(inner, Mapping) else None
    return None if rest is None else {**mapping, path[0]: rest}
