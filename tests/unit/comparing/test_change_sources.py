"""Why a score changed: parts by hand, that add up; parts that no run tells apart stay one."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from ragpipe.comparing.change_sources import ChangeSources, rescored_values
from ragpipe.comparing.pairing import paired_cases
from ragpipe.schema.score import ScoreSpec
from ragpipe.scoring.settings import ScoringSettings
from ragpipe.store.run.run_folder import RunFolder
from tests.support.compared_runs import GRADE, IDENTITY, graded, scored_run, side_of
from tests.support.run_tables import Row

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test

OTHER_JUDGE = {**IDENTITY, "judge_identity": {"model": "m-2", "temperature": 0}}
NEW = {"output": {"answer": "A new answer."}}


def grades(value: float, n: int = 4) -> dict[str, float]:
    return {f"q{number}": value for number in range(n)}


def sources(base: RunFolder, candidate: RunFolder, *others: RunFolder, name: str = "grade") -> dict[str, Any]:
    with ExitStack() as stack:
        old, new, *rest = (stack.enter_context(side_of(folder)) for folder in (base, candidate, *others))
        found = ChangeSources(old, new, paired_cases(old.cases, new.cases), rest).of(name)
        assert found is not None
        assert sum(part["change"] for part in found["parts"]) == pytest.approx(found["total"])
        return found


def changes(found: dict[str, Any]) -> dict[str, float]:
    return {" + ".join(part["parts"]): pytest.approx(part["change"]) for part in found["parts"]}


def test_one_part_has_all_of_it(tmp_path: Path) -> None:
    base = scored_run(tmp_path / "a", graded(grades(0.25)))
    found = sources(base, scored_run(tmp_path / "b", graded(grades(0.75), **NEW)))
    assert changes(found) == {"answers": 0.5}
    assert found["interaction"] == 0.0


def test_parts_that_no_run_tells_apart_stay_one(tmp_path: Path) -> None:
    base = scored_run(tmp_path / "a", graded(grades(0.25)))
    candidate = scored_run(tmp_path / "b", graded(grades(0.75), **NEW), identity=OTHER_JUDGE)
    assert changes(sources(base, candidate)) == {"answers + judge": 0.5}


@pytest.mark.slow
def test_runs_between_tell_answers_and_judge_apart(tmp_path: Path) -> None:
    """Old answers: .25 by the old judge, .375 by the new; new answers: .5 and .75. Answers add (.25 + .375)/2, the judge
    (.125 + .25)/2; both together .125 beyond each alone."""
    base = scored_run(tmp_path / "a", graded(grades(0.25)))
    candidate = scored_run(tmp_path / "b", graded(grades(0.75), **NEW), identity=OTHER_JUDGE)
    judged = scored_run(tmp_path / "c", graded(grades(0.375)), identity=OTHER_JUDGE)
    answered = scored_run(tmp_path / "d", graded(grades(0.5), **NEW))
    stranger = scored_run(tmp_path / "e", graded(grades(1.0), output={"answer": "Another again."}))
    found = sources(base, candidate, judged, answered, stranger)
    assert changes(found) == {"answers": 0.3125, "judge": 0.1875}
    assert found["interaction"] == pytest.approx(0.125)
    assert changes(sources(base, candidate, judged)) == {"answers + judge": 0.5}  # the fourth corner is missing


def test_cases_of_one_run_are_a_part(tmp_path: Path) -> None:
    """Base: mean of .25, .25, 1; candidate: .5, .5. Shared cases rose by .25; the third pulled the base up by .25."""
    base = scored_run(tmp_path / "a", graded({"q0": 0.25, "q1": 0.25, "q2": 1.0}))
    found = sources(base, scored_run(tmp_path / "b", graded({"q0": 0.5, "q1": 0.5}, **NEW)))
    assert found["total"] == pytest.approx(0.0)
    assert changes(found) == {"answers": 0.25, "cases": -0.25}


@pytest.mark.slow
def test_weights_are_swapped_by_making_the_overall_score_anew(tmp_path: Path) -> None:
    """Values .2 and .6 by weights 1:1 are .4, by 3:1 .3; the new answers have .6 and .6: .6 by both. Answers first: +.2, then 0;
    weights first: -.1, then +.3. Shapley: answers .25, scoring -.05."""
    specs = [GRADE, ScoreSpec("tone", low=0, high=1)]

    def run(name: str, grade: float, weight: float, **more: Any) -> RunFolder:
        rows = [Row(f"q{n}", "default", {"grade": grade, "tone": 0.6}, **more) for n in range(4)]
        scoring = ScoringSettings(weights={"grade": weight, "tone": 1.0}, fill_defaults=False)
        return scored_run(tmp_path / name, rows, specs=specs, scoring=scoring)

    base, candidate = run("a", 0.2, 1.0), run("b", 0.6, 3.0, **NEW)
    found = sources(base, candidate, name="overall_score")
    assert changes(found) == {"answers": 0.25, "scoring": -0.05}
    assert found["interaction"] == pytest.approx(0.1)
    assert changes(sources(base, candidate)) == {"answers": 0.4}  # the grade itself has no weights


def test_a_score_made_anew_by_its_own_weights_is_the_stored_one(tmp_path: Path) -> None:
    """With a skipped part, a failed part, and a composite inside the overall score."""
    specs = [GRADE, ScoreSpec("tone", low=1, high=5), ScoreSpec("misses", low=0, high=1, higher_is_better=False)]
    rows = [
        Row("q0", "default", {"grade": 0.25, "tone": 4.0, "misses": 0.25}),
        Row("q1", "default", {"grade": ("skipped", "no_context"), "tone": 2.0, "misses": 0.0}),
        Row("q2", "default", {"grade": ("error", "refused: no"), "tone": 2.0, "misses": 1.0}),
    ]
    scoring = ScoringSettings(
        weights={"mix": 2.0, "misses": 1.0},
        composites={"mix": {"weights": {"grade": 1.0, "tone": 3.0}, "scale": [0.0, 100.0]}},
        fill_defaults=False,
    )
    folder = scored_run(tmp_path / "a", rows, specs=specs, scoring=scoring)
    with side_of(folder) as side:
        for name in ("mix", "overall_score"):
            expected = side.values(name)[0]
            assert rescored_values(side, name, side.metrics["scoring"]) == pytest.approx(expected, nan_ok=True)
            assert len(expected) == 3
