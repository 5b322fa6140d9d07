"""Cells that Python, numpy, pandas and LangChain printed: read as the lists they were, or refused with what cures it.

The texts are what numpy 1 and 2, pandas, pprint and LangChain print; the values are those that were printed.
"""

import pytest

from ragpipe.core.errors import DataError
from ragpipe.data.expressions import NotPrinted, printed_value

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


PASSAGES = "['Bob sold it.' 'Ada wrote it.'\n 'It rained.']"
THREE = ["Bob sold it.", "Ada wrote it.", "It rained."]


@pytest.mark.parametrize(("columns", "settings"), [
    (("question", "answer", "contexts"), {}),
    (("q", "a", "c"), {"fields": {"question": "q", "answer": "a", "contexts": "parse(c)"}}),
    (("user_input", "response", "retrieved_contexts"), "ragas"),
])  # fmt: skip
@pytest.mark.parametrize(("cell", "passages"), [
    (PASSAGES, THREE), ("array(['a', 'b'], dtype=object)", ["a", "b"]), ("['a', 'b']", ["a", "b"]), ("['a' ... 'b']", None),
    ("['a', 'b' 'c']", None),
])  # fmt: skip
def test_every_reader_of_a_cell_says_the_same(read_file, columns, settings, cell, passages):
    text = f'{",".join(columns)}\nWho?,Ada.,"{cell}"\n'
    if settings == "ragas":
        fields = {"question": "user_input", "answer": "response"}
        fields["chunks"] = {"each": "pairs(parse(retrieved_contexts), `null`)", "fields": {"text": "[0]"}}  # type: ignore[assignment]
        settings = {"fields": fields}
    if passages is None:
        with pytest.raises(DataError) as refused:
            read_file({"d.csv": text}, **settings)
        assert "d.csv:2" in str(refused.value)
        assert "json.dumps" in str(refused.value)
    else:
        (record,) = read_file({"d.csv": text}, **settings)
        assert [chunk.text for chunk in record.output.chunks] == passages
