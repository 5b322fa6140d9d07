"""What an answer type puts into a question's key and onto the wire: the order of its fields, and their descriptions."""

from __future__ import annotations

import hashlib
import importlib
import json
import pkgutil
from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import Field

import ragpipe
from ragpipe.core.call import KNOWN, Payload, canonical_messages
from ragpipe.core.digest import canonical_json
from ragpipe.core.errors import ConfigError
from ragpipe.judge.answer_type import Answer, Flag, Number, Quote, answer_schema, without_defaults
from ragpipe.judge.answers import Verdict, rubric_grade
from tests.support.asking import ask, question, settings

GOLDEN = """
    TokenMatch bc0156af22b2583c 3e8f022bcedf4185 df0591eba0dcf7bb
    Vector f6eabd803364d782 f6eabd803364d782 f6eabd803364d782
    AnswerRelevance cf903e45dd668808 2748af46b509e053 7816f2d1a747fa39
    AxisGrade 2960d035db334d84 72903c9f2a0f4f20 4c376a030062dffc
    CheckedClaim feb0de8ed83c1729 feb0de8ed83c1729 3e6baeab4ad0ff76
    CheckedClaims 174a6ac92f536c5e 174a6ac92f536c5e 2865b574afd23daf
    ChunkGrade 3024eb445d0b87fb 019df21ceab0db38 ae0d03cbe97f6040
    ChunkGrades 0cab14ff1d6931a1 982d1b63381a1f1a 9f4c879f6c61d5d4
    ChunkVerdict f588f94bde40b19d f588f94bde40b19d 63f77c589da1c607
    Claims d01c458cb1cff13d d01c458cb1cff13d d33810043fb59548
    ContextRelevance 6621fe5ce15273db 013339837156175f b09a03adf12ec305
    GeneratedQuestions b3a34aa30b753015 b3a34aa30b753015 b4330e8ad0047611
    Grade05 0a260e2c8a24d898 6a41c369548a03bb 7080750c1113df3c
    Grade15 ce98ffc722f78a12 b9886b29c6bc196d 9a731b9b6c44e17a
    Groundedness 85163c3f4d159135 0fe62d15f4bd3db4 4578dc7be3c7e98c
    TwoAxes 5b88e86394b0ebd9 03b8ce22685bf59d deaf30760f3558f8
    Verdict 57eb1ba3234ef3e0 b36e7c5af4badd9e 502688a40d7355ab
    Verdicts 03ace49eb4843a8d da898291b18bda85 8ca333f16993120f
    YesNo f7d28f15d9cd039d f7d28f15d9cd039d f7d28f15d9cd039d
    Acknowledgement 911507783cd8f55b 565cbb3c5f00a6fa fb0d905f04ce5634
    CitationVerdict 869a1dcbbe863995 54a2720f0d9f58e7 b931943a55d7a143
    CitationVerdicts 5e8b75962964f8d9 185aad939802922e 081478571f404008
    CitedClaim 3abe7363b7b72a4e 6fb82c88b21be6ab 73f43ece3c31accf
    CitedClaims 715faeb844434679 29e5136cc380367f fecb19e3f523fea8
    Refusal d13a2aab95b7c066 c466ea4accb9e628 ef98ede010833aa0
    RuleVerdict 511f6fc69fbabb51 b700cacccf1d9885 b26ac6a756718fbd
    RuleVerdicts 9e96b8861a4ea308 fd0cfec631bdf03d 2d9c4728ab7b01b5
    SourceUse 5355b58a0482cf14 25fe5d5f787f8ca1 ccb542c7b2232051
    SourceUses ed69602b962a9a24 54974f591749cf54 65712aefe1af9603
    AnswerClass 897811023f001b73 897811023f001b73 769308dd80ea1bcf
    ClaimCheck eab4bcaf1ee225fa 6489b6af198f1544 21ba15d492b49ac7
    ClaimChecks 52fa3d6398dc1717 faaeb757fb72407d 0c0592d0ea20e7eb
    ClaimOrigin e0ae2c0b3e733c58 6a2326556b787c29 853f6fd65c5e9e10
    ClaimOrigins bb77bf6d1eed75f0 526a9b06ed3a81e7 bb96597c40eae35b
    Criterion 9cc531cdb9b01b1d 4cf6306736c02bcb ffbc3c887fe50bfb
    FactualAccuracy 79ec84d15988edb5 ef77adc21eea808c 2151e5825544a834
    Nugget 8b57e214e7239a50 f3e16c411016ff2b adf9ea1ad9c7ee47
    NuggetSupport 545865fe8376e4e9 545865fe8376e4e9 2e31aa3595a91578
    NuggetSupports 8596db12095752a7 8596db12095752a7 713b76d3b8ad6cbf
    Nuggets 91b0ec728bda6c04 0a7f9588fa9d42b3 8ca58b4388701528
    PassageGrade a37ad6cd0ca388f3 f96440412eb20243 3ca4d9bd45936914
    PassageGrades 22d8ee0524931223 8b9e16e1ad77a1f5 dc3fc2a745dca233
    RubricGrade c123b23842d52bce c123b23842d52bce 394a08da2c26a2fa
    Sufficiency d349f1da040af0d0 d349f1da040af0d0 e1733570ab226c7c
    Tone 3c273597d91c2392 fab28242022c12ea 4567cc95e1f7b373
"""
"""Type, hash of its schema in a key, sha256 of the schema as it is put into a message, and as strict modes are sent it.
Written down when every schema was hashed in sorted form: a change here bills every user again."""
RUBRICS = (
    ((1, 5, True), "2960d035db334d84"),
    ((0, 1, False), "6dcf56a4ed0d8b37"),
    ((1.0, 5.0, True), "cd464fe87fe1ce5d"),
    ((0.0, 1.0, False), "d949e462dfc5a8e5"),
)
"""Scales as the rubric metric writes them, and the same as other numbers, written down at the same time."""


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def found_of(answer: type[Answer]) -> list[str]:
    schema = answer_schema(answer)
    payload = Payload(({"role": "user", "content": "?"},), schema)
    wire = json.dumps(without_defaults(schema, strict=True), ensure_ascii=False, separators=(",", ":"))
    return [payload.parts["schema"][:16], digest(payload.schema_json), digest(wire)]


