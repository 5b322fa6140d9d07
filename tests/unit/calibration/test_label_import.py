"""What comes back: files of the page and sheets, several people, what was undone, and every fault by file and line."""

import json

import pytest

from ragpipe.calibration.label_files import DRAWN_COLUMNS, Draw, LabelGrade, ShownCase, StratumSize
from ragpipe.calibration.label_import import (
    GivenLabel,
    LabelKey,
    checked,
    labels_of,
    merged_labels,
    read_labelled_file,
    sheet_rows,
    write_sheet,
)
from ragpipe.core.errors import DataError, Problem
from ragpipe.core.sample import Turn
from ragpipe.store.table_rows import table_of

GRADES = [LabelGrade(name=name, value=value) for name, value in (("all", 1.0), ("partly", 0.5), ("none", 0.0))]
DRAW = Draw(
    draw_id="faithfulness-1", run_id="r", metric="faithfulness", score="faithfulness", question="All supported?", grades=GRADES,
    low=0.0, high=1.0, seed=0, cases=10, strata=[StratumSize(name="all", cases=10, drawn=3)], settings={},
)  # fmt: skip
ITEMS = ["i1", "i2", "i3"]
DRAWN = table_of(
    [
        {"item": item, "sample_id": f"s{number}", "method": "a", "repeat": 1, "answer_sha256": str(number) * 64, "part": "random",
         "stratum": "all", "probability": 0.3, "annotators": None}
        for number, item in enumerate(ITEMS, 1)
    ],
    DRAWN_COLUMNS,
)  # fmt: skip


def event(item="i1", label="all", **more):
    """A line of the page."""
    row = {"v": 1, "draw": "faithfulness-1", "item": item, "annotator": "ann", "question": "faithfulness",
           "label": label, "note": "", "ms": 900, "at": "2026-01-01T00:00:00Z", "undo": False}  # fmt: skip
    return row | more


