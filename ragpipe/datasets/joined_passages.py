"""Several passages in one text: the sign that stands between them in most texts of a data set, and the pattern that cuts there."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ragpipe.datasets.printed_values import looks_printed

PRINTED = "a printed list"
_LOOKED_AT = 100_000  # characters of a text
_SURE, _PERHAPS = 0.2, 0.5  # of the texts that must have the sign; a case with one passage has none
_NUMBERED = (
    (r"\[{}\]", True),
    (r"【{}】", True),
    (r"(?:document|doc|context|passage|source|chunk|text|snippet) ?[\[(#]?{}[\])]?(?::|\.(?=\s)|\)|\n)", True),
    (r"\({}\)(?=\s)", False),
    (r"{}[.)](?=\s)", False),
)
"""How passages are numbered, and whether that is certain: steps of one passage are numbered too."""
_RUN = re.compile(
    r"^[ \t]*([-=*_#~+])\1{2,}[ \t]*$|\|{3,}|;{2,}|@{2,}|§{2,}|(?<=\s)(?:\|{2}|~{2,}|-{3,}|={3,}|\*{3,}|/{2,})(?=\s)|(?<=\S )#{2,}(?= )",
    re.MULTILINE,
)
_TAG = re.compile(
    r"<\|?/?[a-z_]*(?:sep|separator|doc|document|passage|chunk|context|eos|split|endoftext)[a-z_]*(?: [^<>]{0,80})?\|?/?>|</?s>|\[/?(?:sep|doc|split|eos)\]"
    r"|[\x1c-\x1f\x00]",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Separator:
    """What stands between passages: how messages name it, the regular expression that cuts there, how many of how many texts have it.
    `is_certain`: it is no sign of a usual text."""

    label: str
    pattern: str
    is_certain: bool
    count: int = 0
    texts: int = 0


class JoinedPassages:
    """Counts the signs over texts that may each hold several passages."""

    def __init__(self, texts: Iterable[str] = ()):
        self.texts, self._several = 0, False
        self._found: Counter[Separator] = Counter()
        for text in texts:
            self.add(text)

    def add(self, text: str) -> None:
        """Take a text into account; a blank one does not count."""
        if text.strip():
            self.texts += 1
            self._found.update(list(dict.fromkeys(_signs(text[:_LOOKED_AT]))))

    def add_case(self, passages: Sequence[str]) -> None:
        """Take a case into account: where every case has one passage at most, each may be several."""
        self._several = self._several or len(passages) > 1
        if passages and not self._several:
            self.add(passages[0])

    def separator(self) -> Separator | None:
        """The sign that most of the texts have, a certain one before others; None where there is none, and where a case has several passages."""
        if self._several:
            return None
        for sign, count in sorted(self._found.items(), key=lambda item: (not item[0].is_certain, -item[1])):
            if count >= self.texts * (_SURE if sign.is_certain else _PERHAPS):
                return Separator(sign.label, sign.pattern, sign.is_certain, count, self.texts)
        return None


def _signs(text: str) -> Iterator[Separator]:
    if looks_printed(text):
        yield Separator(PRINTED, "", True)
    for form, is_certain in _NUMBERED:
        if first := re.match(rf"\s*({form.format(1)})", text, re.IGNORECASE):
            before = "" if form.startswith("【") else r"(?:^|\s)"
            yield Separator(f"{first[1].strip()} ..", f"(?i){before}{form.format('[0-9]+')}", is_certain)
    for sign in [*_RUN.finditer(text), *_TAG.finditer(text)]:
        if text[: sign.start()].strip() and text[sign.end() :].strip():
            mark = sign[0].strip(" \t")
            name = re.fullmatch(r"</?(\w+)[^<>]*>", mark)
            run = f"{re.escape(mark[0])}{{{min(3, len(mark))},}}" if len(set(mark)) == 1 else re.escape(mark)
            run = rf"</?{name[1]}\b[^<>]*>" if name else run
            yield Separator(repr(mark[:3] if len(set(mark)) == 1 else mark)[1:-1], run, True)
    if re.search(r"\S[ \t]*\n[ \t]*\n\s*\S", text):
        yield Separator(r"\n\n", r"\n[ \t]*\n", False)
    if re.search(r"[^\s|]\s*\|\s*[^\s|]", text) and not re.search(r"^\s*\|", text, re.MULTILINE):
        yield Separator("|", r"\|", False)
