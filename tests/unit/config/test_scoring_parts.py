"""The parts of the scoring section: each may be chosen, replaced by a file of one's own, or switched off."""

from __future__ import annotations

from pathlib import Path

import pytest

from ragpipe.cli import compose
from ragpipe.scoring.settings import FILLED, ScoringSettings, filled, shipped

BASE = ["dataset=demo", "metrics=[faithfulness,retrieval]"]


def scoring(*words: str) -> ScoringSettings:
    return compose([*BASE, *words]).scoring


@pytest.mark.slow
def test_the_composed_default_is_what_an_option_is_filled_in_with() -> None:
    slices = ["method*question_type"]
    assert scoring() == ScoringSettings(slices=slices)
    assert scoring().identity() == ScoringSettings.model_validate({**filled({}), "slices": slices}).identity()
    assert list(shipped()) == list(FILLED)
    assert not scoring().fill_defaults


@pytest.mark.slow
def test_no_diagnosis() -> None:
    found = scoring("scoring/diagnosis=none")
    assert found.diagnosis == {}
    assert found.failure_modes == scoring().failure_modes


@pytest.mark.slow
def test_no_failure_modes() -> None:
    found = scoring("scoring/failure_modes=none", "scoring/diagnosis=none")
    assert (found.failure_modes, found.failure_items, found.diagnosis) == ({}, {}, {})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "text"),
    [
        ("weights", "faithfulness: 1.0\n"),
        ("thresholds", "faithfulness: 0.5\n"),
        ("failure_modes", "slow:\n  - {field: answer_chars, above: 9}\n"),
        ("diagnosis", "long:\n  when: [{field: answer_chars, above: 9}]\n  message: It is long.\n"),
        ("low_scores", "by: [method]\nbands:\n  default: [{name: low}]\n"),
    ],
)
def test_a_part_of_ones_own_replaces_the_shipped_one(
    part: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "conf" / "scoring" / part
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text(f"# One of our own. Use: scoring/{part}=mine\n{text}")
    without = ["scoring/diagnosis=none"] if part == "failure_modes" else []
    found = getattr(scoring(f"scoring/{part}=mine", *without), part)
    if part == "low_scores":
        assert (list(found.bands), found.by) == (["default"], ["method"])
    else:
        assert list(found) == [text.partition(":")[0]]


@pytest.mark.slow
def test_single_keys_change_a_part_as_before() -> None:
    found = scoring("scoring.weights.faithfulness=0.4", "scoring.diagnosis.hallucination=null")
    assert (found.weights["faithfulness"], found.weights["citation"]) == (0.4, 0.15)
    assert found.diagnosis["hallucination"] is None
    assert found.diagnosis["retrieval_failure"] is not None


@pytest.mark.slow
def test_tiers_keep_the_parts_and_may_choose_others() -> None:
    found = scoring("scoring=tiers", "scoring/diagnosis=none")
    assert "policy_compliance" in found.gates
    assert (found.diagnosis, found.weights) == ({}, scoring().weights)


@pytest.mark.slow
def test_an_option_of_ones_own_is_filled_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf" / "scoring").mkdir(parents=True)
    (tmp_path / "conf" / "scoring" / "mine.yaml").write_text("weights:\n  faithfulness: 0.9\n")
    found = scoring("scoring=mine")
    assert found.weights == {**shipped()["weights"], "faithfulness": 0.9}
    assert set(found.diagnosis) == set(shipped()["diagnosis"])
