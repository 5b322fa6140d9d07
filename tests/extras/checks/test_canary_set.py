"""The shipped canary set, and how verdicts are read from replies."""

import json
from pathlib import Path

import pytest

from ragpipe.core.resources import prompts_dir
from ragpipe.extras.checks.canaries import MISSING, UNREADABLE, CanaryItem, CanarySet, is_right, read_canaries

DIGEST = "57d05f51809d73a88ecbf88952cec311e9fa9b6711790f7bd8389fd6854227be"
"""Of version 1. Another digest ends every baseline: then the set is a new file with a new version."""


@pytest.fixture(scope="module")
def shipped() -> CanarySet:
    return read_canaries()


def item(canaries: CanarySet, name: str) -> CanaryItem:
    return next(item for item in canaries.items if item.name == name)


@pytest.mark.slow
def test_the_shipped_set_has_enough_verdicts_of_every_kind_of_judged_metric(shipped: CanarySet) -> None:
    text = Path(__file__).parents[3].joinpath("ragpipe/data/canaries.v1.yaml").read_text()
    folders = {path.name for path in prompts_dir().iterdir() if path.is_dir()} - {"shared", "synthesize", "preference"}  # of pairs
    assert {folder for folder in folders if f"prompt: {folder}/" not in text} == set()
    assert len(shipped.grades) >= 90
    assert (shipped.version, shipped.digest) == (1, DIGEST)


def test_verdicts_by_number_nested_and_listed(shipped: CanarySet) -> None:
    rows = [{"index": 2, "evidence": "", "reason": "", "accurate": False}, {"index": 1, "accurate": True}]
    rows += [{"index": 4, "accurate": True}, {"index": 4, "accurate": True}]  # twice: none of them counts
    verdicts = item(shipped, "citations-library").verdicts(json.dumps({"verdicts": rows}))
    assert list(verdicts.values()) == [True, False, MISSING, MISSING, MISSING]
    assert set(item(shipped, "citations-library").verdicts("I would rather not say.").values()) == {UNREADABLE}
    axes = {"faithfulness": {"reason": "", "score": 1}, "completeness": {"reason": "", "score": 3}}
    assert item(shipped, "two-axes").verdicts(json.dumps(axes)) == {"two-axes/faithfulness.score": 1, "two-axes/completeness.score": 3}
    origins = [{"index": i, "reason": "", "contexts": numbers} for i, numbers in enumerate([[3], [2, 1], [], [], [2]], 1)]
    assert list(item(shipped, "claims-to-contexts").verdicts(json.dumps({"verdicts": origins})).values()) == [[3], [1, 2], [], [], [2]]
    assert item(shipped, "chunk-supports").verdicts("YES") == {"chunk-supports/verdict": "YES"}


def test_grades() -> None:
    assert is_right(4.5, {"low": 4, "high": 5})
    assert not is_right(3, {"low": 4, "high": 5})
    assert not is_right(True, {"low": 0, "high": 1})
    assert not is_right(UNREADABLE, {"low": 0, "high": 1})
    assert is_right(True, True)
    assert not is_right(1, True)
    assert not is_right(MISSING, False)