def written(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def events_of(path):
    problems: list[Problem] = []
    events = read_labelled_file(path, problems)
    checked(problems)
    return events


def labels_in(path):
    labels = labels_of(DRAW, ITEMS, events_of(path))
    return {tuple(key): None if label is None else label.value for key, label in labels.items() if label is not None}


def unlabelled(**more):
    """A line that has something else than a label."""
    return {key: value for key, value in event(**more).items() if key != "label"}


UNDO = unlabelled(undo=True)


@pytest.mark.parametrize(("rows", "labels"), [
    ([event(), event("i2", "partly")], {("i1", "ann"): 1.0, ("i2", "ann"): 0.5}),
    ([event(), event(label="none")], {("i1", "ann"): 0.0}),  # the last one counts
    ([event(), event(label="none"), UNDO], {("i1", "ann"): 1.0}),  # undone: the one before counts
    ([event(), event(label="none"), UNDO, UNDO], {}),
    ([event(), UNDO, UNDO, event(label="partly")], {("i1", "ann"): 0.5}),  # one undo too many does nothing
    ([event(), unlabelled(note="hm"), UNDO], {}),  # a note alone is no label, and is not what is undone
    ([event(), event(annotator="bob", label="none"), unlabelled(annotator="bob", undo=True)], {("i1", "ann"): 1.0}),
    ([event(label=None)], {("i1", "ann"): None}),  # cannot tell is an answer
    ([event(label="All"), event("i2", 0.25), event("i3", "0,5")],
     {("i1", "ann"): 1.0, ("i2", "ann"): 0.25, ("i3", "ann"): 0.5}),
])  # fmt: skip
def test_the_last_label_counts(tmp_path, rows, labels):
    assert labels_in(written(tmp_path / "labels.jsonl", rows)) == labels


@pytest.mark.parametrize(("rows", "line", "key", "words"), [
    ([event(), event(draw="faithfulness-2")], 2, "draw", "faithfulness-1"),
    ([event("i9")], 1, "item", "an item of the draw"),
    ([event(question="correctness")], 1, "question", "faithfulness"),
    ([event(label="good")], 1, "label", "one of all, partly, none, cannot tell, a number from 0 to 1"),
    ([event(label=1.5)], 1, "label", "a number from 0 to 1"),
    ([event(label=True)], 1, "label", "the name of a grade"),
    ([event(annotator="")], 1, "annotator", "who gave the label"),
    ([event(draw=None)], 1, "draw", "the draw's name"),
    ([event(v=2)], 1, "v", "1"),
    ([event(item=7)], 1, "item", "a text"),
])  # fmt: skip
def test_a_fault_is_named_with_its_line(tmp_path, rows, line, key, words):
    path = written(tmp_path / "labels.jsonl", rows)
    with pytest.raises(DataError) as error:
        labels_in(path)
    problem = error.value.problems[0]
    assert (problem.where, problem.key) == (f"{path}:{line}", key)
    assert words in problem.expected


@pytest.mark.parametrize(("name", "content", "words"), [
    ("a.jsonl", "{\n", "no JSON"),
    ("a.jsonl", "[1]\n", "a JSON list"),
    ("a.csv", "item;label\ni1;all\n", "item, label"),
    ("a.xlsx", "x", "a file .xlsx"),
])  # fmt: skip
def test_what_is_no_labelled_file_is_refused(tmp_path, name, content, words):
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(DataError) as error:
        events_of(tmp_path / name)
    assert words in error.value.problems[0].found
    assert name in error.value.problems[0].where


CASES = {
    item: ShownCase("Who?", [Turn(role="user", text="Hi")], '=HYPERLINK("x")', ["one", "two\nlines; here"], [], "0" * 64) for item in ITEMS
}


@pytest.mark.parametrize("delimiter", [",", ";"])
def test_a_sheet_goes_out_and_comes_back(tmp_path, delimiter):
    """As a spreadsheet would save it: every cell in quotes, in its own country's form."""
    import csv

    sheet = write_sheet(tmp_path, sheet_rows(DRAW, CASES, with_reference=False))
    assert events_of(sheet) == []  # nobody has labelled it
    with open(sheet, encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["answer"] == '\'=HYPERLINK("x")'
    assert rows[0]["contexts"] == "[1] one\n\n[2] two\nlines; here"
    assert "all, partly, none, cannot tell" in rows[0]["asked"]
    for row, (who, label, note) in zip(rows, [("bob", "partly", "-5 °C"), ("bob", "cannot tell", ""), ("", "", "")], strict=True):
        row |= {"annotator": who, "label": label, "note": note}
    with open(tmp_path / "back.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter, quoting=csv.QUOTE_ALL)
        writer.writeheader()
        writer.writerows(rows)
    labels = labels_of(DRAW, ITEMS, events_of(tmp_path / "back.csv"))
    assert labels == {
        LabelKey("i1", "bob"): GivenLabel(0.5, "partly", "-5 °C", None),
        LabelKey("i2", "bob"): GivenLabel(None, None, None, None),
    }


def test_the_line_of_a_row_with_line_breaks_is_right(tmp_path):
    (tmp_path / "a.csv").write_text('item,annotator,label,note\ni1,ann,all,"one\ntwo"\ni9,ann,all,\n', encoding="utf-8")
    with pytest.raises(DataError) as error:
        labels_in(tmp_path / "a.csv")
    assert error.value.problems[0].where == f"{tmp_path / 'a.csv'}:4"


def test_files_of_several_people_become_one_table():
    """Two people; later files do not undo what they do not speak of."""
    ann = {
        LabelKey("i2", "ann"): GivenLabel(1.0, "all", None, "2026-01-02"),
        LabelKey("i3", "ann"): GivenLabel(0.5, "partly", "hm", "2026-01-03"),
    }
    bob = {LabelKey("i1", "bob"): GivenLabel(None, None, None, None)}
    first = merged_labels(None, [ann, bob], DRAWN)
    assert [(row["sample_id"], row["annotator"], row["label"]) for row in first.to_pylist()] == [
        ("s1", "bob", None), ("s2", "ann", 1.0), ("s3", "ann", 0.5),
    ]  # fmt: skip
    assert set(first["probability"].to_pylist()) == {0.3}
    assert first["answer_sha256"].to_pylist() == ["1" * 64, "2" * 64, "3" * 64]
    more = {
        LabelKey("i2", "ann"): GivenLabel(0.0, "none", None, "2026-01-01"),  # older: the one that is there stays
        LabelKey("i3", "ann"): None,  # undone since
        LabelKey("i1", "bob"): GivenLabel(0.0, "none", None, None),  # without times the one that is read last
    }
    second = merged_labels(first, [more], DRAWN)
    assert [(row["sample_id"], row["label"]) for row in second.to_pylist()] == [("s1", 0.0), ("s2", 1.0)]


def test_labels_get_the_probabilities_of_a_draw_that_grew():
    labels = merged_labels(None, [{LabelKey("i3", "ann"): GivenLabel(1.0, "all", None, None)}], DRAWN)
    grown = table_of([row | {"probability": 0.6} for row in DRAWN.to_pylist()], DRAWN_COLUMNS)
    (row,) = merged_labels(labels, [], grown).to_pylist()
    assert (row["sample_id"], row["label"], row["probability"]) == ("s3", 1.0, 0.6)
