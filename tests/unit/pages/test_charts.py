"""Charts: where marks stand, what they link to, and that a value is never markup."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

from ragpipe.pages.charts import ForestRow, HeatCell, axis_limit, forest, heat_map
from ragpipe.pages.charts_spread import POINTS_MAX, scatter

ROW = ForestRow(
    name="faithfulness", link="#v=1&score=faithfulness", base="0.66", candidate="0.85", difference="+0.19", bounds="[0.07, 0.31]",
    share=0.19, low=0.07, high=0.31, same_within=None, state="better", remark="", wins=26, ties=6, losses=8,
)  # fmt: skip


@pytest.mark.parametrize(
    ("values", "limit"), [([], 1.0), ([0.0], 1.0), ([0.31, -0.1], 0.5), ([-0.2], 0.2), ([0.051], 0.1), ([7.0], 10.0)]
)
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
    cells = [
        HeatCell("+0.20", "n = 9", "#v=1&slice=a:b", 2),
        None,
        HeatCell("-0.01", "n = 3: too few", "#v=1", 0, few=True),
    ]
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
