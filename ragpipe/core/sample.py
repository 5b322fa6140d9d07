"""Sample, Output and Case: the question with its labels, what a system made of it, and the two together."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple, TypedDict, TypeGuard

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from ragpipe.core.digest import sha256
from ragpipe.core.text import MatchableText, quote_pieces
from ragpipe.core.text_forms import is_blank

UNREADABLE = "unreadable"
_VERDICT = f'a number, true, false, null or {{"{UNREADABLE}": "text"}}'


def is_unreadable(value: Any) -> TypeGuard[dict[str, str]]:
    """Whether a verdict was given that means no number; its text is under `unreadable`."""
    return isinstance(value, dict) and value.keys() == {UNREADABLE} and isinstance(value[UNREADABLE], str)


def several(value: Any) -> dict[str, Any] | None:
    """The verdicts of a list (named "1", "2", ...) or of an object, in order; None for a single verdict."""
    if isinstance(value, list):
        return {str(place): verdict for place, verdict in enumerate(value, 1)}
    return value if isinstance(value, dict) and not is_unreadable(value) else None


def _checked(value: Any) -> Any:
    inside = several(value)
    for name, verdict in (inside if inside is not None else {"": value}).items():
        if not _is_verdict(verdict):
            where = f" (not so: {name[:40]!r})" if inside is not None else ""
            expected = f"{_VERDICT}, or a list or an object of these{where}; a mapping turns labels into numbers by `map`"
            raise PydanticCustomError("recorded", "{expected}", {"expected": expected})
    return value


def _is_verdict(value: Any) -> bool:
    if not isinstance(value, int | float):  # a bool is an int
        return value is None or is_unreadable(value)
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


Recorded = Annotated[Any, AfterValidator(_checked)]


Policy = Literal["summarize", "quote_only", "no_use"]
ConflictRule = Literal["cite_newer", "cite_both", "acknowledge_both"]
FolderMode = Literal["off", "on", "on_with_fallback"]
OutputPart = Literal["answer", "contexts", "context_texts"]
"""What of an output a data set may leave unrecorded, by the name that metrics and messages use. `context_texts`: contexts are known
by their ids alone."""
PARTS: tuple[OutputPart, ...] = ("contexts", "context_texts", "answer")
NOT_RECORDED = "not_recorded: "
"""How the reason begins of a score that is skipped because the data set does not record a part of the output."""


MOST = 2**31 - 1
"""The highest count that a table holds: a rank, a repeat, a number of attempts."""


class _Noun(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class Turn(_Noun):
    """One earlier turn of the conversation."""

    role: Literal["user", "assistant"]
    text: str


class Anchor(_Noun):
    """A place in a document that holds the gold evidence, stable under re-chunking.

    `heading_path` is written with ` > ` between its parts; None means the whole document. `snippets` are literal pieces
    of the evidence. `role` says which side of a conflict the document is on (recency_conflict).
    """

    rel_path: str
    heading_path: str | None = None
    snippets: list[str] = Field(default_factory=list)
    role: Literal["newer", "older"] | None = None


class Expected(_Noun):
    """What a right answer does, apart from its content. `context_has` is how many of the items that the question asks for the
    contexts hold: "10 highlights" where only 5 are known."""

    behavior: Literal["answer", "reject"] | None = None
    rejection_reason: str | None = None
    requires_citations: bool | None = None
    min_citation_coverage: float | None = Field(default=None, ge=0, le=1)
    citations: list[str] | None = None
    must_quote: bool | None = None
    context_has: int | None = Field(default=None, ge=0)


class Sample(_Noun):
    """A question with its reference answers and labels.

    A label that is None is absent (metrics that need it are skipped); an empty list says that nothing is relevant.
    `gains` maps a doc or chunk id to its graded relevance. A `required_support_groups` group is met by any one of its
    members (ids or anchors).
    """

    id: str = Field(min_length=1)
    question: str
    history: list[Turn] = Field(default_factory=list)
    references: list[str] = Field(default_factory=list)
    relevant_docs: list[str] | None = None
    relevant_chunks: list[str] | None = None
    gains: dict[str, float] | None = None
    anchors: list[Anchor] | None = None
    required_support_groups: list[list[str | Anchor]] | None = None
    recency_conflict_rule: ConflictRule | None = None
    answerable: bool | None = None
    expected: Expected | None = None
    category: str | None = None
    subcategory: str | None = None
    difficulty: str | None = None
    question_type: str | None = None
    vault: str | None = None
    tags: list[str] = Field(default_factory=list)
    meta: dict[str, Any] = Field(default_factory=dict)

    @property
    def expects(self) -> Expected:
        """`expected`; where the sample has none, one in which everything is None."""
        return self.expected or Expected()


class Chunk(_Noun):
    """A retrieved passage. `rank` counts from 1 in the order the system gave; `score` is the retriever's own."""

    id: str
    doc_id: str | None = None
    rank: int = Field(ge=1, le=MOST)
    score: float | None = None
    text: str = ""
    rel_path: str | None = None
    heading_path: str | None = None
    doc_type: str | None = None
    policy: Policy = "summarize"


