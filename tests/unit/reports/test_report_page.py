from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from markdown_it import MarkdownIt

from ragpipe.reports.console import Console
from ragpipe.reports.report_data import lowest_cases
from ragpipe.reports.settings import ReportSettings
from ragpipe.schema.price_rates import Rates
from ragpipe.schema.score import ScoreSpec
from ragpipe.scoring.settings import ScoringSettings
from ragpipe.stages.write_reports import write_reports
from tests.support.run_tables import Row, score, write_run

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test

SPECS = [ScoreSpec("faithfulness"), ScoreSpec("correctness", 1, 5), ScoreSpec("n_claims", None, None)]
ATTACKS = [
    "![x](http://evil/x.png)",
    "<img src=http://evil onerror=alert(1)>",
    "</code></pre><script>alert(1)</script>",
    "[click](javascript:alert(1)) http://evil www.evil.com me@evil.com",
    "``` \n# forged heading\n~~~\n- item",
    "a | b \\| <img src=x> ` | `` <b>",
    "\x1b[2J\r\n\r\n<!-- \u202e -->",
    "=HYPERLINK(\"http://evil\")",
]  # fmt: skip


def page(root: Path, settings: ReportSettings | None = None) -> str:
    silent = ReportSettings(formats=["markdown"]) if settings is None else settings
    write_reports(root / "iteration-1", target=root, settings=silent, console=Console())
    return (root / "report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("attack", ATTACKS)
def test_text_of_data_is_never_markup(tmp_path: Path, attack: str) -> None:
    """Read with CommonMark, tables and bare-address links on: no link, image, HTML or heading comes from data."""
    labels = {"question": attack, "category": attack, "tags": [attack]}
    rows = [Row(f"{attack}{i}", attack, {"faithfulness": 0.1 * i, "correctness": ("error", attack), "n_claims": ("skipped", attack)}, labels, {"answer": attack}) for i in range(3)]  # fmt: skip
    write_run(tmp_path, rows)
    score(
        tmp_path,
        SPECS,
        ScoringSettings(slices=[]),
        signature=f"x | {attack}",
        rates={attack: Rates(attack, attack, reason=attack)},
    )
    reader = MarkdownIt("commonmark", {"linkify": False, "html": True}).enable("table")
    tokens = reader.parse(page(tmp_path))
    inline = [child for token in tokens for child in token.children or []]
    assert {t.type for t in inline} <= {
        "text",
        "code_inline",
        "html_inline",
        "softbreak",
        "strong_open",
        "strong_close",
    }
    assert {t.content for t in inline if t.type == "html_inline"} <= {"<br>"}
    assert "html_block" not in {t.type for t in tokens}
    heads = [tokens[i + 1].content for i, t in enumerate(tokens) if t.type == "heading_open"]
    assert not [head for head in heads if "forged" in head and "`" not in head]
    loose = "".join(t.content for t in inline if t.type == "text")
    assert not any(word in loose for word in ("evil", "alert", "forged", "HYPERLINK", "\x1b", "\u202e"))


def test_table_rows_keep_their_cells(tmp_path: Path) -> None:
    """A method name with bars and backticks neither opens nor closes a cell."""
    write_run(tmp_path, [Row("q", method, {"faithfulness": 0.5}) for method in ("a|b", "c \\| d", "`|`")])
    score(tmp_path, SPECS, ScoringSettings(slices=[]))
    tokens = MarkdownIt("commonmark").enable("table").parse(page(tmp_path))
    rows = "".join({"tr_open": "r", "th_open": "c", "td_open": "c"}.get(t.type, "") for t in tokens).split("r")[1:]
    assert rows[:4] == ["cccc"] * 4  # head and three scores, each with a name and three methods


ROWS = [
    Row("q1", "a", {"faithfulness": 1.0, "correctness": 5.0}, {"category": "x"}),
    Row("q2", "a", {"faithfulness": 0.2, "correctness": 4.5}, {"category": "x"}, {"answer": "Wrong."}),
    Row("q3", "a", {"faithfulness": ("error", "refused: no"), "correctness": 2.0}, {"category": "y"}),
    Row("q4", "a", {"faithfulness": 0.1, "correctness": 1.0}, {"category": "y"}),
    Row("q5", "a", {"faithfulness": ("skipped", "no_answer"), "correctness": ("skipped", "no_answer")}),
]


def test_the_page(tmp_path: Path) -> None:
    write_run(tmp_path, ROWS)
    score(tmp_path, SPECS)
    text = page(tmp_path, ReportSettings(formats=["markdown"], percent=["faithfulness"]))
    assert text.startswith("# Evaluation report\n\n`ragpipe 0 | test`\n\n5 cases on 5 questions, iteration 1.\n")
    assert "calibrated" not in text, "no judge was asked"
    assert "| `faithfulness` | 3 | 1 | 1 | 0 | 75.0% | `refused` 1, `no_answer` 1 |" in text
    assert "| `faithfulness x100`<br>passes from 85 | 43.3 [" in text
    assert "### By `category`" in text
    assert "No judge was asked." in text
    assert text.index("### `q4` / `a`") < text.index("### `q2` / `a`")
    assert "### `q3`" not in text
    assert "- `faithfulness` 0.2: `fine`" in text
    assert "```text\nWrong.\n```" in text
    assert "## How to read it" in text


@pytest.mark.parametrize("calibrated", [None, {"kappa": 0.9}])
@pytest.mark.parametrize("judge", ["evidence-v1", "openai/gpt-4o-mini-2024-07-18"])
def test_a_judge_that_is_not_calibrated_says_so_whatever_it_is(tmp_path: Path, judge: str, calibrated: Any) -> None:
    asked = {"sample_id": "q1", "method": "a", "iteration": 1, "metric": "faithfulness", "key": "k", "judge": judge}
    write_run(tmp_path, ROWS, [{**asked, "template": "faithfulness/verify", "status": "ok", "attempts": 0}])
    score(tmp_path, SPECS, judge={"label": judge, "calibrated": calibrated})
    said = "**The judge is not calibrated against human labels:** how often its verdicts are right is not known."
    assert (said in page(tmp_path)) is (calibrated is None)


def test_worst_cases_are_those_with_the_lowest_overall_score(tmp_path: Path) -> None:
    write_run(tmp_path, ROWS)
    score(tmp_path, SPECS)
    table = pq.read_table(tmp_path / "iteration-1/records.parquet")
    pq.write_table(table, tmp_path / "small.parquet", row_group_size=2)
    for path in (tmp_path / "iteration-1/records.parquet", tmp_path / "small.parquet"):
        assert [row["sample_id"] for row in lowest_cases(path, 10)] == ["q4", "q2", "q3"]
        assert [row["sample_id"] for row in lowest_cases(path, 1)] == ["q4"]
        assert lowest_cases(path, 0) == []


def test_an_unchanged_page_is_not_rewritten(tmp_path: Path) -> None:
    write_run(tmp_path, ROWS)
    score(tmp_path, SPECS)
    page(tmp_path)
    before = (tmp_path / "report.md").stat()
    page(tmp_path)
    after = (tmp_path / "report.md").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_formats_are_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path, ROWS)
    score(tmp_path, SPECS)
    write_reports(tmp_path / "iteration-1", target=tmp_path, settings=ReportSettings(formats=[]), console=Console())
    assert capsys.readouterr().out == ""
    assert not (tmp_path / "report.md").exists()
