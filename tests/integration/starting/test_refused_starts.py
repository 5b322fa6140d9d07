"""`python -m ragpipe FILE` that starts nothing: what is wrong with the file or the words is said, and nothing is written."""

from pathlib import Path

import pytest

from ragpipe.cli import main
from ragpipe.datasets.recognition import recognise

RECORD = '{"question": "Who?", "answer": "Ada.", "contexts": ["Ada."]}\n'


pytestmark = pytest.mark.usefixtures("here")


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("latin.csv", "question,answer\nWer?,Größe\n".encode("latin-1"), "latin.csv:2: encoding\n    found:    byte 0xf6"),
        ("excel.csv", "Frage;Antwort\nWer?;Größe\n".encode("cp1252"), "excel.csv:2: encoding"),
        ("utf16.csv", "question,answer\nWer?,Größe\n".encode("utf-16"), "iconv -f utf-16 -t utf-8"),
        ("ragged.csv", b"question,answer\nWer,a\nx,y,z\n", "ragged.csv:3: row\n    found:    3 cells\n    expected: 2"),
        ("empty.jsonl", b"", "an empty file (0 bytes)"),
        ("cut.json", b'[{"question":"a","answer":"b"},{"question":"c"', "is it cut off?"),
        ("binary.jsonl", bytes(range(128, 256)), "binary.jsonl:1: encoding"),
        ("paper.pdf", b"%PDF-1.4\n\xff\xfe\n", "found:    neither JSON nor a table"),
        ("numbers.json", b"[1, 2]", "found:"),
    ],
)
def test_a_file_that_cannot_be_read_gets_the_message_of_its_reader(name: str, content: bytes, told: str, tmp_path, capfd) -> None:
    Path(name).write_bytes(content)
    assert main([name]) == 2
    err = capfd.readouterr().err
    assert told in err
    assert "nothing was written" in err
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("huge.csv", f'question,answer\n"{"x" * 1_100_000}",b\nq,a\n'),
        ("huge.jsonl", f'{{"question": "{"x" * 1_100_000}", "answer": "b"}}\n{RECORD}'),
    ],
)
def test_a_first_record_longer_than_the_head_is_read_on(name: str, content: str) -> None:
    Path(name).write_text(content, encoding="utf-8")
    found = recognise(Path(name))
    assert found is not None
    assert found.option == "jsonl"


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("dataset=ragass", "did you mean ragas?"),
        ("datset.limit=1", "did you mean dataset.limit?"),
        ("+expermient=x", "did you mean experiment?"),
    ],
)
def test_words_are_checked_before_anything_is_written(word: str, told: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    Path("good.jsonl").write_text(RECORD, encoding="utf-8")
    assert main(["good.jsonl", word]) == 2
    assert told in capfd.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["good.jsonl"]


@pytest.mark.slow
def test_another_option_than_that_of_the_folder_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    Path("good.jsonl").write_text(RECORD, encoding="utf-8")
    assert main(["task=init", "from=good.jsonl", "dir=good"]) == 0
    capfd.readouterr()
    assert main(["good.jsonl", "dataset=ragass"]) == 2
    assert "did you mean ragas?" in capfd.readouterr().err
    assert main(["good.jsonl", "dataset=ragas"]) == 2
    err = capfd.readouterr().err
    assert "'ragas', and good/ was written for this file with dataset=jsonl" in err
    assert "task=init from=good.jsonl as=ragas dir=OTHER" in err
