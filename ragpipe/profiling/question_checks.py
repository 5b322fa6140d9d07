"""Questions that may be one and the same: ids that look alike, texts that are equal."""

from __future__ import annotations

from ragpipe.profiling.finding import Finding
from ragpipe.schema.sample import Sample


class QuestionChecks:
    """Counts over samples, each added once. Holds a hash and a reference to the id for each."""

    def __init__(self) -> None:
        self._ids: dict[int, str] = {}
        self._texts: dict[int, str] = {}
        self._alike: list[tuple[str, str]] = []
        self._repeated: list[tuple[str, str]] = []
        self._n_alike = self._n_repeated = 0

    def add(self, sample: Sample) -> None:
        """Compare a sample with those before it."""
        if (first := self._ids.setdefault(hash(_plain(sample.id)), sample.id)) != sample.id:
            self._n_alike += 1
            if not self._alike:
                self._alike.append((first, sample.id))
        turns = tuple(turn.text for turn in sample.history)
        if (first := self._texts.setdefault(hash((_plain(sample.question), turns)), sample.id)) != sample.id:
            self._n_repeated += 1
            if not self._repeated:
                self._repeated.append((first, sample.id))

    def findings(self) -> list[Finding]:
        """What the samples so far have twice."""
        found = []
        for first, second in self._alike:
            text = f"{_many(self._n_alike, 'id differs', 'ids differ')} from another in case or blanks only, first {second!r} and {first!r}"
            fix = "if they are the same question, give them one id, so that methods are compared on it"
            found.append(Finding("similar_ids", text, self._n_alike, second, fix))
        for first, second in self._repeated:
            many = _many(self._n_repeated, "question repeats", "questions repeat")
            text = f"{many} the text of another under another id, first {second!r} and {first!r}"
            fix = "answers of several methods to one question need the same id; a true duplicate counts twice in every mean"
            found.append(Finding("repeated_questions", text, self._n_repeated, second, fix))
        return found


def _many(count: int, one: str, more: str) -> str:
    return f"{count:,} {one if count == 1 else more}"


def _plain(text: str) -> str:
    """The text without what two spellings of the same may differ in: case, and blanks at the ends or in a row."""
    return " ".join(text.casefold().split())
