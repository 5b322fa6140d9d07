"""The report at the terminal, that of several iterations, and a finished run read as frames."""

import io
import math
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ragpipe.core.errors import DataError
from ragpipe.judging.pricing import own_rates
from ragpipe.judging.settings import Price
from ragpipe.reports.console import Console
from ragpipe.reports.model import Table, plain_text
from ragpipe.reports.report_data import ReportData, read_results
from ragpipe.reports.run_data import load_run
from ragpipe.reports.run_page.page_cases import IterationValues
from ragpipe.reports.sections.cost_section import cost_line, iterations_section
from ragpipe.reports.settings import ReportSettings
from ragpipe.schema.sample import OUTPUT_KEY
from ragpipe.schema.score import ScoreSpec
from ragpipe.scoring.settings import ScoringSettings
from ragpipe.stages.combine_iterations import combine_iterations
from ragpipe.stages.score_iteration import ScoreInputs, score_iteration
from ragpipe.stages.write_reports import write_reports
from ragpipe.store.files.processes import this_process
from ragpipe.store.run.progress_state import CaseCounts, ProgressState
from ragpipe.store.run.run_folder import RunFolder
from tests.support.page_blocks import block_json
from tests.support.run_tables import Row, score, spent, stored, write_run

pytestmark = pytest.mark.slow


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
    write_reports(run / "iteration-1", target=run, settings=settings, console=Console(out=out, err=err), next_command="ragpipe [x]")
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
    write_reports(run / "iteration-1", target=run, settings=ReportSettings(formats=["terminal"], detail="full"), console=console)
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


@pytest.mark.parametrize("make", [Broken, closed])
def test_a_closed_stream_ends_nothing(run: Path, make: Any) -> None:
    console = Console(out=make(), err=make())
    at = "2026-11-23T08:00:00.000Z"
    state = ProgressState("judging", this_process(), at, at, CaseCounts(2, 1))
    with console.progress(lambda: state):
        console.warn("x")
    write_reports(run / "iteration-1", target=run, settings=ReportSettings(detail="full"), console=console)
    assert (run / "report.md").exists()


def test_cost_line(tmp_path: Path) -> None:
    call = {
        "sample_id": "q", "method": "a", "metric": "m", "judge": "j", "status": "ok", "tokens_in": 1500, "tokens_out": 500, "attempts": 1,
    }  # fmt: skip
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
    call = {"sample_id": "q", "method": "a", "metric": "m", "judge": "j", "status": "ok", "attempts": 0}
    write_run(tmp_path, [Row("q", "a", {})], [{**call, "key": "1"}, {**call, "key": "2"}])
    score(tmp_path, SPECS)
    assert plain_text(cost_line(stored(tmp_path, "cost.json"))) == "cost: 2 questions answered by the embedded judge, no call to a provider"


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
        ({"tokens_total": {"sum": 48000.0}, "cost_usd": {"sum": 0.12}}, "cost: system: 48,000 tokens, $0.1200; judge: no judge was asked"),
        ({"tokens_total": {"sum": 12.0}, "cost_usd": None}, "cost: system: 12 tokens, price unknown; judge: no judge"),
    ],
)
def test_the_money_of_the_system_stands_apart_from_the_judges(usage: dict[str, object], opening: str) -> None:
    nothing: dict[str, object] = {"uses": 0}
    cost = {"used": nothing, "spent": nothing, "saved": nothing, "wasted": nothing}
    assert plain_text(cost_line(cost, usage)).startswith(opening)


ITERATED_SPECS = [ScoreSpec("faithfulness"), ScoreSpec("answer_relevance")]
BASELINE = ((1.0, 0.2, 0.6), (0.2, 0.2, 0.8))  # of each question the three iterations: means 0.6, 0.2, 0.7
RERANK = ((0.9, 0.9, 0.9), (0.9, 0.9, 0.3))


