"""The rule of drift: by hand, and by simulation of judges with random verdicts."""

import random
from collections.abc import Iterator

import pytest

from ragpipe.extras.checks.drift import (
    BASELINE_REPEATS,
    MORE_REPEATS,
    Verdicts,
    changed_names,
    changed_verdicts,
    check_document,
    kept_verdicts,
)

N = 105  # as the shipped set


def test_what_counts_as_a_change() -> None:
    same: Verdicts = {"a/score": 4, "b/verdict[1]": "supported", "c/contexts[1]": [1, 2], "d/kept": True}
    repeats = [dict(same) for _ in range(10)]
    repeats[3]["a/score"] = 4.0  # the same number
    repeats[9]["b/verdict[1]"] = "not_supported"
    repeats[5]["d/kept"] = 1  # not the same as true
    assert kept_verdicts(repeats) == {"a/score": 4, "c/contexts[1]": [1, 2]}
    kept: Verdicts = {"a/kept": True, "b/kept": False}
    changed: Verdicts = {"a/kept": False, "b/kept": False}
    (verdict,) = changed_verdicts(kept, changed, [changed] * 4 + [kept])
    assert not verdict["drifted"]
    (verdict,) = changed_verdicts(kept, changed, [changed] * 5)
    assert verdict["drifted"]
    (verdict,) = changed_verdicts(kept, changed, [changed] * 4)  # not yet asked five times
    assert not verdict["drifted"]
    kept: Verdicts = {"a/kept": True, "b/kept": True, "c/kept": True, "d/score": 4, "e/verdict": "YES"}
    first: Verdicts = {"a/kept": False, "b/kept": False, "c/kept": True, "d/score": 5, "e/verdict": "(unreadable)", "f/kept": True}
    grades = {"a/kept": True, "b/kept": False, "c/kept": True, "d/score": {"low": 4, "high": 5}, "e/verdict": "YES", "f/kept": True}  # fmt: skip
    again = [{"a/kept": False, "b/kept": True, "d/score": 5, "e/verdict": "YES"}] * MORE_REPEATS
    document = check_document(kept, first, again, grades)
    assert (document["verdicts"], document["matched"], document["exact_match"]) == (5, 1, 0.2)
    assert document["flips"] == {"to_wrong": 2, "to_right": 1, "other": 1}  # a, e; b; d moves within its range
    assert document["mcnemar_p"] == 1.0  # 2 * (1 + 3) / 8
    assert (document["right"], document["graded"]) == (4, 6)  # b, c, d, f
    assert [row["verdict"] for row in document["changed"] if row["drifted"]] == ["a/kept", "d/score"]
    assert (document["drifted"], document["alarm"]) == (2, True)


class Judge:
    """Verdict i flips with a probability of its own, drawn between 0 and 30 %; a planted change turns some of them for good."""

    def __init__(self, seed: int):
        self._random = random.Random(seed)
        self._flips = [self._random.uniform(0, 0.3) for _ in range(N)]
        self._turned = [False] * N

    def turn(self, share: float) -> None:
        for place in self._random.sample(range(N), round(share * N)):
            self._turned[place] = True

    def verdicts(self) -> Verdicts:
        return {f"v{i}": (self._random.random() < p) != self._turned[i] for i, p in enumerate(self._flips)}

    def baseline(self) -> Verdicts:
        return kept_verdicts([self.verdicts() for _ in range(BASELINE_REPEATS)])

    def has_alarm(self, kept: Verdicts) -> bool:
        first = self.verdicts()
        again = [self.verdicts() for _ in range(MORE_REPEATS)] if changed_names(kept, first) else []
        return any(verdict["drifted"] for verdict in changed_verdicts(kept, first, again))


class StableJudge(Judge):
    """The design's mix: of a third of the verdicts each flips as above, the rest never do."""

    def __init__(self, seed: int):
        super().__init__(seed)
        self._flips = [p if i % 3 == 0 else 0.0 for i, p in enumerate(self._flips)]


def judges(kind: type[Judge], count: int) -> Iterator[Judge]:
    return (kind(seed) for seed in range(count))


@pytest.mark.thorough(tried=1)
@pytest.mark.slow
@pytest.mark.parametrize("kind", [Judge, StableJudge])
def test_twenty_quiet_runs_raise_no_alarm(kind: type[Judge]) -> None:
    """The design found .9 % of series of 20 quiet runs with a false alarm, for 90 verdicts."""
    series = 150
    false = 0
    for judge in judges(kind, series):
        kept = judge.baseline()
        false += any(judge.has_alarm(kept) for _ in range(20))
    assert false <= 0.03 * series


def test_a_planted_change_of_five_percent_is_found() -> None:
    """Of 5 % of all verdicts, most of which are stable; the design found .96 to .99 for 90 verdicts."""
    hits = 0
    for judge in judges(StableJudge, 200):
        kept = judge.baseline()
        judge.turn(0.05)
        hits += judge.has_alarm(kept)
    assert hits >= 0.96 * 200


def test_random_verdicts_are_found_as_often_as_calculated() -> None:
    """Where every verdict flips with p drawn from 0..0.3, a turned one is kept and found with the mean of (1 - p)^16, which is
    (1 - .7^17) / (17 * .3) = .1956; one of ten is with 1 - .8044^10 = .887. 200 judges: standard error .022."""
    hits = 0
    for judge in judges(Judge, 200):
        kept = judge.baseline()
        judge.turn(0.10)
        hits += judge.has_alarm(kept)
    assert abs(hits / 200 - 0.887) < 3 * 0.0224