class Citation(_Noun):
    """A reference that the answer makes. `chunk_id` is the cited chunk's; where it is None, a marker `[n]` names the chunk of
    rank n, and any other names none. `text` is the cited passage of the answer."""

    marker: str | None = None
    chunk_id: str | None = None
    text: str | None = None


class Output(_Noun):
    """What one method (RAG variant) gave for one sample. `timings` are milliseconds by stage; `usage` are token counts, and
    `cost_usd` where the system knows its price. `version` is that of the method: its system prompt's, a release.

    `answer` and `chunks` are None where the data set does not record them: that says nothing about the method. An empty
    text and an empty list are findings: nothing was answered, nothing was retrieved.
    `repeat` counts, from 1, the outputs that one method gave for one sample when it was asked several times.
    `attempts` are the requests that it took, None where nobody counted them: `timings.total` is the time of the last one, and
    `timings.waited` that before it.
    `recorded` holds what people or other judges said of it, by name: see `metrics/computed/recorded.py`.
    `retrieves` is false where the method retrieves nothing by design (closed book): what measures retrieval or contexts is
    then skipped, while an empty list of chunks from a method that does retrieve is a finding.
    """

    sample_id: str = Field(min_length=1)
    method: str = Field(default="default", min_length=1)
    repeat: int = Field(default=1, ge=1, le=MOST)
    answer: str | None = None
    chunks: list[Chunk] | None = None
    citations: list[Citation] | None = None
    version: str | None = None
    abstained: bool | None = None
    folder_mode: FolderMode | None = None
    selected_folders: list[str] | None = None
    timings: dict[str, float] = Field(default_factory=dict)
    usage: dict[str, float] = Field(default_factory=dict)
    error: str | None = None
    retrieves: bool = True
    attempts: int | None = Field(default=None, ge=1, le=MOST)
    recorded: dict[str, Recorded] = Field(default_factory=dict)


class PairedOutput(Output):
    """The output of a candidate beside `other_answer`, that of the base for the same sample: the case of a preference. Its chunks are
    those of both. None: the base gave no answer."""

    other_answer: str | None = None


OUTPUT_KEY = ("sample_id", "method", "repeat")
"""The columns that name an output, and within one iteration a case."""


class CaseKey(NamedTuple):
    """What names a case everywhere: files, progress, shuffles, `explain`."""

    sample_id: str
    method: str
    repeat: int = 1
    iteration: int = 1

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> CaseKey:
        """The case of a row of a table; one without an iteration is of the first."""
        return cls(row["sample_id"], row["method"], row["repeat"], row.get("iteration", 1))

    def __str__(self) -> str:
        repeat = f" repeat {self.repeat}" if self.repeat != 1 else ""
        return f"{self.sample_id}/{self.method}{repeat}" + (f"#{self.iteration}" if self.iteration != 1 else "")


