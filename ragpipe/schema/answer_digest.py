"""What a label is about: the digest of all that a person reads before giving it."""

from __future__ import annotations

from collections.abc import Sequence

from ragpipe.core.digest import sha256
from ragpipe.schema.sample import Output, Sample


def answer_digest(sample: Sample, output: Output) -> str:
    """Hex sha256 of question, earlier turns, answer and the texts of the chunks in their order.

    Two cases with the same digest look the same to a person who labels them. Names, ranks and scores of chunks, the method,
    the references and every label of the data set are left out. An answer or chunks that are not recorded differ from empty ones.
    """
    history = [(turn.role, turn.text) for turn in sample.history]
    chunks = None if output.chunks is None else [chunk.text for chunk in output.chunks]
    return digest_of_texts(sample.question, history, output.answer, chunks)


def digest_of_texts(
    question: str, history: Sequence[tuple[str, str]], answer: str | None, chunks: Sequence[str] | None
) -> str:
    """The same digest of the bare texts; `history` is roles and texts, `chunks` the texts in their order."""
    return sha256(
        {
            "question": question,
            "history": [list(turn) for turn in history],
            "answer": answer,
            "chunks": None if chunks is None else list(chunks),
        }
    )