@pytest.fixture(scope="module")
def iterated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two questions, two methods, three iterations. A case under 0.85 with a relevant answer is a hallucination."""
    root = tmp_path_factory.mktemp("iterations")
    for number in range(1, 4):
        rows = [
            Row(f"q{q}", method, {"faithfulness": values[q][number - 1], "answer_relevance": 1.0})
            for q in range(2)
            for method, values in (("baseline", BASELINE), ("rerank", RERANK))
        ]
        made = write_run(root / f"of {number}", rows)
        shutil.move(made, root / f"iteration-{number}")
        for file in ("samples.parquet", "outputs.parquet"):
            shutil.copy(root / f"of {number}" / file, root / file)
        score_iteration(ScoreInputs(
            root / f"iteration-{number}", samples=root / "samples.parquet", outputs=root / "outputs.parquet", specs=ITERATED_SPECS,
            settings=ScoringSettings(), signature=f"ragpipe 0 | test | iteration {number}",
            judge={"label": "scripted", "uncalibrated": False}, run_id="me", spent=spent(), rates={},
        ))  # fmt: skip
    combine_iterations(RunFolder(root), [1, 2, 3], ScoringSettings())
    return root


def reported(iterated: Path, monkeypatch: pytest.MonkeyPatch, columns: int = 120) -> str:
    monkeypatch.setenv("COLUMNS", str(columns))
    settings = ReportSettings(formats=["terminal", "markdown", "html"], detail="full", percent=["faithfulness"])
    out = io.StringIO()
    write_reports(iterated / "iteration-3", target=iterated, settings=settings, console=Console(out=out, err=io.StringIO()))
    return out.getvalue()


def test_the_headline_is_that_of_all_iterations(iterated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """baseline: the mean of .6, .2 and .7 is .5, the last iteration alone says .7; rerank: of .9, .9, .6 it is .8."""
    out = reported(iterated, monkeypatch)
    page, html = ((iterated / "report.md").read_text(), (iterated / "report.html").read_text())
    row = next(line for line in page.splitlines() if line.startswith("| `faithfulness x100`"))
    assert [re.match(r"[\d.]+ \[[\d.]+, [\d.]+\]", cell.strip())[0].split()[0] for cell in row.split("|")[2:4]] == [  # type: ignore[index]
        "50.0", "80.0",
    ]  # fmt: skip
    assert re.search(r"faithfulness x100 +50\.0 \[[\d.]+, [\d.]+\] +80\.0 \[", out)
    assert "<b>50.0</b>" in html
    assert "3 iterations" in page.split("## ")[0]
    assert "3 iterations" in html
    assert "ragpipe 0 | test | iterations 1-3" in out


def test_diagnoses_are_counted_in_every_iteration(iterated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below .85: baseline q0 in the 2nd and 3rd, q1 in all, rerank q1 in the 3rd: 6 of 12; the last alone has 3 of 4."""
    out = reported(iterated, monkeypatch)
    page = (iterated / "report.md").read_text()
    assert re.search(r"hallucination: 6 of 12 \(50\.0%\)", out)
    assert "- `hallucination`: 6 of 12 (50.0%)." in page
    assert "Counted in each of 3 iterations: 4 cases x 3." in page
    assert "**For example:** `q1` / `baseline`, `q0` / `baseline`, `q1` / `rerank`\n" in page, "those that most iterations name"


