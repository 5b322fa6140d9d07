"""The report at the terminal, that of several iterations, and a finished run read as frames."""

import io
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ragpipe.core.errors import DataError
from ragpipe.core.score import ScoreSpec
from ragpipe.report.console import Console
from ragpipe.report.cost_section import iterations_section
from ragpipe.report.report_data import ReportData, read_results
from ragpipe.report.run_data import load_run
from ragpipe.report.settings import ReportSettings
from ragpipe.report.styled_text import figure_text
from ragpipe.runs.combine_iterations import combine_iterations
from ragpipe.runs.write_reports import write_reports
from ragpipe.score.settings import ScoringSettings
from ragpipe.store.processes import this_process
from ragpipe.store.progress import CaseCounts, ProgressState
from ragpipe.store.run_folder import RunFolder
from tests.support.run_tables import Row, score, score_iterations, write_run

pytestmark = pytest.mark.slow
SPECS = [ScoreSpec("faithfulness"), ScoreSpec("correctness", 1, 5)]
EVIL = "[red]a[/red][link=x]b :boom: \x1b[2J\u202e=H(1)"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two methods, one of them with a hostile name, on three questions."""
    values = {"good": (1.0, 0.9, 0.5), EVIL: (0.5, 0.0, 0.25)}
    correctness = [4.0, *[("error", f"refused: {EVIL}")] * 2]
    results = [(f"q{i}", method, given[i], correctness[i]) for i in range(3) for method, given in values.items()]
    write_run(tmp_path, [Row(name, method, {"faithfulness": one, "correctness": two}) for name, method, one, two in results])
    score(tmp_path, SPECS)
    return tmp_path


def printed(run: Path, monkeypatch: pytest.MonkeyPatch, columns: int = 100, *pages: str, iteration: int = 1) -> tuple[str, str]:
    monkeypatch.setenv("COLUMNS", str(columns))
    out, err = io.StringIO(), io.StringIO()
    settings = ReportSettings(formats=["terminal", *pages], percent=["faithfulness"])
    write_reports(run / f"iteration-{iteration}", target=run, settings=settings, console=Console(out=out, err=err))
    return out.getvalue(), err.getvalue()


def test_the_final_table_is_no_markup(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """good: the mean of 1, .9, .5 is .8."""
    out, err = printed(run, monkeypatch)
    assert re.search(r"^good +80\.0 too few +3$", out, re.M)
    assert "faithfulness x100" in out
    assert re.search(r"^correctness 1-5 +end to end +1 +4\.00 too few", out, re.M)
    assert "cost: no judge was asked" in out
    assert out.endswith(f"report: {run}\n")
    assert "too few judgements came out: " in " ".join(err.split())
    out, err = printed(run, monkeypatch, 200)
    assert "\x1b" not in out + err
    assert "\u202e" not in out + err
    for literal in ("[red]a[/red]", "[link=x]b", ":boom:", "\\x1b[2J\\u202e"):
        assert literal in out


def test_a_warning_is_said_once_and_not_again_in_fewer_words() -> None:
    """A gap in the data is named with the metrics it affects before the run, and would be named again at its end."""
    first, second = (f"contexts: not recorded in 6 of 12 cases of method {name}, first q1" for name in "ab")
    console = Console(out=io.StringIO(), err=(err := io.StringIO()))
    for text in ("x", "x", f"{first}: faithfulness skipped there", first, second):
        console.warn(text)
    console.error("[bold]y\x07")
    said = ["warning: x", f"warning: {first}: faithfulness skipped there", f"warning: {second}", "error: [bold]y\\x07"]
    assert err.getvalue().splitlines() == said


def test_an_ascii_terminal_gets_ascii(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="ascii") for _ in range(2))
    console = Console(out=out, err=err)
    write_reports(run / "iteration-1", target=run, settings=ReportSettings(formats=["terminal"]), console=console)
    console.say("漢é")
    out.seek(0)
    text = out.read()
    assert "0.80 too few" in text
    assert "\\u6f22\\xe9" in text


class Broken(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")


def closed() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize("make", [Broken, closed])
def test_a_closed_stream_ends_nothing(run: Path, make: Any) -> None:
    console = Console(out=make(), err=make())
    at = "2026-11-23T08:00:00.000Z"
    state = ProgressState("judging", this_process(), at, at, CaseCounts(2, 1))
    with console.progress(lambda: state):
        console.warn("x")
    write_reports(run / "iteration-1", target=run, settings=ReportSettings(), console=console)
    assert (run / "report.md").exists()


@pytest.mark.parametrize(("value", "plain", "signed"), [
    (9.3e-19, "0.000", "+0.000"), (-0.00018, "-0.00018", "-0.00018"), (5e-5, "0.000050", "+0.000050"), (0.001, "0.001", "+0.001"),
    (12.34, "12.3", "+12.3"), (-4444.4, "-4,444", "-4,444"), (None, "-", "-"),
])  # fmt: skip
def test_a_figure_has_no_exponent(value: float | None, plain: str, signed: str) -> None:
    assert (figure_text(value), figure_text(value, sign=True)) == (plain, signed)


ITERATED_SPECS = [ScoreSpec("faithfulness"), ScoreSpec("answer_relevance", method="direct")]
BASELINE = ((1.0, 0.2, 0.6), (0.2, 0.2, 0.8))  # of each question the three iterations: means 0.6, 0.2, 0.7
RERANK = ((0.9, 0.9, 0.9), (0.9, 0.9, 0.3))


@pytest.fixture(scope="module")
def iterated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two questions, two methods, three iterations. A case under 0.85 with a relevant answer is a hallucination."""
    root, methods = tmp_path_factory.mktemp("iterations"), (("baseline", BASELINE), ("rerank", RERANK))
    tables = [
        [Row(f"q{q}", method, {"faithfulness": values[q][number], "answer_relevance": 1.0}) for q in range(2) for method, values in methods]
        for number in range(3)
    ]
    score_iterations(root, tables, ITERATED_SPECS, ScoringSettings())
    combine_iterations(RunFolder(root), [1, 2, 3], ScoringSettings())
    return root


