"""What report.html says above its cases: verdict, order, charts and their links, on small literal runs."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from markdown_it import MarkdownIt

from ragpipe.pages.page_file import page_html
from ragpipe.reports.build import build_report, section_builders
from ragpipe.reports.console import Console
from ragpipe.reports.model import Chart, Report, Section, plain_text
from ragpipe.reports.run_page.case_rows import ABSENT, ERROR, FAILED, NO_VERDICT, PASSED, SKIPPED, CaseRows
from ragpipe.reports.run_page.page_cases import RunCases
from ragpipe.reports.run_page.run_page import front_markup, run_page
from ragpipe.reports.settings import ReportSettings
from ragpipe.schema.answer_digest import answer_digest
from ragpipe.schema.price_rates import Rates
from ragpipe.schema.sample import Chunk, Output, Sample, Turn
from ragpipe.schema.score import ScoreSpec
from ragpipe.scoring.settings import ScoringSettings
from ragpipe.stages.write_reports import read_report_data, write_reports
from ragpipe.store.run.run_folder import RunFolder
from tests.support.page_blocks import block_json, page_columns
from tests.support.run_tables import Result, Row, score, write_run

pytestmark = pytest.mark.slow


GRADE = ScoreSpec("grade", 0, 1)
BASE: dict[str, Any] = {"thresholds": {"grade": 0.5}, "weights": {"grade": 1.0}, "fill_defaults": False}


def report_of_rows(root: Path, rows: list[Row], **scoring: Any) -> Report:
    write_run(root, rows)
    metrics = score(root, [GRADE], ScoringSettings.model_validate({**BASE, **scoring}))
    assert metrics["n_cases"] == len(rows)
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
    assert report.verdict is not None
    return " ".join([report.verdict.lead, *map(plain_text, report.verdict.sentences)])


def section(report: Report, name: str) -> Section:
    return next(section for section in report.sections if section.name == name)


def charts(report: Report, name: str) -> str:
    return "".join(str(part.markup) for part in section(report, name).parts if isinstance(part, Chart))


def test_one_method_has_its_mean_and_says_that_there_are_no_gates(tmp_path: Path) -> None:
    """12 of 20 are 1: the mean is .6."""
    report = report_of_rows(tmp_path, rows_of(bot=[0.0] * 8 + [1.0] * 12))
    assert re.match(r" grade 0\.60 \[0\.\d\d, 0\.\d\d\], n = 20\.$", verdict_text(report))
    better = section(report, "better")
    assert better.title == "How good?"
    assert '<a href="#v=1&amp;score=grade&amp;verdict=fail">grade</a>' in charts(report, "better")
    assert '<line class="limit" x1="50.0" x2="50.0"' in charts(report, "better")


def test_a_method_that_is_better_in_every_pair_beats_the_first(tmp_path: Path) -> None:
    """Ten pairs: differences of .3 and .5 in turn, .4 on average."""
    new = [0.4 + 0.1 * (n % 2 * 2) for n in range(10)]
    report = report_of_rows(tmp_path, rows_of(old=[0.1] * 10, new=new))
    sentence = r"new beats old by 0\.400 \[0\.\d{3}, 0\.\d{3}\] in grade over 10 pairs\.$"
    assert re.search(sentence, verdict_text(report))
    html = charts(report, "better")
    assert "10 / 0 / 0" in html
    assert '<a href="#v=1&amp;score=grade&amp;only=1">grade</a>' in html


def test_a_method_that_is_worse_is_behind_by_a_positive_amount(tmp_path: Path) -> None:
    new = [0.1 + 0.2 * (n % 2) for n in range(10)]
    report = report_of_rows(tmp_path, rows_of(old=[0.6] * 10, new=new))
    sentence = r"new is behind old by 0\.400 \[(0\.\d{3}), (0\.\d{3})\] in grade over 10 pairs"
    match = re.search(sentence, verdict_text(report))
    assert match
    assert float(match[1]) < 0.4 < float(match[2])


def test_few_questions_show_no_interval(tmp_path: Path) -> None:
    report = report_of_rows(tmp_path, rows_of(old=[0.1, 0.3, 0.2], new=[0.9, 0.8, 0.9]))
    assert "new against old in grade: n = 3, too few to tell" in verdict_text(report)
    html = charts(report, "better")
    assert "n = 3: too few" in html
    assert 'class="interval"' not in html


def test_nothing_judged_is_no_evidence_with_the_first_error(tmp_path: Path) -> None:
    report = report_of_rows(tmp_path, rows_of(bot=[("error", "timeout: no reply")] * 4))
    assert report.verdict is not None
    assert (report.verdict.kind, report.verdict.lead) == ("bad", "no evidence")
    assert "0 of 4 cases have a value of any score. First error: grade timeout" in verdict_text(report)
    assert "4 judgements failed" in report.verdict.remarks
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
    assert verdict_text(report).startswith("blocked 1 of 4 gates: high 0.2")
    html = charts(report, "gates")
    badges = re.findall(r'<span class="badge (\w*)">([^<]*)</span>', html)
    assert badges == [("bad", "failed, blocked"), ("warn", "failed, warned"), ("good", "passed"), ("", "failed, reported")]
    assert 'href="#v=1&amp;score=grade&amp;verdict=fail&amp;slice=category:a">high</a>' in html
    assert '<line class="limit" x1="90.0" x2="90.0"' in html
    assert re.search(r'high</a>.*?<line class="mean" x1="20\.0"', html, re.DOTALL)


def test_what_is_wrong_goes_by_diagnosis_and_opens_its_cases(tmp_path: Path) -> None:
    """Three of ten gave no answer, one failed to answer at all."""
    answers = [{"answer": ""}] * 3 + [{"answer": None, "error": "TimeoutError: slow"}] + [{"answer": "Yes."}] * 6
    rows = [Row(f"q{n}", "bot", {"grade": 1.0}, {}, answer) for n, answer in enumerate(answers)]
    html = charts(report_of_rows(tmp_path, rows, fill_defaults=True), "problems")
    assert re.findall(r"mode=(\w+)", html)[:2] == ["blank_answer", "system_failure"]
    assert re.findall(r"<b>([\d.]+%)</b>", html)[:2] == ["30.0%", "10.0%"]
    assert re.findall(r'class="share" x="0" y="0" width="([\d.]+)"', html)[:2] == ["30.0", "10.0"]


def test_without_a_diagnosis_the_failure_modes_are_shown(tmp_path: Path) -> None:
    """Two of ten fail the grade."""
    rows = [Row(f"q{n}", "bot", {"grade": 0.0 if n < 2 else 1.0}, {}, {}) for n in range(10)]
    html = charts(report_of_rows(tmp_path, rows, failure_modes={"low": {"score": "grade", "below": 0.5}}), "problems")
    assert re.findall(r"mode=(\w+)", html) == ["low"]
    assert re.findall(r"<b>([\d.]+%)</b>", html) == ["20.0%"]


def test_a_slice_is_shaded_where_its_interval_leaves_the_mean_of_the_run_out(tmp_path: Path) -> None:
    """Category a is 0 in each of 20 cases, b is 1 in each of 20: the mean of the run is .5."""
    report = report_of_rows(tmp_path, rows_of(bot=[0.0] * 20 + [1.0] * 20))
    html = charts(report, "slices")
    link = "#v=1&amp;score=grade&amp;verdict=fail&amp;slice=category:a"
    assert re.search(rf'<td class="worse-2"><a href="{link}" title="[^"]*worse than the whole run, 0.50">▼ 0.00</a>', html)
    assert re.search(r'<td class="better-2"><a [^>]*>▲ 1.00</a>', html)


def test_a_slice_of_few_questions_is_grey(tmp_path: Path) -> None:
    report = report_of_rows(tmp_path, rows_of(bot=[0.0] * 3 + [1.0] * 3))
    assert re.findall(r'<td class="([\w -]+)">', charts(report, "slices")) == ["grey few", "grey few"]


def test_bars_name_the_values_of_their_cases(tmp_path: Path) -> None:
    """.12 and .19 are in the bar of .1 to .2; 1 is in the last one."""
    report = report_of_rows(tmp_path, rows_of(bot=[0.12, 0.19, 1.0, 1.0, 1.0]))
    links = re.findall(r'href="#v=1&amp;score=grade&amp;from=([\d.]+)&amp;to=([\d.]+)" aria-label="([^"]*)"', charts(report, "spread"))
    assert links == [("0.12", "0.19", "2 cases, 0.12 to 0.19"), ("1", "1", "3 cases, 1")]


def test_what_the_system_did_not_record_is_said_and_not_zero(tmp_path: Path) -> None:
    rows = rows_of(bot=[0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
    for row in rows:
        row.output = {"timings": {"total": 200.0}}
    report = report_of_rows(tmp_path, rows)
    (chart,) = [part for part in section(report, "spread").parts if isinstance(part, Chart) and part.title == "Quality, latency and cost"]  # fmt: skip
    assert "Not recorded by the system: tokens and cost." in plain_text(chart.note)
    assert "200 [200, 200] ms" in chart.markup
    assert "not recorded" in chart.markup


def test_sections_stand_in_the_order_in_which_they_are_asked_for(tmp_path: Path) -> None:
    gates = {"fine": {"score": "grade", "of": "mean", "min": 0.1, "by": "point"}}
    rows = rows_of(old=[0.1, 0.6] * 5, new=[0.3, 0.9] * 5)
    report = report_of_rows(tmp_path, rows, gates=gates, accept_uncalibrated=True)
    names = [section.name for section in report.sections if section.name not in ("lowest", "distributions")]
    expected = ["better", "scores", "methods", "gates", "slices", "spread", "coverage", "cost", "operations", "reading"]
    where = "a section of the first page stands here too, in the order of `section` in ragpipe/core/built_in.py"
    assert [name for name in names if name in expected] == expected, where
    assert len(section_builders()) == len(set(section_builders()))
    front = front_markup(report)
    above, below = (re.findall(r'<section id="(\w+)"', str(part)) for part in (front.sections, front.fine_print))
    on_the_page = ["better", "scores", "methods", "gates", "spread", "slices"]  # the second column before where
    assert [name for name in above if name in expected] == on_the_page, "and here, in the order of the page"
    assert below == expected[6:], where
    assert str(front.fine_print).rstrip().endswith("</ul>"), "the signature stands last"


@pytest.mark.parametrize("name", ['</a><script>alert(1)</script>"', "m" * 60])
def test_twelve_methods_with_any_name_are_borne(tmp_path: Path, name: str) -> None:
    methods = {f"{name}{place}": [0.1 * (place % 9), 0.5, 0.9, 0.4, 0.3, 0.2] for place in range(12)}
    report = report_of_rows(tmp_path, rows_of(**methods))
    front = front_markup(report)
    html = str(front.head + front.sections + front.fine_print)
    assert "<script" not in html
    assert verdict_text(report).count("The other 10:") == 1
    assert html.count('class="forest"') == 11
    assert html.count('class="histogram"') <= 12


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


def test_values_are_native_and_verdicts_are_codes(tmp_path: Path) -> None:
    """The threshold of faithfulness is .85; latency has none."""
    results: list[Any] = [0.9, 0.5, ("error", "no reply"), ("skipped", "no contexts")]
    rows = [Row(f"q{n}", "a", {"faithfulness": result, "latency_ms": 1200.5}) for n, result in enumerate(results)]
    found = page_rows(tmp_path, [*rows, Row("q4", "a", {"latency_ms": 7})])
    values = [None if np.isnan(v) else round(float(v), 4) for v in found.values["faithfulness"]]
    assert values == [0.9, 0.5, None, None, None]
    assert found.verdicts["faithfulness"].tolist() == [PASSED, FAILED, ERROR, SKIPPED, ABSENT]
    assert found.values["latency_ms"].tolist() == [1200.5] * 4 + [7]
    assert found.verdicts["latency_ms"].tolist() == [NO_VERDICT] * 5
    assert found.main == "faithfulness"
    assert found.failed.tolist()[:2] == [0, 1]


def test_worst_first_follows_the_direction_of_the_score(tmp_path: Path) -> None:
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


def test_fields_are_codes_or_flags(tmp_path: Path) -> None:
    """A case has one category, and may have several tags; values stand by how often they occur."""
    labels = [{"category": "x", "tags": ["p", "q"]}, {"category": "y", "tags": ["q"]}, {"category": "y", "tags": []}]
    found = page_rows(tmp_path, [Row(f"q{n}", "a", {"faithfulness": 1}, label) for n, label in enumerate(labels)])
    fields = {field.name: field for field in found.fields}
    assert (fields["category"].values, fields["category"].codes.tolist()) == (["y", "x"], [2, 1, 1])  # type: ignore[union-attr]
    assert fields["tag"].codes is None
    assert dict(zip(fields["tag"].values, map(list, fields["tag"].flags), strict=True)) == {"q": [1, 1, 0], "p": [1, 0, 0]}  # fmt: skip
    columns = page_columns(html_of(cases_of(tmp_path)))
    assert columns["c:category"].tolist() == [2, 1, 1]
    assert columns["s:tag:p"].tolist() == [1, 0, 0]


def test_every_case_is_on_the_page_and_its_texts_once(tmp_path: Path) -> None:
    """70 cases are two blocks; the two methods of a question share its chunk."""
    chunk = {"chunks": [Chunk(id="c", rank=1, text="The same chunk.")]}
    write_run(tmp_path, [Row(f"q{n}", m, {"faithfulness": n / 40}, output=chunk) for n in range(35) for m in ("a", "b")])
    score(tmp_path, SPECS[:1])
    html = html_of(cases_of(tmp_path))
    index = block_json(html, "index")
    assert [index["samples"][s] for s in index["sample"][:4]] == ["q0", "q0", "q1", "q1"]
    assert [index["methods"][m] for m in index["method"][:4]] == ["a", "b", "a", "b"]
    assert len(index["questions"]) == 35
    assert [len(block_json(html, "d0")), len(block_json(html, "d1"))] == [64, 6]
    assert block_json(html, "t0") == ["The same chunk."]
    assert block_json(html, "d1")[5]["q"] == "What is q34?"
    assert len(block_json(html, "text")) == 70
    assert block_json(html, "text")[69] == "what is q34?\nan answer."


def test_marks_are_places_as_the_browser_counts_them(tmp_path: Path) -> None:
    """A character beyond the first plane is two units of UTF-16, and a control character is shown as four characters."""
    text = "\U0001f600\x07 It opened in 1901."
    details = {"faithfulness": {"claims": [{"claim": "c", "supported": True, "evidence": "opened in 1901"}]}}
    write_run(tmp_path, [Row("q", "a", {"faithfulness": 1}, output={"chunks": [Chunk(id="c", rank=1, text=text)]}, details=details)])
    score(tmp_path, SPECS[:1])
    html = html_of(cases_of(tmp_path))
    (chunk,) = block_json(html, "d0")[0]["k"]
    units = block_json(html, "t0")[chunk["t"]].encode("utf-16-le")
    ((start, end, mark),) = chunk["m"]
    assert (units[2 * start : 2 * end].decode("utf-16-le"), mark) == ("opened in 1901", "supports")


def test_the_digest_is_that_of_labels(tmp_path: Path) -> None:
    sample = Sample(id="q", question="Why?", history=SAID)
    output = Output(sample_id="q", method="a", answer="So.", chunks=[Chunk(id="c", rank=1, text="One."), Chunk(id="d", rank=2)])
    labels, parts = {"question": sample.question, "history": SAID}, {"answer": output.answer, "chunks": output.chunks}
    bare = Output(sample_id="r", method="a", answer=None, chunks=None)
    rows = [Row("q", "a", {"faithfulness": 1}, labels, parts), Row("r", "a", {"faithfulness": 1}, {"question": "Who?"}, {"answer": None, "chunks": None})]  # fmt: skip
    write_run(tmp_path, rows)
    score(tmp_path, SPECS[:1])
    first, second = block_json(html_of(cases_of(tmp_path)), "d0")
    assert first["x"] == answer_digest(sample, output)
    assert second["x"] == answer_digest(Sample(id="r", question="Who?"), bare)


def test_prompts_of_the_worst_cases_are_kept_within_the_budget(tmp_path: Path) -> None:
    """Ten cases with a prompt each, and room for three: the others say what was asked, and no more."""
    asked = {"method": "a", "iteration": 1, "metric": "faithfulness", "step": "verify", "turn": "ask", "judge": "gpt", "status": "ok",
             "template": "faithfulness/verify", "template_version": "v1", "key": "k", "tokens_in": 8, "tokens_out": 9, "reply": "yes"}  # fmt: skip
    rows = [Row(f"q{n}", "a", {"faithfulness": n / 10}) for n in range(10)]
    calls = [{**asked, "sample_id": f"q{n}", "messages": json.dumps([{"role": "user", "content": f"{n}" * 4000}])} for n in range(10)]
    write_run(tmp_path, rows, calls)
    score(tmp_path, SPECS[:1])
    everything = cases_of(tmp_path)
    assert len(everything.with_prompts) == 10
    html = html_of(cases_of(tmp_path, prompts_mb=0.0135))
    full = block_json(html, "d0")
    kept = [n for n, case in enumerate(full) if "p" in case["j"][0]]
    assert kept == list(range(block_json(html, "index")["prompts"]))
    assert 0 < len(kept) < 10
    assert block_json(html, "p0")[full[0]["j"][0]["p"][0][1]] == "0" * 4000
    assert full[9]["j"] == [{"m": "faithfulness", "s": "verify", "j": "gpt", "tp": "faithfulness/verify.v1", "st": "ok", "in": 8, "out": 9}]  # fmt: skip


def test_the_worst_cases_stand_in_the_html_itself(tmp_path: Path) -> None:
    write_run(tmp_path, [Row(f"q{n}", "a", {"faithfulness": n / 30}) for n in range(30)])
    score(tmp_path, SPECS[:1])
    html = html_of(cases_of(tmp_path))
    without_blocks = html.split('<script type="text/plain"')[0]
    assert without_blocks.count('<article class="card"><h3>') == 20
    assert without_blocks.index("<h3>q0/1</h3>") < without_blocks.index("<h3>q19/1</h3>")
    assert '<li class="badge bad">faithfulness 0.6333 fail</li>' in without_blocks


def test_of_too_many_cases_a_page_has_those_of_the_worst_questions(tmp_path: Path) -> None:
    """Nine questions by two methods, room for five cases: two questions. q8's b is the lowest case, then q2's a; q0 is low by b alone."""
    values = {(n, m): 0.5 + n / 100 for n in range(9) for m in "ab"} | {(8, "b"): 0.0, (2, "a"): 0.1, (0, "b"): 0.2}
    rows = [Row(f"q{n}", m, {"faithfulness": value}, {"category": f"c{n}"}) for (n, m), value in values.items()]
    write_run(tmp_path, rows)
    score(tmp_path, SPECS[:1])
    html = html_of(cases_of(tmp_path, most=5))
    index = block_json(html, "index")
    assert [index["samples"][s] for s in index["sample"]] == ["q2", "q2", "q8", "q8"]
    assert index["total"] == 18
    assert index["fields"][0]["values"] == [f"c{n}" for n in range(9)]
    columns = page_columns(html)
    assert columns["f:faithfulness"].round(2).tolist() == [np.float32(v) for v in (0.1, 0.52, 0.58, 0)]
    assert columns["c:category"].tolist() == [3, 3, 9, 9]
    assert [case["q"] for case in block_json(html, "d0")] == ["What is q2?"] * 2 + ["What is q8?"] * 2
    assert "those of the worst questions, 4 of 18, are on the page, all are in iteration-1/records.parquet" in html
    assert html.index("<h3>q8/b/1</h3>") < html.index("<h3>q2/a/1</h3>")


def test_a_page_with_room_for_all_cases_says_nothing_of_it(tmp_path: Path) -> None:
    write_run(tmp_path, [Row(f"q{n}", "a", {"faithfulness": n / 4}) for n in range(4)])
    score(tmp_path, SPECS[:1])
    html = html_of(cases_of(tmp_path, most=4))
    assert len(block_json(html, "d0")) == 4
    assert "worst questions" not in html.split("<script")[0]
    assert html == html_of(cases_of(tmp_path))


def test_the_first_question_stands_on_the_page_with_all_its_cases(tmp_path: Path) -> None:
    rows = [Row("q0", m, {"faithfulness": 1}) for m in "abc"] + [Row("q1", m, {"faithfulness": 0}) for m in "abc"]
    write_run(tmp_path, rows)
    score(tmp_path, SPECS[:1])
    assert cases_of(tmp_path, most=1).rows.sample_ids == ["q1"] * 3


PAGE_SPECS = [ScoreSpec("faithfulness"), ScoreSpec("correctness", 1, 5), ScoreSpec("n_claims", None, None)]
ATTACKS = [
    "![x](http://evil/x.png)", "<img src=http://evil onerror=alert(1)>", "</code></pre><script>alert(1)</script>",
    "[click](javascript:alert(1)) http://evil www.evil.com me@evil.com", "``` \n# forged heading\n~~~\n- item",
    "a | b \\| <img src=x> ` | `` <b>", "\x1b[2J\r\n\r\n<!-- \u202e -->", "=HYPERLINK(\"http://evil\")",
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
    score(tmp_path, PAGE_SPECS, ScoringSettings(slices=[]), signature=f"x | {attack}", rates={attack: Rates(attack, attack, reason=attack)})
    reader = MarkdownIt("commonmark", {"linkify": False, "html": True}).enable("table")
    tokens = reader.parse(page(tmp_path))
    inline = [child for token in tokens for child in token.children or []]
    assert {t.type for t in inline} <= {"text", "code_inline", "html_inline", "softbreak", "strong_open", "strong_close"}
    assert {t.content for t in inline if t.type == "html_inline"} <= {"<br>"}
    assert "html_block" not in {t.type for t in tokens}
    heads = [tokens[i + 1].content for i, t in enumerate(tokens) if t.type == "heading_open"]
    assert not [head for head in heads if "forged" in head and "`" not in head]
    loose = "".join(t.content for t in inline if t.type == "text")
    assert not any(word in loose for word in ("evil", "alert", "forged", "HYPERLINK", "\x1b", "\u202e"))


def test_table_rows_keep_their_cells(tmp_path: Path) -> None:
    """A method name with bars and backticks neither opens nor closes a cell."""
    write_run(tmp_path, [Row("q", method, {"faithfulness": 0.5}) for method in ("a|b", "c \\| d", "`|`")])
    score(tmp_path, PAGE_SPECS, ScoringSettings(slices=[]))
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
    score(tmp_path, PAGE_SPECS)
    text = page(tmp_path, ReportSettings(formats=["markdown"], percent=["faithfulness"]))
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
@pytest.mark.parametrize("judge", ["evidence-v1", "openai/gpt-4o-mini-2024-07-18"])
def test_a_judge_that_is_not_calibrated_says_so_whatever_it_is(tmp_path: Path, judge: str, calibrated: Any) -> None:
    asked = {"sample_id": "q1", "method": "a", "iteration": 1, "metric": "faithfulness", "key": "k", "judge": judge}
    write_run(tmp_path, ROWS, [{**asked, "template": "faithfulness/verify", "status": "ok", "attempts": 0}])
    score(tmp_path, PAGE_SPECS, judge={"label": judge, "calibrated": calibrated})
    said = "**The judge is not calibrated against human labels:** how often its verdicts are right is not known."
    assert (said in page(tmp_path)) is (calibrated is None)
