"""Charts: where marks stand, what they link to, and that a value is never markup."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

from ragpipe.pages.charts import ForestRow, HeatCell, axis_limit, forest, heat_map
from ragpipe.pages.charts_rows import LimitRow, Marks, MeanRow, ShareRow, limit_table, marks_svg, mean_table, share_table
from ragpipe.pages.charts_spread import POINTS_MAX, HistogramBin, TradePoint, histogram, scatter, trade_chart

ROW = ForestRow(
    name="faithfulness", link="#v=1&score=faithfulness", base="0.66", candidate="0.85", difference="+0.19", bounds="[0.07, 0.31]",
    share=0.19, low=0.07, high=0.31, same_within=None, state="better", remark="", wins=26, ties=6, losses=8,
)  # fmt: skip


@pytest.mark.parametrize(("values", "limit"), [([], 1.0), ([0.0], 1.0), ([0.31, -0.1], 0.5), ([-0.2], 0.2), ([0.051], 0.1), ([7.0], 10.0)])
def test_the_axis_ends_at_a_round_number(values: list[float], limit: float) -> None:
    assert axis_limit(values) == pytest.approx(limit)


def test_a_forest_row_is_drawn_on_the_common_axis() -> None:
    """The widest interval ends at .31, so the axis is -.5 to .5 over 200 units: .19 is at 100 + 100 * .19 / .5 = 138."""
    html = forest([ROW], ("A", "B"), "caption")
    assert '<line class="interval" x1="114.0" x2="162.0"' in html
    assert '<line class="mean" x1="138.0" x2="138.0"' in html
    assert '<a href="#v=1&amp;score=faithfulness">faithfulness</a>' in html
    assert "26 / 6 / 8" in html
    widths = re.findall(r'<rect class="(?:wins|ties|losses)" x="([\d.]+)" y="0" width="([\d.]+)"', html)
    assert widths == [("0.0", "65.0"), ("65.0", "15.0"), ("80.0", "20.0")]


def test_a_row_without_an_interval_draws_none_and_a_band_is_symmetric() -> None:
    html = forest([replace(ROW, low=None, high=None, bounds="", share=0.5, same_within=0.25)], ("A", "B"), "")
    assert 'class="interval"' not in html
    assert '<rect class="band" x="50.0" y="2" width="100.0"' in html


def test_texts_in_charts_are_escaped() -> None:
    bad = '<script>"'
    html = forest([replace(ROW, name=bad, remark=bad)], (bad, bad), bad)
    html += heat_map(bad, [bad], [(bad, bad, [HeatCell(bad, bad, bad, 0)])])
    html += scatter(np.array([0.1]), np.array([0.2]), (0, 1), (bad, bad), bad)
    assert "<script" not in html
    ElementTree.fromstring(f"<div>{html}</div>".replace("&#8592;", "").replace("&#8594;", ""))


def test_a_heat_map_is_a_table_of_links() -> None:
    cells = [HeatCell("+0.20", "n = 9", "#v=1&slice=a:b", 2), None, HeatCell("-0.01", "n = 3: too few", "#v=1", 0, few=True)]
    html = heat_map("category", ["x", "y", "z"], [("policy", "n = 9", cells)])
    assert '<td class="better-2"><a href="#v=1&amp;slice=a:b" title="n = 9">+0.20</a></td>' in html
    assert '<td class="grey"><span></span></td>' in html
    assert '<td class="grey few"><a href="#v=1" title="n = 3: too few">-0.01</a></td>' in html
    assert html.count("<th ") == 5


def test_points_are_one_path_and_missing_pairs_are_left_out() -> None:
    svg = scatter(np.array([0.0, 1.0, np.nan]), np.array([0.0, 0.5, 1.0]), (0.0, 1.0), ("A", "B"), "label")
    assert '<path class="points" d="M0 240h0M240 120h0"/>' in svg


def test_many_points_are_counted_in_bins() -> None:
    n = POINTS_MAX + 2
    base, candidate = np.zeros(n), np.zeros(n)
    base[0], candidate[0] = 1.0, 1.0
    svg = scatter(base, candidate, (0.0, 1.0), ("A", "B"), "label")
    assert re.findall(r"<title>(\d+)</title>", svg) == [str(n - 1), "1"]
    assert 'fill-opacity="1.00"' in svg


def test_marks_stand_at_their_places_and_never_outside() -> None:
    svg = marks_svg(Marks(62.0, 53.0, 120.0, (70.0,)))
    assert '<line class="interval" x1="53.0" x2="100.0"' in svg
    assert '<line class="mean" x1="62.0" x2="62.0"' in svg
    assert '<line class="limit" x1="70.0" x2="70.0"' in svg


def test_without_an_interval_none_is_drawn_and_few_questions_are_grey() -> None:
    svg = marks_svg(Marks(50.0, grey=True))
    assert 'class="interval"' not in svg
    assert '<g class="grey">' in svg


def test_a_share_is_a_bar_of_the_whole_width_beside_its_figures() -> None:
    html = share_table([ShareRow("miss", "#v=1&mode=miss", "31", "31%", 0.31, "No chunk.", "Rerank.")], "what is wrong")
    assert re.search(r'<rect class="share" x="0" y="0" width="31.0"', html)
    assert '<a href="#v=1&amp;mode=miss">miss</a>' in html
    assert "No chunk. Try: Rerank." in html
    assert '<td class="num">31</td><td class="num"><b>31%</b></td>' in html


def test_a_gate_says_its_state_in_words_beside_the_colour() -> None:
    row = LimitRow("reject", "", "faithfulness", "0.62", "≥ 0.7", Marks(62.0), "bad", "failed, blocked")
    html = limit_table([row], "gates")
    assert '<span class="badge bad">failed, blocked</span>' in html
    assert "<a " not in html


def test_texts_of_rows_are_escaped() -> None:
    bad = '</table><script>"'
    html = mean_table([MeanRow(bad, bad, bad, bad, bad, bad, None)], bad)
    html += share_table([ShareRow(bad, bad, bad, bad, 2.0, bad, bad)], bad)
    html += limit_table([LimitRow(bad, bad, bad, bad, bad, None, "bad", bad)], bad)
    assert "<script" not in html
    ElementTree.fromstring(f"<div>{html}</div>")


def test_a_bar_is_as_high_as_its_share_of_the_highest_and_opens_its_cases() -> None:
    """Two bars over 100 units: the second begins at 50, and 5 of 10 cases are half of 40 units high."""
    bins = [HistogramBin(0, "", ""), HistogramBin(5, "5 cases, 1", "#v=1&from=1&to=1")]
    html = histogram(bins, "grade", "5 cases", ("0", "1"), highest=10)
    assert html.count("<rect") == 1, "an empty bar draws nothing"
    assert '<rect x="50.5" y="20.0" width="49.0" height="20.0"/>' in html
    assert '<a href="#v=1&amp;from=1&amp;to=1" aria-label="5 cases, 1">' in html


def test_axes_of_two_scales_have_no_diagonal() -> None:
    values = np.array([0.0, 1.0])
    assert 'class="axis"' in scatter(values, values, (0, 1), ("a", "b"), "x")
    svg = scatter(values, np.array([1.0, 5.0]), (0, 1), ("a", "b"), "x", (1, 5))
    assert 'class="axis"' not in svg
    assert "M0 240h0M240 0h0" in svg


def test_points_that_hide_each_other_become_squares_with_a_count() -> None:
    svg = scatter(np.ones(8), np.ones(8), (0, 1), ("a", "b"), "x")
    assert re.findall(r"<title>(\d+)</title>", svg) == ["8"]
    assert 'class="points"' not in svg


def test_a_method_stands_at_its_latency_and_quality_with_both_intervals() -> None:
    """500 of 2,000 ms of 300 units are 75; quality .5 of 0 to 1 is in the middle of 170 units."""
    point = TradePoint("A", "baseline", (500.0, 400.0, 600.0), (0.5, 0.4, 0.6))
    svg = trade_chart([point], 2000.0, (0.0, 1.0), ("ms", "overall"), "label")
    assert '<circle cx="75.0" cy="85.0" r="8"/>' in svg
    assert 'd="M60.0 85.0H90.0"' in svg
    assert 'd="M75.0 102.0V68.0"' in svg


def test_a_method_without_intervals_is_a_letter_alone() -> None:
    svg = trade_chart([TradePoint("A", "m", (1.0, None, None), (1.0, None, None))], 2.0, (0.0, 1.0), ("x", "y"), "l")
    assert 'class="reach"' not in svg


def test_texts_of_spreads_are_escaped() -> None:
    bad = '</svg><script>"'
    html = histogram([HistogramBin(1, bad, bad)], bad, bad, (bad, bad), 1)
    html += trade_chart([TradePoint(bad, bad, (1.0, 0.0, 2.0), (1.0, 0.0, 1.0))], 2.0, (0.0, 1.0), (bad, bad), bad)
    html += scatter(np.ones(1), np.ones(1), (0, 1), (bad, bad), bad)
    assert "<script" not in html
    ElementTree.fromstring(f"<div>{html}</div>")
