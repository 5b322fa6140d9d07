"""What a reading says beside its records: cells for no value, several passages in one text, names that nobody reads."""

import json

import pytest

from ragpipe.data.recognition import JoinedPassages

TWO = ["Shops open at nine.", "Postage is not refunded."]


@pytest.mark.parametrize("word", ["NaN", "nan", "None", "null", "NULL", "N/A", "n/a", "#N/A", "<NA>"])
@pytest.mark.parametrize("settings", [{}, {"fields": {"question": "question", "answer": "answer", "reference": "reference"}}])
def test_a_word_for_no_value_in_a_cell_is_missing_and_said(open_file, word, settings):
    dataset = open_file({"d.csv": f"question,answer,reference\nWho?,Ada.,{word}\nWhen?,1843,In 1843.\n"}, **settings)
    assert [record.sample.references for record in dataset] == [[], ["In 1843."]]
    assert "reference (1)" in dataset.remarks()[0]


@pytest.mark.parametrize(
    ("answer", "read"), [("None", "None"), ("N/A", "N/A"), ("NaN", None), ("null", None), ("NA", "NA"), ("No value", "No value")]
)
def test_an_answer_may_be_none(open_file, answer, read):
    dataset = open_file({"d.csv": f"question,answer,contexts\nWho?,{answer},[]\n"})
    assert [record.output.answer for record in dataset if record.output] == [read]


def test_such_a_word_is_a_text_in_json(open_file):
    """JSON has null; a reference answer may be the word."""
    dataset = open_file({"d.jsonl": '{"question": "Which colour has it?", "answer": "None", "reference": "None"}\n'})
    assert [record.sample.references for record in dataset] == [["None"]]
    assert dataset.remarks() == []


def test_the_index_of_a_data_frame_is_read_past(open_file):
    dataset = open_file({"d.csv": ",question,answer\n0,Who?,Ada.\n"})
    assert [record.sample.question for record in dataset] == ["Who?"]
    assert dataset.unread() == ["Unnamed: 0"]


@pytest.mark.parametrize(("form", "shown"), [
    ("{}\n---\n{}", "---"), ("{}\n\n---\n\n{}", "---"), ("{} --- {}", "---"), ("{}\n=====\n{}", "==="), ("{}\n***\n{}", "***"),
    ("{} ||| {}", "|||"), ("{}|||{}", "|||"), ("{} || {}", "||"), ("{};;{}", ";;"), ("{} ### {}", "###"), ("{}@@@{}", "@@@"),
    ("{}<sep>{}", "<sep>"), ("{} [SEP] {}", "[SEP]"), ("{}</s>{}", "</s>"), ("{}<|endoftext|>{}", "<|endoftext|>"),
    ("{} <DOC_SEP> {}", "<DOC_SEP>"), ("{}\x1e{}", "\\x1e"), ("<doc>{}</doc><doc>{}</doc>", "</doc>"),
    ("[1] {} [2] {}", "[1] .."), ("[1] {}\n[2] {}", "[1] .."), ("【1】{}【2】{}", "【1】 .."), ("Document 1: {}\nDocument 2: {}", "Document 1: .."),
    ("Context [1]: {}\n\nContext [2]: {}", "Context [1]: .."), ("Passage 1\n{}\nPassage 2\n{}", "Passage 1 .."),
    ("{}\n\n{}", "\\n\\n"), ("{} | {}", "|"), ("{}|{}", "|"), ("1. {}\n2. {}", "1. .."), ("(1) {} (2) {}", "(1) .."),
])  # fmt: skip
def test_what_separates_passages_in_most_texts_is_named_and_the_mapping_splits_there(open_file, form, shown):
    rows = [{"q": f"Question {number}?", "c": form.format(*TWO) if number % 2 else TWO[0]} for number in range(4)]
    file = {"d.jsonl": "".join(json.dumps(row) + "\n" for row in rows)}
    fields = {"question": "q", "contexts": "[c][?@]"}
    dataset = open_file(file, fields=fields)
    list(dataset)
    (line,) = dataset.remarks()
    assert f"`{shown}` stands in 2 of 4 contexts" in line
    assert "split: {passages: {text: c, pattern:" in line
    sign = JoinedPassages(row["c"] for row in rows).separator()
    split = {"passages": {"text": "c", "pattern": sign.pattern}}
    records = list(open_file(file, split=split, fields={**fields, "contexts": "passages"}))
    assert [[chunk.text for chunk in record.output.chunks or ()] for record in records if record.output] == [TWO[:1], TWO] * 2


@pytest.mark.parametrize("text", [
    "A usual text - with a dash, and (1) a note; nothing else.", "| a | b |\n|---|---|\n| 1 | 2 |", "Line one.\nLine two.", "He paused -- then went.",
    "See [1] and [2].", "x = a[1]; y = b[2]", "the day---and night", '{"page":3,"text":"The boat is blue."}', "{'a': ['b', 'c']}",
])  # fmt: skip
def test_a_usual_text_is_one_passage(text):
    assert JoinedPassages([text]).separator() is None


@pytest.mark.parametrize(("record", "fields", "unread"), [
    ({"q": "Who?", "a": "Ada.", "stars": 4}, {"question": "q", "answer": "a"}, ["stars"]),
    ({"q": "Who?", "m": {"a": 1}, "n": 2}, {"question": "q", "meta": {"fields": {"a": "m.a"}}}, ["n"]),
    ({"q": "Who?", "docs": [{"text": "x"}], "text": "y"}, {"question": "q", "chunks": {"each": "docs", "fields": {"text": "text"}}}, ["text"]),
    ({"q": "Who?", "h": 1}, {"question": "q", "meta": "without(@, ['q'])"}, []),
    ({"q": "Who?", "h": 1, "f": 2}, {"question": "q", "recorded": "without(_record, ['q'])"}, []),
    ({"q": "Who?", "r": '{"a": 1}'}, {"question": "q", "answer": "to_string(parse(r).a)"}, []),
    ({"q": "Who?", "x": None}, {"question": "q"}, []),
])  # fmt: skip
def test_names_that_the_mapping_does_not_read(open_file, record, fields, unread):
    dataset = open_file({"d.jsonl": json.dumps(record) + "\n"}, fields=fields)
    assert dataset.unread() == unread
