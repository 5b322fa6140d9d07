"""What leaves a run as tables: CSV and JSON lines of its files, failure modes by group, and what the dashboards show."""

import csv
import json
import re
import unicodedata
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from ragpipe.comparison.mode_table import mode_table
from ragpipe.core.errors import DataError, OutputError
from ragpipe.core.score import ScoreSpec
from ragpipe.core.text import escape
from ragpipe.report.exports import export_tables, write_csv, write_json_lines
from ragpipe.report.settings import ReportSettings
from ragpipe.runs.run_report import build_report, read_report_data
from ragpipe.runs.write_reports import write_report_files
from ragpipe.score.settings import ScoringSettings
from ragpipe.store.run_folder import RunFolder
from ragpipe.testing.scripted import shipped_metric
from tests.support.compared_runs import scored_run
from tests.support.reports import html_of, markdown_of, terminal_of
from tests.support.run_tables import Row


def restore(cell: str) -> str:
    """The text of a cell."""
    return cell[1:] if cell.startswith("'") and escape(cell[1:]) == cell else cell


CELLS = [
    ("=1+1", "'=1+1"), ("+44 20", "'+44 20"), ("-5 degrees", "'-5 degrees"), ("@SUM(A1)", "'@SUM(A1)"), ("\tx", "'\tx"), ("\rx", "'\rx"),
    ("\nx", "'\nx"), ("   =1", "'   =1"), ("\u00a0\ufeff=1", "'\u00a0\ufeff=1"), ("\u200b\x01=1", "'\u200b\x01=1"), ("＝1", "'＝1"),
    ("'=1", "''=1"), ("''+1", "'''+1"), ("' =1", "'' =1"), ("'tis", "'tis"), ("a=1", "a=1"), ("'", "'"), ("", ""), ("1 - 2", "1 - 2"),
    ("[-1]", "[-1]"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "cell"), CELLS)
def test_what_computes_gets_an_apostrophe(text: str, cell: str) -> None:
    assert (escape(text), restore(cell)) == (cell, text)


SCHEMA = pa.schema([
    pa.field("id", pa.string()), pa.field("x", pa.float64()), pa.field("n", pa.int64()), pa.field("flag", pa.bool_()),
    pa.field("list", pa.list_(pa.string())), pa.field("=head", pa.string(), metadata={"description": "JSON object"}),
])  # fmt: skip
ROWS: list[dict[str, Any]] = [
    {"id": "007", "x": 0.1, "n": 1, "flag": True, "list": ["=1", 'a"b', "c,d"], "=head": '{"a":1e-05}'},
    {"id": "", "x": None, "n": None, "flag": None, "list": None, "=head": None},
    {"id": 'say "hi",\r\nthen\rgo\n', "x": -1e-300, "n": -(2**62), "flag": False, "list": [], "=head": "not JSON"},
    {"id": "=HYPERLINK(\"http://evil\")", "x": 1e22, "n": 0, "flag": True, "list": ["é\u2028漢"], "=head": '{"a":NaN}'},
    {"id": None, "x": 3.0, "n": 5, "flag": False, "list": ["NA", "null"], "=head": '{"a":1,"a":2}'},
    {"id": "NA", "x": 0.30000000000000004, "n": 7, "flag": None, "list": ["\x1b[2J\u202e"], "=head": '[{"b":[null,"\\u0000"]}]'},
]  # fmt: skip


def in_csv(text: str) -> str:
    """The one control character of the texts is shown by its number."""
    return text.replace("then\rgo", r"then\u000dgo")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    pq.write_table(pa.Table.from_pylist(ROWS, schema=SCHEMA), tmp_path / "t.parquet", row_group_size=2)
    return tmp_path / "t.parquet"