@dataclass(frozen=True)
class Case:
    """A sample and one output for it: the only thing a metric sees."""

    sample: Sample
    output: Output
    iteration: int = 1

    @property
    def key(self) -> CaseKey:
        return CaseKey(self.sample.id, self.output.method, self.output.repeat, self.iteration)

    @property
    def question(self) -> str:
        return self.sample.question

    @property
    def answer(self) -> str:
        """The answer; the empty text where it is not recorded (`records`)."""
        return self.output.answer or ""

    @property
    def other_answer(self) -> str | None:
        """The answer that this one is compared with; None for a case that is no pair, and where there is none."""
        return self.output.other_answer if isinstance(self.output, PairedOutput) else None

    @property
    def contexts(self) -> list[Chunk]:
        """The retrieved chunks in rank order; none where they are not recorded (`records`)."""
        return self.output.chunks or []

    def records(self, part: OutputPart) -> bool:
        """Whether the data set records this part of the output, be it empty. Chunks of which none has a text record ids alone."""
        if part == "context_texts":
            return not self.contexts or any(chunk.text for chunk in self.contexts)
        return (self.output.answer if part == "answer" else self.output.chunks) is not None

    @property
    def references(self) -> list[str]:
        """The reference answers in order: blank ones are none, and one that is given twice is one."""
        return distinct_references(self.sample.references)

    @property
    def reference(self) -> str | None:
        """The first reference answer, None when there is none."""
        return next(iter(self.references), None)


class QuotePlace(TypedDict):
    """A stretch of a chunk that a quote covers: from character `start` to before `end`."""

    chunk: str
    rank: int
    start: int
    end: int


class QuotableChunks:
    """Chunks in which quotes are looked for."""

    def __init__(self, chunks: Iterable[Chunk]):
        self._texts = [(chunk, MatchableText(chunk.text)) for chunk in chunks]

    def places(self, quote: str) -> list[QuotePlace]:
        """Where a quote occurs: the first time in each chunk. A quote with an elision (`...`) has a place for each of its
        pieces. Empty where no chunk has it, in the sense of `core.text.occurs`."""
        pieces = quote_pieces(quote)
        return [
            {"chunk": chunk.id, "rank": chunk.rank, "start": start, "end": end}
            for chunk, text in self._texts
            for start, end in text.find_pieces(pieces)[: len(pieces)]
        ]


@dataclass(frozen=True)
class Corpus:
    """`texts` reads the references of all samples anew, in order; they are not held. `digest` names their content."""

    texts: Callable[[], Iterable[str]]

    @cached_property
    def digest(self) -> str:
        return sha256([sha256(text) for text in self.texts()])


ReferenceRule = Literal["any", "first", "all"]
"""Which of a case's references count: any one of them, the first alone, or all of them."""


def distinct_references(texts: Iterable[str]) -> list[str]:
    """The references that say something, each once, in order: people who wrote the same answer are one reference."""
    by_text: dict[str, str] = {}
    for text in texts:
        if not is_blank(text):
            by_text.setdefault(text.strip(), text)
    return list(by_text.values())


class AnyReference(str):
    """Several reference answers (`texts`) as one text that numbers them and says that any one will do.

    It takes the place of a single reference. A prompt prints every answer between tags of its own (`laid_out`) and what
    is said of them outside: a judge takes no instructions from text between tags.
    """

    texts: tuple[str, ...]

    def __new__(cls, texts: Sequence[str]) -> AnyReference:
        made = super().__new__(cls, _laid_out(texts, str))
        made.texts = tuple(texts)
        return made

    def __getnewargs__(self) -> tuple[tuple[str, ...]]:  # type: ignore[override]
        return (self.texts,)

    def laid_out(self, fenced: Callable[[str], str]) -> str:
        """The text with every answer as `fenced` prints it."""
        return _laid_out(self.texts, fenced)


def _laid_out(texts: Sequence[str], printed: Callable[[str], str]) -> str:
    head = (
        f"Any one of these {len(texts)} reference answers will do. Each is right by itself: what is measured by the reference "
        "answer is measured by the one that fits best, and what only the others say is not asked for."
    )
    return "\n\n".join([head, *(f"Reference answer {n}:\n{printed(text)}" for n, text in enumerate(texts, 1))])


def answer_digest(sample: Sample, output: Output) -> str:
    """Hex sha256 of question, earlier turns, answer and the texts of the chunks in their order.

    Two cases with the same digest look the same to a person who labels them. Names, ranks and scores of chunks, the method,
    the references and every label of the data set are left out. An answer or chunks that are not recorded differ from empty ones.
    Of a pair the other answer belongs to it.
    """
    return sha256(
        {
            "question": sample.question,
            "history": [[turn.role, turn.text] for turn in sample.history],
            "answer": output.answer,
            "chunks": None if output.chunks is None else [chunk.text for chunk in output.chunks],
            **({"other_answer": output.other_answer} if isinstance(output, PairedOutput) else {}),
        }
    )
