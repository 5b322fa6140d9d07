"""The functions of path expressions, a table each."""

import pytest

from ragpipe.core.digest import canonical_json
from ragpipe.data.expressions import BadExpression, Expression


@pytest.mark.parametrize(("path", "record", "value"), [
    ("parse(x)", {"x": "['it\\'s', \"a 'b'\", None, True, -1.5, (1, 2), {'k': [], 3: 4}]"},
     ["it's", "a 'b'", None, True, -1.5, [1, 2], {"k": [], "3": 4}]),
    ("to_string(x)", {"x": 7}, "7"),
    ("to_string(x)", {"x": None}, None),
    ("parse(x)", {"x": '["a", null]'}, ["a", None]),
    ("parse(x)", {"x": " "}, None),
    ("parse(x)", {"x": ["as it is"]}, ["as it is"]),
    ("json_or_text(x)", {"x": ' {"a": 1}'}, {"a": 1}),
    ("json_or_text(x)", {"x": "[1] says so"}, "[1] says so"),
    ("json_or_text(x)", {"x": {"a": 1}}, {"a": 1}),
    ("number(x)", {"x": " 1.5e2 "}, 150.0),
    ("number(x)", {"x": "nan"}, None),
    ("number(x)", {"x": ""}, None),
    ("verdict(x)", {"x": "0.5"}, 0.5),
    ("verdict(x)", {"x": "True"}, True),
    ("verdict(x)", {"x": "NaN"}, None),
    ("verdict(x)", {"x": "good"}, {"unreadable": "good"}),
    ("verdict(x)", {"x": "1e999"}, {"unreadable": "1e999"}),
    ("verdict(x)", {"x": {"a": "1", "b": "", "c": ["0", "x"], "d": {"unreadable": "7"}}},
     {"a": 1, "b": None, "c": [0, {"unreadable": "x"}], "d": {"unreadable": "7"}}),
    ("without(@, ['a', 'c'])", {"a": 1, "b": 2}, {"b": 2}),
    ("without(y, ['a'])", {}, None),
    ("prefixed(@, 'score.')", {"score.a": 1, "scored": 2, "b": 3}, {"a": 1}),
    ("suffixed(@, '/value')", {"a/value": 1, "a/reason": "so"}, {"a": 1}),
    ("collect(x, &n, &v)", {"x": [{"n": "a", "v": 1}, {"n": "b", "v": 2}, {"n": "a", "v": None}]},
     {"a": [1, None], "b": 2}),
    ("collect(x, &n, &verdict(v))", {"x": [{"n": "a", "v": "yes"}]}, {"a": {"unreadable": "yes"}}),
    ("minus(b, a)", {"a": 2, "b": 5}, 3),
    ("time_ms(x)", {"x": "1970-01-01T00:00:01.5Z"}, 1500.0),
    ("time_ms(x)", {"x": "1970-01-01 01:00:00+01:00"}, 0.0),
    ("time_ms(x)", {"x": "1970-01-02"}, 86_400_000.0),
])  # fmt: skip
def test_a_function_gives(path, record, value):
    result = Expression(path)(record)
    assert canonical_json(result) == canonical_json(value)


@pytest.mark.parametrize(("path", "text", "says"), [
    ("parse(x)", "__import__('os').system('true')", "has no JSON form"),
    ("parse(x)", "[1e999]", "float has no JSON form"),
    ("parse(x)", "['\\ud800']", "a lone surrogate"),
    ("parse(x)", "[" + "1," * 150_000 + "]", "outside of texts"),
    ("parse(x)", "[" * 5000, "neither JSON nor a Python literal"),
    ("number(x)", "1,5", "is no number"),
    ("time_ms(x)", "yesterday", "time_ms"),
    ("without(x, ['a'])", "text", "without"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(path, text, says):
    with pytest.raises(BadExpression, match=says):
        Expression(path)({"x": text})


def test_long_texts_are_no_long_literal():
    texts = ["it's, " * 100_000, 'so "said", ' * 50_000]
    assert Expression("parse(x)")({"x": repr(texts)}) == texts
