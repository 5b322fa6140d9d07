"""Documents cut into chunks: one per section, more where a section is long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ragpipe.documents.markdown import Document
from ragpipe.schema.sample import Policy

MAX_CHARS = 1200
CHUNKER = f"heading-{MAX_CHARS}"


@dataclass(frozen=True, slots=True)
class DocumentChunk:
    """A piece of a section. `body` is its text; `title` that of its document."""

    id: str
    rel_path: str
    title: str
    heading_path: str
    body: str
    doc_type: str
    policy: Policy

    @property
    def text(self) -> str:
        """The body under its heading path, so that the passage names its subject."""
        return f"{self.heading_path}\n{self.body}" if self.heading_path else self.body

    @property
    def folder(self) -> str:
        """The first folder of its path; empty for a document at the top."""
        return self.rel_path.rpartition("/")[0].partition("/")[0]


def chunks_of(documents: Iterable[Document], max_chars: int = MAX_CHARS) -> Iterator[DocumentChunk]:
    """The chunks in the order of documents and sections, named `<rel_path>#<number>`. A section without text has none."""
    for document in documents:
        number = 0
        for section in document.sections:
            for body in _pieces(section.text, max_chars):
                number += 1
                yield DocumentChunk(
                    id=f"{document.rel_path}#{number}",
                    rel_path=document.rel_path,
                    title=document.title,
                    heading_path=section.heading_path,
                    body=body,
                    doc_type=str(document.front_matter.get("doc_type", "document")),
                    policy=document.policy,
                )


def _pieces(text: str, max_chars: int) -> Iterator[str]:
    """A text in pieces of at most `max_chars`, cut between lines; a longer line is a piece of its own."""
    lines: list[str] = []
    size = 0
    for line in text.splitlines():
        if lines and size + len(line) + 1 > max_chars:
            yield "\n".join(lines).strip("\n")
            lines, size = [], 0
        lines.append(line)
        size += len(line) + 1
    if piece := "\n".join(lines).strip("\n"):
        yield piece
