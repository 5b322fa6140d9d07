"""compare.html of small runs: what stands in it without a script, and what its data blocks hold."""

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from ragpipe.comparison.comparison import compare_sides, comparison_document
from ragpipe.comparison.settings import CompareSettings
from ragpipe.core.sample import Chunk
from ragpipe.report.compare_charts import interval_text, score_forest, score_link, slice_maps
from ragpipe.report.compare_page import TOKENS_MAX, compare_page, side_names, word_changes
from ragpipe.report.page_file import SideFolder, page_html
from ragpipe.store.run_folder import RunFolder
from tests.support.compared_runs import IDENTITY, graded, scored_run, side_of
from tests.support.page_blocks import block_json, page_columns
from tests.support.run_tables import Row

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test
BASE = {f"q{n}": 0.25 for n in range(8)}
NEW = {f"q{n}": 0.125 * n for n in range(8)}
"""Differences -.25, -.125, 0, .125 ... .625; from .5 on (q4) a case passes."""


def page_of(
    base: RunFolder, *candidates: RunFolder, kind: Literal["runs", "methods"] = "runs", limit: int = 20_000,
    side: SideFolder | None = None, **settings: Any,
) -> str:  # fmt: skip
    with ExitStack() as stack:
        sides = [stack.enter_context(side_of(folder)) for folder in (base, *candidates)]
        chosen = CompareSettings(**settings)
        comparisons = compare_sides(sides[0], sides[1:], chosen)
        document = comparison_document(kind, sides[0], sides[1:], comparisons, chosen)
        return page_html(compare_page(document, sides[0], sides[1:], comparisons, limit), side)


@pytest.fixture
def runs(tmp_path: Path) -> list[RunFolder]:
    base = scored_run(tmp_path / "a", graded(BASE, labels={"category": "policy"}))
    return [base, scored_run(tmp_path / "b", graded(NEW, labels={"category": "policy"}), run_id="000000000002")]


def test_the_page_of_two_runs(runs: Sequence[RunFolder]) -> None:
    html = page_of(*runs)
    index, columns = block_json(html, "index"), page_columns(html)
    assert index["rows"] == [f"q{n}/1" for n in range(8)]
    assert (index["base"], index["candidates"], index["main"]) == ("test 000000000001", ["test 000000000002"], "grade")
    assert index["scores"] == [{"name": "grade", "headline": True, "better": 1}, {"name": "overall_score", "headline": False, "better": 1}]
    np.testing.assert_array_equal(columns["b:grade"], [0.25] * 8)
    np.testing.assert_array_equal(columns["c0:grade"], list(NEW.values()))
    assert columns["v0:grade"].tolist() == [4] * 4 + [5] * 4  # 3 * failed + failed, 3 * failed + passed
    assert columns["p0"].tolist() == [1] * 8


def test_cases_are_packed_with_both_answers_and_shared_contexts_once(tmp_path: Path) -> None:
    chunks = [Chunk(id="c1", rank=1, text="kept text"), Chunk(id="c2", rank=2, text="lost text")]
    old = [Row("q0", "m", {"grade": 0.0}, output={"answer": "Old </script> answer", "chunks": chunks})]
    new = [Row("q0", "n", {"grade": 1.0}, output={"answer": None, "chunks": chunks[:1]})]
    html = page_of(scored_run(tmp_path / "a", old), scored_run(tmp_path / "b", new, run_id="000000000002"))
    (case,) = block_json(html, "d0")
    assert case["q"] == "What is q0?"
    assert (case["b"]["a"], case["c"][0]["a"]) == ("Old </script> answer", None)
    assert case["b"]["k"] == [["c1", "1. c1", 0], ["c2", "2. c2", 1]]
    assert case["c"][0]["k"] == [["c1", "1. c1", 0]]
    assert block_json(html, "t0") == ["kept text", "lost text"]
    assert block_json(html, "text") == ["what is q0?\nold </script> answer\n"]
    assert case["b"]["r"] == {"grade": "fine"}