def test_headline_and_diagnoses_are_of_all_iterations(iterated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """baseline: the mean of .6, .2 and .7 is .5, the last iteration alone says .7; rerank: of .9, .9, .6 it is .8."""
    out, _ = printed(iterated, monkeypatch, 120, "markdown", "html", iteration=3)
    page, html = ((iterated / "report.md").read_text(), (iterated / "report.html").read_text())
    row = next(line for line in page.splitlines() if line.startswith("| `faithfulness x100`"))
    assert [re.match(r"[\d.]+ \[[\d.]+, [\d.]+\]", cell.strip())[0].split()[0] for cell in row.split("|")[2:4]] == [  # type: ignore[index]
        "50.0", "80.0",
    ]  # fmt: skip
    assert re.search(r"^faithfulness x100 +end to end +6 +50\.0 .*80\.0 ", out, re.M)
    assert "<b>50.0</b>" in html
    assert "3 iterations" in page.split("## ")[0]
    assert "3 iterations" in html
    # below .85: baseline q0 in the 2nd and 3rd, q1 in all, rerank q1 in the 3rd: 6 of 12; the last alone has 3 of 4.
    assert re.search(r"^83\.3% +16\.7% +hallucination ", out, re.M)
    assert "- `hallucination`: 6 of 12 (50.0%)." in page
    assert "Counted in each of 3 iterations: 4 cases x 3." in page
    assert "**For example:** `q1` / `baseline`, `q0` / `baseline`, `q1` / `rerank`\n" in page, "those that most iterations name"


def test_more_cases_or_more_judgings(iterated: Path) -> None:
    """A judge of variance .03 among cases of .09: judging twice pays where a case costs 2 * .09 / .03 = 6 judgings."""
    metrics, cost = read_results(iterated, iterated / "iteration-3")
    for group in metrics["by"]["method"].values():
        group["scores"]["faithfulness"]["noise"] = {"judge_variance": 0.03, "item_variance": 0.09, "second_judging_from": 6.0}
    assert iterations_section(ReportData(metrics, cost)).parts[0].rows[0].cells[-1] == "6.0 x"


@pytest.fixture
def framed(tmp_path: Path) -> Path:
    root = tmp_path / "run"
    write_run(root, [Row("007", "a", {"faithfulness": 0.5}), Row("1e5", "None", {"faithfulness": ("error", "refused: x")})])
    score(root, SPECS[:1])
    return root


@pytest.mark.parametrize("way", ["", "iteration-1"])
def test_frames_and_dictionaries(framed: Path, way: str) -> None:
    found = load_run(framed / way)
    assert list(found.records["sample_id"]) == ["007", "1e5"]  # ids stay texts
    assert (list(found.records["method"]), found.records["faithfulness"][0]) == (["a", "None"], 0.5)
    assert math.isnan(found.records["faithfulness"][1])
    assert (list(found.scores["status"]), len(found.judge_inputs)) == (["ok", "error"], 0)
    assert found.metrics["overall"]["scores"]["faithfulness"]["n_error"] == 1
    assert found.cost["used"]["calls"] == 0


def test_what_is_no_run_is_refused(tmp_path: Path, framed: Path) -> None:
    with pytest.raises(DataError, match="expected: a run folder"):
        load_run(tmp_path)
    with pytest.raises(DataError, match="no such folder"):
        load_run(framed, iteration=2)
    (framed / "manifest.json").unlink()
    with pytest.raises(DataError, match=r"manifest\.json(?s:.*)no such file"):
        load_run(framed)


@pytest.mark.parametrize(
    ("content", "said"),
    [('{"a": NaN}', "NaN is not JSON"), ("[]", "a JSON list"), ("{", "no readable JSON"), ("[" * 200_000, "no readable JSON"), (b"\xff\xfe", "no readable JSON")],
)  # fmt: skip
def test_broken_json_is_named(framed: Path, content: str | bytes, said: str) -> None:
    (framed / "iteration-1/metrics.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=said):
        _ = load_run(framed).metrics


def test_links_in_a_strangers_folder_are_not_followed(framed: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text("{}")
    (framed / "iteration-1/cost.json").unlink()
    (framed / "iteration-1/cost.json").symlink_to(secret)
    with pytest.raises(DataError, match="a symbolic link"):
        _ = load_run(framed).cost
    (framed / "iteration-2").symlink_to(framed / "iteration-1")
    with pytest.raises(DataError):
        load_run(framed, iteration=2)


def test_scoring_and_reporting_need_no_pandas(framed: Path) -> None:
    code = """
import sys
from pathlib import Path
from ragpipe.cli.process_streams import keep_pandas_away
keep_pandas_away()
from tests.support.run_tables import score
from ragpipe.core.score import ScoreSpec
from ragpipe.report.console import Console
from ragpipe.report.settings import ReportSettings
from ragpipe.runs.write_reports import write_reports
root = Path(sys.argv[1])
score(root, [ScoreSpec("faithfulness")])
write_reports(root / "iteration-1", target=root, settings=ReportSettings(formats=["markdown"]), console=Console())
print([name for name in ("pandas", "scipy", "litellm", "rich", "hydra") if sys.modules.get(name)])
"""
    done = subprocess.run([sys.executable, "-c", code, str(framed)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
