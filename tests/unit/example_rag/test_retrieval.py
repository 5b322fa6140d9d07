"""Words, chunks, BM25 and the choice of folders, on texts small enough to calculate by hand."""

from math import log

import pytest

from ragpipe.data.markdown import parse_document
from ragpipe.example_rag.system import K1, B, LexicalIndex, chunks_of, search_words


def _index(**bodies: str) -> LexicalIndex:
    """An index with one document per name; `a_b` is the document `b.md` in the folder `a`."""
    documents = [parse_document(body.encode(), name.replace("_", "/") + ".md") for name, body in bodies.items()]
    return LexicalIndex(chunks_of(documents))


@pytest.mark.parametrize(("text", "words"), [
    ("How many batteries does a Kestrel need?", ["battery", "kestrel"]),
    ("sales in the third quarter of 2025", ["sold", "q3", "2025"]),
    ("12,400 units, E13", ["12,400", "unit", "e13"]),
    ("It is not covered", ["not", "cover"]),
    ("What do prices cost?", ["pric", "pric"]),
])  # fmt: skip
def test_the_words_of_a_text(text: str, words: list[str]) -> None:
    assert search_words(text) == words


def test_chunks_are_sections_with_their_heading() -> None:
    document = parse_document(b"---\npolicy: no_use\ndoc_type: memo\n---\n# A\n\n## B\n\ntext\n\n## C\n\nmore\n", "x/n.md")
    chunks = list(chunks_of([document]))
    assert [(c.id, c.heading_path, c.body, c.folder) for c in chunks] == [
        ("x/n.md#1", "A > B", "text", "x"),
        ("x/n.md#2", "A > C", "more", "x"),
    ]
    assert {(c.policy, c.doc_type, c.title) for c in chunks} == {("no_use", "memo", "A")}


def test_bm25_by_hand() -> None:
    """Two chunks: `sun` in the first, twice; both have 3 words (the title counts once: the file's name)."""
    index = _index(p="sun sun", q="moon star")
    assert [counts.total() for counts in index.words] == [3, 3]
    idf = log(1 + (2 - 1 + 0.5) / (1 + 0.5))
    expected = idf * 2 * (K1 + 1) / (2 + K1 * (1 - B + B * 1))
    assert index.search(["sun"]) == [(0, pytest.approx(expected))]
    assert index.idf("absent") == pytest.approx(log(1 + 2.5 / 0.5))
    assert index.weight(["sun", "moon"], index.words[0]) == pytest.approx(idf)


def test_only_chosen_folders_are_searched() -> None:
    index = _index(a_x="sun", b_y="sun")
    assert [place for place, _ in index.search(["sun"])] == [0, 1]
    assert [place for place, _ in index.search(["sun"], ["b"])] == [1]


def test_the_folders_with_the_words_are_chosen() -> None:
    index = _index(a_x="sun and moon", a_y="moon", b_z="star", c_w="moon, once")
    assert index.folders_of(["star"]) == ["b"]
    assert index.folders_of(["sun", "moon"])[0] == "a"
    assert index.folders_of(["nothing"]) == []
