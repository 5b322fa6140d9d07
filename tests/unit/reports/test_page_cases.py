"""The cases of report.html as data: rows, columns, and cases in full."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragpipe.pages.page_file import page_html
from ragpipe.reports.model import Report
from ragpipe.reports.run_page.case_rows import ABSENT, ERROR, FAILED, NO_VERDICT, PASSED, SKIPPED, CaseRows
from ragpipe.reports.run_page.page_cases import RunCases
from ragpipe.reports.run_page.run_page import run_page
from ragpipe.schema.answer_digest import answer_digest
from ragpipe.schema.sample import Chunk, Output, Sample, Turn
from ragpipe.schema.score import ScoreSpec
from ragpipe.store.run.run_folder import RunFolder
from tests.support.page_blocks import block_json, page_columns
from tests.support.run_tables import Row, score, write_run

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test

SPECS = [ScoreSpec("faithfulness"), ScoreSpec("latency_ms", None, None, higher_is_better=False)]
SAID = [Turn(role="user", text="And before?")]


def cases_of(root: Path, **more: Any) -> RunCases:
    run = RunFolder(root)
    metrics = json.loads((root / "iteration-1" / "metrics.json").read_text())
    return RunCases(run, run.iteration(1), metrics, "me", **more)


def rows_of(root: Path, rows: list[Row], specs: list[ScoreSpec] = SPECS) -> CaseRows:
    write_run(root, rows)
    score(root, specs)
    return cases_of(root).rows


def html_of(cases: RunCases) -> str:
    return page_html(run_page(Report("run", "", "", (), (), ()), cases))


def test_values_are_native_and_verdicts_are_codes(tmp_path: Path) -> None:
    """The threshold of faithfulness is .85; latency has none."""
    results: list[Any] = [0.9, 0.5, ("error", "no reply"), ("skipped", "no contexts")]
    rows = [Row(f"q{n}", "a", {"faithfulness": result, "latency_ms": 1200.5}) for n, result in enumerate(results)]
    found = rows_of(tmp_path, [*rows, Row("q4", "a", {"latency_ms": 7})])
    values = [None if np.isnan(v) else round(float(v), 4) for v in found.values["faithfulness"]]
    assert values == [0.9, 0.5, None, None, None]
    assert found.verdicts["faithfulness"].tolist() == [PASSED, FAILED, ERROR, SKIPPED, ABSENT]
    assert found.values["latency_ms"].tolist() == [1200.5] * 4 + [7]
    assert found.verdicts["latency_ms"].tolist() == [NO_VERDICT] * 5
    assert found.main == "faithfulness"
    assert found.failed.tolist()[:2] == [0, 1]


def test_worst_first_follows_the_direction_of_the_score(tmp_path: Path) -> None:
    rising = rows_of(tmp_path / "a", [Row(f"q{n}", "a", {"faithfulness": v}) for n, v in enumerate((0.6, 0.2, 0.9, 0.2))], SPECS[:1])  # fmt: skip
    assert rising.worst_first().tolist() == [1, 3, 0, 2]
    lower = ScoreSpec("scope_miss", higher_is_better=False)
    falling = rows_of(tmp_path / "b", [Row(f"q{n}", "a", {"scope_miss": v}) for n, v in enumerate((0, 1, 0))], [lower])
    assert falling.worst_first().tolist() == [1, 0, 2]


def test_names_leave_out_the_only_method_and_hold_when_the_data_grows(tmp_path: Path) -> None:
    """A case keeps its name when others come before it."""
    one = rows_of(
        tmp_path / "one", [Row("q1", "a", {"faithfulness": 1}), Row("q1", "a", {"faithfulness": 1}, repeat=2)]
    )
    assert one.names == ["q1/1", "q1/2"]
    several = [Row("a/b", m, {"faithfulness": 1}) for m in ("base", "new")]
    assert rows_of(tmp_path / "two", several).names == ["a/b/base/1", "a/b/new/1"]
    grown = rows_of(tmp_path / "three", [Row("0", "base", {"faithfulness": 1}), *several])
    assert grown.names[1:] == ["a/b/base/1", "a/b/new/1"]


def test_fields_are_codes_or_flags(tmp_path: Path) -> None:
    """A case has one category, and may have several tags; values stand by how often they occur."""
    labels = [{"category": "x", "tags": ["p", "q"]}, {"category": "y", "tags": ["q"]}, {"category": "y", "tags": []}]
    found = rows_of(tmp_path, [Row(f"q{n}", "a", {"faithfulness": 1}, label) for n, label in enumerate(labels)])
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
    write_run(
        tmp_path, [Row(f"q{n}", m, {"faithfulness": n / 40}, output=chunk) for n in range(35) for m in ("a", "b")]
    )
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
    write_run(
        tmp_path,
        [Row("q", "a", {"faithfulness": 1}, output={"chunks": [Chunk(id="c", rank=1, text=text)]}, details=details)],
    )
    score(tmp_path, SPECS[:1])
    html = html_of(cases_of(tmp_path))
    (chunk,) = block_json(html, "d0")[0]["k"]
    units = block_json(html, "t0")[chunk["t"]].encode("utf-16-le")
    ((start, end, mark),) = chunk["m"]
    assert (units[2 * start : 2 * end].decode("utf-16-le"), mark) == ("opened in 1901", "supports")


def test_the_digest_is_that_of_labels(tmp_path: Path) -> None:
    sample = Sample(id="q", question="Why?", history=SAID)
    output = Output(
        sample_id="q", method="a", answer="So.", chunks=[Chunk(id="c", rank=1, text="One."), Chunk(id="d", rank=2)]
    )
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
    calls = [
        {**asked, "sample_id": f"q{n}", "messages": json.dumps([{"role": "user", "content": f"{n}" * 4000}])}
        for n in range(10)
    ]
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
