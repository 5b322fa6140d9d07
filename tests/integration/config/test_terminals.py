"""No terminal, no reader, no locale, no home: nothing of it ends a start; and no secret on disk or screen."""

import io
from pathlib import Path

import pytest

from ragpipe.cli import main
from ragpipe.process_streams import SteadyStream


def test_a_reader_that_goes_away_at_a_letter_that_cannot_be_shown() -> None:
    """The letter is written once more, escaped; by then there may be nobody to read it."""

    class Gone(io.TextIOWrapper):
        def write(self, text: str) -> int:
            text.encode("ascii")
            raise BrokenPipeError

    stream = SteadyStream(Gone(io.BytesIO(), encoding="ascii"))
    assert stream.write("größe") == 5
    assert not stream.isatty()


def test_terminal_escapes_in_an_error_are_shown_not_obeyed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["dataset=\x1b[31mred"]) == 2
    err = capfd.readouterr().err
    assert "\x1b" not in err
    assert "x1b" in err


@pytest.mark.slow
def test_no_secret_anywhere(here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    secret = "c0ffee-secret-c0ffee"
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    llm = ["dataset=mine", "metrics=[retrieval]", "judge=llm", "judge.model=openai/gpt-4o-mini-2024-07-18"]
    starts = [
        ["--cfg", "all", *llm, "judge.api_key_env=RAGPIPE_TEST_API_KEY", "--resolve"],
        ["--info", "all", *llm, f"judge.season={secret}"],
        ["--cfg", "job", *llm, "judge.season=${oc.env:RAGPIPE_TEST_API_KEY}", "--resolve"],
        [*llm, f"judge.api_base=http://h/v1?key={secret}"],
        ["-m", *llm, f"name=a,{secret}"],
        ["-m", *llm, "judge.season=${oc.env:RAGPIPE_TEST_API_KEY},b", "seed=-1"],
        [*llm, f"+{secret}=1"],
        [f"--config-dir={secret}", *llm],
        [f"+experiment={secret}"],
        ["task=init", f"dir={secret}"],
    ]
    for words in starts:
        main(words)
        out, err = capfd.readouterr()
        assert secret not in out + err, words
    assert not [p for p in here.rglob("*") if secret in p.name or (p.is_file() and secret in p.read_text())]
