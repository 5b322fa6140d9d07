"""`python -m ragpipe FILE` that starts nothing: what is wrong with the file or the words is said, and nothing is written."""

from pathlib import Path

import pytest

from ragpipe.cli.command_line import main

RECORD = '{"question": "Who?", "answer": "Ada.", "contexts": ["Ada."]}\n'


pytestmark = pytest.mark.usefixtures("here")


@pytest.mark.parametrize(("name", "content", "told"), [
    ("latin.csv", "question,answer\nWer?,Größe\n".encode("latin-1"), "latin.csv:2: encoding\n    found:    byte 0xf6"),
    ("utf16.csv", "question,answer\nWer?,Größe\n".encode("utf-16"), "iconv -f utf-16 -t utf-8"),
    ("ragged.csv", b"question,answer\nWer,a\nx,y,z\n", "ragged.csv:3: row\n    found:    3 cells\n    expected: 2"),
    ("empty.jsonl", b"", "an empty file (0 bytes)"),
    ("cut.json", b'[{"question":"a","answer":"b"},{"question":"c"', "is it cut off?"),
    ("paper.pdf", b"%PDF-1.4\n\xff\xfe\n", "found:    neither JSON nor a table"),
])  # fmt: skip
def test_a_file_that_cannot_be_read_gets_the_message_of_its_reader(name: str, content: bytes, told: str, tmp_path, capfd) -> None:
    Path(name).write_bytes(content)
    assert main([name]) == 2
    err = capfd.readouterr().err
    assert told in err
    assert "nothing was written" in err
    assert [path.name for path in tmp_path.iterdir()] == [name]


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
