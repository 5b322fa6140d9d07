"""The page as a file: what it holds, and that no text becomes markup."""

import re
from typing import Any

from ragpipe.calibration.label_files import Draw, LabelGrade, ShownCase, StratumSize
from ragpipe.core.sample import Turn
from ragpipe.report.label_page import label_page
from tests.support.page_blocks import block_json

ATTACK = '</script><img src=x onerror="alert(1)">'
DRAW = Draw(
    draw_id="f-1", run_id="run7", metric="f", score="f", question=f"All? {ATTACK}", grades=[LabelGrade(name=ATTACK, value=0.125)],
    low=0.0, high=1.0, seed=77, cases=99, strata=[StratumSize(name="stratum_7", cases=99, drawn=2)], settings={"near": 0.375},
)  # fmt: skip
CASES = {
    "i2": ShownCase(ATTACK, [Turn(role="user", text=ATTACK)], ATTACK, [ATTACK, "two"], ["the reference"], "d" * 64),
    "i1": ShownCase("Who?", [], None, None, [], "e" * 64),
}


def html(**changes):
    options: dict[str, Any] = {"annotators": ["ann"], "with_reference": False, **changes}
    return label_page(DRAW, CASES, {"i1": None, "i2": ["ann"]}, **options)


def test_texts_never_become_markup():
    page = html()
    assert "<img" not in page
    assert page.count("<script>") == 1
    assert block_json(page, "d0")[1]["answer"] == ATTACK
    assert "&lt;img" in page  # the question, as text


def test_the_page_has_the_texts_and_nothing_of_the_draw():
    page = html()
    about, cases = block_json(page, "about"), block_json(page, "d0")
    assert [case["item"] for case in cases] == ["i1", "i2"]
    assert about["items"] == [{"item": "i1", "asked": None}, {"item": "i2", "asked": ["ann"]}]
    assert about["grades"] == [ATTACK]  # names without values
    text = re.sub(r'<script type="text/plain".*?</script>', "", page) + repr(about) + repr(cases)
    for secret in ("run7", "stratum_7", "0.125", "0.375", "the reference", "d" * 64, "strata"):
        assert secret not in text


def test_the_reference_is_shown_where_the_score_is_measured_by_it():
    assert block_json(html(with_reference=True), "d0")[1]["references"] == ["the reference"]


def test_the_page_loads_nothing():
    page = html()
    assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", re.sub(r"<script>.*</script>", "", page, flags=re.S))
    assert "default-src 'none'" in page


def test_a_page_of_many_cases_has_several_blocks():
    cases = {f"i{number:03}": CASES["i1"] for number in range(130)}
    page = label_page(DRAW, cases, dict.fromkeys(cases), annotators=[], with_reference=False)
    assert [len(block_json(page, f"d{number}")) for number in range(3)] == [64, 64, 2]
