"""Every broken file ends in one DataError that says where, which field, what was found and what was expected."""

import json
import os
from typing import get_args

import pytest

from ragpipe.core import registry
from ragpipe.core.errors import DataError
from ragpipe.data.dataset import open_dataset
from ragpipe.data.file_formats import READERS, SUFFIXES
from ragpipe.data.settings import DatasetSettings, Format
from tests.support.broken_files import BROKEN, GOOD


@pytest.mark.parametrize("broken", BROKEN, ids=lambda b: f"{b.row}-{b.name}")
def test_it_is_refused_with_file_line_and_field(broken, tmp_path):
    (tmp_path / broken.name).write_bytes(broken.data)
    with pytest.raises(DataError) as refused:
        list(open_dataset(DatasetSettings(path=broken.name, **broken.settings), tmp_path))
    message = str(refused.value)
    assert refused.value.exit_code == 2
    for piece in broken.says:
        assert piece in message
    for problem in refused.value.problems:
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
    (tmp_path / "many.jsonl").write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(DataError) as refused:
        list(open_dataset(DatasetSettings(path="many.jsonl"), tmp_path))
    assert len(refused.value.problems) == 30
    assert "many.jsonl:20 (id 'q19'): label_T\n" in str(refused.value)
    assert "many.jsonl:21" not in str(refused.value)
    assert "and 10 more" in str(refused.value)


@pytest.mark.parametrize(("contexts", "fix"), [
    ("Ada wrote it.", 'write a list of texts: ["Ada wrote it."]'),
    ('["Ada wrote it."]', "write the list itself, not its text; in a mapping: parse(...)"),
    ({"text": "Ada wrote it."}, "write a list, also around one object: [{...}]"),
    ("", "write [] when nothing was retrieved"),
    (0, "write [] when nothing was retrieved"),
])  # fmt: skip
def test_contexts_that_are_no_list_are_shown_as_one(tmp_path, contexts, fix):
    record = {"question": "Who?", "answer": "Ada.", "contexts": contexts}
    (tmp_path / "one.jsonl").write_text(json.dumps(record), encoding="utf-8")
    with pytest.raises(DataError) as refused:
        list(open_dataset(DatasetSettings(path="one.jsonl"), tmp_path))
    assert [(problem.key, problem.fix) for problem in refused.value.problems] == [("contexts", fix)]


@pytest.mark.parametrize(("name", "text", "found"), [
    ("cut.jsonl", '{"question": "Why?\n', "Unterminated string at column 14"),
    ("cut.json", '[{"question": "Why?', "Unterminated string at column 15"),
    ("later.json", '[{"question": "Who?"},\n {"question": "Why?', "Unterminated string at column 15"),
])  # fmt: skip
def test_a_text_without_its_end_is_named_with_its_column(tmp_path, name, text, found):
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(DataError) as refused:
        list(open_dataset(DatasetSettings(path=name), tmp_path))
    assert refused.value.problems[0].found == found


def test_a_missing_file_and_a_folder_are_named_with_what_to_do(tmp_path):
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


def test_a_pipe_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(DataError, match="no regular file"):
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
    (tmp_path / "long.jsonl").write_text(GOOD + long + '{"id": 3}\n', encoding="utf-8")
    with pytest.raises(DataError) as refused:
        list(open_dataset(DatasetSettings(path="long.jsonl"), tmp_path))
    assert [problem.where for problem in refused.value.problems] == ["long.jsonl:2", "long.jsonl:3 (id '3')", "long.jsonl:3 (id '3')"]


def test_a_terminal_escape_in_the_data_reaches_no_message(tmp_path):
    line = '{"id": "\\u001b[2J", "question": "\\u001b]0;x\\u0007", "answer": 3, "\\u001b[31m": 1}\n'
    (tmp_path / "escape.jsonl").write_text(line + line.replace(', "\\u001b[31m": 1', ""), encoding="utf-8")
    with pytest.raises(DataError) as refused:
        list(open_dataset(DatasetSettings(path="escape.jsonl"), tmp_path))
    assert len(refused.value.problems) == 2
    assert "\x1b" not in str(refused.value)