def test_every_block_of_a_narrow_terminal_names_the_method(iterated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = reported(iterated, monkeypatch, 60).split("Over 3 iterations")[1:]
    assert len(blocks) > 1, "the table does not fit"
    for block in blocks:
        assert re.search(r"faithfulness x100 +baseline", block)
        assert re.search(r"faithfulness x100 +rerank", block)


def test_a_case_of_the_page_has_the_values_of_all_iterations_where_they_differ(iterated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page is of the third iteration; answer_relevance is 1 in all, and so are the three values of rerank in q0."""
    reported(iterated, monkeypatch)
    html = (iterated / "report.html").read_text()
    assert block_json(html, "index")["iterations"] == [1, 2, 3]
    cases = block_json(html, "d0")
    assert [case.get("it", {}).get("faithfulness") for case in cases] == [
        [1.0, 0.2, 0.6], None, [0.2, 0.2, 0.8], [0.9, 0.9, 0.3],
    ]  # fmt: skip
    assert all("answer_relevance" not in case.get("it", {}) for case in cases)


def test_values_of_iterations_go_by_the_name_of_a_case(iterated: Path) -> None:
    """Other orders of rows, and a case that an iteration lacks: its value is missing there."""
    records = [iterated / f"iteration-{number}" / "records.parquet" for number in (1, 2, 3)]
    table = pq.read_table(records[1])
    pq.write_table(table.slice(1).take(list(range(table.num_rows - 2, -1, -1))), iterated / "other.parquet")
    third = pq.read_table(records[2], columns=list(OUTPUT_KEY)).to_pylist()
    cases = [(case["sample_id"], case["method"], case["repeat"]) for case in third]
    values = IterationValues([records[0], iterated / "other.parquet"], cases, ["faithfulness", "unknown"])
    assert [values.differing(place) for place in range(4)] == [
        {"faithfulness": [1.0, None]}, {}, {}, {},
    ]  # fmt: skip


def test_an_earlier_iteration_is_shown_by_itself(iterated: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(iterated, tmp_path / "run"))
    out = io.StringIO()
    monkeypatch.setenv("COLUMNS", "120")
    settings = ReportSettings(formats=["terminal"], detail="full", percent=["faithfulness"])
    write_reports(copied / "iteration-1", target=copied, settings=settings, console=Console(out=out, err=io.StringIO()))
    assert "Over" not in out.getvalue()
    assert re.search(r"faithfulness x100 +60\.0 \[", out.getvalue())


@pytest.mark.parametrize(
    ("answer", "usd", "cell", "words"),
    [
        # a case costs twice what judging it once does, and r* = sqrt(2 * .03 / .09) is below 1: more cases
        (0.02, 0.03, "6.0 x (best 1.0)", "Here it costs 2.0 times as much ($0.0200 for its answer, $0.0100 to judge it once)"),
        (0.48, 0.03, "6.0 x (best 4.0)", "Here it costs 48.0 times as much"),  # sqrt(48 / 3)
        (None, 0.03, "6.0 x", "what its answer costs is not recorded"),
        (0.02, None, "6.0 x", "What judging a case costs is not known"),
    ],
)
def test_more_cases_or_more_judgings(iterated: Path, answer: float | None, usd: float | None, cell: str, words: str) -> None:
    metrics, cost = read_results(iterated, iterated / "iteration-3")
    noise = {"n_cases": 2, "repeats": 3, "judge_variance": 0.03, "item_variance": 0.09, "floor": 0.1, "second_judging_from": 6.0}
    for group in metrics["by"]["method"].values():
        group["scores"]["faithfulness"]["noise"] = noise
    metrics["overall"]["operations"]["usage"] = {} if answer is None else {"cost_usd": {"mean": answer}}
    cost["used"]["per_case"]["usd"] = usd
    section = iterations_section(ReportData(metrics, cost))
    assert section is not None
    table, *notes = section.parts
    assert isinstance(table, Table)
    assert table.rows[0].cells[-1] == cell
    assert words in str(notes)


FRAME_SPECS = [ScoreSpec("faithfulness")]


@pytest.fixture
def framed(tmp_path: Path) -> Path:
    root = tmp_path / "run"
    write_run(root, [Row("007", "a", {"faithfulness": 0.5}), Row("1e5", "None", {"faithfulness": ("error", "refused: x")})])
    score(root, FRAME_SPECS)
    return root


@pytest.mark.parametrize("way", ["", "iteration-1"])
def test_frames_and_dictionaries(framed: Path, way: str) -> None:
    found = load_run(framed / way)
    assert list(found.records["sample_id"]) == ["007", "1e5"]  # ids stay texts
    assert list(found.records["method"]) == ["a", "None"]
    assert found.records["faithfulness"][0] == 0.5
    assert math.isnan(found.records["faithfulness"][1])
    assert list(found.scores["status"]) == ["ok", "error"]
    assert len(found.judge_inputs) == 0
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


def test_broken_parquet_is_named(framed: Path) -> None:
    (framed / "iteration-1/records.parquet").write_bytes(b"PAR1 not at all PAR1")
    with pytest.raises(DataError, match="no readable Parquet file"):
        _ = load_run(framed).records


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


def script(code: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_pandas_is_kept_away_until_somebody_imports_it() -> None:
    code = """
import sys
from ragpipe.store.files.lazy_pandas import keep_pandas_away
keep_pandas_away(); keep_pandas_away()
import numpy as np, pyarrow as pa
table = pa.table({"a": pa.array([1, None]), "b": pa.array(["x", None]), "c": pa.array(np.arange(2.0))})
pa.array([True]).to_numpy(zero_copy_only=False); table.schema.empty_table()
print("pandas" in sys.modules)
import pandas as pd
print(pa.array(pd.Categorical(["a"])).type.index_type, table.to_pandas()["b"][0])
print(pa.array(pd.Series([1.5, None])).null_count, pa.Table.from_pandas(pd.DataFrame({"a": ["x", None]}))["a"].null_count)
"""
    assert script(code) == "False\nint8 x\n1 1"


def test_scoring_and_reporting_need_no_pandas(framed: Path) -> None:
    code = """
import sys
from pathlib import Path
from ragpipe.store.files.lazy_pandas import keep_pandas_away
keep_pandas_away()
from tests.support.run_tables import score
from ragpipe.schema.score import ScoreSpec
from ragpipe.reports.console import Console
from ragpipe.reports.settings import ReportSettings
from ragpipe.stages.write_reports import write_reports
root = Path(sys.argv[1])
score(root, [ScoreSpec("faithfulness")])
write_reports(root / "iteration-1", target=root, settings=ReportSettings(formats=["markdown"]), console=Console())
print([name for name in ("pandas", "scipy", "litellm", "rich", "hydra") if name in sys.modules])
"""
    assert script(code, str(framed)) == "[]"
