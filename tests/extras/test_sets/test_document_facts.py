"""What is read from sections: facts, lists, series, paragraphs; and what is passed over."""

from ragpipe.data.markdown import parse_document
from ragpipe.extras.test_sets.source_documents import SourceDocuments, facts, item_lists, paragraphs, period_series


def document(body, rel_path="a.md"):
    return parse_document(body.encode(), rel_path)


def test_facts_have_a_key_in_bold_and_a_plain_value():
    text = """# T
## S
- **Notice period:** four weeks
- **Place**: Ostrey,
  near the river
* **Link:** see [here](x.md)
- **Q1 2026:** 12
- **No value:**
- plain item
1. **Numbered:** yes
```
- **In code:** no
```
"""
    expected = [("Notice period", "four weeks"), ("Place", "Ostrey, near the river"), ("Numbered", "yes")]
    assert [(fact.key, fact.value) for fact in facts(document(text))] == expected


def test_a_list_is_the_only_one_of_its_section():
    text = """# T
## Steps
Some words.

1. First
   - inner
   - inner two
2. Second
   goes on
3. Third

Words after it.
## Two lists
- a
- b

Words.

- c
## Too short
- a
- b
## Facts
- **K:** v
- **L:** w
- **M:** x
## Links
- [a](b)
- c
- d
"""
    lists = list(item_lists(document(text)))
    assert [(item.section.heading_path, item.items) for item in lists] == [("T > Steps", ("First", "Second goes on", "Third"))]


def test_a_series_has_no_gap():
    text = """# T
## Sold
- **Q4 2025:** 3
- **Q1 2026:** 4
- **Q2 2026:** 5
## Backwards
- 2026: 5
- 2025: 4
- 2024: 3
## Gap
- 2021: 1
- 2023: 2
- 2024: 3
## Mixed
- 2021: 1
- 2022: 2
- 2023: 3
- later: 4
"""
    series = {item.section.heading_path: [(str(p), v) for p, v in item.rows] for item in period_series(document(text))}
    assert series == {
        "T > Sold": [("Q4 2025", "3"), ("Q1 2026", "4"), ("Q2 2026", "5")],
        "T > Backwards": [("2024", "3"), ("2025", "4"), ("2026", "5")],
        "T > Mixed": [("2021", "1"), ("2022", "2"), ("2023", "3")],
    }


def test_paragraphs_are_sections_without_anything_else():
    text = "# T\n## A\nOne line\nand another.\n\nA second one.\n## B\nWords\n- item\n## C\n| a | b |\n## D\nWith a [link](x).\n"
    assert [(p.section.heading_path, p.text) for p in paragraphs(document(text))] == [("T > A", "One line and another. A second one.")]


SUBJECTS = [
    ("Kestrel leak sensor", "A battery lasts long, and Kestrel warns early.", "the Kestrel leak sensor", "of"),
    ("Tern Desk", "We sell the Tern Desk.", "Tern Desk", "of"),
    ("Returns policy (2026)", "Text.", "the returns policy", "in"),
    ("Error codes", "Text. Error codes and an error.", 'the document "Error codes"', "in"),
    ("Rate limits and retries", "We set a rate. As for Rate limits, see above.",
     'the document "Rate limits and retries"', "in"),
    ("Project Atlas", "A project needs money. We began Project Atlas.", "Project Atlas", "of"),
    ("How a plan is made", "Text.", 'the document "How a plan is made"', "in"),
    ("Note on frost", "Text.", "the note on frost", "in"),
    ("Annual report 2025", "Text.", "the annual report 2025", "in"),
]  # fmt: skip
"""Title and text of a document, how it is named, and what stands before that."""


def test_a_subject_is_named_by_its_title():
    texts = [f"---\ntitle: {title}\n---\n# {title}\n\n{text}\n" for title, text, _, _ in SUBJECTS]
    documents = [document(text, f"{n}.md") for n, text in enumerate(texts)]
    subjects = map(SourceDocuments(documents).subject, documents)
    assert [(subject.words, subject.of) for subject in subjects] == [(words, f"{of} {words}") for _, _, words, of in SUBJECTS]


def test_who_may_be_asked_about():
    def note(name, head=""):
        return document(f"---\ntitle: {name}\n{head}---\n# {name}\n\n## Team\n\n- **Ada Byron:** chief engineer\n", f"{name}.md")

    source = SourceDocuments([
        note("plain"), note("quoted", "policy: quote_only\n"), note("secret", "policy: no_use\n"),
        note("new", "replaces: old.md\n"), note("old"),
    ])  # fmt: skip
    assert [item.title for item in source.plain] == ["plain"]
    assert [item.title for item in source.quotable] == ["quoted"]
    assert [(newer.title, older.title) for newer, older in source.conflicts] == [("new", "old")]
    assert source.persons == ["Ada Byron"]
    assert not source.is_absent("chief engineers")
    assert source.is_absent("chief gardener")
    assert not source.is_absent("the of")
