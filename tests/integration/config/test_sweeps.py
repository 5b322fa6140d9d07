"""Sweeps: the count first, one job's failure is its own, a table last, the worst exit code. Jobs here are `task=init`."""

from pathlib import Path

import pytest

from ragpipe.cli import SEVERITY, main, report
from ragpipe.core import errors
from ragpipe.tasks import init
from tests.support.rows import first_rows


@pytest.mark.slow
def test_what_a_file_sweeps_over_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
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


@pytest.mark.thorough(tried=6)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "code"),
    first_rows(
        (pytest.param(*row, id=repr(row[0])) for row in _WORST),
        {"KeyboardInterrupt()", "ZeroDivisionError('x')", "Incomplete('x')"},
    ),
)
def test_exit_codes(error: BaseException, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                    capfd: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    def fail(config: object, console: object) -> int:
        raise error

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(init, "run", fail)
    assert main(["task=init", "dir=a"]) == code
    err = capfd.readouterr().err
    assert "Traceback" not in err
    assert ("a fault in your own code" in err) is (code == 1), "what raises it is no file of ragpipe's"


@pytest.mark.thorough
@pytest.mark.slow
def test_the_worst_code_counts_and_an_interrupt_starts_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ends = {
        "a": errors.Incomplete("a"),
        "b": ZeroDivisionError("b"),
        "c": None,
        "d": errors.Interrupted("d"),
        "e": None,
    }
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
