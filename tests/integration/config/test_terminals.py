"""No terminal, no reader, no locale, no home: nothing of it ends a start; and no secret on disk or screen."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ragpipe.cli import main
from ragpipe.process_streams import SteadyStream

PYTHON = [sys.executable, "-m", "ragpipe"]


def _shell(command: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    environ = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "PY": sys.executable,
        **environment,
    }
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], cwd=cwd, env=environ, capture_output=True, text=True, timeout=60,
        encoding="utf-8", errors="surrogateescape",
    )  # fmt: skip


@pytest.mark.thorough(tried=1)
@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    ["$PY -m ragpipe --help | head -c 10", "$PY -m ragpipe task=init dir=a | true",
     pytest.param("$PY -m ragpipe task=init dir=a >&-", marks=pytest.mark.slow),
     "$PY -m ragpipe task=init dir=a </dev/null >/dev/null 2>&-"],
)  # fmt: skip
def test_a_reader_that_goes_away(command: str, tmp_path: Path) -> None:
    done = _shell(command, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    if "init" in command:
        assert (tmp_path / "a/experiment/a.yaml").is_file()


def test_a_reader_that_goes_away_at_a_letter_that_cannot_be_shown() -> None:
    """The letter is written once more, escaped; by then there may be nobody to read it."""

    class Gone(io.TextIOWrapper):
        def write(self, text: str) -> int:
            text.encode("ascii")
            raise BrokenPipeError

    stream = SteadyStream(Gone(io.BytesIO(), encoding="ascii"))
    assert stream.write("größe") == 5
    assert not stream.isatty()


@pytest.mark.slow
def test_no_locale_no_home_a_narrow_terminal(tmp_path: Path) -> None:
    done = _shell(
        "$PY -m ragpipe task=init dir=ä-b/a", tmp_path, LC_ALL="C", LANG="C", PYTHONIOENCODING="ascii", COLUMNS="10"
    )
    assert done.returncode == 0, done.stderr
    assert "python -m ragpipe --config-dir" in done.stdout
    broken = _shell("$PY -m ragpipe dataset=ä", tmp_path, LC_ALL="C", PYTHONIOENCODING="ascii", COLUMNS="10")
    assert broken.returncode == 2
    assert "Traceback" not in broken.stderr


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