def shipped() -> dict[str, type[Answer]]:
    for module in pkgutil.walk_packages(ragpipe.__path__, "ragpipe."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found, left = {}, [Answer]
    while left:
        for kind in left.pop().__subclasses__():
            left.append(kind)
            if kind.__module__.startswith("ragpipe.") and vars(importlib.import_module(kind.__module__)).get(kind.__name__) is kind:
                found[kind.__qualname__] = kind
    return found


def test_every_shipped_answer_type_keeps_its_key_and_its_bytes_on_the_wire():
    golden = {name: hashes for name, *hashes in map(str.split, GOLDEN.strip().splitlines())}
    types = shipped()
    assert {name: found_of(types[name]) for name in golden} == golden
    assert len(golden) == 45


@pytest.mark.parametrize(("scale", "golden"), RUBRICS)
def test_a_rubric_on_any_scale_keeps_its_key(scale, golden):
    for number in (int, float):  # equal scales that are written differently, whoever comes first
        rubric_grade(number(scale[0]), number(scale[1]), scale[2])
    assert found_of(rubric_grade(*scale))[0] == golden


def test_no_two_known_orders_have_the_same_fields():
    assert len({frozenset(order) for order in KNOWN}) == len(KNOWN)


class ReasonFirst(Answer):
    reason: Quote
    grade: Number


class GradeFirst(Answer):
    grade: Number
    reason: Quote


class Swapped(Answer):
    """The fields of a shipped type in another order."""

    supported: Flag
    index: Number
    evidence: Quote = ""
    reason: str = ""


def test_an_order_that_is_not_known_is_hashed_field_by_field():
    """GradeFirst is in alphabetical order, ReasonFirst is not: by hand, its fields are pairs."""
    number, text = {"type": "number"}, {"type": "string"}
    plain = {"type": "object", "properties": {"grade": number, "reason": text}, "required": ["grade", "reason"]}
    pairs = {"type": "object", "properties": [["reason", text], ["grade", number]], "required": ["reason", "grade"]}
    said = ({"role": "user", "content": "?"},)
    found = [Payload(said, answer_schema(kind)).parts["schema"] for kind in (GradeFirst, ReasonFirst)]
    assert found == [hashlib.sha256(canonical_json(form).encode()).hexdigest() for form in (plain, pairs)]
    assert tuple(answer_schema(Swapped)["properties"]) not in KNOWN


@pytest.mark.parametrize("mode", ["json_schema", "json_object", "plain"])
async def test_each_order_is_sent_as_it_is(serve, mode):
    server = serve()
    server.keep_bodies = True
    asked = [question("?", kind) for kind in (ReasonFirst, GradeFirst, ReasonFirst)]
    calls = await ask(settings(server.url, output_mode=mode), *asked)
    orders = [list(schema_sent(server.bodies[call.wire_hash])["properties"]) for call in calls]
    assert orders == [["reason", "grade"], ["grade", "reason"], ["reason", "grade"]]


def schema_sent(body: dict[str, Any]) -> dict[str, Any]:
    form = body.get("response_format", {}).get("json_schema")
    if form:
        return form["schema"]
    return json.loads(body["messages"][-1]["content"].rsplit("\n", 1)[1])


class Plain(Answer):
    steps: list[str]
    verdict: Verdict
    kind: Literal["a", "b"] = "a"


class Described(Answer):
    """Not for the judge."""

    steps: list[Annotated[str, Field(description="One step.")]] = Field(description="What leads to the verdict.", title="S")
    verdict: Verdict = Field(description="Of the last step.")
    kind: Literal["a", "b"] = Field("a", description="What it is about.")


@pytest.mark.parametrize("mode", ["json_schema", "json_object"])
async def test_descriptions_of_fields_reach_the_judge_and_are_in_the_key(serve, mode):
    server = serve()
    server.keep_bodies = True
    plain, described = question("?", Plain), question("?", Described)
    assert plain.key != described.key
    calls = await ask(settings(server.url, output_mode=mode), plain, described)
    sent = [schema_sent(server.bodies[call.wire_hash]) for call in calls]
    fields = sent[1]["properties"]
    said = {"steps": "What leads to the verdict.", "verdict": "Of the last step.", "kind": "What it is about."}
    assert {name: field["description"] for name, field in fields.items()} == said
    assert fields["steps"]["items"]["description"] == "One step."
    assert "description" not in json.dumps(sent[0])
    for unsaid in ("Not for the judge", "Whether item number", '"title"'):  # docstrings and titles
        assert unsaid not in json.dumps(sent)


def test_a_default_is_no_part_of_a_question():
    class Empty(Answer):
        note: str = ""

    class Full(Answer):
        note: str = "nothing"

    class Needed(Answer):
        note: str

    empty, full, needed = (question("?", kind).key for kind in (Empty, Full, Needed))
    assert empty == full != needed


def test_a_bound_on_a_checked_number_is_sent_by_its_name_in_json_schema():
    class Bounded(Answer):
        share: Annotated[Number, Field(gt=0, lt=2, multiple_of=0.5)]

    bounds = {"exclusiveMinimum": 0, "exclusiveMaximum": 2, "multipleOf": 0.5}
    assert answer_schema(Bounded)["properties"]["share"] == {**bounds, "type": "number"}


class Node(Answer):
    name: str
    below: list[Node]


class Holder(Answer):
    first: Node | None = None


class Calls(Answer):
    then: Callable[[], int]


@pytest.mark.parametrize(("answer", "why"), [
    (Node, "Node, which holds itself"), (Holder, "Node, which holds itself"), (Calls, "cannot be asked for"),
])  # fmt: skip
def test_an_answer_type_that_holds_itself_or_what_json_cannot_hold_is_refused_by_name(answer, why):
    with pytest.raises(ConfigError, match=why) as fault:
        answer_schema(answer)
    (problem,) = fault.value.problems
    assert problem.where.endswith(f"test_question_identity.{answer.__name__}")


@pytest.mark.slow
@given(st.lists(st.dictionaries(st.sampled_from(["role", "content", "name"]), st.text(st.characters(exclude_categories=())))))
@example([{"role": "user", "content": "".join(map(chr, range(0xD800)))}])
@example([{"role": "user", "content": "".join(map(chr, range(0xE000, 0x20000)))}])
@example([{"role": "user", "content": "half a character \ud800"}])
def test_messages_are_hashed_as_canonical_json_whichever_encoder_writes_them(messages: list[dict[str, str]]) -> None:
    assert canonical_messages(messages) == canonical_json(messages)
