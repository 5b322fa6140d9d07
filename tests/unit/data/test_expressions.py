"""The functions of path expressions, a table each. Cells that Python, numpy, pandas and LangChain printed.

The cells are read as the lists they were, or refused with what cures it; their texts are what numpy 1 and 2, pandas, pprint and
LangChain print, the values those that were printed.
"""

import pytest

from ragpipe.core.digest import canonical_json
from ragpipe.core.errors import DataError
from ragpipe.data.expressions import BadExpression, Expression, NotPrinted, printed_value


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


BROKEN = "The warranty lasts two years "


@pytest.mark.parametrize(("text", "value"), [
    ("['a' 'b']", ["a", "b"]),
    ("[]", []),
    ("array(['a', 'b'], dtype=object)", ["a", "b"]),
    ("array(['a',\n       'b'], dtype='<U1')", ["a", "b"]),
    ("array(['a', 'a'], shape=(2,), dtype=object)", ["a", "a"]),
    ("[\"it's\" 'a \"b\"' 'it\\'s \"c\"']", ["it's", 'a "b"', "it's \"c\""]),
    ("['one [1], two' '(x, y)' '{z}: ...']", ["one [1], two", "(x, y)", "{z}: ..."]),
    ("['line\\nbreak' 'C:\\\\tmp']", ["line\nbreak", "C:\\tmp"]),
    ("[np.str_('a'), np.str_('b')]", ["a", "b"]),
    ("[['a' 'b']\n ['c' 'd']]", [["a", "b"], ["c", "d"]]),
    ("[list(['a', 'b']) list(['c'])]", [["a", "b"], ["c"]]),
    ("array([array(['a'], dtype=object), array(['b', 'c'], dtype=object)], dtype=object)", [["a"], ["b", "c"]]),
    ("[{'text': 'a', 'score': 0.5} {'text': 'b', 'score': nan}]", [{"text": "a", "score": 0.5}, {"text": "b", "score": None}]),
    ("[{'text': 'a', 'score': np.float64(0.5)}]", [{"text": "a", "score": 0.5}]),
    ("[0.5 nan 1.  -2.]", [0.5, None, 1.0, -2.0]),
    ("[None 'a']", [None, "a"]),
    ("['a', None, nan]", ["a", None, None]),
    ("{'a': ['b' 'c'], 'd': {'e': ()}}", {"a": ["b", "c"], "d": {"e": []}}),
    ("[Document(page_content='a', metadata={'source': 'x.md'}), Document(id='7', metadata={}, page_content='b')]",
     [{"page_content": "a", "metadata": {"source": "x.md"}}, {"id": "7", "metadata": {}, "page_content": "b"}]),
    (f"['{BROKEN}' 'a' 'b']", [BROKEN, "a", "b"]),  # a piece that does not end in a blank is no broken text
])  # fmt: skip
def test_a_printed_value_is_read_as_it_was(text, value):
    assert printed_value(text) == value


@pytest.mark.parametrize(("text", "why"), [
    ("['a' ... 'b']", "left out"),
    ("array(['a', 'b', ..., 'y', 'z'], dtype=object)", "left out"),
    ("['a', 'b' 'c']", "one or several"),  # pprint, or a comma that was forgotten
    (f"['{BROKEN}'\n 'and some more']", "one or several"),  # pprint of one text, or numpy of two
    ("'a' 'b'", "side by side"),
    ("['a'] ['b']", "has no JSON form"),
    ("{'a', 'b'}", "set has no JSON form"),
    ("[datetime.datetime(2024, 1, 1)]", "datetime.datetime(...) has no JSON form"),
    ("[NodeWithScore(node=1, score=0.5)]", "NodeWithScore(...) has no JSON form"),
    ("0    a\n1    b\nName: contexts, dtype: object", "a pandas Series"),
    ("page_content='a' metadata={}", "neither JSON nor a Python literal"),
    ("['it's']", "neither JSON nor a Python literal"),
])  # fmt: skip
def test_what_may_have_been_something_else_is_refused_with_the_cure(text, why):
    with pytest.raises(NotPrinted) as refused:
        printed_value(text)
    assert why in str(refused.value)
    assert "json.dumps" in refused.value.fix


@pytest.mark.parametrize(("columns", "settings"), [
    (("question", "answer", "contexts"), {}),
    (("q", "a", "c"), {"fields": {"question": "q", "answer": "a", "contexts": "parse(c)"}}),
    (("user_input", "response", "retrieved_contexts"), {"fields": {
        "question": "user_input", "answer": "response",
        "chunks": {"each": "pairs(parse(retrieved_contexts), `null`)", "fields": {"text": "[0]"}}}}),  # as dataset=ragas has it
])  # fmt: skip
@pytest.mark.parametrize(("cell", "passages"), [
    ("['Bob sold it.' 'Ada wrote it.'\n 'It rained.']", ["Bob sold it.", "Ada wrote it.", "It rained."]),
    ("array(['a', 'b'], dtype=object)", ["a", "b"]), ("['a', 'b']", ["a", "b"]),
    ("['a', 'b' 'c']", None), ("['a' ... 'b']", None),
])  # fmt: skip
def test_every_reader_of_a_cell_says_the_same(read_file, columns, settings, cell, passages):
    text = f'{",".join(columns)}\nWho?,Ada.,"{cell}"\n'
    if passages is None:
        with pytest.raises(DataError, match=r"(?s)d\.csv:2.*json\.dumps"):
            read_file({"d.csv": text}, **settings)
    else:
        (record,) = read_file({"d.csv": text}, **settings)
        assert [chunk.text for chunk in record.output.chunks] == passages