def test_csv_by_other_readers(table: Path) -> None:
    """The csv module cannot tell a null from an empty text: both arrive as ''. All else comes back by the rules of the page."""
    write_csv(table, table.with_suffix(".csv"))
    with open(table.with_suffix(".csv"), encoding="utf-8-sig", newline="") as file:
        head, *lines = csv.reader(file)
    assert ([restore(name) for name in head], len(lines)) == (SCHEMA.names, len(ROWS))
    for line, row in zip(lines, ROWS, strict=True):
        assert restore(line[0]) == in_csv(row["id"] or "")
        assert (float(line[1]) if line[1] else None) == row["x"]
        assert (int(line[2]) if line[2] else None) == row["n"]
        assert ({"true": True, "false": False}[line[3]] if line[3] else None) == row["flag"]
        assert (json.loads(restore(line[4])) if line[4] else None) == row["list"]
        assert restore(line[5]) == (row["=head"] or "")
    found = pacsv.read_csv(
        table.with_suffix(".csv"),
        parse_options=pacsv.ParseOptions(newlines_in_values=True),
        convert_options=pacsv.ConvertOptions(
            column_types={"id": pa.string()}, strings_can_be_null=True, quoted_strings_can_be_null=False, null_values=[""]
        ),
    ).to_pylist()
    assert [None if row["id"] is None else restore(row["id"]) for row in found] == [row["id"] and in_csv(row["id"]) for row in ROWS]
    assert [(row["x"], row["n"]) for row in found] == [(row["x"], row["n"]) for row in ROWS]
    lines = table.with_suffix(".csv").read_bytes().split(b"\r\n")
    assert lines[0] == b'\xef\xbb\xbf"id","x","n","flag","list","\'=head"'
    assert lines[1] == b'"007",0.1,1,true,"[""=1"",""a\\""b"",""c,d""]","{""a"":1e-05}"'
    assert lines[2] == b'"",,,,,'


@pytest.mark.parametrize(("text", "cell"), [
    ("a\x1b]0;owned\x07b\x1b[2J", r"a\u001b]0;owned\u0007b\u001b[2J"), ("\x9b2Jx\x7f\x00", r"\u009b2Jx\u007f\u0000"),
    ("user\u202e txt.exe\u2066", r"user\u202e txt.exe\u2066"), ("one\rtwo\r\nthree\tfour\nfive", "one\\u000dtwo\r\nthree\tfour\nfive"),
    ("\x1b=1+1", r"\u001b=1+1"), ("\ufeff\u2028", r"\ufeff\u2028"),
])  # fmt: skip
def test_nothing_in_a_csv_drives_the_terminal(tmp_path: Path, text: str, cell: str) -> None:
    """In a cell that is JSON, the numbers are JSON's own escapes: it says the same."""
    row = {"t": [text], text: [text], "list": [[text, text]], "json": [json.dumps({"of": text}, ensure_ascii=False)]}
    pq.write_table(pa.table(row), tmp_path / "t.parquet")
    write_csv(tmp_path / "t.parquet", tmp_path / "t.csv")
    raw = (tmp_path / "t.csv").read_bytes().decode("utf-8-sig")
    assert not [c for c in raw if unicodedata.category(c) in ("Cc", "Cf", "Zl") and c not in "\r\n\t"]
    assert "\r" not in raw.replace("\r\n", "")
    with open(tmp_path / "t.csv", encoding="utf-8-sig", newline="") as file:
        head, line = csv.reader(file)
    assert (head[1], line[0], line[1]) == (cell, cell, cell)
    assert (json.loads(line[2]), json.loads(line[3])) == ([text, text], {"of": text})


def test_json_lines(table: Path) -> None:
    write_json_lines(table, table.with_suffix(".jsonl"))
    found = [json.loads(line) for line in table.with_suffix(".jsonl").read_bytes().splitlines()]
    assert [list(row) for row in found] == [SCHEMA.names] * len(ROWS)
    heads = [{"a": 1e-05}, None, "not JSON", '{"a":NaN}', '{"a":1,"a":2}', [{"b": [None, "\x00"]}]]
    assert found == [row | {"=head": head} for row, head in zip(ROWS, heads, strict=True)]


