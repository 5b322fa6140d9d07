"""`task=explain`: every figure of a case may be asked for, by the name of a metric, of a score or of a composite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ragpipe.cli import main
from tests.tasks.rejudged import travelled


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with travelled(tmp_path_factory.mktemp("explained")) as folder:
        yield folder


@pytest.mark.parametrize(("metric", "shown", "hidden"), [
    ("retrieval", ["mrr", "precision@3"], ["faithfulness"]),
    ("mrr", ["mrr", "precision@3"], ["faithfulness"]),
    ("chunk_faithfulness", ["chunk_faithfulness"], ["mrr", "faithfulness"]),
    ("overall_score", ["retrieval_score", "faithfulness"], ["chunk_faithfulness"]),  # the parts with a weight
])  # fmt: skip
def test_a_figure_is_explained_by_any_of_its_names(
    run: Path, metric: str, shown: list[str], hidden: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["task=explain", f"run={run}", "case=q1", f"metric={metric}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    scores = {line.split()[1].rstrip(":") for line in lines if line.startswith("score ")}
    assert set(shown) <= scores
    assert not scores & set(hidden)
    assert any(line.startswith("overall_score = ") for line in lines)


def test_a_wrong_name_is_told_each_right_one_once(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["task=explain", f"run={run}", "case=q1", "metric=faithfullness"]) == 2
    said = capsys.readouterr().err
    mend = next(line for line in said.splitlines() if "did you mean" in line)
    assert mend.count(" faithfulness") == 1
