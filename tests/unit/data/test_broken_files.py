"""Every broken file ends in one DataError that says where, which field, what was found and what was expected.

Faults of one kind are one block with a count and the first places; different ones stay apart, in the order of the file.
"""

import json
import os
from typing import get_args

import pytest

from ragpipe.core import registry
from ragpipe.core.errors import DataError, Problem
from ragpipe.data.dataset import open_dataset
from ragpipe.data.faults import Faults, grouped
from ragpipe.data.file_formats import READERS, SUFFIXES
from ragpipe.data.settings import DatasetSettings, Format
from tests.support.broken_files import BROKEN, GOOD


def refused(tmp_path, name, content, **settings):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    with pytest.raises(DataError) as caught:
        list(open_dataset(DatasetSettings(path=name, **settings), tmp_path))
    return caught.value


@pytest.mark.parametrize("broken", BROKEN, ids=lambda b: f"{b.row}-{b.name}")
def test_it_is_refused_with_file_line_and_field(broken, tmp_path):
    error = refused(tmp_path, broken.name, broken.data, **broken.settings)
    message = str(error)
    assert error.exit_code == 2
    assert [piece for piece in broken.says if piece not in message] == []
    for problem in error.problems:
        assert problem.where.startswith(broken.name)
        assert problem.found
        assert problem.expected
    assert str(tmp_path) not in message


def test_each_format_that_can_be_named_has_a_reader_and_each_reader_can_be_named():
    named = get_args(Format)[-1].json_schema["enum"]
    assert {*READERS, *registry.own_names("reader")} == {*named} - {"auto"}
    assert set(SUFFIXES.values()) <= set(READERS)


def test_different_faults_stay_apart_the_first_20_in_the_text(tmp_path):
    lines = [json.dumps({"id": f"q{i}", "question": "Why?", f"label_{chr(65 + i)}": 1}) for i in range(30)]
    error = refused(tmp_path, "many.jsonl", "\n".join(lines))
    assert len(error.problems) == 30
    assert "many.jsonl:20 (id 'q19'): label_T\n" in str(error)
    assert "many.jsonl:21" not in str(error)
    assert "and 10 more" in str(error)


@pytest.mark.parametrize(("contexts", "fix"), [
    ("Ada wrote it.", 'write a list of texts: ["Ada wrote it."]'),
    ('["Ada wrote it."]', "write the list itself, not its text; in a mapping: parse(...)"),
    ({"text": "Ada wrote it."}, "write a list, also around one object: [{...}]"),
    ("", "write [] when nothing was retrieved"),
    (0, "write [] when nothing was retrieved"),
])  # fmt: skip
def test_contexts_that_are_no_list_are_shown_as_one(tmp_path, contexts, fix):
    record = {"question": "Who?", "answer": "Ada.", "contexts": contexts}
    (problem,) = refused(tmp_path, "one.jsonl", json.dumps(record)).problems
    assert (problem.key, problem.fix) == ("contexts", fix)


@pytest.mark.parametrize(("name", "text", "found"), [
    ("cut.jsonl", '{"question": "Why?\n', "Unterminated string at column 14"),
    ("cut.json", '[{"question": "Why?', "Unterminated string at column 15"),
    ("later.json", '[{"question": "Who?"},\n {"question": "Why?', "Unterminated string at column 15"),
])  # fmt: skip
def test_a_text_without_its_end_is_named_with_its_column(tmp_path, name, text, found):
    assert refused(tmp_path, name, text).problems[0].found == found


