"""The shipped canary set, and what a set of one's own may get wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ragpipe.config.drift_settings import SHIPPED_CANARIES
from ragpipe.core.errors import ConfigError
from ragpipe.core.resources import prompts_dir
from ragpipe.extras.checks.canaries import MISSING, UNREADABLE, CanaryItem, CanarySet, is_right, read_canaries

DIGEST = "57d05f51809d73a88ecbf88952cec311e9fa9b6711790f7bd8389fd6854227be"
"""Of version 1. Another digest ends every baseline: then the set is a new file with a new version."""

ITEM = """
version: 1
items:
  - id: one
    prompt: faithfulness/verify.v2
    answer: QuotedVerdicts
    values: {contexts: ["The ferry runs daily."], claims: ["The ferry runs.", "It is red."]}
    grades: {verdict: [supported, not_supported]}
"""


@pytest.fixture(scope="module")
def shipped() -> CanarySet:
    return read_canaries(SHIPPED_CANARIES)


def item(canaries: CanarySet, name: str) -> CanaryItem:
    return next(item for item in canaries.items if item.name == name)


@pytest.mark.slow
def test_the_shipped_set_has_enough_verdicts_of_every_kind_of_judged_metric(shipped: CanarySet) -> None:
    text = Path(__file__).parents[4].joinpath("ragpipe/data/canaries.v1.yaml").read_text()
    folders = {path.name for path in prompts_dir().iterdir() if path.is_dir()} - {"shared", "synthesize"}
    assert {folder for folder in folders if f"prompt: {folder}/" not in text} == set()
    assert len(shipped.grades) >= 90
    assert (shipped.version, shipped.digest) == (1, DIGEST)


def test_verdicts_are_read_by_their_number(shipped: CanarySet) -> None:
    rows = [{"index": 2, "evidence": "", "reason": "", "accurate": False}, {"index": 1, "accurate": True}]
    rows += [{"index": 4, "accurate": True}, {"index": 4, "accurate": True}]  # twice: none of them counts
    verdicts = item(shipped, "citations-library").verdicts(json.dumps({"verdicts": rows}))
    assert list(verdicts.values()) == [True, False, MISSING, MISSING, MISSING]
    assert set(item(shipped, "citations-library").verdicts("I would rather not say.").values()) == {UNREADABLE}


def test_nested_and_listed_values(shipped: CanarySet) -> None:
    axes = {"faithfulness": {"reason": "", "score": 1}, "completeness": {"reason": "", "score": 3}}
    assert item(shipped, "two-axes").verdicts(json.dumps(axes)) == {
        "two-axes/faithfulness.score": 1, "two-axes/completeness.score": 3,
    }  # fmt: skip
    origins = [
        {"index": i, "reason": "", "contexts": numbers} for i, numbers in enumerate([[3], [2, 1], [], [], [2]], 1)
    ]
    assert list(item(shipped, "claims-to-contexts").verdicts(json.dumps({"verdicts": origins})).values()) == [
        [3], [1, 2], [], [], [2],
    ]  # fmt: skip
    assert item(shipped, "chunk-supports").verdicts("YES") == {"chunk-supports/verdict": "YES"}


def test_grades() -> None:
    assert is_right(4.5, {"low": 4, "high": 5})
    assert not is_right(3, {"low": 4, "high": 5})
    assert not is_right(True, {"low": 0, "high": 1})
    assert not is_right(UNREADABLE, {"low": 0, "high": 1})
    assert is_right(True, True)
    assert not is_right(1, True)
    assert not is_right(MISSING, False)


def test_the_digest_is_that_of_the_questions_and_not_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(ITEM)
    (tmp_path / "b.yaml").write_text("# a comment\n" + ITEM)
    (tmp_path / "c.yaml").write_text(ITEM.replace("It is red.", "It is blue."))
    digests = [read_canaries(str(tmp_path / name)).digest for name in ("a.yaml", "b.yaml", "c.yaml")]
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("QuotedVerdicts", "Verdictz", "one of "),
        ("verify.v2", "verify.v99", "no template faithfulness/verify.v99.jinja"),
        ("claims:", "klaims:", "klaims"),
        ("version: 1", "", "version"),
        ("    grades: {verdict: [supported, not_supported]}", "", "grades"),
        (ITEM, ITEM + ITEM.split("items:")[1], "the id one twice"),
        (ITEM, "{", "a canary set"),
    ],
)
def test_a_wrong_set_says_what_is_wrong(tmp_path: Path, old: str, new: str, part: str) -> None:
    (tmp_path / "mine.yaml").write_text(ITEM.replace(old, new))
    with pytest.raises(ConfigError) as error:
        read_canaries(str(tmp_path / "mine.yaml"))
    assert part in str(error.value)
    assert "mine.yaml" in str(error.value)


def test_a_missing_set(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="canary set cannot be used"):
        read_canaries(str(tmp_path / "none.yaml"))
