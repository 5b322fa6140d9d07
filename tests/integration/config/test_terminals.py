"""No terminal, no reader, no locale, no home: nothing of it ends a start; and no secret on disk or screen."""

import io
import shutil
import sys
from pathlib import Path

import pytest

from ragpipe import cli
from ragpipe.cli import SEVERITY, compose, main, report
from ragpipe.core import errors
from ragpipe.core.errors import Interrupted
from ragpipe.datasets.dataset import open_dataset
from ragpipe.process_streams import SteadyStream
from ragpipe.tasks import init


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
def test_what_a_file_sweeps_over_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """A word for the same key replaces what the file lists."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf/experiment").mkdir(parents=True)
    (tmp_path / "conf/experiment/x.yaml").write_text(
        "# @package _global_\nhydra:\n  sweeper:\n    params:\n      dir: one,two\n      store.outage_s: 5,6\n"
    )
    assert main(["-m", "+experiment=x", "task=init"]) == 2, "two jobs each write into one and into two"
    assert capfd.readouterr().err.startswith("sweep: 4 jobs")
    assert main(["-m", "+experiment=x", "task=init", "dir=three", "store.outage_s=7"]) == 0
    assert capfd.readouterr().err.startswith("sweep: 1 job\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["conf", "one", "three", "two"]


_WORST = [
    (errors.ConfigError("x"), 2), (errors.DataError("x"), 2), (errors.Incomplete("x"), 4), (errors.ProviderUnusable("x"), 5),
    (errors.OutputError("x"), 6), (errors.FolderLocked("x"), 6), (errors.Interrupted("x"), 130), (errors.Interrupted("x", 15), 143),
    (errors.Interrupted("x", 1), 129), (errors.SignalReceived(15), 143), (errors.SignalReceived(1), 129), (KeyboardInterrupt(), 130),
    (ZeroDivisionError("x"), 1), (PermissionError(13, "no", "f"), 6),
    (FileNotFoundError(2, "no", "f"), 6), (MemoryError(), 6), (RuntimeError("can't start new thread"), 6),
]  # fmt: skip


@pytest.mark.parametrize(("error", "code"), [pytest.param(*row, id=repr(row[0])) for row in _WORST])
def test_each_error_has_its_code(error: BaseException, code: int, capfd: pytest.CaptureFixture[str]) -> None:
    assert report(error).code == code
    assert ("this is a bug" in capfd.readouterr().err) is (code == 1)


@pytest.mark.thorough
@pytest.mark.slow
def test_the_worst_code_counts_and_an_interrupt_starts_no_more(tmp_path, monkeypatch, capfd) -> None:
    ends = {"a": errors.Incomplete("a"), "b": ZeroDivisionError("b"), "c": None, "d": errors.Interrupted("d"), "e": None}
    ran: list[str] = []

    def run(config: init.InitSettings, console: object) -> int:
        ran.append(config.dir)
        error = ends[config.dir]
        if error is not None:
            raise error
        return 3

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(init, "run", run)
    assert main(["-m", "task=init", "dir=a,b,c"]) == 1
    assert ran == ["a", "b", "c"]
    assert main(["-m", "task=init", "dir=c,a"]) == 4  # 4 is worse than the 3 of c
    ran.clear()
    capfd.readouterr()
    assert main(["-m", "task=init", "dir=a,d,e"]) == 130
    assert ran == ["a", "d"]
    assert "not started" in capfd.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_every_exit_code_has_its_severity() -> None:
    assert sorted(SEVERITY) == [0, 1, 2, 3, 4, 5, 6, 129, 130, 143]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    assert main(["task=init", "dir=my"]) == 0
    return tmp_path / "my"


@pytest.mark.slow
def test_what_is_written_composes_as_it_is_and_with_a_language_model(made: Path) -> None:
    config = compose(["+experiment=my"], config_dir="my")
    assert (config.name, config.dataset.name, sorted(config.metrics)) == ("my", "my", ["faithfulness", "retrieval"])
    other = compose(["+experiment=my", "judge=my"], config_dir="my")
    assert (other.judge.model, other.judge.api_key_env) == ("openai/gpt-4o-mini-2024-07-18", "OPENAI_API_KEY")


@pytest.mark.slow
def test_the_folder_may_be_renamed_to_conf(made: Path) -> None:
    made.rename(made.with_name("conf"))
    config = compose(["+experiment=my"])
    assert (config.name, config.dataset.path) == ("my", "conf/my.jsonl")


@pytest.mark.slow
def test_the_folder_may_be_moved_and_used_from_anywhere(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert str(tmp_path) not in "".join(path.read_text() for path in made.rglob("*.yaml"))
    elsewhere = tmp_path / "a" / "b"
    elsewhere.mkdir(parents=True)
    moved = made.rename(elsewhere / "mine")
    monkeypatch.chdir(tmp_path / "a")
    assert compose(["+experiment=my"], config_dir="b/mine").dataset.path == "b/mine/my.jsonl"
    monkeypatch.chdir(elsewhere / "mine" / "judge")
    config = compose(["+experiment=my"], config_dir="..")
    assert config.dataset.path == str(moved / "my.jsonl")
    assert len(list(open_dataset(config.dataset, Path.cwd()))) == 3


@pytest.mark.slow
def test_the_commands_it_prints(made: Path, capfd: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(made)
    assert main(["task=init", "dir=my"]) == 0
    out = capfd.readouterr().out
    assert "python -m ragpipe --config-dir my +experiment=my" in out
    assert "judge/my.yaml" in out


@pytest.mark.slow
@pytest.mark.parametrize("there", ["file", "folder with a file"])
def test_nothing_is_overwritten(there: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if there == "file":
        (tmp_path / "my").write_text("mine")
    else:
        (tmp_path / "my").mkdir()
        (tmp_path / "my/my.jsonl").write_text("mine")
    before = sorted(str(p) for p in tmp_path.rglob("*"))
    assert main(["task=init", "dir=my"]) == 2
    assert sorted(str(p) for p in tmp_path.rglob("*")) == before


@pytest.mark.slow
def test_a_folder_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("x")
    assert main(["task=init", "dir=file/my"]) == 6


@pytest.mark.parametrize(
    ("program", "command"),
    [
        ("/home/me/venv/bin/ragpipe", "ragpipe"), ("ragpipe.exe", "ragpipe"),
        ("/home/me/venv/lib/ragpipe/__main__.py", "python -m ragpipe"), ("/usr/bin/pytest", "python -m ragpipe"),
    ],
)  # fmt: skip
def test_the_command_to_go_on_is_as_it_was_typed(program: str, command: str, monkeypatch, capsys) -> None:
    def interrupted(*_: object) -> None:
        raise Interrupted("interrupted", 2)

    monkeypatch.setattr(sys, "argv", [program])
    monkeypatch.setattr(cli, "_start", interrupted)
    assert cli.main(["+experiment=my", "name=two words"]) == 130
    assert f"to go on where it stopped: {command} +experiment=my 'name=two words'\n" in capsys.readouterr().err
