"""Files as people have them: what is guessed, what is asked of a person, what is said, and where the options are written."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from ragpipe.cli.command_line import main
from ragpipe.cli.file_start import FileStart, folder_for, start_from
from ragpipe.cli.option_files import MARKER

pytestmark = pytest.mark.slow

TWO = ["Shops open at nine.", "Postage is not refunded."]
Q = {"question": "When do shops open?"}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _start(rows: list[dict[str, Any]], name: str = "d.jsonl") -> FileStart:
    if name.endswith(".csv"):
        with open(name, "w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    else:
        Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return start_from(Path(name), Path("d"))


@pytest.mark.parametrize(("rows", "name", "texts", "answer"), [
    ([{**Q, "answer": "At nine.", "context_1": TWO[0], "context_2": TWO[1]}], "d.csv", TWO, "At nine."),
    ([{**Q, "answer": "At nine.", "Doc 2": TWO[1], "Doc 1": TWO[0], "Doc 3": ""}], "d.csv", TWO, "At nine."),
    ([{**Q, "response": "At nine.", "retrieved_docs": [{"content": text, "score": 0.5} for text in TWO]}], "d.jsonl", TWO, "At nine."),
    ([{**Q, "bot reply": "At nine.", "KB snippets": json.dumps(TWO)}], "d.csv", TWO, "At nine."),
    ([{**Q, "answer": "At nine.", "contexts": str(TWO)}], "d.csv", TWO, "At nine."),
    ([{**Q, "answer": "At nine.", "docs": "array(['a b', 'c d'], dtype=object)"}], "d.csv", ["a b", "c d"], "At nine."),
    ([{**Q, "answer": "At nine.", "docs": "[Document(page_content='a b', metadata={})]"}], "d.csv", ["a b"], "At nine."),
    ([{**Q, "answer": "At nine.", "contexts": "\n---\n".join(TWO)}], "d.csv", TWO, "At nine."),
    ([{**Q, "id": 7, "answer": 9, "contexts": TWO}], "d.jsonl", TWO, "9"),
    ([{**Q, "answer": "At nine.", "contexts": TWO, "latency": float("nan")}], "d.jsonl", TWO, "At nine."),
])  # fmt: skip
def test_it_is_read_at_the_first_try(rows: list[dict[str, Any]], name: str, texts: list[str] | None, answer: str) -> None:
    start = _start(rows, name)
    assert start.folder.is_runnable, (start.misfit, start.to_fill_in)
    assert start.reading is not None
    output = start.reading.probe[0].output
    assert output.answer == answer
    assert (None if output.chunks is None else [chunk.text for chunk in output.chunks]) == texts


@pytest.mark.parametrize(("row", "told"), [
    ({"answer": "Six.", "output": "It never closes.", "docs": TWO}, ("answer or output", "reference")),
    ({"answer": "Six.", "result": {"answer": "Nine."}}, ("answer or result.answer",)),
    ({"answer": "Six.", "contexts": "\n\n".join(TWO)}, ("`passages`", "[contexts][?@]")),
])  # fmt: skip
def test_what_only_a_person_knows_is_asked_and_nothing_is_run(row: dict[str, Any], told: tuple[str, ...]) -> None:
    start = _start([{**Q, **row}])
    assert not start.folder.is_runnable
    asked = "\n".join(start.to_fill_in)
    assert "???" in asked
    for part in told:
        assert part in asked


@pytest.mark.parametrize(("row", "references"), [
    ({"answer": ["six", "6 pm"]}, ["six", "6 pm"]), ({"answers": {"text": ["six"], "answer_start": [3]}}, ["six"]),
    ({"answer": {"value": "six", "aliases": ["six", "6"]}}, ["six", "6"]), ({"gold_answer": "six"}, ["six"]),
    ({"answers": [6, 18]}, ["6", "18"]),
])  # fmt: skip
def test_questions_with_right_answers_alone_are_for_a_system(row: dict[str, Any], references: list[str], capfd) -> None:
    start = _start([{**Q, **row}])
    assert start.reading is not None
    assert not start.folder.is_runnable
    assert next(field.value for field in start.first if field.field == "references") == references
    assert main(["d.jsonl"]) == 2


def test_each_file_has_a_folder_of_its_own() -> None:
    files = [Path(name) for name in ("数据.jsonl", "报告.jsonl", "a/d.jsonl", "b/d.jsonl", "données.csv", "a=b.jsonl", "nan.jsonl")]
    folders = []
    for file in files:
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps({**Q, "answer": "At nine."}) + "\n", encoding="utf-8")
        folder = folder_for(file)
        assert folder.name.isascii()
        (folder).mkdir()
        marker = {"source": f"../{file}", "name": folder.name, "is_runnable": True, "left_out": {}, "guessed": {}, "files": {}}
        (folder / MARKER).write_text(json.dumps(marker), encoding="utf-8")
        assert folder_for(file) == folder
        folders.append(folder.name)
    assert len(set(folders)) == len(files)
    assert folders[4:7] == ["donnees", "a_b", "nan_eval"]
