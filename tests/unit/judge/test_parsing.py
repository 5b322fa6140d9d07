"""Reading replies: a table of what models write, and properties over arbitrary text."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpipe.judge.answer_parsing import Unparsable, final_part, read_answer
from ragpipe.judge.answer_type import Answer
from ragpipe.judge.answers import (
    AnswerClass,
    CheckedClaim,
    Claims,
    Grade15,
    Groundedness,
    QuotedClaims,
    QuotedVerdicts,
    TwoAxes,
    Verdicts,
    YesNo,
)
from ragpipe.judge.reply_json import MAX_REPAIRED, objects_in
from tests.support.growth import assert_linear
from tests.unit.judge.test_reply_corpus import ROWS, TYPES, _value

ANSWERS = [Claims, Verdicts, Grade15, Groundedness, TwoAxes, YesNo]

# What the corpus (`test_reply_corpus.py`) does not have: flags, and the words of some refusals.
READ = [
    ('{"score": 4.5, "reason": "fine", "confidence": "high"}', 4.5, ()), ('```\n{"score": 4}', 4.0, ()),
    ('<think>{"score": 1}? no.</think>\n{"score": 4}', 4.0, ("thinking_removed",)),
    ('{"score": 1}? no.</think>\n{"score": 4}', 4.0, ("thinking_removed",)),
    ('Perhaps 1.</think>No: 2.\n</think>\n\n{"score": 4}', 4.0, ("thinking_removed",)),
    ('<think>1?</think> or 2?</think>{"score": 4}', 4.0, ("thinking_removed",)),
    ('{"reason": "it quotes </think>", "score": 4}', 4.0, ()), ('{"score": 4, "reason": "it breaks off he', 4.0, ("json_repaired",)),
    ("{'score': 4.5, 'reason': 'x'}", 4.5, ("json_repaired",)), ('{"score": 4 // good\n}', 4.0, ("json_repaired",)),
    ('{"score": 4\n"reason": "no comma"}', 4.0, ("json_repaired",)),
    ('{"reason": "true or <4>, said "so"", "score": 4}', 4.0, ("json_repaired",)),
    ("{'score': 4, 'reason': 'x'}", 4.0, ("json_repaired",)), ('{"score": 4, "reason": "said "so" himself",}', 4.0, ("json_repaired",)),
    ('{"score": 4, "reason": "ok \\ud83d x"}', 4.0, ("characters_replaced",)), ('{"score": 4, "reason": "ok \\ud83d\\ude00 x"}', 4.0, ()),
    ('{"score": 4, "reason": "C:\\\\ud83d"}', 4.0, ()), ('{"score": 4, "reason": "ok \\ud83d\\ude00 x",}', 4.0, ("json_repaired",)),
    ('{"score": 4, "reason": "a\\u0000b"}', 4.0, ()),
    ('{"score": 4, "reason": "ok \\uDC00 x"', 4.0, ("json_repaired", "characters_replaced")), ("4.5\nWell put.", 4.5, ("text_form",)),
    ("Score: 4/5", 4.0, ("text_form",)), ("```\n4\nWell put.\n```", 4.0, ("text_form",)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "score", "flags"), READ)
def test_a_grade_is_read(text, score, flags):
    found, seen = read_answer(text, Grade15)
    assert (found.score, seen) == (score, flags)
    found.model_dump_json().encode("utf-8")


def test_halves_of_a_character_are_joined_or_replaced_in_lists_and_in_repaired_replies() -> None:
    assert read_answer('{"claims": ["ok \\ud83d\\ude00",]}', Claims)[0].claims == ["ok \U0001f600"]
    assert read_answer('{"claims": ["a \\ud83d b", "c"]}', Claims)[0].claims == ["a \ufffd b", "c"]


REFUSED = [
    ('{"score": 4} and {"score": 5', "more than one JSON object"), ("It is good.", "no JSON object"), ('{"score": "four"}', "expected a number, found 'four'"),
    ('{"score": 1000000000}', "less than or equal to 5"), ('{"score": NaN}', "NaN is not JSON"),
    ('{"score": ' + "9" * 5000 + "}", "5,000 digits"), ('{"Score": 4}', r"the key `score` is missing, found the keys \['Score'\]"),
    ('{"result": {"score": 4}', "the key `score` is missing"),
    ('The answer says {"score": 5}. My verdict: {"score": 1}', "more than one JSON object"),
    ('{"score": 5, x} {"score": 4}', "more than one JSON object"), ('{"score": 4 5}', "malformed around the number 5"),
    ('{"score": 4', "cut off"), ("{score: 4", "cut off"), ('{"score": 4 I think', "one plain value"),
    *((f'{{"score": {value}}}', "one plain value") for value in ("<4", "~4", "≥4", "$4", "4 or so", "4+", "4%", "4 (?)")),
    ("[" * 100_000, "nested deeper"), ('{"a":' * 100_000, "nested deeper"), ("x" * 500_001, "characters"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "why"), REFUSED, ids=[text[:30] for text, _ in REFUSED])
def test_what_is_no_grade_is_refused_with_the_reason(text, why):
    with pytest.raises(Unparsable, match=why):
        read_answer(text, Grade15)


@pytest.mark.parametrize(("length", "is_read"), [(MAX_REPAIRED, True), (MAX_REPAIRED + 1, False)])
def test_a_malformed_object_is_repaired_up_to_a_length(length, is_read):
    head, tail = '{"score": 4, "reason": "', '",}'
    text = head + "x" * (length - len(head) - len(tail)) + tail
    if is_read:
        assert read_answer(text, Grade15)[1] == ("json_repaired",)
    else:
        with pytest.raises(Unparsable, match="malformed"):
            read_answer(text, Grade15)


def quoted(claim="x", evidence='["a"]', verdict="supported", index=""):
    return f'{{{index}"claim": "{claim}", "evidence": {evidence}, "reason": "", "verdict": "{verdict}"}}'


def listed(*items, key="claims"):
    return f'{{"{key}": [{", ".join(items)}]}}'


FORMS = [
    *((listed(quoted(claim)), QuotedClaims, "claim", claim) for claim in (
        'Das „Servicebüro am Markt" hat offen', '„A" und „B" sind da', 'ארגון צה"ל אמר', '他说"你好"，然后走了', 'He said "no"',
    )),
    *((listed(quoted(evidence=text)), QuotedClaims, "evidence", found) for text, found in (
        ('["Das „Büro" hat", "b"]', ['Das „Büro" hat', "b"]), ('["他说"你好"，"再见"。"]', ['他说"你好"，"再见"。']),
        ('[{"text": "a"}, "b"]', ["a", "b"]), ('[{"context": 1, "quote": "a"}]', ["a"]), ('{"text": "a"}', ["a"]), ("null", []),
    )),
    *((listed(quoted(verdict=word)), QuotedClaims, "verdict", "not_supported") for word in (
        "NOT_SUPPORTED", "not supported", "Not-supported", " not_supported",
    )),
    (f"[{quoted()}]", QuotedClaims, "claim", "x"), (f"```json\n[{quoted()}]\n```", QuotedClaims, "claim", "x"),
    *((listed(quoted(index=f'"index": {number}, '), key="verdicts"), QuotedVerdicts, "index", 3) for number in ("٣", "۳", '"３"', '"٣"')),
    ('｛"verdicts"：［{"index"：３，"evidence"：[]，"verdict"："supported"}］｝', QuotedVerdicts, "index", 3),
]  # fmt: skip


@pytest.mark.parametrize(("text", "answer", "field", "found"), FORMS)
def test_a_reply_that_says_one_thing_is_read_in_the_forms_that_models_write(text, answer, field, found):
    [[item]] = dict(read_answer(text, answer)[0]).values()
    assert getattr(item, field) == found


@pytest.mark.parametrize(("text", "answer"), [
    *((f'{{"claims": [{items}]}}', Claims) for items in (
        '"The "Kiel", "Bonn" and "Ulm""', '"a 5" pipe", "b"', '"a „B", "C" und „D" e"', '"The pier." "The ferry."',
    )),
    (listed(quoted(verdict="unsupported")), QuotedClaims), (listed(quoted(verdict="supported or not")), QuotedClaims),
    (listed(quoted(evidence='[{"text": "a", "other": "b"}]')), QuotedClaims), ('{"verdict": "right"}', AnswerClass),
    ('[{"score": 4}]', Grade15), ("[[], []]", Groundedness), (f"[{quoted()}] [{quoted('y')}]", QuotedClaims), ('{"score": ٤٥}', Grade15),
    ('{"score": ²}', Grade15), ('{"score": ٣-٤}', Grade15),
])  # fmt: skip
def test_a_reply_that_may_say_two_things_is_not_guessed(text, answer):
    with pytest.raises(Unparsable):
        read_answer(text, answer)


def test_a_list_alone_that_is_copied_from_the_material_is_an_echo():
    with pytest.raises(Unparsable, match="also occurs in the material"):
        read_answer(f"[{quoted()}]", QuotedClaims, [f"Reply with [{quoted()}]."])


_PHRASES = ["a", "b c", "说", "是", " ", ", ", ",", '"x"', ' "x y" ', '„B"', 'צה"ל', "]", "}", ":", "，", "：", "\n", "4", "\\"]
_phrases = st.lists(st.lists(st.sampled_from(_PHRASES), max_size=6).map("".join), max_size=4)


@given(_phrases)
def test_valid_json_is_read_as_it_is(claims):
    for text in (json.dumps({"claims": claims}), json.dumps({"claims": claims}, ensure_ascii=False, indent=1)):
        assert read_answer(text, Claims) == (Claims(claims=json.loads(text)["claims"]), ())


@given(_phrases)
def test_marks_in_pairs_that_are_not_escaped_are_text_or_nothing(claims):
    text = json.dumps({"claims": [claim.replace("]", ")").replace("\\", "") for claim in claims]}, ensure_ascii=False)
    assert reading(text.replace('\\"', '"'), Claims) in (json.loads(text)["claims"], UNREADABLE)


def test_each_object_of_a_text_is_found_once():
    found = list(objects_in('As in {x}: {"a": {"b": 1}}, or [{"c": [{"d": 2}]}] {"e"'))
    assert found == [{"a": {"b": 1}}, {"b": 1}, {"c": [{"d": 2}]}, {"d": 2}]


@pytest.mark.parametrize(("text", "answer", "why"), [
    ('{"verdicts": [{"index": 1, "supported": true}, {"index": 2}]}', Verdicts,
     r"the key `verdicts\[1\]\.supported` is missing"),
    *((f'{{"claims": ["a is b"{rest}', Claims, "cut off") for rest in (', "c is not', "", ",")),
    *((f'{{"claim": "c", "supported": {value}}}', CheckedClaim, "one plain value") for value in (
        "true or false", "true false", "true but not all of it", "true/false", "true, false", "!true", "true // not false\n",
    )),
])  # fmt: skip
def test_a_list_with_a_fault_or_without_its_end_and_a_verdict_that_says_two_things_are_refused(text, answer, why):
    with pytest.raises(Unparsable, match=why):
        read_answer(text, answer)


@pytest.mark.parametrize(("first", "repeated", "last"), [('{"x": ', "4", "!"), ('{"x"', ":", ""), ('{"x": ', "'", "")])
def test_rubbish_is_refused_in_time_that_grows_with_its_length(first, repeated, last):
    def refuse(size):
        with pytest.raises(Unparsable):
            read_answer(first + repeated * size + last, Grade15)

    assert_linear(refuse, 32_000)


_JSONISH = st.text(alphabet='{}[]":,\\/ \n\t0123456789.eE+-aNntrufls`\ufeff\ud800', max_size=300)
_PIECES = st.lists(
    st.sampled_from([
        "<think>", "</think>", "<reasoning>", "[/THINK]", "<|channel|>", "final", "analysis", "<|message|>", "<|end|>",
        '{"score": 4}', '{"score": 5, "reason": "', '"}', "Score: 4", "4", "3/5", "YES", "NO", "Answer:", "or", "/", " ", "\n", "```",
    ]),
    max_size=20,
).map("".join)  # fmt: skip
_ANY = st.one_of(st.text(max_size=300), _JSONISH, _PIECES)


def _reading(text, answer, material):
    """The answer and the flags of a reply, or the message of Unparsable: the only exception that may come."""
    try:
        found, flags = read_answer(text, answer, material)
    except Unparsable as error:
        return str(error)
    assert isinstance(found, answer)
    return found, flags


@pytest.mark.slow
@given(_ANY, st.sampled_from(ANSWERS), st.lists(_ANY, max_size=2))
def test_arbitrary_text_gives_an_answer_or_unparsable_and_always_the_same(text, answer, material):
    assert _reading(text, answer, material) == _reading(text, answer, material)


_WRAPPED = ["%s", "**%s**", '"%s"', "`%s`.", "%s!", "Answer: %s", "**Verdict:** %s", "```\n%s\n```", "```text\n%s", '{"verdict": "%s"}',
            "Here it is:\n\n%s\n\nThat is all.", "<think>YES or NO?</think>\n%s", "%s, because of the context", "> %s"]  # fmt: skip


@pytest.mark.parametrize("verdict", ["YES", "No", "yes", "NO"])
@pytest.mark.parametrize("wrapped", _WRAPPED)
def test_a_word_is_read_in_every_wrapping_and_both_words_in_none(wrapped, verdict):
    assert read_answer(wrapped % verdict, YesNo)[0].verdict == verdict.upper()
    opposite = {"YES": "no", "NO": "yes"}[verdict.upper()]
    for both in (f"{verdict}/{opposite}", f"{verdict} or {opposite}", f"{verdict} and {opposite}", f"{verdict}\n{opposite}"):
        assert read_answer(wrapped % both, YesNo)[0].verdict == "NEITHER"


def test_a_channel_in_the_texts_of_a_cut_reply_is_no_answer():
    text = '{"score": 1.0, "reason": "<|channel|>final<|message|>4 of the claims hold"}'
    with pytest.raises(Unparsable, match="channel inside a JSON object"):
        final_part(text[:-16])
    assert final_part(text) == text


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


DRAFTS = ['{"score": 2}', '{"claims": ["a draft"]}', '{"verdict": "WRONG"}', "3", "Score: 1", "NO", "YES", "It is {open"]
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
@pytest.mark.parametrize(("reply", "type_name"), [('{"score": 4}', "Grade15"), ("YES", "YesNo"), ('{"claims": ["a"]}', "Claims")])
def test_noise_of_each_kind_is_read_through(wrapping: str, reply: str, type_name: str) -> None:
    """The property above would hold for a parser that reads nothing."""
    answer = TYPES[type_name]
    expected = reading(reply, answer)
    assert expected != UNREADABLE
    assert reading(wrapping.replace("{0}", reply), answer) == expected or (wrapping.startswith("**Result") and type_name == "YesNo")


def _is_cut_grade(row: dict[str, Any], cut: str) -> bool:
    """Whether a grade that stands alone on its line may have lost its last digits."""
    return row["type"] == "Grade15" and "{" not in row["reply"] and len(cut.strip().splitlines()) < 2


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


def test_a_repair_that_loses_an_item_gives_no_list() -> None:
    """json-repair reads three of these four texts."""
    reply = json.dumps({"claims": [""] * 4}, indent=2)
    assert reading(reply, Claims) == [""] * 4
    assert reading(reply[:-2], Claims) in ([""] * 4, UNREADABLE)
