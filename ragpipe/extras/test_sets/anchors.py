"""Gold places as the records of cases have them."""

from __future__ import annotations

from typing import Any, Literal

from ragpipe.documents.markdown import Document, DocumentSection

Role = Literal["newer", "older"] | None


def anchor(document: Document, section: DocumentSection, *snippets: str, role: Role = None) -> dict[str, Any]:
    """The place of a section, with literal pieces of its text, and which side of a conflict its document is on."""
    place: dict[str, Any] = {"rel_path": document.rel_path}
    if section.heading_path:
        place["heading_path"] = section.heading_path
    place["snippets"] = list(snippets)
    return place if role is None else {**place, "role": role}
