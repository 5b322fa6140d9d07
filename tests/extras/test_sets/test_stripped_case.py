"""Personal data out of a case: consistent placeholders, and what is left alone."""

from collections import Counter
from typing import Any

from ragpipe.extras.test_sets.log_cases import without_meta, without_personal_data

CASE: dict[str, Any] = {
    "id": "q1",
    "question": "I am ann@example.org, or call +49 171 2345678. Who is bob@example.org?",
    "history": [{"role": "user", "text": "Write to ANN@example.org"}],
    "references": ["Bob: bob@example.org"],
    "tags": ["mail to carl@example.org"],
    "relevant_docs": ["ann@example.org.md"],
    "meta": {"user": {"mail": "ann@example.org", "n": 3}, "session": "from 203.0.113.7", "list": [1, "x"]},
    "outputs": [
        {
            "method": "dan@example.org",
            "answer": "Dial +491712345678, ann@example.org.",
            "chunks": [{"id": "ann@example.org", "rank": 1, "text": "tel. +49 171 2345678", "doc_id": "ann@example.org"}],
            "recorded": {"grade": {"ann@example.org": 3}},
        }
    ],
}


def test_one_value_is_one_placeholder_in_the_whole_case():
    stripped, counts = without_personal_data(CASE)
    assert stripped == {
        "id": "q1",
        "question": "I am <EMAIL>, or call <PHONE>. Who is <EMAIL_2>?",
        "history": [{"role": "user", "text": "Write to <EMAIL>"}],
        "references": ["Bob: <EMAIL_2>"],
        "tags": ["mail to <EMAIL_3>"],
        "relevant_docs": ["ann@example.org.md"],
        "meta": {"user": {"mail": "<EMAIL>", "n": 3}, "session": "from <IP>", "list": [1, "x"]},
        "outputs": [
            {
                "method": "dan@example.org",
                "answer": "Dial <PHONE>, <EMAIL>.",
                "chunks": [{"id": "ann@example.org", "rank": 1, "text": "tel. <PHONE>", "doc_id": "ann@example.org"}],
                "recorded": {"grade": {"ann@example.org": 3}},
            }
        ],
    }
    assert counts == Counter(EMAIL=7, PHONE=3, IP=1)
    assert list(stripped) == list(CASE)


def test_a_case_without_any_is_as_it_was():
    case = {"id": "a", "question": "Who?", "meta": {"n": 1.5, "is": True, "no": None}}
    assert without_personal_data(case) == (case, Counter())


def test_an_id_that_is_personal_becomes_a_hash():
    stripped, counts = without_personal_data({"id": "ann@example.org", "question": "Who?"})
    assert stripped["id"] == "hcf458102cc0e"  # of sha256 over ["Who?",[],[]]
    assert counts == {"ID": 1}


def test_names_of_meta_are_dropped():
    case, dropped = without_meta(CASE, ["session", "user.mail", "nowhere", "user.x", "list.y"])
    assert case["meta"] == {"user": {"n": 3}, "list": [1, "x"]}
    assert dropped == ["session", "user.mail"]
    assert without_meta({"id": "a"}, ["x"]) == ({"id": "a"}, [])
