"""The second demonstration set: its counts, and that task=synthesize makes it again from the handbook as it is now."""

import json

import pytest

from ragpipe.core.digest import sha256_file
from ragpipe.core.resources import data_path
from ragpipe.data.markdown import read_documents
from ragpipe.extras.test_sets.drafts import QuestionDraw
from ragpipe.extras.test_sets.frozen_set import write_frozen_set
from ragpipe.extras.test_sets.question_templates import read_templates
from ragpipe.extras.test_sets.source_documents import SourceDocuments
from ragpipe.extras.test_sets.synthesize import SynthesizeSettings
from ragpipe.extras.test_sets.template_cases import template_cases
from tests.extras.test_sets.synthesized import faults

FOLDER = data_path("package:demo_categories")
AGAIN = "make it again: the command is in docs/extras/test_sets.md, `The second demonstration set`"


@pytest.fixture(scope="module")
def card():
    return json.loads((FOLDER / "card.json").read_text(encoding="utf-8"))


def test_it_has_the_five_categories(card):
    assert card["counts"]["category"] == {
        "should_answer_complete": 100, "should_answer_partial": 50, "should_reject_policy": 100, "should_reject_no_context": 30,
        "edge_cases": 20,
    }  # fmt: skip
    partial = {name: n for name, n in card["counts"]["subcategory"].items() if name.startswith("partial")}
    assert partial == {"partial_list_results": 20, "partial_date_range": 15, "partial_entity_coverage": 15}
    assert card["sha256"] == sha256_file(FOLDER / "cases.jsonl")


@pytest.mark.slow
def test_it_can_be_made_again(card, tmp_path):
    settings = SynthesizeSettings.model_validate({**card["settings"], "dir": "again"})
    documents = read_documents(data_path(settings.documents))
    source = SourceDocuments(documents, settings.organisation)
    templates, draw = read_templates(settings.templates), QuestionDraw(card["seed"])
    cases = template_cases(source, templates, settings.by_kind(), draw, card["seed"])
    assert [fault for case in cases for fault in faults(case, documents)] == []
    assert write_frozen_set(tmp_path / "again", cases, {}) == card["sha256"], AGAIN
