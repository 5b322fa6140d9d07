"""Which names of the records a mapping does not read: found by watching what it looks up in the first records."""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, Sequence, ValuesView
from typing import Any

from ragpipe.core.safe_text import on_one_line
from ragpipe.datasets.record_mapping import RecordMapping

_MAX_DEPTH = 4
_SHOWN = 12


class Watched(dict[str, Any]):
    """An object that notes in `seen` the path of each name that is looked up in it."""

    def __init__(self, values: dict[str, Any], path: str, seen: set[str]):
        super().__init__({name: _watched(value, f"{path}{name}", seen) for name, value in values.items()})
        self._path, self._seen = path, seen

    def get(self, name: str, default: Any = None) -> Any:
        self._seen.add(f"{self._path}{name}")
        return super().get(name, default)

    def __getitem__(self, name: str) -> Any:
        self._seen.add(f"{self._path}{name}")
        return super().__getitem__(name)

    def __or__(self, added: dict[str, Any]) -> Watched:  # type: ignore[override]
        """A scope: the names that steps add to a record are watched as if they stood in it."""
        both = Watched({}, self._path, self._seen)
        dict.update(both, {**dict(dict.items(self)), **added})
        return both

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        self._seen.update(f"{self._path}{name}" for name in self)
        return super().items()

    def values(self) -> ValuesView[Any]:  # type: ignore[override]
        return dict(self.items()).values()


Watched.__name__ = "dict"  # JMESPath goes by the name of a type


def _watched(value: Any, path: str, seen: set[str]) -> Any:
    if isinstance(value, dict):
        return Watched(value, f"{path}.", seen)
    return [_watched(item, f"{path}[]", seen) for item in value] if isinstance(value, list) else value


def unread_names(records: Iterable[dict[str, Any]], mapping: RecordMapping) -> list[str]:
    """The paths of names in records that no expression of a mapping looks up; the names inside of an object only where another name
    in it is looked up. A name whose value is null everywhere does not count."""
    seen: set[str] = set()
    names: dict[str, None] = {}
    for index, record in enumerate(records, 1):
        for _ in mapping.cases(Watched(record, "", seen), "", index, index):
            pass
        names.update(dict.fromkeys(_names(record, "", 1)))
    unread = [name for name in names if name not in seen]
    return [name for name in unread if (parent := name.rpartition(".")[0]) == "" or _is_entered(parent, seen)]


def _is_entered(parent: str, seen: set[str]) -> bool:
    return any(name.startswith(f"{parent}.") for name in seen)


def _names(value: Any, path: str, depth: int) -> Iterator[str]:
    if isinstance(value, list):
        for item in value[:1]:
            yield from _names(item, f"{path.removesuffix('.')}[].", depth)
    elif isinstance(value, dict) and depth <= _MAX_DEPTH:
        for name, item in value.items():
            if item is not None:
                yield f"{path}{name}"
                yield from _names(item, f"{path}{name}.", depth + 1)


def unread_line(names: Sequence[str]) -> str:
    """The names on one line; empty where there is none."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"not read: {on_one_line(', '.join(names[:_SHOWN]), 1000)}{more}" if names else ""
