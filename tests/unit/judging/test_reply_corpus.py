"""Every reply of the corpus gives its expected outcome.

`reply_corpus/*.yaml` hold replies in the shapes that models write, by pattern. A row names the type that the reply is read
as, and either the value that counts (`gives`) or why there is none (`error`). `material` are the texts under test that the
question showed. A YES / NO question is never refused: what says neither is NEITHER. `shape_of` names recorded judges whose
raw texts have this shape; the words are our own.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from ragpipe.judging.replies.answer_parsing import Unparsable, read_answer
from ragpipe.schema.judge_answers.all_answers import ANSWER_TYPES
from ragpipe.schema.judge_answers.answer_type import Answer
from ragpipe.schema.judge_answers.grade_answers import rubric_grade

FILES = sorted((Path(__file__).parent / "reply_corpus").glob("*.yaml"))
PATTERNS = [pattern for file in FILES for pattern in yaml.safe_load(file.read_text("utf-8"))]
ROWS = [row for pattern in PATTERNS for row in pattern["rows"]]
TYPES: dict[str, type[Answer]] = {**ANSWER_TYPES, "Rubric 0-10": rubric_grade(0, 10, True)}

ERRORS = {
    "no_object": "holds no JSON object",
    "several_objects": "more than one JSON object, and they differ",
    "list": "expected a JSON object, found a list",
    "missing_key": r"the key `[\w.\[\]]+` is missing",
    "wrong_value": r"expected a (finite |whole )?number|Input should be",
    "out_of_range": "(less|greater) than or equal to",
    "no_json_value": r"is not JSON|too large|digits is not read",
    "duplicate_key": "appears twice",
    "malformed": "is malformed",
    "cut": "is cut off",
    "nested": "nested",
    "two_scores": "two different (scores|verdicts)",
    "thoughts": "thoughts|a channel inside a JSON object",
    "echo": "also occurs in the material",
}
"""What the message says, by the reason in the corpus."""


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_a_reply_gives_its_expected_outcome(row: dict[str, Any]) -> None:
    answer = TYPES[row["type"]]
    if "error" in row:
        with pytest.raises(Unparsable, match=ERRORS[row["error"]]):
            read_answer(row["reply"], answer, row.get("material", ()))
        return
    found = _value(read_answer(row["reply"], answer, row.get("material", ()))[0].model_dump())
    assert found == _typed(row["gives"])


def _value(answer: dict[str, Any]) -> Any:
    """The part of an answer that counts: its score, class or verdict; of a list the number and verdict of each item."""
    if "claims" in answer:
        return _typed(answer["claims"])
    if "verdicts" in answer:
        return _typed([[item["index"], _value({**item, "index": None})] for item in answer["verdicts"]])
    for key in ("score", "verdict", "supported", "grade"):
        if key in answer:
            return _typed(answer[key])
    return {key: {"score": _typed(part["score"])} for key, part in answer.items()}


def _typed(value: Any) -> Any:
    """The value, with numbers and truth values that are not equal to each other."""
    if isinstance(value, bool):
        return repr(value)
    if isinstance(value, dict):
        return {key: _typed(item) for key, item in value.items()}
    return [_typed(item) for item in value] if isinstance(value, list) else value


def test_the_corpus_is_large_and_varied() -> None:
    """The size is a promise of the documentation; more rows of one pattern would only repeat it."""
    assert len(ROWS) >= 200
    assert sum(len(pattern["rows"]) for pattern in PATTERNS if "shape_of" in pattern) >= 60
    assert {pattern["shape_of"] for pattern in PATTERNS if "shape_of" in pattern} == {"llmbar", "pandalm", "ragas"}
    for names in ([row["id"] for row in ROWS], [pattern["pattern"] for pattern in PATTERNS]):
        assert [name for name, times in Counter(names).items() if times > 1] == []
    assert [pattern["pattern"] for pattern in PATTERNS if len(pattern["rows"]) > 4] == []
    assert [row["id"] for row in ROWS if not row["why"].strip() or ("gives" in row) == ("error" in row)] == []
