"""The plan of a data set that is not frozen yet."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from ragpipe.core.registry import option_files
from ragpipe.data.dataset import Record
from ragpipe.metrics.needs import default_metrics
from ragpipe.runs.collected_outputs import unknown_methods
from ragpipe.runs.gate_plan import gate_power_lines
from ragpipe.runs.load_dataset import load_dataset
from ragpipe.runs.measured_cases import CaseReader
from ragpipe.runs.plan import Plan, make_plan
from ragpipe.runs.plan_notices import has_embedder
from ragpipe.runs.plan_summary import MemberPlan, member_plans, plan_remaining, prompt_counter
from ragpipe.runs.scoring_files import ScoringFiles
from ragpipe.runs.settings import RunConfig
from ragpipe.score.pointer_checks import Pointers, read_pointers
from ragpipe.store.run_folder import RunFolder

FULL = "full_evaluation"
FULL_CASES = 200
"""Cases that the plan of a full evaluation looks at, about."""


@dataclass(frozen=True)
class DataPlan:
    """What a run over recorded outputs would do: its plan, that of a full evaluation of some of its cases, those of the members of a
    jury, what its gates will be able to tell, the pointers of its cases, and a warning about methods that no output has."""

    plan: Plan
    full: Plan
    members: list[MemberPlan]
    gate_lines: list[str]
    pointers: Pointers
    warning: str | None


def plan_of_data(config: RunConfig, records: Iterable[Record], scoring_files: ScoringFiles) -> DataPlan:
    """The plan of a run over these records, which are frozen for it in a folder that does not stay. Raises what the run would refuse."""
    with TemporaryDirectory() as place:
        frozen = RunFolder(Path(place))
        methods = load_dataset(records, samples=frozen.samples, outputs=frozen.outputs)
        with closing(CaseReader(frozen.samples, frozen.outputs)) as reader:
            plan, members = plan_remaining(config, reader), member_plans(config, reader)
            full = _full_evaluation(config, reader)
        scoring_files.write(frozen, config)
        gate_lines, pointers = gate_power_lines(config, frozen), read_pointers(frozen.samples, frozen.outputs)
    return DataPlan(plan, full, members, gate_lines, pointers, unknown_methods(config.system, methods))


def _full_evaluation(config: RunConfig, reader: CaseReader) -> Plan:
    """The plan of `+mode=full_evaluation` over some of the cases, by the same judge: what to hold the cost of a case against."""
    mode = yaml.safe_load(option_files("mode")[FULL].read_text(encoding="utf-8"))
    names = mode["defaults"][0]["override /metrics"]
    return make_plan(
        reader.of(reader.iteration, reader.spread(range(reader.blocks), FULL_CASES)),
        [metric for metric in default_metrics() if metric.name in names],
        iterations=1,
        counter=prompt_counter(config.judge),
        has_embedder=has_embedder(config),
    )
