"""The list of runs on a terminal, at several widths."""

from __future__ import annotations

import pytest

from ragpipe.reports.runs_page import RunLine, run_list_text

SCORES = {"overall_score": "0.812 (40)", "faithfulness": "0.855 (39, coverage 97.5%)", "retrieval_score": "0.640 (40)"}
FIRST = RunLine(
    "83a94c0e1234", created="2026-11-20 09:15", state="complete", cases="40", judge="gpt-4o-2024-08-06 (uncalibrated)",
    scores=SCORES, gates="2 pass", cost="$0.1234",
)  # fmt: skip
SECOND = RunLine(
    "0f4e2d7a9b11", created="2026-11-21 17:02", state="complete", cases="40", judge="gpt-4o-2024-08-06 (uncalibrated)",
    scores={**SCORES, "overall_score": "0.790 (40)"}, gates="1 of 2 block", cost="$0.1301", before="83a94c0e1234",
    differences=("metrics +correctness -rubric", "2 prompts (a.grade, b.verify)", "judge.model: x -> y", "other data"),
)  # fmt: skip
BROKEN = RunLine("aaaaaaaaaaaa", broken="manifest.json: no readable JSON (Expecting value: line 1 column 1 (char 0))")
RUNS = [FIRST, SECOND, BROKEN]

AT_60 = """\
run           created           overall_score         gates
83a94c0e1234  2026-11-20 09:15     0.812 (40)        2 pass
0f4e2d7a9b11  2026-11-21 17:02     0.790 (40)  1 of 2 block
  against 83a94c0e1234: metrics +correctness -rubric; 3 more
aaaaaaaaaaaa broken: manifest.json: no readable JSON (Ex ...
6 columns do not fit; runs.md has all"""

AT_80 = """\
run           created           state     cases  overall_score         gates
83a94c0e1234  2026-11-20 09:15  complete     40     0.812 (40)        2 pass
0f4e2d7a9b11  2026-11-21 17:02  complete     40     0.790 (40)  1 of 2 block
  against 83a94c0e1234: metrics +correctness -rubric; 3 more
aaaaaaaaaaaa broken: manifest.json: no readable JSON (Expecting value: line ...
not shown in 80 columns: judge, faithfulness, retrieval_score, cost"""

AT_100 = """\
run           created           state     cases  overall_score         gates     cost
83a94c0e1234  2026-11-20 09:15  complete     40     0.812 (40)        2 pass  $0.1234
0f4e2d7a9b11  2026-11-21 17:02  complete     40     0.790 (40)  1 of 2 block  $0.1301
  against 83a94c0e1234: metrics +correctness -rubric; 2 prompts (a.grade, b.verify); 2 more
aaaaaaaaaaaa broken: manifest.json: no readable JSON (Expecting value: line 1 column 1 (char 0))
not shown in 100 columns: judge, faithfulness, retrieval_score"""


@pytest.mark.parametrize(("width", "expected"), [(60, AT_60), (80, AT_80), (100, AT_100)])
def test_the_list_at_a_width(width: int, expected: str) -> None:
    text = run_list_text(RUNS, width)
    assert max(map(len, text)) <= width
    assert text == expected.splitlines()


@pytest.mark.parametrize("width", range(30, 200, 7))
def test_no_word_of_a_head_and_no_number_is_broken(width: int) -> None:
    heads, first = run_list_text([FIRST], width)[:2]
    assert set(heads.split()) <= {"run", "created", "state", "cases", "judge", *SCORES, "gates", "cost"}
    assert {"run", "overall_score"} <= set(heads.split())
    assert first.startswith("83a94c0e1234")
    assert "0.812 (40)" in first


def test_where_all_fits_nothing_is_left_out() -> None:
    text = run_list_text([FIRST], 200)
    assert len(text) == 2
    assert text[0].split() == ["run", "created", "state", "cases", "judge", *SCORES, "gates", "cost"]


def test_a_run_takes_one_line_or_two() -> None:
    assert len(run_list_text([FIRST, SECOND] * 10, 60)) == 1 + 10 * (1 + 2) + 1


def test_a_run_like_the_one_before_it_says_so() -> None:
    same = RunLine("bbbbbbbbbbbb", created="2026-11-21 17:02", state="not scored", before="83a94c0e1234")
    assert "  nothing against 83a94c0e1234" in run_list_text([same], 80)


def test_control_characters_of_a_strangers_folder_are_shown_as_text() -> None:
    evil = RunLine("cccccccccccc", created="\x1b[2J now", state="complete")
    assert "\x1b" not in "\n".join(run_list_text([evil], 80))
