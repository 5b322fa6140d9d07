"""What other tools and people call the fields of the native form."""

from __future__ import annotations

import re

_SAME_MEANING = {
    "id": ("question_id", "query_id", "qid", "case_id", "sample_id", "example_id", "uid", "uuid", "_id"),
    "question": (
        "query", "user_input", "input", "prompt", "user_query", "user_question", "q", "questions", "user_prompt", "user_message", "query_text",
        "question_text", "customer_question", "search_query",
    ),
    "answer": (
        "response", "output", "actual_output", "generated_answer", "completion", "prediction", "result", "reply", "answer_text",
        "model_response", "bot_answer", "pred", "predicted", "predictions", "responses", "outputs", "completions", "generation", "generated_text",
        "hypothesis", "assistant",
    ),
    "contexts": (
        "context", "retrieved_contexts", "retrieval_context", "retrieved_context", "source_documents", "documents", "passages",
        "retrieved_documents", "retrieved_chunks", "chunks", "sources", "docs", "hits", "evidence", "retrieved", "ctxs", "snippets",
        "source_nodes", "search_results", "nodes", "retrievals", "paragraphs", "retriever_resources", "grounding_chunks",
    ),
    "reference": (
        "ground_truth", "expected_output", "expected_answer", "reference_answer", "gold_answer", "gt_answer", "ideal_answer",
        "gold", "expected", "correct_answer", "target", "reference_output", "answer_key", "label_answer", "long_answer",
    ),
    "references": ("ground_truths", "gold_answers", "reference_answers", "correct_answers", "targets", "answers", "possible_answers", "answer_aliases"),
    "method": ("system", "variant", "pipeline", "retriever", "model"),
    "recorded": ("scores", "grades", "feedback", "evaluation"),
    "timings": ("latency", "latency_ms", "duration", "duration_ms"),
}  # fmt: skip
_ANSWERS = {
    "answer",
    "response",
    "output",
    "reply",
    "completion",
    "prediction",
    "generation",
    "text",
    "message",
    "result",
}
_SYSTEMS = re.compile(
    r"bot|chatbot|assistant|ai|llm|model|system|rag|agent|chatgpt|gpt\w*|claude\w*|gemini\w*|llama\w*|mistral\w*|generated|predicted|actual|final|our|student"
)
_RIGHT = re.compile(
    r"gold|golden|correct|expected|reference|ref|true|truth|ground|ideal|target|right|gt|human|standard"
)
_PASSAGES = re.compile(r"(?:retriev|search|rag|kb|knowledge|source|context|found|top)\w*")
_TEXTS = re.compile(r"(?:context|passage|chunk|snippet|document|doc|source|node|result|text|hit|content|paragraph)s?")
_NUMBERED = re.compile(
    r"(?:\w+_)?(?:context|passage|chunk|snippet|document|doc|source|hit|retrieved)_?(\d+)(?:_(?:text|content))?"
)
_OF_PEOPLE = re.compile(
    r"(?:.*_)?(?:human|user|rating|rated|stars|label|labels|labeled|labelled|annotation|annotated|annotator|thumbs|feedback|grade|graded|score|verdict"
    r"|judg\w*|correctness|is_correct|helpful|faithful|relevant|hallucinat\w*|accepted|liked|quality)(?:_.*|\d*)"
)
_NO_LABEL = re.compile(
    r"(?:.*_)?(?:id|name|email|input|query|question|answer|prompt|message|time|date|url|relevance_score|retrieval_score)s?"
)


def _plain(name: str) -> str:
    """The name in small letters and digits: `actualOutput` and `actual_output` are one."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _words(name: str) -> list[str]:
    """The words of a name: `KB snippets`, `kb_snippets` and `kbSnippets` have the same two."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", name)]


_MEANS = {_plain(name): field for field, names in _SAME_MEANING.items() for name in (field, *names)}


def field_meant(name: str) -> str | None:
    """The field of the native form that a name means in other tools, or is itself; None where it is not known."""
    if meant := _MEANS.get(_plain(name)):
        return meant
    words = _words(name)
    if len(words) < 2:
        return None
    before, last = words[:-1], words[-1]
    if last.removesuffix("s") in _ANSWERS and any(_RIGHT.fullmatch(word) for word in before):
        return "references" if last.endswith("s") else "reference"
    if last.removesuffix("s") in _ANSWERS and any(_SYSTEMS.fullmatch(word) for word in before):
        return "answer"
    if (
        _TEXTS.fullmatch(last)
        and any(_PASSAGES.fullmatch(word) for word in before)
        and not set(before) & {"gold", "reference", "relevant"}
    ):
        return "contexts"
    return None


def passage_number(name: str) -> int | None:
    """The place that a column has among those of one passage each: 2 of `context_2`; None for any other name."""
    match = _NUMBERED.fullmatch("_".join(_words(name)))
    return int(match[1]) if match else None


def looks_judged(name: str) -> bool:
    """Whether a name looks like that of a verdict of people: `human_faithful`, `user_rating`, `label`."""
    plain = "_".join(_words(name))
    return _OF_PEOPLE.fullmatch(plain) is not None and _NO_LABEL.fullmatch(plain) is None
