import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpipe.core.errors import DataError
from ragpipe.data.markdown import parse_document, read_documents

NOTE = b"""\
---
title: Kestrel
date: 2026-03-02
policy: quote_only
doc_type: product
replaces: old.md
tags: [a, 2026-01-05]
---
Before any heading.

# Kestrel *leak* sensor

A sensor.

## Prices
- **Unit price:** 49 EUR

### From `2027`

```
# no heading
```

> # nor this one

Notes
-----

    # nor this
"""


def test_a_document_with_all_parts():
    document = parse_document(NOTE, "products/kestrel.md")
    assert (document.rel_path, document.title, document.policy) == ("products/kestrel.md", "Kestrel", "quote_only")
    assert document.front_matter == {
        "title": "Kestrel", "date": "2026-03-02", "policy": "quote_only", "doc_type": "product", "replaces": "old.md",
        "tags": ["a", "2026-01-05"],
    }  # fmt: skip
    assert [(s.heading_path, s.level, s.text, s.line) for s in document.sections] == [
        ("", 0, "Before any heading.", 9),
        ("Kestrel leak sensor", 1, "A sensor.", 11),
        ("Kestrel leak sensor > Prices", 2, "- **Unit price:** 49 EUR", 15),
        ("Kestrel leak sensor > Prices > From 2027", 3, "```\n# no heading\n```\n\n> # nor this one", 18),
        ("Kestrel leak sensor > Notes", 2, "    # nor this", 26),
    ]


@pytest.mark.parametrize(("text", "title"), [
    ("---\ntitle: A\n---\n# B", "A"), ("## C\n# B\n# D", "B"), ("## C", "note"), ("", "note"),
])  # fmt: skip
def test_the_title(text, title):
    assert parse_document(text.encode(), "x/note.md").title == title


@pytest.mark.parametrize(("raw", "where", "key", "actual"), [
    (b"ok\n\xff\n", "a.md:2", "text", "0xff"),
    (b"---\ntitle: A\n", "a.md:1", "front matter", "no second line ---"),
    (b"---\npolicy: secret\n---\n", "a.md:2", "policy", "'secret'"),
    (b"---\ntitle: A\ndate: 02.03.2026\n---\n", "a.md:3", "date", "'02.03.2026'"),
    (b"---\ntitle: A\ntitle: B\n---\n", "a.md:3", "title", "twice"),
    (b"---\na: [1\n---\n", "a.md:3", "the file", "expected"),
    (b"---\nreplaces: gone.md\n---\n", "a.md", "replaces", "'gone.md'"),
])  # fmt: skip
def test_faults_name_file_and_line(tmp_path, raw, where, key, actual):
    (tmp_path / "a.md").write_bytes(raw)
    (tmp_path / "fine.md").write_text("# Fine\n")
    with pytest.raises(DataError) as error:
        read_documents(tmp_path)
    (problem,) = error.value.problems
    assert (problem.where, problem.key) == (where, key)
    assert actual in problem.found


def test_the_documents_of_a_folder(tmp_path):
    for name in ("b/z.md", "b/a.markdown", "a.md", ".hidden/x.md", "b/.x.md", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf# T\r\n\r\ntext\r\nmore\r\n")
    documents = read_documents(tmp_path)
    assert [document.rel_path for document in documents] == ["a.md", "b/a.markdown", "b/z.md"]
    assert documents[0].sections[0].text == "text\nmore"


@pytest.mark.parametrize("name", ["absent", "."])
def test_a_folder_without_documents_is_refused(tmp_path, name):
    with pytest.raises(DataError):
        read_documents(tmp_path / name)


@given(raw=st.binary(max_size=60) | st.text("-#ab: \n>`'\"", max_size=60).map(str.encode))
def test_any_bytes_are_a_document_or_a_fault(raw):
    try:
        document = parse_document(raw, "n.md")
    except DataError as error:
        places = [problem.where for problem in error.problems]
    else:
        places = [f"n.md:{section.line}" for section in document.sections]
        assert len(set(places)) == len(places)
    assert all(place.startswith("n.md") for place in places)
