"""Histograms, scatter and trade charts: places calculated by hand."""

import re
from xml.etree import ElementTree

import numpy as np

from ragpipe.pages.charts_spread import HistogramBin, TradePoint, histogram, scatter, trade_chart


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
