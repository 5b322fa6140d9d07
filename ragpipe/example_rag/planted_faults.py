"""Faults that can be switched on in the example system, each of a kind that real systems have."""

from __future__ import annotations

from collections.abc import Iterable

from ragpipe.core.errors import ConfigError, Problem

FAULTS: dict[str, str] = {
    "wrong_scope": "questions about warranties, repairs and returns are looked up in the folder `company`",
    "missing_document": "the document `products/heron.md` is not in the index",
    "over_refusal": "it only answers where a passage has every word of the question",
    "stale_note": "of two notes that contradict each other it prefers the older one",
    "no_citations": "answers have no citations",
}
"""The faults with what each of them does."""
MISSING_DOCUMENT = "products/heron.md"
WRONG_FOLDER = "company"
WRONG_SCOPE_WORDS = frozenset({"warranty", "repair", "return"})
OVER_REFUSAL_COVERAGE = 1.0


def checked_faults(names: Iterable[str]) -> frozenset[str]:
    """The names as a set. Raises ConfigError for one that is no fault."""
    chosen = frozenset(names)
    if unknown := sorted(chosen - FAULTS.keys()):
        expected = f"some of {', '.join(FAULTS)}"
        problems = [Problem("example RAG", "fault", repr(name), expected) for name in unknown]
        raise ConfigError("the example RAG cannot be started", problems)
    return chosen
