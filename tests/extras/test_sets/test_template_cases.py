"""Cases from templates fit their documents: the handbook, documents of any content; and the shipped set is made of them."""

import json
import re
from collections import Counter

import pytest
from markdown_it import MarkdownIt

from ragpipe.core.digest import sha256_file
from ragpipe.core.errors import ConfigError, DataError
from ragpipe.core.resources import data_path
from ragpipe.core.sample import Chunk, Sample
from ragpipe.core.text import normalise
from ragpipe.data.markdown import parse_document, read_documents
from ragpipe.extras.test_sets.answered_cases import silent_conflicts
from ragpipe.extras.test_sets.drafts import QuestionDraw
from ragpipe.extras.test_sets.english import meaning_words, word_set
from ragpipe.extras.test_sets.frozen_set import write_frozen_set
from ragpipe.extras.test_sets.question_templates import Kind, read_templates, template_names
from ragpipe.extras.test_sets.source_documents import SourceDocuments
from ragpipe.extras.test_sets.synthesize import SynthesizeSettings
from ragpipe.extras.test_sets.template_cases import KINDS, template_cases
from ragpipe.metrics.shared.ranking import matches_anchor

TEMPLATES = read_templates([])
_FUNCTION_WORDS = word_set(
    "a about am an and are as at by can cost did do does for from give go goes has have how i in into is it looking many me much money "
    "of on per since start tell that the there this to was what when where which who whom with year you ask charge purpose long existed"
)


def chunks(documents):
    """Each section with text as a retrieved chunk."""
    return [
        Chunk(id=f"{document.rel_path}#{section.line}", rank=1, rel_path=document.rel_path, heading_path=section.heading_path or None,
              text=section.text)
        for document in documents for section in document.sections if section.text
    ]  # fmt: skip


def list_lengths(text):
    """The number of items of each outermost list of a Markdown text, by the parser."""
    lengths: list[int] = []
    for token in MarkdownIt("commonmark").parse(text):
        if token.type in ("bullet_list_open", "ordered_list_open") and token.level == 0:
            lengths.append(0)
        elif token.type == "list_item_open" and token.level == 1:
            lengths[-1] += 1
    return lengths


def faults(case, documents):
    """What is wrong with a case; empty for one that fits its documents."""
    sample = Sample.model_validate({key: value for key, value in case.items()})
    texts = {document.rel_path: normalise("\n".join(section.text for section in document.sections)) for document in documents}
    wrong = []
    written = [section.text for document in documents for section in document.sections]
    odd = [match[0] for match in re.finditer(r"\b(\w+) \1\b|  |[{}]", sample.question)]
    if any(not any(part in text for text in written) for part in odd):
        wrong.append(f"the question reads badly: {sample.question}")
    sources = [texts[path] for path in sample.meta["origin"]["documents"]]
    for value in sample.meta.get("values", ()):
        if not any(normalise(value) in text for text in sources):
            wrong.append(f"{value!r} is in none of its documents")
        if not all(normalise(value) in normalise(reference) for reference in sample.references):
            wrong.append(f"{value!r} is not in the reference")
    for place in sample.anchors or ():
        wrong += _anchor_faults(place, documents)
    if sample.expected and sample.expected.context_has is not None:
        anchor = (sample.anchors or [])[0]
        section = next(c for c in chunks(documents) if c.rel_path == anchor.rel_path and c.heading_path == anchor.heading_path)
        if list_lengths(section.text) != [sample.expected.context_has]:
            wrong.append(f"{list_lengths(section.text)} items, not {sample.expected.context_has}")
    if case["question_type"] == "no_context":
        words = set(re.findall(r"\w+", sample.question.lower())) - _FUNCTION_WORDS
        full = {d.rel_path: " ".join([d.title, *(f"{s.heading_path} {s.text}" for s in d.sections)]).lower() for d in documents}
        wrong += [f"{path} has all words of {sample.question!r}" for path, text in full.items() if all(w in text for w in words)]
    return wrong


def _anchor_faults(place, documents):
    hits = [chunk for chunk in chunks(documents) if matches_anchor(chunk, place, require_snippet=True)]
    missing = [
        snippet for snippet in place.snippets
        if not any(matches_anchor(chunk, place.model_copy(update={"snippets": [snippet]}), require_snippet=True) for chunk in hits)
    ]  # fmt: skip
    return [f"the anchor {place} matches no section"] if not hits else [f"{snippet!r} is not at {place}" for snippet in missing]


def made(documents, seed=0, **counts):
    asked: dict[Kind, int | None] = {kind: counts.get(kind, 0 if counts else None) for kind in KINDS}
    return template_cases(SourceDocuments(documents, "Acme"), TEMPLATES, asked, QuestionDraw(seed), seed)


