"""The example RAG: a question goes in, an output with answer, chunks, citations and timings comes out.

BM25 over the sections of Markdown documents.

Robertson and Zaragoza, The Probabilistic Relevance Framework: BM25 and Beyond (2009), with the non-negative idf that Lucene
uses: idf(w) = ln(1 + (N - n + 0.5) / (n + 0.5)) for a word that n of N chunks have.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import log
from pathlib import Path
from time import perf_counter
from typing import Any, get_args

from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.resources import PACKAGE
from ragpipe.core.sample import FolderMode, Policy
from ragpipe.core.text import list_items, sentences
from ragpipe.data.markdown import Document, read_documents
from ragpipe.judge.rules.numbers import STOP_WORDS
from ragpipe.judge.rules.tokenized_text import stem

HANDBOOK = PACKAGE / "data" / "handbook"
VERSION = "1"
FAULTS = {
    "wrong_scope": "questions about warranties, repairs and returns are looked up in the folder `company`",
    "missing_document": "the document `products/heron.md` is not in the index",
    "over_refusal": "it only answers where a passage has every word of the question",
    "stale_note": "of two notes that contradict each other it prefers the older one",
    "no_citations": "answers have no citations",
}
"""What can be switched on, with what it does."""
_TOP_K = 5
_MOST_SENTENCES = 3
_LISTING = re.compile(r"\b(?:steps?|list|how (?:do|can|does|should)|what are|which \w+s\b|name (?:all|the))", re.I)
_LABEL = re.compile(r"\*\*([^*\n]+):\*\*")
_COMPARING = re.compile(r"\b(?:and|both|compare[ds]?|versus|than|difference)\b", re.I)
_DECLINED = {
    r"\bshould (?:i|we) (?:buy|sell|invest|sign|sue)\b|\b(?:recommend|advise|advice)\b": "I cannot give financial or legal advice.",
    r"\b(?:salary|salaries|home address|private|birthday|religion|illness)\b": "I cannot give private information about people.",
}
"""What is asked, and how it is declined without a search."""
_NOTHING = "I could not find this in the documents."
_NOT_ALLOWED = "I cannot answer this because I am not allowed to use the note about it."
_Hit = tuple[int, float]  # the place of a chunk in the index, and its score


class ExampleRag:
    """A RAG system over the Markdown documents below `folder`.

    Sections are its chunks and BM25 finds them. `folder_mode` of a question: off, all folders are searched; on, those that
    its words point to; on_with_fallback, those, and all where they hold no answer. Advice and private details are declined
    by a rule. Where two notes contradict each other (`replaces` in the front matter), the newer goes before the older. `faults`
    are names of `FAULTS`.

    Raises DataError for documents that cannot be read, and ConfigError for an unknown fault.
    """

    def __init__(self, folder: Path = HANDBOOK, faults: Iterable[str] = ()):
        self.faults = frozenset(faults)
        if unknown := sorted(self.faults - FAULTS.keys()):
            problems = [Problem("example RAG", "fault", repr(name), f"some of {', '.join(FAULTS)}") for name in unknown]
            raise ConfigError("the example RAG cannot be started", problems)
        self.version = "+".join([VERSION, *sorted(self.faults)])
        self._documents = read_documents(folder)
        left_out = {"products/heron.md"} if "missing_document" in self.faults else set()
        self.index = LexicalIndex(chunks_of(note for note in self._documents if note.rel_path not in left_out))
        replaced = {(str(note.front_matter.get("replaces")), note.rel_path) for note in self._documents}
        self._goes_before = replaced if "stale_note" in self.faults else {(new, old) for old, new in replaced}

    def answer(self, question: str, folder_mode: FolderMode = "off") -> dict[str, Any]:
        """The output for a question, with the keys of `ragpipe.core.sample.Output`. Times are in milliseconds.

        Raises ValueError for another folder mode.
        """
        if folder_mode not in get_args(FolderMode):
            raise ValueError(f"folder_mode {folder_mode!r}; expected one of {', '.join(get_args(FolderMode))}")
        start = perf_counter()
        words = list(dict.fromkeys(search_words(question)))
        folders = None if folder_mode == "off" else self._folders(words)
        chosen = perf_counter()
        declined = next((text for pattern, text in _DECLINED.items() if re.search(pattern, question, re.I)), None)
        hits = [] if declined else self._retrieve(words, folders)
        found = perf_counter()
        lines, refusal = ([], declined) if declined else self._extract(question, words, hits)
        if folder_mode == "on_with_fallback" and refusal and not declined:
            folders, hits = [], self._retrieve(words, None)
            lines, refusal = self._extract(question, words, hits)
        times = {"folder_selection": chosen - start, "retrieval": found - chosen, "generation": perf_counter() - found}
        return {
            "answer": refusal or "\n".join(line["text"] for line in lines),
            "chunks": [self._chunk(rank, *hit) for rank, hit in enumerate(hits, 1)],
            "citations": [line for line in lines if "marker" in line],
            "abstained": refusal is not None,
            "folder_mode": folder_mode,
            **({} if folders is None else {"selected_folders": folders}),
            "timings": {stage: round(1000 * seconds, 3) for stage, seconds in times.items()},
            "version": self.version,
        }

    def index_rows(self) -> Iterator[dict[str, Any]]:
        """The manifest of the index, row by row (docs/diagnosis.md): every chunk, and every document without one."""
        for chunk, counts in zip(self.index.chunks, self.index.words, strict=True):
            row = {"doc_id": chunk.rel_path, "chunk_id": chunk.id, "tokens": counts.total(), "doc_type": chunk.doc_type}
            yield {**row, "chunker": "heading", "embedding": "bm25", "index_version": self.version}
        indexed = {chunk.rel_path for chunk in self.index.chunks}
        for note in self._documents:
            if note.rel_path not in indexed:
                yield {"doc_id": note.rel_path, "doc_type": str(note.front_matter.get("doc_type", "document"))}

    def _folders(self, words: list[str]) -> list[str]:
        is_misled = "wrong_scope" in self.faults and {"warranty", "repair", "return"} & set(words)
        return ["company"] if is_misled else self.index.folders_of(words)

    def _retrieve(self, words: list[str], folders: list[str] | None) -> list[_Hit]:
        """The best chunks; of two notes that contradict each other, the newer stands first."""
        ordered: list[_Hit] = []
        for hit in self.index.search(words, folders)[:_TOP_K]:
            path = self.index.chunks[hit[0]].rel_path
            below = [
                n for n, (place, _) in enumerate(ordered) if (path, self.index.chunks[place].rel_path) in self._goes_before
            ]
            ordered.insert(below[0] if below else len(ordered), hit)
        return ordered

    def _extract(self, question: str, words: list[str], hits: Sequence[_Hit]) -> tuple[list[dict[str, str]], str | None]:
        """The lines of the answer with their citations, or why there is none."""
        numbers = {word for word in words if has_digit(word)}
        evidence = self._evidence(question, words, numbers, hits)
        chunks = [self.index.chunks[place] for _, place in evidence]
        if chunks and chunks[0].policy == "no_use":
            return [], _NOT_ALLOWED
        present = {word for _, place in evidence for word in self.index.words[place]}
        least = 1.0 if "over_refusal" in self.faults else 0.5
        if len(words) < 2 or self.index.weight(words, present) < least * self.index.weight(words, words):
            return [], _NOTHING
        lines = []
        for (rank, _), chunk in zip(evidence, chunks, strict=True):
            for passage in self._passages(question, words, numbers, chunk):
                text = f'{chunk.title}: "{passage}"' if chunk.policy == "quote_only" else passage
                cited = {"marker": f"[{rank}]", "chunk_id": chunk.id, "text": f"{text} [{rank}]"}
                lines.append({"text": text} if "no_citations" in self.faults else cited)
        return lines, None

    def _evidence(self, question: str, words: list[str], numbers: set[str], hits: Sequence[_Hit]) -> list[tuple[int, int]]:
        """Rank and place of the chunk that has the numbers and most of the words, also in its heading and the labels of its items
        (`**Label:** value`); for a question that compares, of the one that adds most to it, too."""
        ranked = [(rank, place) for rank, (place, _) in enumerate(hits, 1)]
        fitting = [hit for hit in ranked if _sentences_with(numbers, self.index.chunks[hit[1]])]
        weight = self.index.weight

        def fit(hit: tuple[int, int]) -> tuple[float, ...]:
            chunk = self.index.chunks[hit[1]]
            labels = search_words(" ".join(_LABEL.findall(chunk.body)))
            parts = (self.index.words[hit[1]], search_words(chunk.heading_path), labels)
            return *(round(weight(words, part), 6) for part in parts), -hit[0]

        best = max(fitting, key=fit, default=None)
        if best is None or not _COMPARING.search(question):
            return [best] if best else []
        missing = [word for word in words if word not in self.index.words[best[1]]]
        usable = [hit for hit in fitting if hit != best and self.index.chunks[hit[1]].policy != "no_use"]
        second = max(usable, key=lambda hit: (weight(missing, self.index.words[hit[1]]), -hit[0]), default=best)
        return [best, second] if weight(missing, self.index.words[second[1]]) > 0 else [best]

    def _passages(self, question: str, words: Sequence[str], numbers: set[str], chunk: DocumentChunk) -> list[str]:
        """All items of a list that is asked for, else the sentences with most of the words that the heading has not."""
        items = list_items(chunk.body)
        if len(items) > 1 and _LISTING.search(question):
            return items
        passages = _sentences_with(numbers, chunk)
        asked = [word for word in words if word not in chunk.above]
        scores = [self.index.weight(asked, search_words(passage)) for passage in passages]
        best = max(scores, default=0.0)
        if best == 0:
            return items if len(items) > 1 else passages[:_MOST_SENTENCES]
        return [text for text, score in zip(passages, scores, strict=True) if score >= 0.6 * best][:_MOST_SENTENCES]

    def _chunk(self, rank: int, place: int, score: float) -> dict[str, Any]:
        chunk = self.index.chunks[place]
        head = {"id": chunk.id, "doc_id": chunk.rel_path, "rank": rank, "score": round(score, 4)}
        text = f"{chunk.heading_path}\n{chunk.body}" if chunk.heading_path else chunk.body  # names its subject
        about = {"heading_path": chunk.heading_path or None, "doc_type": chunk.doc_type, "policy": chunk.policy}
        return {**head, "text": text, "rel_path": chunk.rel_path, **about}


def _sentences_with(numbers: set[str], chunk: DocumentChunk) -> list[str]:
    """The sentences and list items of a chunk that have all the numbers, with those of its heading and title."""
    missing = numbers - set(chunk.above)
    return [passage for passage in sentences(chunk.body) if missing <= set(search_words(passage))]


def answer(sample: Mapping[str, Any]) -> dict[str, Any]:
    """The callable of `system=example`: answers `sample["question"]` over the shipped handbook.

    `sample["params"]` may have `folder_mode`, `faults` (a list) and `folder` (other documents). Raises ConfigError for another
    name.
    """
    params = dict(sample.get("params") or {})
    folder_mode, folder, faults = (params.pop("folder_mode", "off"), params.pop("folder", HANDBOOK), params.pop("faults", []))
    if params:
        problems = [
            Problem("system", f"system.params.{name}", repr(params[name]), "folder_mode, faults, folder") for name in params
        ]
        raise ConfigError("the example RAG cannot be asked", problems)
    return _opened(str(folder), tuple(faults)).answer(sample["question"], folder_mode)


@lru_cache(maxsize=8)
def _opened(folder: str, faults: tuple[str, ...]) -> ExampleRag:
    return ExampleRag(Path(folder), faults)


K1, B = 1.2, 0.75
_SHARE_OF_BEST, _MOST_FOLDERS = 0.75, 3
_WORD = re.compile(r"[^\W_]+(?:[.,]\d+)*")
_QUARTER = re.compile(r"\b(first|second|third|fourth) quarter(?: of)?\b")
_QUARTERS = {"first": "q1", "second": "q2", "third": "q3", "fourth": "q4"}
_MORE_STOP_WORDS = """according be else exactly far fast get gets give given large least long longer lot me might more most much must my name need
    needs per please quick run running runs s tarnwick tell under until us whose why would"""
_SAY_NOTHING = STOP_WORDS | set(_MORE_STOP_WORDS.split())
_SAME_WORDS = """accurate=accuracy bought=buy ceo=chief cost=price costs=price kept=keep phone=telephone sales=sold sell=sold
    sells=sold staff=employee weigh=weight weighs=weight"""  # what a lexical retriever cannot know by itself
_SAME_WORD = dict(pair.split("=") for pair in _SAME_WORDS.split())


def search_words(text: str) -> list[str]:
    """The stems of all words that carry meaning, in order and with repetitions; `third quarter of 2025` becomes `q3 2025`."""
    plain = _QUARTER.sub(lambda match: _QUARTERS[match[1]], text.casefold().replace("\u2019", "'"))
    words = (_SAME_WORD.get(word, word) for word in _WORD.findall(plain) if word not in _SAY_NOTHING)
    return [word if has_digit(word) else stem(word) for word in words]


def has_digit(word: str) -> bool:
    """Whether it is a number, a year, a quarter or a code such as E13."""
    return any(character.isdigit() for character in word)


@dataclass(frozen=True, slots=True)
class DocumentChunk:
    """A section of a document. `body` is its text; `title` that of its document."""

    id: str
    rel_path: str
    title: str
    heading_path: str
    body: str
    doc_type: str
    policy: Policy

    @property
    def folder(self) -> str:
        """The first folder of its path; empty for a document at the top."""
        return self.rel_path.rpartition("/")[0].partition("/")[0]

    @property
    def above(self) -> list[str]:
        """The words of its heading path and of its title."""
        return [*search_words(self.heading_path), *search_words(self.title)]


def chunks_of(documents: Iterable[Document]) -> Iterator[DocumentChunk]:
    """The sections with text, in the order of the documents, named `<rel_path>#<number>`."""
    for document in documents:
        kind = str(document.front_matter.get("doc_type", "document"))
        for number, section in enumerate((section for section in document.sections if section.text), 1):
            path = document.rel_path
            name = f"{path}#{number}"
            yield DocumentChunk(name, path, document.title, section.heading_path, section.text, kind, document.policy)


class LexicalIndex:
    """The words of all chunks. Words of the heading path count twice, those of the document's title once."""

    def __init__(self, chunks: Iterable[DocumentChunk]):
        self.chunks = list(chunks)
        self.words = [
            Counter([*search_words(chunk.body), *search_words(chunk.heading_path), *chunk.above]) for chunk in self.chunks
        ]
        self._mean_size = sum(words.total() for words in self.words) / max(len(self.words), 1)
        self._frequency = Counter(word for words in self.words for word in words)

    def idf(self, word: str) -> float:
        """How rare a word is; highest for a word that no chunk has."""
        frequency = self._frequency[word]
        return log(1 + (len(self.chunks) - frequency + 0.5) / (frequency + 0.5))

    def weight(self, words: Iterable[str], present: Collection[str]) -> float:
        """The sum of the idf of the words that are present."""
        return sum(self.idf(word) for word in words if word in present)

    def search(self, words: Collection[str], folders: Collection[str] | None = None) -> list[tuple[int, float]]:
        """Places and scores of the chunks that have one of the words, best first, equal ones in the order of the documents;
        only those of `folders`, all for None."""
        scores = (
            (place, self._score(self.words[place], words))
            for place, chunk in enumerate(self.chunks)
            if folders is None or chunk.folder in folders
        )
        return sorted((hit for hit in scores if hit[1] > 0), key=lambda hit: (-hit[1], hit[0]))

    def folders_of(self, words: Collection[str]) -> list[str]:
        """The folder that fits the words best and those within 75 % of its score, three at most, best first; none where no
        folder has a word. A word counts the more of a folder's chunks have it, saturated."""
        having = Counter((chunk.folder, word) for chunk, counts in zip(self.chunks, self.words, strict=True) for word in counts)
        scores = {
            folder: sum(self.idf(word) * having[folder, word] / (having[folder, word] + 0.5) for word in words)
            for folder in sorted({chunk.folder for chunk in self.chunks})
        }
        best = max(scores.values(), default=0.0)
        ranked = sorted(scores, key=lambda folder: -scores[folder])
        return [folder for folder in ranked if best and scores[folder] >= _SHARE_OF_BEST * best][:_MOST_FOLDERS]

    def _score(self, counts: Counter[str], words: Collection[str]) -> float:
        length = K1 * (1 - B + B * counts.total() / self._mean_size)
        present = (word for word in words if word in counts)
        return sum(self.idf(word) * counts[word] * (K1 + 1) / (counts[word] + length) for word in present)
