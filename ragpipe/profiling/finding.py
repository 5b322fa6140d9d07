"""One thing that a profile of a data set notices."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Finding:
    """What was noticed, how often, where first, and what to do about it.

    `is_warning`: it is probably a fault of the data or of the mapping. Otherwise it is good to know.
    """

    name: str
    text: str
    count: int
    first: str
    fix: str = ""
    is_warning: bool = True

    def __str__(self) -> str:
        return f"{self.text}; {self.fix}" if self.fix else self.text

    def document(self) -> dict[str, Any]:
        """The finding as JSON."""
        return asdict(self)
