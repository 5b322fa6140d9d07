"""Charts: where marks stand, what they link to, and that a value is never markup."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np

from ragpipe.report import charts

ROW = charts.ForestRow(
    name="faithfulness", link="#v=1&score=faithfulness", base="0.66", candidate="0.85", difference="+0.19", bounds="[0.07, 0.31]",
    share=0.19, low=0.07, high=0.31, same_within=None, state="better", remark="", wins=26, ties=6, losses=8,
)  # fmt: skip


def test_a_forest_row_is_drawn_on_the_common_axis() -> None:
    """The widest interval ends at .31, so the axis is -.5 to .5 over 200 units: .19 is at 100 + 100 * .19 / .5 = 138."""
    html = charts.forest([ROW], ("A", "B"), "caption")
    assert '<line class="interval" x1="114.0" x2="162.0"' in html
    assert '<line class="mean" x1="138.0" x2="138.0"' in html
    assert '<a href="#v=1&amp;score=faithfulness">faithfulness</a>' in html
    assert "26 / 6 / 8" in html
    widths = re.findall(r'<rect class="(?:wins|ties|losses)" x="([\d.]+)" y="0" width="([\d.]+)"', html)
    assert widths == [("0.0", "65.0"), ("65.0", "15.0"), ("80.0", "20.0")]


def test_points_are_paths_or_bins() -> None:
    svg = charts.scatter(np.array([0.0, 1.0, np.nan]), np.array([0.0, 0.5, 1.0]), (0.0, 1.0), ("A", "B"), "label")
    assert '<path class="points" d="M0 240h0M240 120h0"/>' in svg
    n = charts.POINTS_MAX + 2
    base, candidate = np.zeros(n), np.zeros(n)
    base[0], candidate[0] = 1.0, 1.0
    svg = charts.scatter(base, candidate, (0.0, 1.0), ("A", "B"), "label")
    assert re.findall(r"<title>(\d+)</title>", svg) == [str(n - 1), "1"]
    assert 'fill-opacity="1.00"' in svg
    hidden = charts.scatter(np.ones(8), np.ones(8), (0, 1), ("a", "b"), "x")
    assert re.findall(r"<title>(\d+)</title>", hidden) == ["8"], "points that hide each other"


def test_methods_have_shapes_places_and_intervals() -> None:
    """500 of 2,000 ms of 300 units are 75; quality .5 of 0 to 1 is in the middle of 170 units."""
    point = charts.TradePoint(1, "baseline", (500.0, 400.0, 600.0), (0.5, 0.4, 0.6))
    svg = charts.trade_chart([point], 2000.0, (0.0, 1.0), ("ms", "overall"), "label")
    assert '<g transform="translate(75.0 85.0) scale(1.4)"><path class="mark m1"' in svg
    assert 'd="M60.0 85.0H90.0"' in svg
    assert 'd="M75.0 102.0V68.0"' in svg
    bare = charts.TradePoint(0, "m", (1.0, None, None), (1.0, None, None))
    assert 'class="reach"' not in charts.trade_chart([bare], 2.0, (0.0, 1.0), ("x", "y"), "l")
    keys = [charts.method_key(number) for number in range(12)]
    assert len(set(keys)) == 12
    difference = charts.Difference(1, "+0.300", "[+0.1, +0.5]", "better", "8 better, 1 worse of 9")
    rows = [
        charts.MethodRow(0, "old", "#a", "0.50", "[0.40, 0.60]", "50% of 9", charts.Marks(50, 40, 60, (70,)), None),
        charts.MethodRow(1, "new", "#b", "0.80", "", "", charts.Marks(80), difference),
    ]
    html = charts.method_forest(rows, [(0, "0"), (100, "1")], "grade", "old", "caption")
    assert re.findall(r'<svg class="at" x="([\d.]+)%"', html) == ["50.0", "80.0"]
    assert '<line class="reach m0" x1="40.0%" x2="60.0%"' in html
    assert '<line class="limit" x1="70.0%" x2="70.0%"' in html
    assert re.findall(r"<tr(?: data-of=.(\d).)?>", html)[1:] == ["", "1"]
    assert '<span class="badge good">better</span>' in html


def test_agreement_and_confusion() -> None:
    """On a square of 240: a score of .5 with the label .75 is at 120, 60; its interval from .5 to 1 reaches from 120 up to 0."""
    nine, one = charts.CalibrationPoint(0.5, 0.75, 0.5, 1.0, 9), charts.CalibrationPoint(1.0, 1.0, None, None, 1)
    svg = charts.calibration_plot([nine, one])
    assert 'class="reach" d="M120.0 120.0V0.0"' in svg
    assert svg.count('class="reach"') == 1, "no interval of too few"
    assert re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)" r="([\d.]+)"', svg) == [("120.0", "60.0", "4.0"), ("240.0", "0.0", "3.3")]
    assert "10 cases: 0.50 → 0.75 (n = 9); 1.00 → 1.00 (n = 1)" in svg
    table = charts.confusion_matrix([[30, 10], [1, 59]], ["failed", "passed"])
    assert re.findall(r'<td class="([\w-]+)"><span><b>(\d+)</b> (\d+%)', table) == [
        ("better-2", "30", "75%"), ("worse-1", "10", "25%"), ("grey", "1", "2%"), ("better-2", "59", "98%"),
    ]  # fmt: skip
    assert "n = 100" in table


def test_bars_and_curves() -> None:
    """The highest bar of both groups has 10 cases and the full height of 40; 5 cases have 20, below a room of 12 for the count."""
    first = [charts.HistogramBin(10, "10 cases", "#1"), charts.HistogramBin(0, "", "")]
    groups = [(0, "a", first), (1, "b", [charts.HistogramBin(5, "5 cases", "#2")])]
    html = charts.histogram(groups, "grade", [(0, "0"), (100, "1")], 70.0)
    assert re.findall(r'<rect class="m(\d)"[^>]* height="([\d.]+)"/><text[^>]*>(\d+)<', html) == [("0", "40.0", "10"), ("1", "20.0", "5")]
    assert html.count('<line class="limit" x1="70.0%"') == 2
    assert re.findall(r"n = (\d+)", html) == ["10", "5"]


def test_a_curve_leaves_out_what_is_not_measured_and_says_its_values() -> None:
    new, ticks = charts.Line(2, "new", [0.5, None, 1.0]), [(0.0, "1"), (0.5, "3"), (1.0, "5")]
    svg = charts.line_chart([new], ticks, ("k", "recall@k"), ("0", "1"))
    assert 'd="M0.0 85.0L300.0 0.0"' in svg
    assert 'aria-label="recall@k over k; new: 0.50, -, 1.00"' in svg


def test_parts_of_a_bar_are_as_wide_as_their_shares() -> None:
    parts = [("one", 6, "better-2"), ("none", 2, "worse-2"), ("no", 0, "grey")]
    html = charts.part_bars([(None, "all", "8 claims", parts)], "claims")
    assert re.findall(r'<rect class="([\w-]+)" x="([\d.]+)%" y="0" width="([\d.]+)%"', html) == [
        ("better-2", "0.0", "75.0"), ("worse-2", "75.0", "25.0"),
    ]  # fmt: skip
    assert 'aria-label="one 6, none 2, no 0"' in html


def test_texts_are_never_markup() -> None:
    bad = '</table></svg><script>"'
    differs = charts.Difference(0, bad, bad, "better", bad, bad)
    axes, mark = (bad, bad), charts.Marks(1.0)
    drawn = (
        charts.forest([replace(ROW, name=bad, remark=bad)], axes, bad),
        charts.heat_map(bad, [bad], [(bad, bad, [charts.HeatCell(bad, bad, bad, 0)])]),
        charts.mean_table([charts.MeanRow(bad, bad, bad, bad, bad, bad, None)], bad),
        charts.share_table([charts.ShareRow(bad, bad, bad, bad, 2.0, bad, bad)], bad),
        charts.limit_table([charts.LimitRow(bad, bad, bad, bad, bad, None, "bad", bad)], bad),
        charts.histogram([(0, bad, [charts.HistogramBin(1, bad, bad)])], bad, [(0, bad)]),
        charts.method_forest([charts.MethodRow(0, bad, bad, bad, bad, bad, mark, differs)], [(0, bad)], bad, bad, bad),
        charts.score_lanes([charts.LaneRow(bad, bad, [(0, bad, bad, mark)], [differs])], [(0, bad)], bad, bad),
        charts.problem_table([charts.Problem(bad, bad, bad, bad, [(0, bad, 0.5, bad)])], [(0, bad)], bad),
        charts.line_chart([charts.Line(0, bad, [0.5])], [(0.5, bad)], axes, axes),
        charts.part_bars([(0, bad, bad, [(bad, 1, "grey")])], bad),
        charts.trade_chart([charts.TradePoint(0, bad, (1.0, 0.0, 2.0), (1.0, 0.0, 1.0))], 2.0, (0.0, 1.0), axes, bad),
        charts.scatter(np.ones(1), np.ones(1), (0, 1), axes, bad),
        charts.calibration_plot([charts.CalibrationPoint(1.0, 1.0, 0.5, 1.0, 1)], axes),
        charts.confusion_matrix([[1]], [bad], axes),
    )
    html = "".join(drawn)
    assert "<script" not in html
    ElementTree.fromstring(f"<div>{html}</div>".replace("&#8592;", "").replace("&#8594;", ""))