@pytest.fixture(scope="module")
def handbook():
    return read_documents(data_path("package:handbook"))


@pytest.mark.slow
def test_every_case_fits_the_handbook(handbook):
    cases = made(handbook, 3, complete=100, policy=60, no_context=30, partial_list=20, partial_dates=15, partial_entities=15, edge=20,
                 citation_pair=10, quote_only=6, conflict=6)  # fmt: skip
    assert [fault for case in cases for fault in faults(case, handbook)] == []
    assert Counter(case["category"] for case in cases) == {
        "should_answer_complete": 122, "should_answer_partial": 50, "should_reject_policy": 60, "should_reject_no_context": 30,
        "edge_cases": 20,
    }  # fmt: skip
    words = [meaning_words(case["question"]) for case in cases]
    assert len(set(words)) == len(cases) == len({case["id"] for case in cases})
    assert all(case["meta"]["origin"].keys() - {"fact"} == {"kind", "source", "documents", "seed"} for case in cases)
    facts = [(case["question_type"], case["meta"]["origin"]["fact"]) for case in cases if case["question_type"] != "policy"]
    assert len(set(facts)) == len(facts)


@pytest.mark.parametrize(("kind", "labels"), [
    ("complete", {"answerable": True, "expected": {"behavior": "answer"}}),
    ("quote_only", {"expected": {"behavior": "answer", "must_quote": True}}),
    ("conflict", {"recency_conflict_rule": "cite_newer"}),
    ("no_context", {"answerable": False, "relevant_docs": [], "expected": {"behavior": "reject", "rejection_reason": "no_context"}}),
])  # fmt: skip
def test_labels_of_a_kind(kind, labels, handbook):
    for case in made(handbook, **{kind: 5}):
        assert {name: case[name] for name in labels} == labels


@pytest.mark.slow
def test_labels_that_depend_on_the_documents(handbook):
    pair = made(handbook, citation_pair=3)[0]
    assert pair["expected"]["citations"] == pair["relevant_docs"]
    assert pair["expected"]["requires_citations"]
    conflict = made(handbook, conflict=3)[0]
    assert [place["role"] for place in conflict["anchors"]] == ["newer", "older"]
    policy = made(handbook, policy=30)
    expected = {"financial_advice": 10, "predictions": 10, "personal_data": 10}
    assert Counter(case["expected"]["rejection_reason"] for case in policy) == expected
    edge = {case["subcategory"]: case["expected"]["behavior"] for case in made(handbook, edge=16)}
    assert edge["ambiguous"] is None
    assert edge["false_premise"] == "answer"
    assert edge["mixed_with_policy"] is None
    silent = {item.rel_path for item in handbook if item.policy == "no_use"}
    assert not [case for case in made(handbook) if silent & set(case["meta"]["origin"]["documents"])]


def test_a_fact_is_asked_for_once():
    text = "---\ntitle: Alder\n---\nWe like Alder.\n\n## Facts\n- **Height:** 9 m\n- **Colour:** grey\n"
    source = SourceDocuments([parse_document(text.encode(), "alder.md")])
    own = read_templates(["complete.v1", "partial_entities.v1"])
    counts: dict[Kind, int | None] = {"complete": None, "partial_entities": None}
    cases = template_cases(source, own, counts, QuestionDraw(0), 0)
    asked = [f"{case['question_type']} {case['meta']['origin']['fact']}" for case in cases]
    assert sorted(asked) == [f"{kind} alder.md#Facts#{key}" for kind in ("complete", "partial_entities") for key in ("Colour", "Height")]


def test_a_conflict_names_neither_note():
    body = "---\ntitle: Note on frost {0}\n{1}---\n# Note on frost {0}\n\n## Lowest temperature\n\nIt is {2} degrees.\n"
    texts = {
        "a.md": body.format(2024, "", "four"), "b.md": body.format(2026, "replaces: a.md\n", "six"),
        "c.md": "---\ntitle: Salt\nreplaces: a.md\n---\nAll is new.\n",
    }  # fmt: skip
    source = SourceDocuments([parse_document(text.encode(), path) for path, text in texts.items()])
    cases = template_cases(source, TEMPLATES, {"conflict": None}, QuestionDraw(0), 0)
    assert [case["relevant_docs"] for case in cases] == [["b.md", "a.md"]]
    assert "20" not in cases[0]["question"]
    assert "lowest temperature" in cases[0]["question"].lower()
    assert silent_conflicts(source, TEMPLATES) == ["c.md"]


