"""Charts with a row per thing: where marks stand, and that a value is never markup."""

import re
from xml.etree import ElementTree

from ragpipe.pages.charts_rows import (
    LimitRow,
    Marks,
    MeanRow,
    ShareRow,
    limit_table,
    marks_svg,
    mean_table,
    share_table,
)


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
