"""What the questions of a language model must hold to be kept."""

import pytest

from ragpipe.extras.test_sets.model_questions import rephrasing_fault, section_question_fault
from ragpipe.judge.answers import SectionQuestion

BEFORE = 'What does the document "Error codes" say about Kestrel in Q1 2026?'


RISKS = "Give me eight risks of the plan."


@pytest.mark.parametrize(("before", "after", "fault"), [
    (BEFORE, 'According to "Error codes", what held for Kestrel in Q1 2026?', None),
    (BEFORE, 'in Q1 2026, what about kestrel, by the "error codes"?', None),
    (BEFORE, BEFORE.upper(), "unchanged"),
    (BEFORE, "", "not_one_line"), (BEFORE, "What?\nHow?", "not_one_line"), (BEFORE, "x" * 401, "not_one_line"),
    (BEFORE, "According to the error code list, what held for Kestrel in Q1 2026?", "name_lost"),
    (BEFORE, 'What does "Error codes" say about the leak sensor in Q1 2026?', "name_lost"),
    (BEFORE, 'What does "Error codes" say about Kestrel in Q1?', "number_lost"),
    (BEFORE, 'Which 3 things does "Error codes" say about Kestrel in Q1 2026?', "number_added"),
    (RISKS, "Which eight risks does the plan have?", None),
    (RISKS, "Which risks does the plan have?", "number_lost"),
    (RISKS, "Which ten of the eight risks are there?", "number_added"),
    ("Should I sell? I hold shares of Acme.", "I own Acme: sell now?", None),
    ("Compare the G 1/2 thread with IP68.", "How do IP68 and the G 1/2 thread compare?", None),
    ("What does E12 mean?", "My display shows E13, why?", "name_lost"),
])  # fmt: skip
def test_a_rewording_keeps_names_and_numbers(before, after, fault):
    assert rephrasing_fault(before, after) == fault


SECTION = "Kestrel has a warranty of three years. Damage by frost is covered up to 200 EUR."


@pytest.mark.parametrize(("question", "quote", "answer", "fault"), [
    ("How long is Kestrel under warranty?", "Kestrel has a warranty of three years.", "Three years.", None),
    ("Up to what sum is frost covered?", "damage by frost is\ncovered up to 200 EUR", "Up to 200 EUR.", None),
    ("How long?", "Kestrel has a guarantee of three years.", "Three years.", "quote_not_found"),
    ("How long?", "Kestrel has ... three years.", "Three years.", "quote_not_found"),
    ("How long?", "three years", "Three years.", "quote_too_short"),
    ("How long?", "Kestrel has a warranty of three years.", "36 months.", "number_not_in_section"),
    ("How long?", "Kestrel has a warranty of three years.", " - ", "no_answer"),
    ("What does this section say on frost?", "Damage by frost is covered", "It is covered.", "speaks_of_the_text"),
    ("", "Damage by frost is covered", "It is covered.", "not_one_line"),
])  # fmt: skip
def test_a_free_question_is_proved_by_its_quote(question, quote, answer, fault):
    assert section_question_fault(SectionQuestion(question=question, quote=quote, answer=answer), SECTION) == fault
