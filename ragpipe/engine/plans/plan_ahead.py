"""The plan of a run that comes after another one: printed, and compared with `judge.max_calls`, before the first asks anything."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from ragpipe.engine.plans.plan_summary import check_call_budget, plan_line, plan_remaining
from ragpipe.engine.run_spec import RunSpec
from ragpipe.stages.case_reader import CaseReader
from ragpipe.store.run.run_folder import RunFolder


def plan_ahead(spec: RunSpec, recorded: Sequence[Path]) -> str:
    """The line of the plan of a run whose inputs are not frozen yet. Nothing is left behind.

    Args:
        spec: the run.
        recorded: judge_inputs of a finished run, whose replies count as stored.

    Raises ConfigError for a plan over `judge.max_calls`.
    """
    with TemporaryDirectory() as place:
        folder = RunFolder(Path(place))
        spec.source.write(folder, dict(spec.identity))
        reader = CaseReader(folder.samples, folder.outputs)
        try:
            plan = plan_remaining(spec.config, reader, spec.run_id, rough=True, recorded=recorded)
        finally:
            reader.close()
    check_call_budget(plan, spec.config)
    return plan_line(plan, spec.config)
