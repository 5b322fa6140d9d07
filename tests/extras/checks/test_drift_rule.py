"""The rule of drift, by hand and by simulation of judges; the shipped canary set, and how verdicts are read from replies."""

import json
import random
from pathlib import Path

import pytest

from ragpipe.core.resources import prompts_dir
from ragpipe.extras.checks.canaries import MISSING, UNREADABLE, is_right, read_canaries
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
    for again, drifted in (([changed] * 4 + [kept], False), ([changed] * 5, True), ([changed] * 4, False)):  # then not yet five
        (verdict,) = changed_verdicts(kept, changed, again)
        assert verdict["drifted"] is drifted
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


def found(kind: type[Judge], count: int, *, turned: float = 0, times: int = 1) -> int:
    """How many judges, of whose verdicts a share is turned after the baseline, raise an alarm in some of `times` checks."""
    hits = 0
    for judge in map(kind, range(count)):
        kept = judge.baseline()
        judge.turn(turned)
        hits += any(judge.has_alarm(kept) for _ in range(times))
    return hits


@pytest.mark.thorough(tried=1)
@pytest.mark.slow
@pytest.mark.parametrize("kind", [Judge, StableJudge])
def test_twenty_quiet_runs_raise_no_alarm(kind: type[Judge]) -> None:
    """The design found .9 % of series of 20 quiet runs with a false alarm, for 90 verdicts."""
    assert found(kind, 150, times=20) <= 0.03 * 150


def test_a_planted_change_of_five_percent_is_found() -> None:
    """Of 5 % of all verdicts, most of which are stable; the design found .96 to .99 for 90 verdicts."""
    assert found(StableJudge, 200, turned=0.05) >= 0.96 * 200


def test_random_verdicts_are_found_as_often_as_calculated() -> None:
    """Where every verdict flips with p drawn from 0..0.3, a turned one is kept and found with the mean of (1 - p)^16, which is
    (1 - .7^17) / (17 * .3) = .1956; one of ten is with 1 - .8044^10 = .887. 200 judges: standard error .022."""
    assert abs(found(Judge, 200, turned=0.10) / 200 - 0.887) < 3 * 0.0224


DIGEST = "57d05f51809d73a88ecbf88952cec311e9fa9b6711790f7bd8389fd6854227be"
"""Of version 1. Another digest ends every baseline: then the set is a new file with a new version."""


def verdicts(name: str, reply: object) -> dict[str, object]:
    """Of an item of the shipped set; a reply that is no text is JSON."""
    item = next(item for item in read_canaries().items if item.name == name)
    return dict(item.verdicts(reply if isinstance(reply, str) else json.dumps(reply)))


@pytest.mark.slow
def test_the_shipped_set_has_enough_verdicts_of_every_kind_of_judged_metric() -> None:
    shipped = read_canaries()
    text = Path(__file__).parents[3].joinpath("ragpipe/data/canaries.v1.yaml").read_text()
    folders = {path.name for path in prompts_dir().iterdir() if path.is_dir()} - {"shared", "synthesize", "preference"}  # of pairs
    assert {folder for folder in folders if f"prompt: {folder}/" not in text} == set()
    assert len(shipped.grades) >= 90
    assert (shipped.version, shipped.digest) == (1, DIGEST)


def test_verdicts_by_number_nested_and_listed() -> None:
    rows = [{"index": 2, "evidence": "", "reason": "", "accurate": False}, {"index": 1, "accurate": True}]
    rows += [{"index": 4, "accurate": True}, {"index": 4, "accurate": True}]  # twice: none of them counts
    assert list(verdicts("citations-library", {"verdicts": rows}).values()) == [True, False, MISSING, MISSING, MISSING]
    assert set(verdicts("citations-library", "I would rather not say.").values()) == {UNREADABLE}
    axes = {"faithfulness": {"reason": "", "score": 1}, "completeness": {"reason": "", "score": 3}}
    assert verdicts("two-axes", axes) == {"two-axes/faithfulness.score": 1, "two-axes/completeness.score": 3}
    origins = [{"index": i, "reason": "", "contexts": numbers} for i, numbers in enumerate([[3], [2, 1], [], [], [2]], 1)]
    assert list(verdicts("claims-to-contexts", {"verdicts": origins}).values()) == [[3], [1, 2], [], [], [2]]
    assert verdicts("chunk-supports", "YES") == {"chunk-supports/verdict": "YES"}


@pytest.mark.parametrize(("verdict", "grade", "right"), [
    (4.5, {"low": 4, "high": 5}, True), (3, {"low": 4, "high": 5}, False), (True, {"low": 0, "high": 1}, False),
    (UNREADABLE, {"low": 0, "high": 1}, False), (True, True, True), (1, True, False), (MISSING, False, False),
])  # fmt: skip
def test_grades(verdict: object, grade: object, right: bool) -> None:
    assert is_right(verdict, grade) is right
