"""The words that add cases to a draw: what is not usual about it, written as Hydra reads it."""

from pathlib import Path
from typing import Any

import pytest

from ragpipe.calibration.draw import LabelSettings
from ragpipe.calibration.label_files import Draw
from ragpipe.cli.tasks.calibrate import more_labels_words


def draw_by(**settings: Any) -> Draw:
    made_by = LabelSettings(metric="faithfulness", **settings).model_dump(exclude={"files"}) | {"n": 80}
    return Draw(
        draw_id="d", run_id="r", metric="faithfulness", score="faithfulness", question="?", grades=[], low=0.0, high=1.0,
        seed=0, cases=100, strata=[], settings=made_by,
    )  # fmt: skip


@pytest.mark.parametrize(("settings", "words"), [
    ({}, []),
    ({"draw": "by_method"}, ["label.draw=by_method"]),
    ({"seed": 3, "annotators": ["ann", "bob"]}, ["label.seed=3", "label.annotators=[ann,bob]"]),
    (
        {"question": "Is it true, all of it?", "grades": {"yes": 1, "no": 0}},
        ['label.question="Is it true, all of it?"', "label.grades={yes:1.0,no:0.0}"],
    ),
])  # fmt: skip
def test_only_unusual_settings_are_words(settings: dict[str, Any], words: list[str]) -> None:
    run = Path("/runs/r")
    expected = ["task=label", "run=/runs/r", "label.metric=faithfulness", *words, "label.n=100"]
    assert more_labels_words(draw_by(**settings), run, 20) == expected
