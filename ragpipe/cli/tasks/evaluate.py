"""`task=evaluate`: load, collect, plan, judge, score, report. Starting it again resumes; a finished run stays as it is."""

from __future__ import annotations

from functools import partial

from ragpipe.report.console import Console
from ragpipe.runs.alert_file import alert_baseline
from ragpipe.runs.case_sources import DatasetSource
from ragpipe.runs.evaluation import Evaluation
from ragpipe.runs.identity import identity_of_dataset, system_sources
from ragpipe.runs.judge_access import refuse_other_addresses
from ragpipe.runs.scoring_files import resolved_for_dataset
from ragpipe.runs.settings import RunConfig
from ragpipe.runs.spec import EvaluatePolicy, RunSpec


def run(config: RunConfig, console: Console) -> int:
    """Evaluate. Returns 0, 3 when a gate blocks, 4 when judgements failed beyond the coverage floor; raises what stopped it."""
    refuse_other_addresses(config)  # before a system under test is asked
    alert_baseline(config)
    source = DatasetSource(config, console)
    system = system_sources(config.system, config.plugins)
    for note in system.notes:
        console.warn(note)
    identity_of = partial(identity_of_dataset, data=source.digest, sources=system.sources)
    config, scoring_files = resolved_for_dataset(config, identity_of)
    spec = RunSpec.of_dataset(config, source, identity_of(config), scoring_files)
    return Evaluation(spec, EvaluatePolicy(), console).run()
