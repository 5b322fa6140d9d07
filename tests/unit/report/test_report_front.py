"""What report.html says above its cases: verdict, order, charts and their links, on small literal runs."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from markdown_it import MarkdownIt

from ragpipe.core.errors import DataError
from ragpipe.core.sample import Chunk, Turn
from ragpipe.core.score import ScoreSpec
from ragpipe.core.usage import Price
from ragpipe.report.case_rows import ABSENT, ERROR, FAILED, NO_VERDICT, PASSED, SKIPPED, CaseRows, read_case_rows
from ragpipe.report.console import Console
from ragpipe.report.model import Chart, Report, Section, plain_text
from ragpipe.report.page_file import page_html
from ragpipe.report.run_page import RunCases, front_markup, run_page
from ragpipe.report.settings import ReportSettings
from ragpipe.runs.run_report import build_report, read_report_data
from ragpipe.runs.write_reports import write_reports
from ragpipe.score.settings import ScoringSettings
from ragpipe.store.run_folder import RunFolder
from tests.support.page_blocks import block_json, page_columns
from tests.support.run_tables import Result, Row, score, write_run

pytestmark = pytest.mark.slow
GRADE = ScoreSpec("grade", 0, 1)
BASE: dict[str, Any] = {"thresholds": {"grade": 0.5}, "weights": {"grade": 1.0}, "fill_defaults": False}


def report_of_rows(root: Path, rows: list[Row], **scoring: Any) -> Report:
    write_run(root, rows)
    assert score(root, [GRADE], ScoringSettings.model_validate({**BASE, **scoring}))["n_cases"] == len(rows)
    run = RunFolder(root)
    return build_report(read_report_data(run, run.iteration(1), ReportSettings(formats=["html"])))


def rows_of(**methods: list[Result]) -> list[Row]:
    """A row per value, question q0 and on for each method; the first half of the questions is of category a."""
    return [
        Row(f"q{n}", method, {"grade": value}, {"category": "a" if n < len(values) / 2 else "b"})
        for method, values in methods.items()
        for n, value in enumerate(values)
    ]


def verdict_text(report: Report) -> str:
    return " ".join([report.verdict.lead, plain_text(report.verdict.sentence)])


def section(report: Report, name: str) -> Section:
    return next(section for section in report.sections if section.name == name)


def charts(report: Report, name: str) -> str:
    return "".join(str(part.markup) for part in section(report, name).parts if isinstance(part, Chart))


def test_one_method_or_a_second_that_beats_it(tmp_path: Path) -> None:
    """12 of 20 are 1: the mean is .6."""
    report = report_of_rows(tmp_path, rows_of(bot=[0.0] * 8 + [1.0] * 12))
    assert re.match(r" grade 0\.60 \[0\.\d\d, 0\.\d\d\], n = 20\.$", verdict_text(report))
    assert section(report, "better").title == "How good?"
    assert '<a href="#v=1&amp;score=grade&amp;verdict=miss">grade</a>' in charts(report, "better")
    assert '<line class="limit" x1="50.0%" x2="50.0%"' in charts(report, "better")
    # ten pairs: differences of .3 and .5 in turn, .4 on average.
    new = [0.4 + 0.1 * (n % 2 * 2) for n in range(10)]
    report = report_of_rows(tmp_path, rows_of(old=[0.1] * 10, new=new))
    sentence = r"new is better than old: grade \+0\.400 \[\+0\.\d{3}, \+0\.\d{3}\] over 10 cases\.$"
    assert re.search(sentence, verdict_text(report))
    html = charts(report, "better")
    assert '<span class="badge good">better</span> <small class="soft">10 better, 0 worse of 10</small>' in html
    assert 'href="#v=1&amp;method=new&amp;score=grade"' in html
    means = re.findall(r'<svg class="at" x="([\d.]+)%"', html)
    assert means == ["10.0", "50.0"], "both methods on the scale of the score"
    report = report_of_rows(tmp_path, rows_of(old=[0.1, 0.3, 0.2], new=[0.9, 0.8, 0.9]))
    assert "new against old: grade +0.667, n = 3: too few to tell" in verdict_text(report)
    html = charts(report, "better")
    assert "n = 3: too few" in html
    assert 'class="interval"' not in html


def test_nothing_judged_is_no_evidence_with_the_first_error(tmp_path: Path) -> None:
    report = report_of_rows(tmp_path, rows_of(bot=[("error", "timeout: no reply")] * 4))
    assert (report.verdict.kind, report.verdict.lead) == ("bad", "no evidence")
    assert "0 of 4 cases have a value of any score; first error: q0: grade: timeout: no reply" in verdict_text(report)
    assert "4 judgements with an error" in report.verdict.remarks
    front_markup(report)


def test_gates_stand_blocked_first_with_their_state_and_link(tmp_path: Path) -> None:
    """20 cases with the mean .6; in category a it is .2: 2 of 10."""
    gates = {
        "fine": {"score": "grade", "of": "mean", "min": 0.1, "by": "point"},
        "high": {"score": "grade", "of": "mean", "min": 0.9, "by": "point", "where": {"category": "a"}},
        "warns": {"score": "grade", "of": "mean", "min": 0.95, "by": "point", "tier": "quality"},
        "looks": {"score": "grade", "of": "mean", "min": 0.99, "by": "point", "tier": "diagnostic"},
    }
    values: list[Result] = [0.0] * 8 + [1.0] * 12
    report = report_of_rows(tmp_path, rows_of(bot=values), gates=gates, accept_uncalibrated=True)
    assert verdict_text(report).startswith("BLOCKED 1 of 4 gates failed: high 0.2")
    html = charts(report, "gates")
    badges = re.findall(r'<span class="badge (\w*)">([^<]*)</span>', html)
    assert badges == [("bad", "failed, blocked"), ("warn", "failed, warned"), ("good", "passed"), ("", "failed, reported")]
    assert 'href="#v=1&amp;score=grade&amp;verdict=miss&amp;slice=category:a">high</a>' in html
    assert '<line class="limit" x1="90.0" x2="90.0"' in html
    assert re.search(r'high</a>.*?<line class="mean" x1="20\.0"', html, re.DOTALL)


def test_what_is_wrong_opens_its_cases(tmp_path: Path) -> None:
    """Three of ten gave no answer, one failed to answer at all."""
    answers = [{"answer": ""}] * 3 + [{"answer": None, "error": "TimeoutError: slow"}] + [{"answer": "Yes."}] * 6
    rows = [Row(f"q{n}", "bot", {"grade": 1.0}, {}, answer) for n, answer in enumerate(answers)]
    html = charts(report_of_rows(tmp_path, rows, fill_defaults=True), "problems")
    assert list(dict.fromkeys(re.findall(r"mode=(\w+)", html)))[:2] == ["blank_answer", "system_failure"]
    assert re.findall(r'<b>(\d+)</b></a> <span class="soft">(\d+%)', html)[:2] == [("3", "30%"), ("1", "10%")]
    assert re.findall(r'class="share" x="0" y="0" width="([\d.]+)"', html)[:2] == ["30.0", "10.0"]
    # three of ten answers of `old` are empty, one of ten of `new`.
    rows = [
        Row(f"q{n}", method, {"grade": 1.0}, {}, {"answer": "" if n < empty else "Yes."})
        for method, empty in (("old", 3), ("new", 1))
        for n in range(10)
    ]
    html = charts(report_of_rows(tmp_path, rows, fill_defaults=True), "problems")
    link = r'<a href="#v=1&amp;method=(\w+)&amp;mode=blank_answer"[^>]*>'
    found = re.findall(rf'data-of="(\d)">{link}<b>(\d)</b></a> <span class="soft">(\d+%)', html)
    assert found == [("0", "old", "3", "30%"), ("1", "new", "1", "10%")]
    rows = [Row(f"q{n}", "bot", {"grade": 0.0 if n < 2 else 1.0}, {}, {}) for n in range(10)]
    html = charts(report_of_rows(tmp_path, rows, failure_modes={"low": {"score": "grade", "below": 0.5}}), "problems")
    assert set(re.findall(r"mode=(\w+)", html)) == {"low"}
    assert re.findall(r'<b>(\d+)</b></a> <span class="soft">(\d+%)', html) == [("2", "20%")]


def test_spread_and_slices(tmp_path: Path) -> None:
    """Category a is 0 in each of 20 cases, b is 1 in each of 20: the mean of the run is .5."""
    html = charts(report_of_rows(tmp_path, rows_of(bot=[0.0] * 20 + [1.0] * 20)), "slices")
    link = "#v=1&amp;score=grade&amp;verdict=miss&amp;slice=category:a"
    assert re.search(rf'<td class="worse-2"><a href="{link}" title="[^"]*worse than the whole run, 0.50">▼ 0.00</a>', html)
    assert re.search(r'<td class="better-2"><a [^>]*>▲ 1.00</a>', html)
    few = report_of_rows(tmp_path / "few", rows_of(bot=[0.0] * 3 + [1.0] * 3))
    assert re.findall(r'<td class="([\w -]+)">', charts(few, "slices")) == ["grey few", "grey few"]
    # .12 and .19 are in the bar of .1 to .2; 1 is in the last one.
    report = report_of_rows(tmp_path, rows_of(bot=[0.12, 0.19, 1.0, 1.0, 1.0]))
    links = re.findall(r'href="#v=1&amp;score=grade&amp;from=([\d.]+)&amp;to=([\d.]+)" aria-label="([^"]*)"', charts(report, "spread"))
    assert links == [("0.12", "0.19", "2 cases, 0.12 to 0.19"), ("1", "1", "3 cases, 1")]
    rows = rows_of(bot=[0.5, 0.6, 0.7, 0.8, 0.9, 1.0], other=[0.5] * 6)
    for row in rows:
        row.output = {"timings": {"total": 200.0}}
    report = report_of_rows(tmp_path, rows)
    (chart,) = [part.markup for part in section(report, "spread").parts if part.title == "Quality, latency and cost"]
    assert "200 [200, 200] ms" in chart
    assert "not recorded" in chart


SPECS = [ScoreSpec("faithfulness"), ScoreSpec("latency_ms", None, None, higher_is_better=False)]
SAID = [Turn(role="user", text="And before?")]


def cases_of(root: Path, **more: Any) -> RunCases:
    run = RunFolder(root)
    metrics = json.loads((root / "iteration-1" / "metrics.json").read_text())
    return RunCases(run, run.iteration(1), metrics, "me", **more)


def page_rows(root: Path, rows: list[Row], specs: list[ScoreSpec] = SPECS) -> CaseRows:
    write_run(root, rows)
    score(root, specs)
    return cases_of(root).rows


def html_of(cases: RunCases) -> str:
    return page_html(run_page(Report("run", "", "", (), (), ()), cases))


def test_values_fields_and_worst_first(tmp_path: Path) -> None:
    """The threshold of faithfulness is .85; latency has none."""
    results: list[Any] = [0.9, 0.5, ("error", "no reply"), ("skipped", "no contexts")]
    rows = [Row(f"q{n}", "a", {"faithfulness": result, "latency_ms": 1200.5}) for n, result in enumerate(results)]
    found = page_rows(tmp_path, [*rows, Row("q4", "a", {"latency_ms": 7})])
    values = [None if np.isnan(v) else round(float(v), 4) for v in found.values["faithfulness"]]
    assert values == [0.9, 0.5, None, None, None]
    assert found.verdicts["faithfulness"].tolist() == [PASSED, FAILED, ERROR, SKIPPED, ABSENT]
    assert found.values["latency_ms"].tolist() == [1200.5] * 4 + [7]
    assert (found.verdicts["latency_ms"].tolist(), found.main) == ([NO_VERDICT] * 5, "faithfulness")
    assert found.failed.tolist()[:2] == [0, 1]
    # A case has one category, and may have several tags; values stand by how often they occur.
    labels = [{"category": "x", "tags": ["p", "q"]}, {"category": "y", "tags": ["q"]}, {"category": "y", "tags": []}]
    found = page_rows(tmp_path, [Row(f"q{n}", "a", {"faithfulness": 1}, label) for n, label in enumerate(labels)])
    fields = {field.name: field for field in found.fields}
    assert (fields["category"].values, fields["category"].codes.tolist()) == (["y", "x"], [2, 1, 1])  # type: ignore[union-attr]
    assert fields["tag"].codes is None
    assert dict(zip(fields["tag"].values, map(list, fields["tag"].flags), strict=True)) == {"q": [1, 1, 0], "p": [1, 0, 0]}  # fmt: skip
    columns = page_columns(html_of(cases_of(tmp_path)))
    assert (columns["c:category"].tolist(), columns["s:tag:p"].tolist()) == ([2, 1, 1], [1, 0, 0])
    rising = page_rows(tmp_path / "a", [Row(f"q{n}", "a", {"faithfulness": v}) for n, v in enumerate((0.6, 0.2, 0.9, 0.2))], SPECS[:1])  # fmt: skip
    assert rising.worst_first().tolist() == [1, 3, 0, 2]
    lower = ScoreSpec("scope_miss", higher_is_better=False)
    falling = page_rows(tmp_path / "b", [Row(f"q{n}", "a", {"scope_miss": v}) for n, v in enumerate((0, 1, 0))], [lower])
    assert falling.worst_first().tolist() == [1, 0, 2]


def test_names_leave_out_the_only_method_and_hold_when_the_data_grows(tmp_path: Path) -> None:
    """A case keeps its name when others come before it."""
    one = page_rows(tmp_path / "one", [Row("q1", "a", {"faithfulness": 1}), Row("q1", "a", {"faithfulness": 1}, repeat=2)])
    assert one.names == ["q1/1", "q1/2"]
    several = [Row("a/b", m, {"faithfulness": 1}) for m in ("base", "new")]
    assert page_rows(tmp_path / "two", several).names == ["a/b/base/1", "a/b/new/1"]
    grown = page_rows(tmp_path / "three", [Row("0", "base", {"faithfulness": 1}), *several])
    assert grown.names[1:] == ["a/b/base/1", "a/b/new/1"]


def test_every_case_is_on_the_page_and_the_worst_in_the_html(tmp_path: Path) -> None:
    """70 cases are two blocks; the two methods of a question share its chunk."""
    chunk = {"chunks": [Chunk(id="c", rank=1, text="The same chunk.")]}
    page_rows(tmp_path, [Row(f"q{n}", m, {"faithfulness": n / 40}, output=chunk) for n in range(35) for m in "ab"], SPECS[:1])
    html = html_of(cases_of(tmp_path))
    index = block_json(html, "index")
    cases = [(index["samples"][s], index["methods"][m]) for s, m in zip(index["sample"], index["method"], strict=True)]
    assert cases[:4] == [("q0", "a"), ("q0", "b"), ("q1", "a"), ("q1", "b")]
    assert (len(index["questions"]), len(block_json(html, "d0")), len(block_json(html, "d1"))) == (35, 64, 6)
    assert block_json(html, "t0") == ["The same chunk."]
    assert (block_json(html, "d1")[5]["q"], len(block_json(html, "text"))) == ("What is q34?", 70)
    assert block_json(html, "text")[69] == "what is q34?\nan answer."
    page_rows(tmp_path, [Row(f"q{n}", "a", {"faithfulness": n / 30}) for n in range(30)], SPECS[:1])
    without_blocks = html_of(cases_of(tmp_path)).split('<script type="text/plain"')[0]
    assert without_blocks.count('<article class="card"><h3>') == 20
    assert without_blocks.index("<h3>q0/1</h3>") < without_blocks.index("<h3>q19/1</h3>")
    assert '<li class="badge bad">faithfulness 0.6333 miss</li>' in without_blocks


def test_marks_are_places_as_the_browser_counts_them(tmp_path: Path) -> None:
    """A character beyond the first plane is two units of UTF-16, and a control character is shown as four characters."""
    text = "\U0001f600\x07 It opened in 1901."
    details = {"faithfulness": {"claims": [{"claim": "c", "supported": True, "evidence": "opened in 1901"}]}}
    output = {"chunks": [Chunk(id="c", rank=1, text=text)]}
    page_rows(tmp_path, [Row("q", "a", {"faithfulness": 1}, output=output, details=details)], SPECS[:1])
    html = html_of(cases_of(tmp_path))
    (chunk,) = block_json(html, "d0")[0]["k"]
    units = block_json(html, "t0")[chunk["t"]].encode("utf-16-le")
    ((start, end, mark),) = chunk["m"]
    assert (units[2 * start : 2 * end].decode("utf-16-le"), mark) == ("opened in 1901", "supports")


def test_prompts_of_the_worst_cases_are_kept_within_the_budget(tmp_path: Path) -> None:
    """Ten cases with a prompt each, and room for three: the others say what was asked, and no more."""
    asked = {"method": "a", "iteration": 1, "metric": "faithfulness", "step": "verify", "turn": "ask", "judge": "gpt", "status": "ok",
             "template": "faithfulness/verify", "template_version": "v1", "key": "k", "tokens_in": 8, "tokens_out": 9, "reply": "yes"}  # fmt: skip
    rows = [Row(f"q{n}", "a", {"faithfulness": n / 10}) for n in range(10)]
    calls = [{**asked, "sample_id": f"q{n}", "messages": json.dumps([{"role": "user", "content": f"{n}" * 4000}])} for n in range(10)]
    write_run(tmp_path, rows, calls)
    score(tmp_path, SPECS[:1])
    assert len(cases_of(tmp_path).with_prompts) == 10
    html = html_of(cases_of(tmp_path, prompts_mb=0.0135))
    full = block_json(html, "d0")
    kept = [n for n, case in enumerate(full) if "p" in case["j"][0]]
    assert kept == list(range(block_json(html, "index")["prompts"]))
    assert 0 < len(kept) < 10
    assert block_json(html, "p0")[full[0]["j"][0]["p"][0][1]] == "0" * 4000
    assert full[9]["j"] == [{"m": "faithfulness", "s": "verify", "j": "gpt", "tp": "faithfulness/verify.v1", "st": "ok", "in": 8, "out": 9}]  # fmt: skip


def test_a_page_has_all_cases_in_its_list_and_those_of_the_worst_questions_in_full(tmp_path: Path) -> None:
    """Nine questions by two methods, room for five cases: two questions. q8's b is the lowest case, then q2's a; q0 is low by b alone."""
    values = {(n, m): 0.5 + n / 100 for n in range(9) for m in "ab"} | {(8, "b"): 0.0, (2, "a"): 0.1, (0, "b"): 0.2}
    rows = [Row(f"q{n}", m, {"faithfulness": value}, {"category": f"c{n}"}) for (n, m), value in values.items()]
    page_rows(tmp_path, rows, SPECS[:1])
    html = html_of(cases_of(tmp_path, in_full=5))
    index = block_json(html, "index")
    assert len(index["sample"]) == len(page_columns(html)["f:faithfulness"]) == len(block_json(html, "text")) == 18
    assert index["full"] == [4, 5, 16, 17]
    assert index["fields"][0]["values"] == [f"c{n}" for n in range(9)]
    assert [case["q"] for case in block_json(html, "d0")] == ["What is q2?"] * 2 + ["What is q8?"] * 2
    assert cases_of(tmp_path, in_full=1).rows.full.tolist() == [16, 17], "the first question with all its cases"
    everything = html_of(cases_of(tmp_path))
    assert block_json(everything, "index")["full"] is None
    assert "worst questions" not in everything.split("<script")[0], "with room for all"
    assert html.index("<h3>q8/b/1</h3>") < html.index("<h3>q2/a/1</h3>")


PAGE_SPECS = [ScoreSpec("faithfulness"), ScoreSpec("correctness", 1, 5), ScoreSpec("n_claims", None, None)]
ATTACKS = [
    "![x](http://evil/x.png)", "<img src=http://evil onerror=alert(1)>", "</code></pre><script>alert(1)</script>",
    "[click](javascript:alert(1)) http://evil www.evil.com me@evil.com", "``` \n# forged heading\n~~~\n- item",
    "a | b \\| <img src=x> ` | `` <b>", "\x1b[2J\r\n\r\n<!-- \u202e -->", "=HYPERLINK(\"http://evil\")",
]  # fmt: skip


def page(root: Path, *percent: str) -> str:
    settings = ReportSettings(formats=["markdown"], percent=[*percent])
    write_reports(root / "iteration-1", target=root, settings=settings, console=Console())
    return (root / "report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("attack", ATTACKS)
def test_text_of_data_is_never_markup(tmp_path: Path, attack: str) -> None:
    """Read with CommonMark, tables and bare-address links on: no link, image, HTML or heading comes from data."""
    labels = {"question": attack, "category": attack, "tags": [attack]}
    rows = [Row(f"{attack}{i}", attack, {"faithfulness": 0.1 * i, "correctness": ("error", attack), "n_claims": ("skipped", attack)}, labels, {"answer": attack}) for i in range(3)]  # fmt: skip
    write_run(tmp_path, rows)
    score(tmp_path, PAGE_SPECS, ScoringSettings(slices=[]), signature=f"x | {attack}", rates={attack: Price(attack, attack, reason=attack)})
    tokens = MarkdownIt("commonmark", {"linkify": False, "html": True}).enable("table").parse(page(tmp_path))
    inline = [child for token in tokens for child in token.children or []]
    assert {t.type for t in inline} <= {"text", "code_inline", "html_inline", "softbreak", "strong_open", "strong_close"}
    assert {t.content for t in inline if t.type == "html_inline"} <= {"<br>"}
    assert "html_block" not in {t.type for t in tokens}
    heads = [tokens[i + 1].content for i, t in enumerate(tokens) if t.type == "heading_open"]
    assert not [head for head in heads if "forged" in head and "`" not in head]
    loose = "".join(t.content for t in inline if t.type == "text")
    assert not any(word in loose for word in ("evil", "alert", "forged", "HYPERLINK", "\x1b", "\u202e"))


ROWS = [
    Row("q1", "a", {"faithfulness": 1.0, "correctness": 5.0}, {"category": "x"}),
    Row("q2", "a", {"faithfulness": 0.2, "correctness": 4.5}, {"category": "x"}, {"answer": "Wrong."}),
    Row("q3", "a", {"faithfulness": ("error", "refused: no"), "correctness": 2.0}, {"category": "y"}),
    Row("q4", "a", {"faithfulness": 0.1, "correctness": 1.0}, {"category": "y"}),
    Row("q5", "a", {"faithfulness": ("skipped", "no_answer"), "correctness": ("skipped", "no_answer")}),
]


def test_the_page(tmp_path: Path) -> None:
    write_run(tmp_path, ROWS)
    score(tmp_path, PAGE_SPECS)
    text = page(tmp_path, "faithfulness")
    assert text.startswith("# Evaluation report\n\n`ragpipe 0 | test`\n\n5 cases on 5 questions, iteration 1.\n")
    assert "calibrated" not in text, "no judge was asked"
    assert "| `faithfulness` | 3 | 1 | 1 | 0 | 75.0% | `refused` 1, `no_answer` 1 |" in text
    assert "| `faithfulness x100`<br>passes from 85 | 43.3 [" in text
    assert "### By `category`" in text
    assert "No judge was asked." in text
    places = [text.index(f"### `{case}` / `a`") for case in ("q4", "q2", "q3")]
    assert places == sorted(places), "the lowest first"
    assert "- `faithfulness` 0.2: `fine`" in text
    assert "```text\nWrong.\n```" in text
    assert "## How to read it" in text


@pytest.mark.parametrize("calibrated", [None, {"kappa": 0.9}])
@pytest.mark.parametrize("judge", ["rules-v1", "openai/gpt-4o-mini-2024-07-18"])
def test_a_judge_that_is_not_calibrated_says_so_whatever_it_is(tmp_path: Path, judge: str, calibrated: Any) -> None:
    asked = {"sample_id": "q1", "method": "a", "iteration": 1, "metric": "faithfulness", "key": "k", "judge": judge}
    write_run(tmp_path, ROWS, [{**asked, "template": "faithfulness/verify", "status": "ok", "attempts": 0}])
    score(tmp_path, PAGE_SPECS, judge={"label": judge, "calibrated": calibrated})
    said = "The judge is not calibrated against human labels: how often its verdicts are right is not known"
    assert (said in page(tmp_path)) is (calibrated is None)


def test_a_page_of_records_without_a_column_names_them(tmp_path: Path) -> None:
    report_of_rows(tmp_path, rows_of(bot=[0.0, 1.0]))
    records = RunFolder(tmp_path).iteration(1).records
    pq.write_table(pq.read_table(records).drop_columns("question"), records)
    with pytest.raises(DataError, match="no column question"):
        read_case_rows(records, json.loads((records.parent / "metrics.json").read_text()))
