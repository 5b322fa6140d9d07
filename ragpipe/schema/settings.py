"""The base of every configuration section."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from ragpipe.core.digest import DIGEST

Sha256 = Annotated[str, Field(pattern=f"^{DIGEST.pattern}$")]
"""A hex sha256."""


class NotInIdentity:
    """Marks a field that cannot change a number (`Annotated[int, NotInIdentity]`): it is left out of a run's identity."""


class Settings(BaseModel):
    """A configuration section: unknown keys are refused, a str means a str, and it cannot change once read.

    Its validator is built when it is first used (`defer_build`): most sections are parts of others and never read alone.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, protected_namespaces=(), defer_build=True)

    def identity(self) -> dict[str, Any]:
        """The fields that can change a number, as plain JSON: what two runs must share to be the same run."""
        fields: dict[str, Any] = {}
        for name, field in type(self).model_fields.items():
            if any(mark is NotInIdentity for mark in field.metadata):
                continue
            value = getattr(self, name)
            fields[name] = value.identity() if isinstance(value, Settings) else _plain(value)
        return fields


def _plain(value: Any) -> Any:
    if isinstance(value, Settings):
        return value.identity()
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        items = [_plain(item) for item in value]
        return sorted(items, key=str) if isinstance(value, set | frozenset) else items
    return value