def test_a_missing_file_a_folder_and_a_pipe_are_named_with_what_to_do(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.jsonl").write_text(GOOD, encoding="utf-8")
    with pytest.raises(DataError, match=r"absent\.jsonl: file\n +found: +No such file"):
        open_dataset(DatasetSettings(path="absent.jsonl"), tmp_path)
    with pytest.raises(DataError, match=r"files\.main; in the folder: a\.jsonl"):
        open_dataset(DatasetSettings(path="folder"), tmp_path)
    fields, join = {"id": "id", "question": "question"}, {"x": {"file": "rum", "by": "a", "key": "id"}}
    settings = DatasetSettings(path="folder", files={"main": "a.jsonl", "run": "a.run"}, fields=fields, join=join)
    with pytest.raises(DataError, match=r"join\.x\.file\n.*'rum'\n.*dataset\.files: main, run\n.*mean 'run'"):
        open_dataset(settings, tmp_path)
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(DataError, match="no regular file"):  # at once
        open_dataset(DatasetSettings(path="pipe.jsonl"), tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_file_that_may_not_be_read_is_named(tmp_path):
    (tmp_path / "secret.jsonl").write_text(GOOD, encoding="utf-8")
    (tmp_path / "secret.jsonl").chmod(0)
    with pytest.raises(DataError, match=r"Permission denied"):
        open_dataset(DatasetSettings(path="secret.jsonl"), tmp_path)


def test_a_line_without_end_is_named_and_not_held(tmp_path, monkeypatch):
    monkeypatch.setattr("ragpipe.data.text_lines.MAX_LINE", 1000)
    long = '{"id": "q2", "question": "' + "a" * 5000 + '"}\n'
    error = refused(tmp_path, "long.jsonl", GOOD + long + '{"id": 3}\n')
    assert [problem.where for problem in error.problems] == ["long.jsonl:2", "long.jsonl:3 (id '3')", "long.jsonl:3 (id '3')"]


def test_a_terminal_escape_in_the_data_reaches_no_message(tmp_path):
    line = '{"id": "\\u001b[2J", "question": "\\u001b]0;x\\u0007", "answer": 3, "\\u001b[31m": 1}\n'
    error = refused(tmp_path, "escape.jsonl", line + line.replace(', "\\u001b[31m": 1', ""))
    assert len(error.problems) == 2
    assert "\x1b" not in str(error)


def _number(where, key, value):
    return Problem(where, key, f"a number: {value}", "a valid string", "write it in quotes")


def test_the_same_fault_of_several_records_is_one_block_with_three_places():
    single = _number("a.jsonl:1", "id", 7)
    assert grouped([single]) == [single]
    assert str(single) == ("a.jsonl:1: id\n    found:    a number: 7\n    expected: a valid string\n    fix:      write it in quotes")
    problems = [_number(f"a.jsonl:{line}", "id", line) for line in (2, 5, 7, 11)]
    (block,) = grouped(problems)
    assert (block.records, block.where, block.also) == (4, "a.jsonl:2", ("a.jsonl:5", "a.jsonl:7"))
    assert str(block) == (
        "id: 4 records, first a.jsonl:2, then a.jsonl:5, a.jsonl:7\n"
        "    found:    a number: 2; 5; 7 ... (4 different)\n"
        "    expected: a valid string\n"
        "    fix:      write it in quotes"
    )


@pytest.mark.parametrize("other", [
    _number("a.jsonl:2", "question", 7),
    Problem("a.jsonl:2", "id", "null", "a valid string", "write it in quotes"),
    Problem("a.jsonl:2", "id", "a number: 7", "a valid number", "write it in quotes"),
    Problem("a.jsonl:2", "id", "a number: 7", "a valid string", "map it"),
    _number("a.jsonl:2", "id2", 7),
], ids=["field", "type", "expected", "fix", "name with a number"])  # fmt: skip
def test_faults_of_another_kind_stay_apart(other):
    first = _number("a.jsonl:1", "id", 7)
    assert grouped([first, other]) == [first, other]


def test_positions_in_lists_are_one_field_but_two_faults_of_one_record_stay_two_blocks():
    within = [_number("a:1", "contexts[0].text", 1), _number("a:1", "contexts[3].text", 2)]
    assert grouped(within) == within
    (block,) = grouped([*within, _number("a:9", "contexts[0].text", 1)])
    assert (block.key, block.records, block.also) == ("contexts[].text", 2, ("a:9",))


def test_numeric_texts_of_a_csv_say_once_how_to_make_numbers_of_them(tmp_path):
    rows = "".join(f"q{n},Why?,A.,{n}.5\n" for n in range(39))
    fields = {"id": "id", "question": "q", "answer": "a", "timings": {"fields": {"total": "ms"}}}
    (block,) = refused(tmp_path, "logs.csv", "id,q,a,ms\n" + rows, fields=fields).problems
    assert (block.key, block.records, block.where) == ("timings.total", 39, "logs.csv:2 (id 'q0')")
    assert "number(...)" in block.fix


def test_reading_stops_at_fault_1000_and_the_remark_is_asked_once():
    asked: list[str] = []
    faults = Faults("x cannot be used", lambda: asked.append("once") or "; it is a log")
    for line in range(999):
        faults.add(f"x:{line}", "line", "no JSON", "JSON")
    assert not asked
    with pytest.raises(DataError, match=r"^x cannot be used; reading stopped at fault 1,000; it is a log\n") as caught:
        faults.add("x:999", "line", "no JSON", "JSON")
    assert len(asked) == 1
    assert caught.value.problems[0].records == 1000
