"""What changed between two texts, word by word, for the cases that a page shows without its script."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from typing import Literal, NamedTuple

TOKENS_MAX = 3000
"""Of one text; a longer one is shown as replaced as a whole: the time grows with the square."""
_TOKENS = re.compile(r"\s+|\w+|[^\w\s]")


class Change(NamedTuple):
    """A stretch of text: in both texts, only in the old one, or only in the new one."""

    kind: Literal["same", "removed", "added"]
    text: str


def word_changes(before: str, after: str) -> list[Change]:
    """The stretches of both texts in order. Those that are not `added` make up `before`, those not `removed` `after`."""
    old, new = _TOKENS.findall(before), _TOKENS.findall(after)
    if max(len(old), len(new)) > TOKENS_MAX:
        return _stretches(before, after) if before != after else _stretches(before, after, is_same=True)
    changes = []
    for kind, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        changes += _stretches("".join(old[i:j]), "".join(new[k:m]), is_same=kind == "equal")
    return changes


def _stretches(before: str, after: str, *, is_same: bool = False) -> list[Change]:
    if is_same:
        return [Change("same", before)] if before else []
    return [change for change in (Change("removed", before), Change("added", after)) if change.text]
