"""`assert_gates` in a test of one's own, run by pytest as in a project."""

from tests.slow.ci.conftest import Desk

PROJECT = """
import ragpipe
from ragpipe.testing import assert_gates


def test_{name}():
    run = ragpipe.run(["+experiment=demo_{name}", "+mode=regression_gate", "name={name}"], quiet=True)
    assert_gates(run, allow=["inconclusive"])
"""


def test_a_project_sees_the_table(desk: Desk) -> None:
    (desk.folder / "test_answers.py").write_text(PROJECT.format(name="rerank") + PROJECT.format(name="baseline"))
    done = desk.shell(["python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"])
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 1 passed" in done.stdout
    shown = [line.removeprefix("E").strip() for line in done.stdout.splitlines()]
    row = next(line for line in shown if line.startswith("rejection_calibration"))
    assert row.split()[1:6] == ["critical", "0.7949", "at", "least", "0.95"]
    assert row.endswith("failed")
    worst = next(line for line in shown if line.startswith("worst: "))
    assert worst.count("/baseline/1 (0)") == 3
    report = next(line for line in shown if line.startswith("report: "))
    assert report.endswith("/report.md")
