"""`task=evaluate`: load, collect, plan, judge, score, report. Starting it again resumes; a finished run stays as it is."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from ragpipe.report.console import Console
from ragpipe.runs.budget import configured_rates
from ragpipe.runs.ended_run import repeat_end
from ragpipe.runs.identity import RunData, identity_of_dataset, run_id, system_sources
from ragpipe.runs.settings import RunConfig
from ragpipe.store.run_folder import RunFolder


def run(config: RunConfig, console: Console) -> int:
    """Evaluate. Returns 0, 3 when a gate blocks, 4 when judgements failed beyond the coverage floor; raises what stopped it."""
    if config.transport.asks and configured_rates(config):  # a language model or a paid embedder may be asked
        from ragpipe.runs.judge_access import refuse_other_addresses

        refuse_other_addresses(config)  # before a system under test is asked
    data = RunData.of(config)
    system = system_sources(config.system, config.plugins)
    for note in system.notes:
        console.warn(note)
    identity_of = partial(identity_of_dataset, data=data.digest, sources=system.sources)
    folder = RunFolder.at(Path(config.output_dir), config.name, run_id(identity_of(config)))
    if (code := repeat_end(config, folder, console)) is not None:
        return code
    from ragpipe.runs.case_sources import DatasetSource
    from ragpipe.runs.evaluation import evaluate  # with all stages: only where something is left to do

    return evaluate(config, DatasetSource(config, data, console), identity_of, console)
