from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ragpipe.judging.pricing import own_rates
from ragpipe.judging.settings import Price
from ragpipe.reports.console import Console
from ragpipe.reports.model import plain_text
from ragpipe.reports.sections.cost_section import cost_line
from ragpipe.reports.settings import ReportSettings
from ragpipe.schema.score import ScoreSpec
from ragpipe.stages.write_reports import write_reports
from ragpipe.store.files.processes import this_process
from ragpipe.store.run.progress_state import CaseCounts, ProgressState
from tests.support.run_tables import Row, score, spent, stored, write_run

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test

SPECS = [ScoreSpec("faithfulness"), ScoreSpec("correctness", 1, 5)]
EVIL = "[red]a[/red][link=x]b :boom: \x1b[2J\u202e=H(1)"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two methods, one of them with a hostile name, on three questions."""
    values = {"good": (1.0, 0.9, 0.5), EVIL: (0.5, 0.0, 0.25)}
    rows = [
        Row(f"q{i}", method, {"faithfulness": value, "correctness": ("error", f"refused: {EVIL}") if i else 4.0})
        for i in range(3)
        for method, value in ((m, v[i]) for m, v in values.items())
    ]
    write_run(tmp_path, rows)
    score(tmp_path, SPECS)
    return tmp_path


def printed(run: Path, monkeypatch: pytest.MonkeyPatch, columns: int = 100) -> tuple[str, str]:
    monkeypatch.setenv("COLUMNS", str(columns))
    out, err = io.StringIO(), io.StringIO()
    settings = ReportSettings(formats=["terminal"], detail="full", percent=["faithfulness"])
    write_reports(
        run / "iteration-1",
        target=run,
        settings=settings,
        console=Console(out=out, err=err),
        next_command="ragpipe [x]",
    )
    return out.getvalue(), err.getvalue()


def test_the_final_table(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """good: mean of 1, .9, .5 = .8, s^2 = .07, design effect (2 * .07/.16 + 1) / 3 = .625, so 4.8 rows; with t(2) = 4.302653
    Wilson's bounds are .1331 and .9905."""
    out, err = printed(run, monkeypatch)

    assert "80.0 [13.3, 99.1]" in out
    assert "67% of 3" in out
    assert "faithfulness x100" in out
    assert "correctness 1-5" in out
    assert "4.00" in out
    assert "coverage 33.3%" in out
    assert "cost: no judge was asked" in out
    assert "ragpipe 0 | test" in out
    assert f"results: {run}" in out
    assert "next:    ragpipe [x]" in out
    assert "only 2 of 6 judgements came out (33.3%, floor 95%; " in err
    assert "): correctness" in err


def test_judged_text_is_never_markup(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = printed(run, monkeypatch, 200)
    assert "\x1b" not in out + err
    assert "\u202e" not in out + err
    for literal in ("[red]a[/red]", "[link=x]b", ":boom:", "\\x1b[2J\\u202e"):
        assert literal in out


@pytest.mark.parametrize("columns", [1, 10, 40, 80, 300])
def test_any_width_works(run: Path, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    assert "results:" in printed(run, monkeypatch, columns)[0]


def test_many_methods_stand_in_several_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path, [Row("q", f"method-{i}", {"faithfulness": i / 10}) for i in range(7)])
    score(tmp_path, SPECS)
    out, _ = printed(tmp_path, monkeypatch, 80)
    assert all(f"method-{i}" in out and f" {i * 10}.0 " in out for i in range(7))
    assert max(len(line) for line in out.splitlines() if "method-" in line) <= 80


def test_a_warning_is_said_once() -> None:
    err = io.StringIO()
    console = Console(out=io.StringIO(), err=err)
    console.warn("x")
    console.warn("x")
    console.error("[bold]y\x07")
    assert err.getvalue() == "warning: x\nerror: [bold]y\\x07\n"


def test_a_warning_that_was_said_with_more_words_is_not_repeated() -> None:
    """A gap in the data is named with the metrics it affects before the run, and would be named again at its end."""
    err = io.StringIO()
    console = Console(out=io.StringIO(), err=err)
    gap = "contexts: not recorded in 6 of 12 cases of method a, first q1"
    console.warn(f"{gap}: faithfulness skipped there")
    console.warn(gap)
    console.warn("contexts: not recorded in 6 of 12 cases of method b, first q1")
    assert err.getvalue().count("warning: ") == 2


def ascii_stream() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="ascii")