def test_verdict_flips_and_worst_cases_stand_there_without_a_script(runs: Sequence[RunFolder]) -> None:
    html = page_of(*runs)
    assert "<b>inconclusive</b>" in html
    link = "#v=1&amp;with=test%20000000000002&amp;score=grade&amp;flip="
    for kind, words, count in (("to_passed", "miss → pass", 4), ("to_failed", "pass → miss", 0), ("both_failed", "both miss", 4)):
        assert f'href="{link}{kind}"><b>{count}</b> {words}</a>' in html
    static = html[html.index('<div id="worst">') :]
    assert re.findall(r"<h3>(q\d/1)</h3>", static) == [f"q{n}/1" for n in range(8)]  # the largest drop first


def test_more_cases_than_fit_are_those_that_changed_most(runs: Sequence[RunFolder]) -> None:
    """The sizes are .25, .125, 0, .125, .25, .375, .5, .625: the four largest are q4 to q7 and q0, of which q0 came first."""
    html = page_of(*runs, limit=4)
    assert block_json(html, "index")["rows"] == ["q0/1", "q5/1", "q6/1", "q7/1"]
    assert block_json(html, "index")["total"] == 8
    assert "the 4 of 8 whose grade changed most" in html


def test_several_candidates_share_the_rows_of_the_base(runs: Sequence[RunFolder], tmp_path: Path) -> None:
    third = scored_run(tmp_path / "c", graded({"q1": 1.0, "q9": 1.0}), run_id="000000000003")
    html = page_of(*runs, third, accept=["data"])
    columns = page_columns(html)
    assert columns["p1"].tolist() == [0, 1, 0, 0, 0, 0, 0, 0]
    assert np.isnan(columns["c1:grade"]).tolist() == [True, False, *[True] * 6]
    assert block_json(html, "d0")[0]["c"][1] is None
    assert html.count('class="panel"') == 2
    assert "accepted differences" in html


def test_another_judge_is_said(tmp_path: Path) -> None:
    other = {**IDENTITY, "judge_identity": {"model": "m-2", "temperature": 0}}
    base = scored_run(tmp_path / "a", graded(BASE, output={}))
    new = scored_run(tmp_path / "b", graded(dict.fromkeys(BASE, 0.5), output={}), run_id="000000000002", identity=other)
    html = page_of(base, new, accept=["judge"])
    assert "<b>accepted differences</b> judge: judge.model: the change is not that of the system alone." in html


def test_data_is_never_markup(tmp_path: Path) -> None:
    attack = '"><script>alert(1)</script><img src=x onerror=alert(1)>\u202e'
    rows = [Row(attack, attack, {"grade": n}, labels={"question": attack, "category": attack}, output={"answer": attack}) for n in (0.0,)]  # fmt: skip
    rows += [Row("q1", attack, {"grade": 0.0}, labels={"category": "b"})]
    base, new = scored_run(tmp_path / "a", rows), scored_run(tmp_path / "b", rows, run_id="000000000002")
    html = page_of(base, new)
    assert html.count("<script") == html.count("</script>")
    assert "<script>alert" not in html
    assert "<img" not in html
    assert "\u202e" not in html


def test_a_score_of_which_less_is_better_is_drawn_the_other_way_round() -> None:
    """A rise of .2 on a scale of 2 is a step of .1 to the left: the axis ends at .2 (for -.15), so the mark is at 100 - 50."""
    interval = {"level": 0.9, "low": 0.1, "high": 0.3, "too_few": False}
    figures = {
        "low": 0.0, "high": 2.0, "higher_is_better": False, "base_mean": 1.0, "candidate_mean": 1.2, "difference": 0.2, "n": 9, "questions": 8,
        "interval": interval, "smallest_effect": 0.1, "state": "worse", "n_needed": None, "wins": 0, "ties": 4, "losses": 5,
    }  # fmt: skip
    html = score_forest({"errors": figures}, ("A", "B"), score_link("B"))
    assert '<line class="mean" x1="50.0"' in html
    assert '<line class="interval" x1="25.0" x2="75.0"' in html
    assert "the 90 % interval" in html
    assert "worse, less is better" in html
    few = figures | {"interval": interval | {"too_few": True}}
    assert interval_text(few) == "n = 9: too few"
    assert 'class="interval"' not in score_forest({"errors": few}, ("A", "B"), score_link("B"))


