"""The plan of a data set that is not frozen yet."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from ragpipe.data.dataset import Record
from ragpipe.runs.collected_outputs import unknown_methods
from ragpipe.runs.gate_plan import gate_power_lines
from ragpipe.runs.load_dataset import load_dataset
from ragpipe.runs.measured_cases import CaseReader
from ragpipe.runs.plan import Plan
from ragpipe.runs.plan_summary import MemberPlan, member_plans, plan_remaining
from ragpipe.runs.scoring_files import ScoringFiles
from ragpipe.runs.settings import RunConfig
from ragpipe.score.pointer_checks import Pointers, read_pointers
from ragpipe.store.run_folder import RunFolder


@dataclass(frozen=True)
class DataPlan:
    """What a run over recorded outputs would do: its plan, those of the members of a jury, what its gates will be able to tell, the
    pointers of its cases, and a warning about methods that no output has."""

    plan: Plan
    members: list[MemberPlan]
    gate_lines: list[str]
    pointers: Pointers
    warning: str | None


def plan_of_data(config: RunConfig, records: Iterable[Record], scoring_files: ScoringFiles) -> DataPlan:
    """The plan of a run over these records, which are frozen for it in a folder that does not stay. Raises what the run would refuse."""
    with TemporaryDirectory() as place:
        frozen = RunFolder(Path(place))
        counts = load_dataset(records, samples=frozen.samples, outputs=frozen.outputs)
        with closing(CaseReader(frozen.samples, frozen.outputs)) as reader:
            plan, members = plan_remaining(config, reader), member_plans(config, reader)
        scoring_files.write(frozen, config)
        gate_lines, pointers = gate_power_lines(config, frozen), read_pointers(frozen.samples, frozen.outputs)
    return DataPlan(plan, members, gate_lines, pointers, unknown_methods(config.system, counts.methods))
