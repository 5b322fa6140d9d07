"""A label counts for the answer that its annotator read, and for no other."""

import hashlib

import pytest

from ragpipe.core.sample import Chunk, Output, Sample, Turn, answer_digest

SAMPLE = Sample(id="s1", question="Who?", history=[Turn(role="user", text="Hello")], references=["Ann"])
OUTPUT = Output(sample_id="s1", method="a", answer="Ann.", chunks=[Chunk(id="c1", rank=1, text="Ann did."), Chunk(id="c2", rank=2)])


def test_the_digest_is_that_of_the_canonical_json():
    text = '{"answer":"Ann.","chunks":["Ann did.",""],"history":[["user","Hello"]],"question":"Who?"}'
    assert answer_digest(SAMPLE, OUTPUT) == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(("sample", "output"), [
    ({"question": "Who? "}, {}),
    ({"history": []}, {}),
    ({"history": [Turn(role="assistant", text="Hello")]}, {}),
    ({}, {"answer": "Bob."}),
    ({}, {"answer": ""}),
    ({}, {"answer": None}),
    ({}, {"chunks": None}),
    ({}, {"chunks": []}),
    ({}, {"chunks": [Chunk(id="c2", rank=1), Chunk(id="c1", rank=2, text="Ann did.")]}),
])  # fmt: skip
def test_another_text_is_another_answer(sample, output):
    changed = answer_digest(SAMPLE.model_copy(update=sample), OUTPUT.model_copy(update=output))
    assert changed != answer_digest(SAMPLE, OUTPUT)


def test_names_scores_and_references_do_not_count():
    sample = SAMPLE.model_copy(update={"id": "s2", "references": ["Bob"], "category": "x"})
    chunks = [Chunk(id="d1", rank=1, score=0.5, doc_id="d", text="Ann did."), Chunk(id="d2", rank=2)]
    output = OUTPUT.model_copy(update={"sample_id": "s2", "method": "b", "repeat": 2, "chunks": chunks})
    assert answer_digest(sample, output) == answer_digest(SAMPLE, OUTPUT)