@pytest.mark.parametrize(("figures", "text"), [
    ({"n": 0, "questions": 0, "interval": None}, "no pairs"),
    ({"n": 9, "questions": 1, "interval": None}, "n = 9: too few"),
    ({"n": 4, "questions": 4, "interval": {"low": -1.0, "high": 1.0, "too_few": True}}, "n = 4: too few"),
    ({"n": 9, "questions": 9, "interval": {"low": -1.0, "high": 1.0, "too_few": True}}, "n = 9: too few"),
    ({"n": 101, "questions": 40, "interval": None}, "no interval"),  # without a scale, and no case changed
    ({"n": 9, "questions": 5, "interval": {"low": -0.1, "high": 0.25, "too_few": False}}, "[-0.100, +0.250]"),
])  # fmt: skip
def test_an_interval_in_words(figures: Mapping[str, Any], text: str) -> None:
    assert interval_text(figures) == text


@pytest.mark.parametrize(("low", "high", "better", "state", "shade"), [
    (0.1, 0.3, True, "better", "better-2"), (0.1, 0.3, True, "inconclusive", "better-1"), (0.1, 0.3, False, "worse", "worse-2"),
    (-0.3, -0.1, True, "inconclusive", "worse-1"), (-0.1, 0.3, True, "inconclusive", "grey"),
])  # fmt: skip
def test_a_cell_is_grey_where_the_interval_holds_zero(low: float, high: float, better: bool, state: str, shade: str) -> None:
    row = {
        "field": "category", "value": "policy", "score": "grade", "n": 9, "questions": 8, "difference": (low + high) / 2,
        "interval": {"low": low, "high": high, "too_few": False}, "q_value": 0.04, "state": state,
    }  # fmt: skip
    comparison = {"slices": [row], "scores": {"grade": {"higher_is_better": better}}}
    ((field, left_out, html),) = slice_maps(comparison, ["grade"], "B")
    assert (field, left_out) == ("category", 0)
    assert f'<td class="{shade}"><a href="#v=1&amp;with=B&amp;score=grade&amp;slice=category:policy"' in html
    assert "8 questions" in html
    assert "q = 0.04" in html


def side(run: str, name: str, method: str | None = None) -> Mapping[str, Any]:
    return {"run_id": run, "name": name, "method": method}


@pytest.mark.parametrize(("kind", "sides", "names"), [
    ("methods", [side("1", "a", "x"), side("1", "a", "y")], ["x", "y"]),
    ("runs", [side("1", "a"), side("2", "b")], ["a", "b"]),
    ("runs", [side("1", "a"), side("2", "a")], ["a 1", "a 2"]),
    ("runs", [side("1", "a", "x"), side("1", "a", "y")], ["a 1 x", "a 1 y"]),
    ("runs", [side("1", "a", "x"), side("1", "a", "x")], ["0: a 1 x", "1: a 1 x"]),
])  # fmt: skip
def test_sides_have_different_names(kind: str, sides: list[Mapping[str, Any]], names: list[str]) -> None:
    assert side_names({"kind": kind, "base": sides[0], "candidates": sides[1:]}) == names


def test_words_are_compared_and_long_texts_replaced_whole() -> None:
    assert word_changes("one two.", "one three.") == [("same", "one "), ("removed", "two"), ("added", "three"), ("same", ".")]
    long = "a " * TOKENS_MAX
    assert word_changes(long, "b") == [("removed", long), ("added", "b")]
    assert word_changes(long, long) == [("same", long)]
