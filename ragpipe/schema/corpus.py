"""The reference answers of a whole data set: what the rarity of a token is counted over."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from ragpipe.core.digest import sha256


@dataclass(frozen=True)
class Corpus:
    """`texts` reads the references of all samples anew, in order; they are not held. `digest` names their content."""

    texts: Callable[[], Iterable[str]]

    @cached_property
    def digest(self) -> str:
        return sha256([sha256(text) for text in self.texts()])
