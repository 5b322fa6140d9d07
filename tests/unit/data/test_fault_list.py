"""Faults of one kind are one block with a count and the first places; different ones stay apart, in the order of the file."""

import pytest

from ragpipe.core.errors import DataError, Problem
from ragpipe.data.dataset import open_dataset
from ragpipe.data.faults import Faults, grouped
from ragpipe.data.settings import DatasetSettings


def _refused(tmp_path, name, content, **settings):
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(DataError) as refused:
        list(open_dataset(DatasetSettings(path=name, **settings), tmp_path))
    return refused.value


def _number(where, key, value):
    return Problem(where, key, f"a number: {value}", "a valid string", "write it in quotes")


def test_one_fault_of_one_record_reads_as_it_is():
    single = _number("a.jsonl:1", "id", 7)
    assert grouped([single]) == [single]
    assert str(single) == ("a.jsonl:1: id\n    found:    a number: 7\n    expected: a valid string\n    fix:      write it in quotes")


def test_the_same_fault_of_several_records_is_one_block_with_three_places():
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
    error = _refused(tmp_path, "logs.csv", "id,q,a,ms\n" + rows, fields=fields)
    (block,) = error.problems
    assert (block.key, block.records, block.where) == ("timings.total", 39, "logs.csv:2 (id 'q0')")
    assert "number(...)" in block.fix


def test_reading_stops_at_fault_1000_and_the_remark_is_asked_once():
    asked: list[int] = []

    def remark():
        asked.append(1)
        return "; it is a log"

    faults = Faults("x cannot be used", remark)
    for line in range(999):
        faults.add(f"x:{line}", "line", "no JSON", "JSON")
    assert not asked
    with pytest.raises(DataError) as refused:
        faults.add("x:999", "line", "no JSON", "JSON")
    assert len(asked) == 1
    assert refused.value.title == "x cannot be used; reading stopped at fault 1,000; it is a log"
    assert refused.value.problems[0].records == 1000
