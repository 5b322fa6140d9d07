"""Another judge: the judges' shift on the same answers, and the difference without it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from ragpipe.comparing.pairing import paired_cases, same_answers
from ragpipe.comparing.score_differences import PairedScore, judge_bridge
from ragpipe.schema.sample import Chunk
from tests.support.compared_runs import IDENTITY, compared, graded, scored_run, side_of
from tests.support.run_tables import Row

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test

OTHER_JUDGE = {**IDENTITY, "judge_identity": {"model": "m-2", "temperature": 0}}
SCALE = {"low": 0.0, "high": 1.0, "higher_is_better": True}


def paired(base: list[float], candidate: list[float], questions: list[int]) -> PairedScore:
    arrays = (np.array(values, dtype=np.float64) for values in (base, candidate))
    nothing = np.full(len(base), np.nan)
    return PairedScore("grade", SCALE, np.array(questions), *arrays, nothing, nothing)


@pytest.mark.slow
def test_the_shift_is_measured_on_the_same_answers_and_subtracted(tmp_path: Path) -> None:
    """Judges differ by .1 on four unchanged answers; four changed answers rose by .5: .4 by the change. Mean .3, less .1: .2."""
    old = [Row(f"q{n}", "default", {"grade": 0.25}) for n in range(8)]
    new = [
        Row(f"q{n}", "default", {"grade": 0.35 if n < 4 else 0.75}, output={} if n < 4 else {"answer": "Better."})
        for n in range(8)
    ]
    base = scored_run(tmp_path / "a", old)
    other = scored_run(tmp_path / "b", new, identity=OTHER_JUDGE)
    bridge = compared(base, other, accept=["judge"]).document["scores"]["grade"]["bridge"]
    assert (bridge["n"], bridge["questions"]) == (4, 4)
    assert bridge["shift"] == pytest.approx(0.1)
    assert bridge["without_shift"]["difference"] == pytest.approx(0.2)
    assert "bridge" not in compared(base, base).document["scores"]["grade"]


def test_no_same_answer_no_bridge(tmp_path: Path) -> None:
    base = scored_run(tmp_path / "a", graded({"q0": 0.5, "q1": 0.5}))
    rows = graded({"q0": 0.5, "q1": 0.75}, output={"answer": "Another."})
    other = scored_run(tmp_path / "b", rows, identity=OTHER_JUDGE)
    assert compared(base, other, accept=["judge"]).document["scores"]["grade"]["bridge"] is None


def test_the_interval_without_shift_of_independent_groups_is_that_of_two_samples() -> None:
    """Half the rows bridged, one row per question: mean - shift = (mean of the rest - shift) / 2. With equal group sizes the
    rule's variance is that of two independent means: (v1 + v2) / (4 m), with sums over G instead of within groups."""
    rng = np.random.default_rng(5)
    m = 400
    base = rng.random(2 * m) * 0.5
    candidate = base + rng.random(2 * m) * 0.4
    score = paired(base.tolist(), candidate.tolist(), list(range(2 * m)))
    same = np.arange(2 * m) < m
    bridge = judge_bridge(score, same, 0.95)
    assert bridge is not None
    changes = candidate - base
    rest, bridged = changes[m:], changes[:m]
    assert bridge["without_shift"]["difference"] == pytest.approx((rest.mean() - bridged.mean()) / 2)
    error = np.sqrt((rest.var(ddof=1) + bridged.var(ddof=1)) / m) / 2
    half = stats.t.ppf(0.975, 2 * m - 1) * error
    interval = bridge["without_shift"]["interval"]
    assert interval["high"] - interval["low"] == pytest.approx(2 * half, rel=0.01)


def test_only_bridged_cases_are_all_shift() -> None:
    bridge = judge_bridge(paired([0.1, 0.2, 0.3], [0.2, 0.4, 0.3], [0, 1, 2]), np.ones(3, dtype=np.bool_), 0.95)
    assert bridge is not None
    assert bridge["shift"] == pytest.approx(0.1)
    assert bridge["without_shift"] == {"difference": pytest.approx(0.0), "interval": None}


def test_answers_are_the_same_by_all_that_a_judge_reads(tmp_path: Path) -> None:
    """Names and scores of chunks do not count; texts, answer and question do."""
    outputs = [
        {"answer": "A.", "chunks": [Chunk(id="c1", rank=1, text="T")]},
        {"answer": "A.", "chunks": [Chunk(id="c1", rank=1, text="T")]},
        {"answer": "A.", "chunks": [Chunk(id="c1", rank=1, text="T")]},
        {"answer": "A.", "chunks": None},
    ]
    changed = [
        {"answer": "A.", "chunks": [Chunk(id="c2", rank=1, score=0.5, text="T")]},
        {"answer": "A!", "chunks": [Chunk(id="c1", rank=1, text="T")]},
        {"answer": "A.", "chunks": [Chunk(id="c1", rank=1, text="U")]},
        {"answer": "A.", "chunks": []},
    ]
    folders = [
        scored_run(tmp_path / name, [Row(f"q{n}", "x", {"grade": 0.5}, output=output) for n, output in enumerate(rows)])
        for name, rows in (("a", outputs), ("b", changed))
    ]

    with side_of(folders[0]) as base, side_of(folders[1]) as candidate:
        pairs = paired_cases(base.cases, candidate.cases)
        assert same_answers(base, candidate, pairs).tolist() == [True, False, False, False]
        assert same_answers(base, base, pairs).all()
