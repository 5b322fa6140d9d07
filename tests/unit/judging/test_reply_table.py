"""What each kind of reply is read as: the literal table, one row per kind.

A row is (reply, answer type, reading). A reading is the value that counts, or `Refused(words of the message)`. A YES / NO
question is never refused: what says neither is NEITHER, and the chain that asked goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from ragpipe.judging.replies.answer_parsing import Unparsable, read_answer
from ragpipe.schema.judge_answers.answer_type import Answer
from ragpipe.schema.judge_answers.claim_answers import CheckedClaim, Claims, Verdicts
from ragpipe.schema.judge_answers.grade_answers import Grade05, Grade15, YesNo


@dataclass(frozen=True)
class Refused:
    """The reply gives no value; the message holds these words."""

    words: str


DRAFT = '{"score": 2, "reason": "a draft"}'
FINAL = '{"score": 4, "reason": "fine"}'
CUT = "cut off"
NO_OBJECT = "no JSON object"
MALFORMED = "malformed"
SEVERAL = "more than one JSON object"
MISSING = "the key `score` is missing"
THOUGHTS = "inside its thoughts"
TWO_SCORES = "two different scores"

SCORES: dict[str, tuple[str, type[Answer], Any]] = {
    # JSON that says one thing, in whatever wrapping
    "plain": ('{"score": 4}', Grade15, 4),
    "fenced": ('```json\n{"score": 4}\n```', Grade15, 4),
    "fenced, no language": ('```\n{"score": 4}\n```', Grade15, 4),
    "fence never closed": ('```json\n{"score": 4}', Grade15, 4),
    "in prose": ('Sure! Here is my verdict:\n\n{"score": 4}\n\nLet me know if you need more.', Grade15, 4),
    "fenced in prose": ('My verdict:\n```json\n{"score": 4}\n```\nThat is all.', Grade15, 4),
    "byte order mark": ('\ufeff{"score": 4}', Grade15, 4),
    "raw line break": ('{"reason": "two\nlines", "score": 4}', Grade15, 4),
    "single quotes": ("{'score': 4, 'reason': 'fine'}", Grade15, 4),
    "curly quotes": ("{\u201cscore\u201d: 4, \u201creason\u201d: \u201cfine\u201d}", Grade15, 4),
    "trailing comma": ('{"score": 4,}', Grade15, 4),
    "Python's True": ("{'claim': 'c', 'supported': True}", CheckedClaim, True),
    "comment": ('{"score": 4 // good\n}', Grade15, 4),
    "inner quotes": ('{"reason": "he said "so" there", "score": 4}', Grade15, 4),
    "cut in the reason after": ('{"score": 4, "reason": "it breaks off he', Grade15, 4),
    "number in quotes": ('{"score": "4"}', Grade15, 4),
    "4.0": ('{"score": 4.0}', Grade05, 4),
    "twice the same": ('{"score": 4}\n{"score": 4}', Grade15, 4),
    "extra key": ('{"score": 4, "confidence": "high"}', Grade15, 4),
    # thoughts and channels: the last one is read
    "think closed": (f"<think>{DRAFT}? no</think>\n{FINAL}", Grade15, 4),
    "think closed, opened in the prompt": (f"{DRAFT}? no</think>\n{FINAL}", Grade15, 4),
    "think never closed, draft in it": (f"<think>I would say {FINAL}, or", Grade15, Refused(THOUGHTS)),
    "think never closed after prose": (f"Let me see. <think>{FINAL}", Grade15, Refused(THOUGHTS)),
    "think never closed, a grade alone": ("<think>\n4\n", Grade15, Refused(THOUGHTS)),
    "closed only in a draft": (f"<think>{DRAFT}</think>", Grade15, Refused(NO_OBJECT)),
    "harmony, the draft last": (
        f"<|channel|>final<|message|>{FINAL}<|end|><|channel|>analysis<|message|>{DRAFT}", Grade15, Refused(THOUGHTS),
    ),
    "think in a reason": ('{"reason": "it quotes <think>", "score": 4}', Grade15, 4),
    "think in a reason, in prose": ('So: {"reason": "it quotes </think>", "score": 4} Done.', Grade15, 4),
    "reasoning": (f"<reasoning>First {DRAFT}.</reasoning>\n{FINAL}", Grade15, 4),
    "reasoning, YES": ("<reasoning>NO at first.</reasoning>\nYES", YesNo, "YES"),
    "reasoning never closed": (f"<reasoning>First {DRAFT}.", Grade15, Refused(THOUGHTS)),
    "[THINK]": (f"[THINK]First {DRAFT}.[/THINK]{FINAL}", Grade15, 4),
    "harmony": (
        f"<|channel|>analysis<|message|>Perhaps {DRAFT}<|end|><|start|>assistant<|channel|>final<|message|>{FINAL}<|return|>",
        Grade15, 4,
    ),
    "harmony, JSON announced": (
        f"<|channel|>analysis<|message|>{DRAFT}<|end|>"
        f"<|start|>assistant<|channel|>final <|constrain|>json<|message|>{FINAL}",
        Grade15, 4,
    ),
    "harmony, message mark lost": (f"<|channel|>analysis {DRAFT} <|channel|>final {FINAL}", Grade15, 4),
    "harmony, YES": (
        "<|channel|>analysis<|message|>NO?<|end|><|start|>assistant<|channel|>final<|message|>YES", YesNo, "YES",
    ),
    "harmony, draft alone": (f"<|channel|>analysis<|message|>Perhaps {DRAFT}", Grade15, Refused(THOUGHTS)),
    "harmony quoted in the final": (
        '<|channel|>final<|message|>{"reason": "it says <|channel|>final<|message|>{\'score\': 5}", "score": 1}', Grade15, 1,
    ),
    # a grade as text
    "Score: 4": ("Score: 4", Grade15, 4),
    "4/5": ("4/5", Grade15, 4),
    "bold": ("**4**", Grade15, 4),
    "bold label": ("**Score:** 4.5\nWell put.", Grade15, 4.5),
    "4 out of 5": ("4 out of 5", Grade15, 4),
    "Score: 4 out of 5.": ("Score: 4 out of 5.\nWell put.", Grade15, 4),
    "the same Score line twice": ("Score: 4\nWell put.\nScore: 4", Grade15, 4),
    "two different Score lines": ("Score: 4\nOn reflection:\nScore: 3", Grade15, Refused(TWO_SCORES)),
    "a number and a Score line": ("4\nWell put.\nOverall score: 2/5", Grade15, Refused(TWO_SCORES)),
    "two numbers on two lines": ("4\n3", Grade15, Refused(TWO_SCORES)),
    "a Score line beside the JSON": (f"Score: 3\n{FINAL}", Grade15, Refused(TWO_SCORES)),
    "1. and prose": ("1.\nThe answer is good.", Grade15, Refused(NO_OBJECT)),
    "1. and prose on one line": ("1. The answer is good.", Grade15, Refused(NO_OBJECT)),
    # JSON that breaks off, or that says nothing or several things
    "cut number": ('{"score": 4', Grade15, Refused(CUT)),
    "cut list": ('{"claims": ["a is b", "c is', Claims, Refused(CUT)),
    "key missing": ('{"reason": "fine"}', Grade15, Refused(MISSING)),
    "two objects": ('{"score": 5} {"score": 4}', Grade15, Refused(SEVERAL)),
    "duplicate key": ('{"score": 4, "score": 5}', Grade15, Refused("appears twice")),
    "4/5 in JSON": ('{"score": "4/5"}', Grade15, Refused("expected a number")),
    "4 out of 5 in JSON": ('{"score": 4 out of 5}', Grade15, Refused(MALFORMED)),
    "four": ('{"score": "four"}', Grade15, Refused("expected a number")),
    "4.5 of whole grades": ('{"score": 4.5}', Grade05, Refused("expected a whole number")),
    "true": ('{"score": true}', Grade15, Refused("expected a number")),
    "NaN": ('{"score": NaN}', Grade15, Refused("NaN is not JSON")),
    "1e999": ('{"score": 1e999}', Grade15, Refused("too large")),
    "7": ('{"score": 7}', Grade15, Refused("less than or equal to 5")),
    "-1": ('{"score": -1}', Grade15, Refused("greater than or equal to 1")),
    "7 as text": ("Score: 7", Grade15, Refused("less than or equal to 5")),
    "other case": ('{"Score": 4}', Grade15, Refused(MISSING)),
    "wrapped": ('{"result": {"score": 4}}', Grade15, Refused(MISSING)),
    "list": ('[{"score": 4}]', Grade15, Refused("found a list")),
    "tool call": ('{"name": "grade", "arguments": {"score": 4}}', Grade15, Refused(MISSING)),
    "schema echo": (
        '{"type": "object", "properties": {"score": {"type": "number", "minimum": 1}}, "required": ["score"]}',
        Grade15, Refused(MISSING),
    ),
    "4 or 5": ("4 or 5", Grade15, Refused(NO_OBJECT)),
    "4 or 5 in JSON": ('{"score": 4 or 5}', Grade15, Refused(MALFORMED)),
    "3-4": ("3-4", Grade15, Refused(NO_OBJECT)),
    "refusal": ("I'm sorry, but I can't help with that.", Grade15, Refused(NO_OBJECT)),
    "empty": ("", Grade15, Refused(NO_OBJECT)),
    "XML": ("<score>4</score>", Grade15, Refused(NO_OBJECT)),
    "8/10": ("8/10", Grade15, Refused(NO_OBJECT)),
    "4,5": ("4,5", Grade15, Refused(NO_OBJECT)),
    "stars": ("\u2605\u2605\u2605\u2605\u2606", Grade15, Refused(NO_OBJECT)),
    "NDJSON": ('{"score": 4}\n{"score": 3}', Grade15, Refused(SEVERAL)),
    "100 %": ("100 %", Grade15, Refused(NO_OBJECT)),
    "a verdict's word": ('{"verdicts": [{"index": 1, "supported": "yes"}]}', Verdicts, Refused("supported")),
    # digits of other scripts
    "Arabic digit": ("\u0664", Grade15, Refused(NO_OBJECT)),
    "Arabic digit in quotes": ('{"score": "\u0664"}', Grade15, Refused("expected a number")),
    "Arabic digit in JSON": ('{"score": \u0664}', Grade15, Refused(MALFORMED)),
    "fullwidth digit": ("Score: \uff14", Grade15, Refused(NO_OBJECT)),
    "Devanagari digit in quotes": ('{"score": "\u096a"}', Grade05, Refused("expected a number")),
    # YES and NO
    "YES": ("YES", YesNo, "YES"),
    "No.": ("No.", YesNo, "NO"),
    "YES and why": ("Yes, the context says so.", YesNo, "YES"),
    "YES without a comma": ("Yes the context says so.", YesNo, "YES"),
    "NO because": ("NO because the context is silent.", YesNo, "NO"),
    "NO. First YES": ("NO. I first thought YES", YesNo, "NO"),
    "bold NO and why": ("**No**, because yes would need a source.", YesNo, "NO"),
    "YES, no doubt": ("Yes, no doubt about it.", YesNo, "YES"),
    "YES fenced": ("```\nYES\n```", YesNo, "YES"),
    "YES fenced as text": ("```text\nYES\n```", YesNo, "YES"),
    "YES fenced as JSON": ("```json\nYES\n```", YesNo, "YES"),
    "YES in a fence never closed": ("```\nYES", YesNo, "YES"),
    "YES quoted": ('"YES"', YesNo, "YES"),
    "YES and an emoji": ("\u2705 YES", YesNo, "YES"),
    "Answer: YES": ("Answer: YES", YesNo, "YES"),
    "Answer: YES, why": ("Answer: YES, the first context says so.", YesNo, "YES"),
    "Verdict in bold": ("**Verdict:** NO", YesNo, "NO"),
    "Final answer": ("Final answer: no", YesNo, "NO"),
    "YES in prose": ("Sure! Here is my verdict:\n\nYES\n\nLet me know if you need more.", YesNo, "YES"),
    "YES as JSON": ('{"verdict":"YES"}', YesNo, "YES"),
    "NO as fenced JSON": ('```json\n{"reason": "silent", "verdict": "No"}\n```', YesNo, "NO"),
    "YES/NO": ("YES/NO", YesNo, "NEITHER"),
    "YES or NO: NO": ("YES or NO: NO", YesNo, "NEITHER"),
    "Yes and no": ("Yes and no", YesNo, "NEITHER"),
    "YES, no": ("Yes, no.", YesNo, "NEITHER"),
    "YES, a line, NO": ("YES\nThe second context differs.\nNO", YesNo, "NEITHER"),
    "YES, then another verdict": ("YES\nVerdict: NO", YesNo, "NEITHER"),
    "No doubt: YES": ("No doubt: YES", YesNo, "NEITHER"),
    "No problem! YES": ("No problem! YES", YesNo, "NEITHER"),
    "No doubt it holds": ("No doubt it is supported.", YesNo, "NEITHER"),
    "No claim is unsupported": ("No claim is unsupported.", YesNo, "NEITHER"),
    "two verdicts as JSON": ('{"first": "YES", "second": "NO"}', YesNo, "NEITHER"),
    "NO and YES as JSON": ('NO\n{"verdict": "YES"}', YesNo, "NEITHER"),
    "true as JSON": ('{"verdict": true}', YesNo, "NEITHER"),
    "a label inside a line": ("Yes as existing answer: no", YesNo, "NEITHER"),
    "the existing answer": ("The existing answer: NO", YesNo, "NEITHER"),
    "the existing answer and a new one": ("Existing answer: NO\nNew answer: YES", YesNo, "NEITHER"),
    "YES, then NO with a reason": ("YES\nNO, because the second context differs.", YesNo, "NEITHER"),
    "Ja": ("Ja", YesNo, "NEITHER"),
    "Y": ("Y", YesNo, "NEITHER"),
    "True": ("True", YesNo, "NEITHER"),
    "I believe yes": ("I believe yes", YesNo, "NEITHER"),
    "Yesterday": ("Yesterday it held.", YesNo, "NEITHER"),
    "nothing said": ("", YesNo, "NEITHER"),
    "YES in thoughts that never end": ("<think>\nYES\n", YesNo, "NEITHER"),
}  # fmt: skip


@pytest.mark.parametrize(("reply", "answer", "reading"), SCORES.values(), ids=SCORES)
def test_a_kind_of_reply(reply: str, answer: type[Answer], reading: Any) -> None:
    if isinstance(reading, Refused):
        with pytest.raises(Unparsable, match=reading.words):
            read_answer(reply, answer)
        return
    answered = read_answer(reply, answer)[0].model_dump()
    value = next(answered[key] for key in ("score", "verdict", "supported") if key in answered)
    assert value == reading