def test_an_ascii_terminal_gets_ascii(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    out = ascii_stream()
    console = Console(out=out, err=ascii_stream())
    write_reports(
        run / "iteration-1", target=run, settings=ReportSettings(formats=["terminal"], detail="full"), console=console
    )
    console.say("漢é")
    out.seek(0)
    text = out.read()
    assert "0.80 [0.13, 0.99]" in text
    assert "+----" in text
    assert "\\u6f22\\xe9" in text


class Broken(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")


def closed() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.slow
@pytest.mark.parametrize("make", [Broken, closed])
def test_a_closed_stream_ends_nothing(run: Path, make: Any) -> None:
    console = Console(out=make(), err=make())
    at = "2026-11-23T08:00:00.000Z"
    state = ProgressState("judging", this_process(), at, at, CaseCounts(2, 1))
    with console.progress(lambda: state):
        console.warn("x")
    write_reports(run / "iteration-1", target=run, settings=ReportSettings(detail="full"), console=console)
    assert (run / "report.md").exists()


SHOW = """
import sys
from pathlib import Path
from ragpipe.reports.console import Console
from ragpipe.reports.settings import ReportSettings
from ragpipe.stages.write_reports import write_reports
root = Path(sys.argv[1])
write_reports(root / "iteration-1", target=root, settings=ReportSettings(), console=Console())
"""


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize(
    "redirect", [">&- 2>&-", *(pytest.param(r, marks=pytest.mark.slow) for r in ("| true", "> /dev/full"))]
)
@pytest.mark.slow
def test_a_real_process_survives_a_lost_stdout(run: Path, redirect: str) -> None:
    command = f'"$PYTHON" -c "$SHOW" "$RUN" {redirect}'
    environment = {**os.environ, "PYTHON": sys.executable, "SHOW": SHOW, "RUN": str(run), "LANG": "C", "COLUMNS": "10"}
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert (run / "report.md").exists()


def test_cost_line(tmp_path: Path) -> None:
    call = {
        "sample_id": "q",
        "method": "a",
        "metric": "m",
        "judge": "j",
        "status": "ok",
        "tokens_in": 1500,
        "tokens_out": 500,
        "attempts": 1,
    }
    write_run(
        tmp_path, [Row("q", "a", {})],
        [{**call, "key": "1", "paid_by": "other/1"}, {**call, "key": "2", "paid_by": "me/1", "paid_usd": 1.0}],
    )  # fmt: skip
    rates = own_rates("j", Price(input=500.0, output=500.0), "judge.prices")  # 2,000 tokens a call: $1.00
    paid = spent(1, 3, 2.5, tokens_in=4500, tokens_out=1500)
    score(tmp_path, SPECS, spent=paid, rates={"j": rates})
    assert (
        plain_text(cost_line(stored(tmp_path, "cost.json")))
        == "cost: 2 calls, 4,000 tokens, $2.00; asked here: 1 calls, $2.50; saved: 1 calls; wasted: 2 answers, $1.50"
    )


def test_cost_line_of_the_embedded_judge(tmp_path: Path) -> None:
    call = {
        "sample_id": "q",
        "method": "a",
        "metric": "m",
        "judge": "j",
        "status": "ok",
        "attempts": 0,
    }
    write_run(tmp_path, [Row("q", "a", {})], [{**call, "key": "1"}, {**call, "key": "2"}])
    score(tmp_path, SPECS)
    assert (
        plain_text(cost_line(stored(tmp_path, "cost.json")))
        == "cost: 2 questions answered by the embedded judge, no call to a provider"
    )


def test_cost_line_without_stored_replies(tmp_path: Path) -> None:
    call = {"sample_id": "q", "method": "a", "metric": "m", "judge": "j", "status": "missing_reply", "attempts": 0}
    write_run(tmp_path, [Row("q", "a", {})], [{**call, "key": "1"}, {**call, "key": "2"}])
    score(tmp_path, SPECS)
    said = plain_text(cost_line(stored(tmp_path, "cost.json")))
    assert said == "cost: no call to a provider; 2 questions have no stored reply"


@pytest.mark.parametrize(
    ("usage", "opening"),
    [
        ({}, "cost: no judge"),
        (
            {"tokens_total": {"sum": 48000.0}, "cost_usd": {"sum": 0.12}},
            "cost: system: 48,000 tokens, $0.1200; judge: no judge was asked",
        ),
        ({"tokens_total": {"sum": 12.0}, "cost_usd": None}, "cost: system: 12 tokens, price unknown; judge: no judge"),
    ],
)
def test_the_money_of_the_system_stands_apart_from_the_judges(usage: dict[str, object], opening: str) -> None:
    nothing: dict[str, object] = {"uses": 0}
    cost = {"used": nothing, "spent": nothing, "saved": nothing, "wasted": nothing}
    assert plain_text(cost_line(cost, usage)).startswith(opening)
