"""What other tools call the fields of the native form."""

from __future__ import annotations

import re

_SAME_MEANING = {
    "id": ("question_id", "query_id", "qid", "case_id", "sample_id", "example_id", "uid", "uuid", "_id"),
    "question": ("query", "user_input", "input", "prompt", "user_query", "user_question", "q"),
    "answer": (
        "response", "output", "actual_output", "generated_answer", "completion", "prediction", "result", "reply", "answer_text",
        "model_response", "bot_answer",
    ),
    "contexts": (
        "context", "retrieved_contexts", "retrieval_context", "retrieved_context", "source_documents", "documents", "passages",
        "retrieved_documents", "retrieved_chunks", "chunks", "sources", "docs", "hits", "evidence", "retrieved",
    ),
    "reference": (
        "ground_truth", "expected_output", "expected_answer", "reference_answer", "gold_answer", "gt_answer", "ideal_answer",
        "gold", "expected", "correct_answer", "target", "reference_output",
    ),
    "references": ("ground_truths", "gold_answers", "reference_answers", "correct_answers", "targets"),
    "method": ("system", "variant", "pipeline", "retriever", "model"),
    "recorded": ("scores", "grades", "feedback", "evaluation"),
    "timings": ("latency", "latency_ms", "duration", "duration_ms"),
}  # fmt: skip


def _plain(name: str) -> str:
    """The name in small letters and digits: `actualOutput` and `actual_output` are one."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


_MEANS = {_plain(name): field for field, names in _SAME_MEANING.items() for name in (field, *names)}


def field_meant(name: str) -> str | None:
    """The field of the native form that a name means in other tools, or is itself; None where it is not known."""
    return _MEANS.get(_plain(name))