def test_json_lines_hold_no_nan(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": pa.array([float("nan"), float("inf"), 1.5])}), tmp_path / "t.parquet")
    write_json_lines(tmp_path / "t.parquet", tmp_path / "t.jsonl")
    write_csv(tmp_path / "t.parquet", tmp_path / "t.csv")
    assert (tmp_path / "t.jsonl").read_text() == '{"x":null}\n{"x":null}\n{"x":1.5}\n'
    assert (tmp_path / "t.csv").read_bytes() == b'\xef\xbb\xbf"x"\r\n\r\n\r\n1.5\r\n'


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    rows = [Row(f"q{i}", "a", {"faithfulness": i / 4}, {"category": "xy"[i // 2], "meta": {"k": [1, None]}}) for i in range(4)]
    return scored_run(tmp_path, rows, specs=[ScoreSpec("faithfulness")], scoring=ScoringSettings(thresholds={"faithfulness": 0.5}))


def test_every_table_is_exported(run: RunFolder) -> None:
    files = export_tables(run, ["json", "csv", "html"], [1])
    names = [str(path.relative_to(run.export)) for path in files]
    assert names == [
        "samples.csv", "samples.jsonl", "outputs.csv", "outputs.jsonl",
        "iteration-1/records.csv", "iteration-1/records.jsonl", "iteration-1/scores.csv", "iteration-1/scores.jsonl",
        "iteration-1/judge_inputs.csv", "iteration-1/judge_inputs.jsonl",
    ]  # fmt: skip
    assert sorted(files) == sorted(p for p in run.export.rglob("*") if p.is_file())
    for path in files:
        rows = pq.read_table(run.root / path.relative_to(run.export).with_suffix(".parquet")).num_rows
        assert len(path.read_bytes().splitlines()) == rows + (path.suffix == ".csv")
    assert json.loads((run.export / "samples.jsonl").read_bytes().splitlines()[0])["meta"] == {"k": [1, None]}
    before = {p: (p.stat().st_ino, p.stat().st_mtime_ns) for p in files}
    export_tables(run, ["csv", "json"], [1])
    assert {p: (p.stat().st_ino, p.stat().st_mtime_ns) for p in files} == before
    assert export_tables(run, ["terminal"], [1]) == []


def test_failure_modes_are_a_table_by_group(run: RunFolder) -> None:
    """Faithfulness is 0, .25, .5 and .75 with a threshold of .5: both cases of category x are unsupported, none of y."""
    rows = mode_table(run).to_pylist()
    found = {(row["field"], row["value"]): row for row in rows if row["failure_mode"] == "unsupported_claim"}
    counts = {key: (row["n_cases"], row["n"], row["rate"]) for key, row in found.items() if key[0] in (None, "category")}
    assert counts == {(None, None): (4, 2, 0.5), ("category", "x"): (2, 2, 1.0), ("category", "y"): (2, 0, 0.0)}
    # Wilson (1927) for 2 of 4 with z = 1.96: (.5 + 1.96^2 / 8 -+ 1.96 sqrt(1/16 + 1.96^2 / 64)) / (1 + 1.96^2 / 4)
    every = found[None, None]
    assert (every["interval_low"], every["interval_high"]) == (pytest.approx(0.1500, abs=1e-4), pytest.approx(0.8500, abs=1e-4))


def test_links_and_broken_tables_are_refused(run: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    run.export.symlink_to(elsewhere)
    with pytest.raises(OutputError, match="symbolic link"):
        export_tables(run, ["csv"], [1])
    assert not list(elsewhere.iterdir())
    run.export.unlink()
    run.samples.write_bytes(run.samples.read_bytes()[:-40])
    with pytest.raises(DataError, match="no readable Parquet"):
        export_tables(run, ["csv"], [1])
    assert not list(run.export.iterdir())


AXES = (
    ScoreSpec("answer_faithfulness", 1, 5, metric="synthesis", stage="generation"),
    ScoreSpec("answer_completeness", 1, 5, metric="synthesis", stage="generation"),
)
SYNTHESIS = {"faithfulness": [1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 5, 5], "completeness": [1, 2, 2, 3, 3, 3, 3, 3, 4, 4, 5, 5]}
"""Low answers as in answer-synthesis-evaluation.md: 3 completely false, 3 mostly false, 4 mixed; completeness 1, 2 and 5 in its bands."""
CATEGORIES = {  # rag-evaluation-framework.md, 7.3: total, passed, rate
    "should_answer_complete": (100, 96, "96.0%"), "should_answer_partial": (50, 42, "84.0%"), "should_reject_policy": (100, 97, "97.0%"),
    "should_reject_no_ctx": (30, 26, "86.7%"), "edge_cases": (20, 14, "70.0%"),
}  # fmt: skip


def finished(root: Path, specs: tuple[ScoreSpec, ...], rows: list[Row], **settings: Any) -> RunFolder:
    scoring = ScoringSettings.model_validate({"weights": {specs[0].name: 1.0}, **settings})
    return scored_run(root, rows, specs=specs, scoring=scoring)


@pytest.fixture
def low_run(tmp_path: Path) -> RunFolder:
    values = zip(SYNTHESIS["faithfulness"], SYNTHESIS["completeness"], strict=True)
    rows = [
        Row(f"q{n}", "a", {"answer_faithfulness": (one, "Claim 3 is not in it"), "answer_completeness": two}, {"category": "courses" if one < 3 else "other"})
        for n, (one, two) in enumerate(values)
    ]  # fmt: skip
    return finished(tmp_path, AXES, rows)


@pytest.fixture
def dashboard(tmp_path: Path) -> RunFolder:
    rows = [
        Row(f"{category}-{n}", "a", {"answer_relevance": float(n < passed)}, {"category": category})
        for category, (total, passed, _) in CATEGORIES.items()
        for n in range(total)
    ]
    return finished(tmp_path, (ScoreSpec("answer_relevance", binary=True),), rows, thresholds={"answer_relevance": 1.0})


def report_of(run: RunFolder) -> Any:
    return build_report(read_report_data(run, run.iteration(1), ReportSettings(formats=["markdown"])))


def stages_of(page: str) -> list[str]:
    return re.findall(r"^#.*", page.partition("## Results\n")[2].partition("\n## ")[0], re.M)


def test_tables_of_low_scores_and_stages(low_run: RunFolder) -> None:
    page = markdown_of(report_of(low_run))
    section = page.partition("## Low scores")[2].partition("\n## ")[0]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if line.startswith("| `")]
    bands = {(row[0], row[1]): row[2] for row in cells if len(row) == 5}
    assert bands == {
        ("`answer_faithfulness`", "`completely_false`"): "3 of 12 (25.0%)",
        ("`answer_faithfulness`", "`mostly_false`"): "3 of 12 (25.0%)",
        ("`answer_faithfulness`", "`mixed`"): "4 of 12 (33.3%)",
        ("`answer_completeness`", "`fail`"): "1 of 12 (8.3%)",
        ("`answer_completeness`", "`weak`"): "2 of 12 (16.7%)",
        ("`answer_completeness`", "`descriptive_only`"): "5 of 12 (41.7%)",
    }
    assert "Allow only facts of the contexts in the system prompt." in section
    assert ["`answer_completeness`", "`category: courses`", "6 of 6 (100.0%)", "1.5 x"] in cells
    assert "Low scores" in html_of(report_of(low_run))
    assert stages_of(page) == ["### Generation"]


def test_tables_of_the_dashboard(dashboard: RunFolder) -> None:
    report = report_of(dashboard)
    page, screen, markdown = html_of(report), terminal_of(report), markdown_of(report)
    opened = page.partition('<section id="categories"')[2].partition("<details")[0]
    for category, (total, passed, rate) in CATEGORIES.items():
        assert f"| `{category}` | {total} | {passed} | {rate} |" in markdown
        assert [category, str(total), str(passed), rate] in [line.split() for line in screen.splitlines()]
        assert f"{category}</a>" in opened
        assert f"{passed} of {total}" in opened
        assert rate in opened
    assert stages_of(markdown) == ["### End to end"]
    written = write_report_files(dashboard, dashboard.iteration(1), ReportSettings(formats=["csv"]))
    folder = dashboard.export / "report"
    names = {f"{name}.csv" for name in ("scores", "categories", "gates", "failure_modes", "low_scores")}
    assert {path.name for path in written if path.parent == folder} == names
    categories = {row.pop("category"): row for row in rows_of(folder / "categories.csv")}
    found = {name: (int(row["total"]), int(row["passed"]), f"{float(row['rate']):.1%}") for name, row in categories.items()}
    assert found == CATEGORIES
    scores = {(row["field"], row["value"], row["score"]): row for row in rows_of(folder / "scores.csv")}
    assert float(scores["", "", "answer_relevance"]["mean"]) == pytest.approx(275 / 300)
    edge = scores["category", "edge_cases", "answer_relevance"]
    assert (edge["n"], float(edge["pass_rate"]), edge["stage"]) == ("20", 0.7, "end_to_end")
    modes = {row["failure_mode"]: row for row in rows_of(folder / "failure_modes.csv") if not row["field"]}
    assert (modes["irrelevant_answer"]["n"], modes["irrelevant_answer"]["n_cases"]) == ("25", "300")


STAGES = {  # rag-evaluation-framework.md, 3.2; the other metrics by what they use
    "retrieval": "retrieval", "context_relevance": "retrieval", "context_recall": "retrieval", "faithfulness": "generation",
    "groundedness": "generation", "context_utilization": "generation", "citation": "generation", "attribution_hit": "generation",
    "answer_relevance": "end_to_end", "policy_compliance": "end_to_end", "format": "end_to_end", "correctness": "end_to_end",
}  # fmt: skip


@pytest.mark.parametrize(("metric", "stage"), STAGES.items())
def test_scores_have_the_stage_of_the_document(metric: str, stage: str) -> None:
    assert {spec.stage for spec in shipped_metric(metric).score_specs} == {stage}


def rows_of(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))
