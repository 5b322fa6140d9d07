"""Properties of replies with a right value: noise around one, or a cut in one, never gives another value.

A wrapped or cut reply may become unreadable; that costs one more call. Another score would be a lie. Two cuts cannot be
seen in the text, and are refused by what the provider says of the reply's end (`finish_reason`): one inside a grade that
stands alone (`4` of `4.5`), and one inside thinking whose opening tag stood in the prompt.
"""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpipe.judging.replies.answer_parsing import Unparsable, read_answer
from ragpipe.schema.judge_answers.answer_type import Answer
from ragpipe.schema.judge_answers.claim_answers import Claims, QuotedVerdict, QuotedVerdicts, Verdict, Verdicts
from ragpipe.schema.judge_answers.grade_answers import AnswerClass, AxisGrade, Grade15, TwoAxes
from tests.unit.judging.test_reply_corpus import ROWS, TYPES, _value

RIGHT = [row for row in ROWS if row.get("gives", "NEITHER") != "NEITHER" and not row.get("material")]
OPENED_IN_PROMPT = {"think-opened-in-prompt"}
UNREADABLE = "unreadable"


def reading(text: str, answer: type[Answer]) -> Any:
    """What counts of the answer in a reply; UNREADABLE where there is none, and for NEITHER."""
    try:
        value = _value(read_answer(text, answer)[0].model_dump())
    except Unparsable:
        return UNREADABLE
    return UNREADABLE if value == "NEITHER" else value


def stays(text: str, answer: type[Answer], right: Any) -> bool:
    """Whether the reply gives this value or none."""
    return reading(text, answer) in (right, UNREADABLE)


DRAFTS = [
    '{"score": 2}',
    '{"claims": ["a draft"]}',
    '{"verdict": "WRONG"}',
    "3",
    "Score: 1",
    "NO",
    "YES",
    "It is {open",
]
PROSE = [
    "Sure! Here is my verdict:", "Let me know if you need more.", "- first point", "1. The year is there.", "Note: see [2] and {as asked}.",
    "It names 4 of the 5 stations.", "No doubt about it.", "A 5 would need a source.", "## Evaluation", "***", "\ufeff", "Voilà :", "評価",
    "> quoted", "`code`", "| a | b |", "Thank you for the task, and good luck!", "\u200b",
]  # fmt: skip
WRAPPINGS = [
    "{0}", "```json\n{0}\n```", "```\n{0}\n```", "```text\r\n{0}\r\n```", "  {0}\n\n", "<answer>{0}</answer>", "{0}<|im_end|>", "{0}</s>",
    "<|im_start|>assistant\n{0}", "**Result**\n\n{0}", "{0}\n\n---",
]  # fmt: skip
THINKING = [
    "{0}", "<think>{1}</think>{0}", "<think>\n{1}? no\n</think>\n\n{0}", "<reasoning>{1}</reasoning>\n{0}", "[THINK]{1}[/THINK]{0}",
    "\u25c1think\u25b7{1}\u25c1/think\u25b7{0}", "<|START_THINKING|>{1}<|END_THINKING|>{0}", "<think><analysis>{1}</analysis>{1}</think>{0}",
    "<|channel|>analysis<|message|>{1}<|end|><|start|>assistant<|channel|>final<|message|>{0}<|return|>", "analysisWe see {1}.assistantfinal{0}",
]  # fmt: skip
_prose = st.lists(st.sampled_from(PROSE), max_size=2).map("\n".join)


@st.composite
def wrapped(draw: st.DrawFn, reply: str) -> str:
    """The reply in noise: prose before and after it, a fence or tag around it, thinking with a draft before it."""
    before, after = draw(_prose), draw(_prose)
    text = draw(st.sampled_from(WRAPPINGS)).replace("{0}", reply)
    text = (before + "\n" if before else "") + text + ("\n" + after if after else "")
    thinking, draft = draw(st.sampled_from(THINKING)), draw(st.sampled_from(DRAFTS))
    return thinking.replace("{0}", text).replace("{1}", draft)


@pytest.mark.slow
@given(st.data())
def test_noise_around_a_right_reply_never_gives_another_value(data: st.DataObject) -> None:
    row = data.draw(st.sampled_from(RIGHT))
    answer, text = TYPES[row["type"]], data.draw(wrapped(row["reply"]))
    assert stays(text, answer, reading(row["reply"], answer))


@pytest.mark.parametrize("wrapping", [*WRAPPINGS, *(text.replace("{1}", '{"score": 2}') for text in THINKING)])
@pytest.mark.parametrize(
    ("reply", "type_name"), [('{"score": 4}', "Grade15"), ("YES", "YesNo"), ('{"claims": ["a"]}', "Claims")]
)
def test_noise_of_each_kind_is_read_through(wrapping: str, reply: str, type_name: str) -> None:
    """The property above would hold for a parser that reads nothing."""
    answer = TYPES[type_name]
    expected = reading(reply, answer)
    assert expected != UNREADABLE
    assert reading(wrapping.replace("{0}", reply), answer) == expected or (
        wrapping.startswith("**Result") and type_name == "YesNo"
    )


