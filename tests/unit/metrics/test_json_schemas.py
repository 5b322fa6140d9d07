"""JSON schemas of `format`: what is refused before anything runs, and what an answer is held to."""

import json

import pytest

from ragpipe.core.errors import RagpipeError
from ragpipe.testing.scripted import make_case, score_of, shipped_metric

NODE = {"type": "object", "properties": {"child": {"$ref": "#/$defs/node"}}, "additionalProperties": False}
TREE = {"$ref": "#/$defs/node", "$defs": {"node": NODE}}


def held(schema, answer):
    """Whether the answer fits the schema."""
    text = answer if isinstance(answer, str) else json.dumps(answer)
    return score_of(shipped_metric("format", length={}, json_schema=schema), make_case(text))["format"].value == 1


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"$ref": "#"}, "leads back to itself"),
        ({"anyOf": [{"type": "null"}, {"$ref": "#"}]}, "leads back to itself"),
        (
            {"$ref": "#/$defs/a", "$defs": {"a": {"not": {"$ref": "#/$defs/b"}}, "b": {"$ref": "#/$defs/a"}}},
            "leads back",
        ),
        ({"properties": {"a": {"allOf": [{"$ref": "#/properties/a"}]}}}, "leads back to itself"),
        ({"$ref": "#/$defs/absent"}, "'#/$defs/absent' points to nothing"),
        ({"properties": {"a": {"items": {"$ref": "#nowhere"}}}}, "'#nowhere' points to nothing"),
        ({"$ref": "#/required", "required": ["a"]}, "points to list"),
        ({"items": {"$ref": "other.json"}}, "points elsewhere"),
        ({"items": {"pattern": "("}}, "a regular expression"),
        ({"patternProperties": {"(": {}}}, "a regular expression"),
        ({"properties": {"at": {"format": "uri"}}}, "'uri' is not checked: take it out, or use a pattern"),
    ],
)
def test_a_schema_that_would_fail_at_the_first_case_is_refused_at_once(schema, says):
    with pytest.raises((ValueError, RagpipeError)) as fault:
        shipped_metric("format", json_schema=schema)
    assert says in str(fault.value)


@pytest.mark.parametrize(
    ("schema", "fits", "does_not"),
    [
        (TREE, {"child": {"child": {}}}, {"child": {"kind": 1}}),
        ({"items": {"$ref": "#"}, "type": ["array", "null"]}, [None, [None]], [1]),
        ({"$defs": {"n": {"$anchor": "num", "type": "number"}}, "items": {"$ref": "#num"}}, [1], ["a"]),
        # RFC 6901 and draft 2020-12, section 8.2.1: a reference is looked up from the nearest $id
        ({"items": {"$id": "urn:x:y", "$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}}}, [None], [1]),
        # names and values that look like keywords are none
        (
            {"properties": {"$ref": {"type": "string"}, "format": {"const": "uri"}}},
            {"$ref": "https://x"},
            {"format": "a"},
        ),
        (
            {"enum": [{"$ref": "https://example.org", "format": "uri"}]},
            {"$ref": "https://example.org", "format": "uri"},
            1,
        ),
        # draft 2020-12 validation, section 6.3.3: expressions as in ECMA-262, which minds the case
        ({"pattern": "^[A-Z]{3}$"}, '"ABC"', '"abc"'),
        ({"format": "date"}, '"2024-02-29"', '"banana"'),
        ({"format": "date"}, '"2024-02-28"', '"2023-02-29"'),
        # RFC 3339, section 5.8: the first two are its own examples
        ({"format": "date-time"}, '"1985-04-12T23:20:50.52Z"', '"1985-04-12T23:20:50.52"'),
        ({"format": "date-time"}, '"1996-12-19T16:39:57-08:00"', '"1996-13-19T16:39:57-08:00"'),
        ({"format": "date-time"}, "5", '"1996-12-19"'),
        ({"format": "ipv4"}, '"192.0.2.1"', '"192.0.2.256"'),
        ({"format": "uuid"}, '"f81d4fae-7dec-11d0-a765-00a0c91e6bf6"', '"f81d4fae"'),
    ],
)
def test_what_a_schema_holds_an_answer_to(schema, fits, does_not):
    assert held(schema, fits)
    assert not held(schema, does_not)


def test_an_answer_nested_deeper_than_can_be_checked_does_not_fit():
    layered = {"allOf": [{"anyOf": [{"oneOf": [{"allOf": [NODE]}]}]}]}
    deep = '{"child":' * 90 + "{}" + "}" * 90
    assert held(TREE, deep)
    assert not held({**TREE, "$defs": {"node": layered}}, deep)


def test_own_expressions_ignore_case_unless_they_say_so():
    for pattern, value in (("[A-Z]{3}-1", 1), ("(?-i:[A-Z]{3})-1", 0)):
        assert (
            score_of(shipped_metric("format", matches={"code": pattern}), make_case("abc-1"))["format"].value == value
        )