def test_a_false_premise_has_a_value_of_the_same_unit():
    values = {"Alder": "9 m", "Birch": "12 m", "Cedar": "300 cm", "Dogwood": "low"}
    documents = [
        parse_document(f"---\ntitle: {name}\n---\nWe like {name}.\n\n## Facts\n- **Height:** {value}\n".encode(), f"{name}.md")
        for name, value in values.items()
    ]
    cases = [case for case in made(documents, edge=None) if case["subcategory"] == "false_premise"]
    assert cases
    for case in cases:
        wrong = {"Alder.md": "12 m", "Birch.md": "9 m"}[case["relevant_docs"][0]]
        assert wrong in case["question"]


@pytest.mark.slow
def test_a_seed_decides_everything(handbook):
    assert made(handbook, 1) == made(list(reversed(handbook)), 1)
    assert made(handbook, 1) != made(handbook, 2)


@pytest.mark.slow
def test_documents_of_one_name_and_many_documents_of_one_key():
    """Titles that differ in brackets alone give the same questions; a key of many documents is not paired with all of them."""
    texts = [f"---\ntitle: Alder ({n})\n---\nWe like Alder.\n\n## Facts\n- **Height:** {n} m\n" for n in (1, 2)]
    texts += [f"---\ntitle: Tree{n}\n---\nWe like Tree{n}.\n\n## Facts\n- **Height:** {n} m\n" for n in range(3, 40)]
    documents = [parse_document(text.encode(), f"{n:02}.md") for n, text in enumerate(texts)]
    cases = made(documents, policy=90, citation_pair=60, edge=60, complete=30)
    assert [fault for case in cases for fault in faults(case, documents)] == []
    pairs = [tuple(sorted(case["relevant_docs"])) for case in cases if case["question_type"] == "citation_pair"]
    assert len(set(pairs)) == len(pairs) == 60


def test_too_few_questions_are_counted(handbook):
    with pytest.raises(DataError, match=r"counts\.quote_only=6") as caught:
        made(handbook, quote_only=7, complete=3)
    assert [problem.key for problem in caught.value.problems] == ["synthesize.counts.quote_only"]
    assert len(made(handbook, quote_only=6)) == 6


def test_wrong_templates_are_named(tmp_path):
    assert "complete.v1" in template_names()
    own = tmp_path / "own.yaml"
    own.write_text("kind: complete\ntemplates:\n  - name: a\n    about: fact\n    questions: ['What is {keys}?']\n", encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        read_templates(["complete.v9", str(own)])
    first, second = caught.value.problems
    assert first.found == "no such file"
    assert "complete.v1" in first.fix
    assert "{keys} is no slot of complete about fact" in second.found
    assert "key" in second.found


def test_templates_of_ones_own(tmp_path, handbook):
    own = tmp_path / "legal.yaml"
    own.write_text(
        "kind: policy\npolicy: legal_advice\ntemplates:\n"
        "  - {name: sue, about: name, questions: ['Can I sue somebody over {name}?']}\n", encoding="utf-8",
    )  # fmt: skip
    cases = template_cases(SourceDocuments(handbook), read_templates([str(own)]), {"policy": 4}, QuestionDraw(0), 0)
    assert {case["expected"]["rejection_reason"] for case in cases} == {"legal_advice"}
    assert {case["meta"]["origin"]["source"] for case in cases} == {"legal/sue"}


FOLDER = data_path("package:demo_categories")
AGAIN = "make it again: the command is in docs/extras/test_sets.md, `The second demonstration set`"


@pytest.fixture(scope="module")
def card():
    return json.loads((FOLDER / "card.json").read_text(encoding="utf-8"))


def test_the_second_demonstration_set_has_the_five_categories(card):
    assert card["counts"]["category"] == {
        "should_answer_complete": 100, "should_answer_partial": 50, "should_reject_policy": 100, "should_reject_no_context": 30,
        "edge_cases": 20,
    }  # fmt: skip
    partial = {name: n for name, n in card["counts"]["subcategory"].items() if name.startswith("partial")}
    assert partial == {"partial_list_results": 20, "partial_date_range": 15, "partial_entity_coverage": 15}
    assert card["sha256"] == sha256_file(FOLDER / "cases.jsonl")


@pytest.mark.slow
def test_the_second_demonstration_set_can_be_made_again(card, tmp_path):
    """From the handbook as it is now."""
    settings = SynthesizeSettings.model_validate({**card["settings"], "dir": "again"})
    documents = read_documents(data_path(settings.documents))
    source = SourceDocuments(documents, settings.organisation)
    templates, draw = read_templates(settings.templates), QuestionDraw(card["seed"])
    cases = template_cases(source, templates, settings.by_kind(), draw, card["seed"])
    assert [fault for case in cases for fault in faults(case, documents)] == []
    assert write_frozen_set(tmp_path / "again", cases, {}) == card["sha256"], AGAIN