def _is_cut_grade(row: dict[str, Any], cut: str) -> bool:
    """Whether a grade that stands alone on its line may have lost its last digits."""
    return row["type"] == "Grade15" and "{" not in row["reply"] and len(cut.strip().splitlines()) < 2


@pytest.mark.slow
@given(st.data())
def test_a_cut_never_gives_another_value(data: st.DataObject) -> None:
    row = data.draw(st.sampled_from([row for row in RIGHT if row["id"] not in OPENED_IN_PROMPT]))
    cut = row["reply"][: data.draw(st.integers(0, len(row["reply"])))]
    if not _is_cut_grade(row, cut):
        assert stays(cut, TYPES[row["type"]], reading(row["reply"], TYPES[row["type"]]))


@pytest.mark.slow
def test_no_cut_of_any_right_reply_gives_another_value() -> None:
    """Every place of every right reply of the corpus."""
    wrong = []
    for row in RIGHT:
        answer, reply = TYPES[row["type"]], row["reply"]
        right = reading(reply, answer)
        assert right != UNREADABLE, row["id"]
        for end in range(len(reply)):
            cut = reply[:end]
            if row["id"] in OPENED_IN_PROMPT or _is_cut_grade(row, cut):
                continue
            if not stays(cut, answer, right):
                wrong.append((row["id"], cut, reading(cut, answer)))
    assert wrong == []


_TEXT = st.text(st.sampled_from('abc it\'s "so" [1] {x} <think> : , \n 4 YES'), max_size=30)
_ANSWERS: st.SearchStrategy[Answer] = st.one_of(
    st.builds(Claims, claims=st.lists(_TEXT, max_size=4)),
    st.builds(Grade15, reason=_TEXT, score=st.integers(10, 50).map(lambda n: n / 10)),
    st.builds(AnswerClass, reason=_TEXT, verdict=st.sampled_from(["CORRECT", "WRONG"])),
    st.builds(
        Verdicts,
        verdicts=st.lists(
            st.builds(Verdict, index=st.integers(1, 99), reason=_TEXT, supported=st.booleans()), max_size=3
        ),
    ),
    st.builds(
        QuotedVerdicts,
        verdicts=st.lists(
            st.builds(
                QuotedVerdict,
                index=st.integers(1, 9),
                evidence=st.lists(_TEXT, max_size=2),
                verdict=st.sampled_from(["supported", "contradicted", "not_supported"]),
            ),
            max_size=3,
        ),
    ),
    st.builds(
        TwoAxes,
        faithfulness=st.builds(AxisGrade, reason=_TEXT, score=st.integers(1, 5)),
        completeness=st.builds(AxisGrade, reason=_TEXT, score=st.integers(1, 5)),
    ),
)


def _trailing_commas(text: str) -> str:
    return text.replace("]}", ",]}") if "[]}" not in text else text


SPELLINGS = {
    "plain": lambda value: json.dumps(value, ensure_ascii=False),
    "indented": lambda value: json.dumps(value, indent=2),
    "python": repr,
    "trailing comma": lambda value: _trailing_commas(json.dumps(value)),
    "comment": lambda value: "{ // my verdict\n" + json.dumps(value)[1:],
}


@pytest.mark.slow
@given(_ANSWERS, st.sampled_from(sorted(SPELLINGS)), st.data())
def test_a_reply_in_any_spelling_and_cut_anywhere_keeps_its_value(
    answer: Answer, spelling: str, data: st.DataObject
) -> None:
    """Malformed as models write it, with quotes, brackets and tags in its texts, wrapped and cut."""
    reply = SPELLINGS[spelling](answer.model_dump())
    right = _without_texts(_value(answer.model_dump()))
    text = data.draw(wrapped(reply))
    cut = text[: data.draw(st.integers(0, len(text)))]
    for given_text in (reply, text, cut):
        found = reading(given_text, type(answer))
        assert found == UNREADABLE or _without_texts(found) == right


def test_a_repair_that_loses_an_item_gives_no_list() -> None:
    """json-repair reads three of these four texts."""
    reply = json.dumps({"claims": [""] * 4}, indent=2)
    assert reading(reply, Claims) == [""] * 4
    assert reading(reply[:-2], Claims) in ([""] * 4, UNREADABLE)


def _without_texts(value: Any) -> Any:
    """Lists of texts by their lengths: how a repaired text reads is not judged, how many there are is."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return len(value)
    return value
