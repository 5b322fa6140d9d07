"""Whether the files behind a run are as they were sealed: checked before another run is made of them, or this one goes on."""

from __future__ import annotations

from collections.abc import Mapping

from ragpipe.engine.runs.manifest import JUDGED
from ragpipe.stages.seal_run import FROZEN
from ragpipe.store.run.run_folder import RunFolder
from ragpipe.store.run.run_tables import check_sealed


def check_unmodified(source: RunFolder, states: Mapping[str, str]) -> None:
    """Compare the frozen cases of a run, its replies, scores and figures with its seal; reports are not looked at.

    `states` are the states of the iterations by number. What is not sealed yet (a run that never ended, an iteration that is
    being judged) is not checked. Raises DataError that names table, row, case and column.
    """
    sealed = [source.iteration(int(number)) for number, state in states.items() if state != JUDGED]
    paths = [source.root / name for name in FROZEN]
    for iteration in sealed:
        paths += [iteration.judge_inputs, iteration.scores, iteration.records, iteration.metrics]
        paths += [iteration.low_scores, iteration.cost]
    check_sealed(*paths, source.final.metrics, source.final.cost, source.gates)
