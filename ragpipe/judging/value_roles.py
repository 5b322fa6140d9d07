"""The values of a question by the roles that its template gives them, for judges that read values and no rendered text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragpipe.prompting.prompt import Prompt

IGNORED_ROLES = frozenset(("question", "history"))
"""Roles that decide no handler: they help where they are there."""


def values_by_role(prompt: Prompt, values: Mapping[str, Any]) -> dict[str, Any] | None:
    """The values by role, without absent ones; None where two values have the same role."""
    arguments = {**prompt.optional, **values}
    roles: dict[str, Any] = {}
    for name, role in prompt.roles.items():
        if arguments.get(name) is None:
            continue
        if role in roles and role not in IGNORED_ROLES:
            return None
        roles[role] = arguments[name]
    return roles


def source_texts(roles: Mapping[str, Any]) -> tuple[str, ...]:
    """The texts of the sources: chunks or strings, one or many."""
    sources = roles["sources"]
    if not isinstance(sources, list | tuple):
        sources = [sources]
    return tuple(source if isinstance(source, str) else str(source.text) for source in sources)
