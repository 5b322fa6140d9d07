"""What one run is: its configuration, where its cases come from, its identity, and its folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ragpipe.config.settings import RunConfig
from ragpipe.engine.runs.finished_run import FinishedRun
from ragpipe.engine.runs.run_identity import run_id
from ragpipe.engine.runs.scoring_files import NO_FILES, ScoringFiles
from ragpipe.engine.sources.case_sources import CaseSource
from ragpipe.metrics.base import Metric
from ragpipe.schema.score import ScoreSpec
from ragpipe.store.run.run_folder import RunFolder


@dataclass(frozen=True)
class RunSpec:
    """One run. The digest of `identity` is its id; `made_from` is the manifest of the run whose frozen cases these are, None
    for a run of a data set: only such a run becomes `latest`. `scoring_files` is what its scoring names beside it."""

    config: RunConfig
    source: CaseSource
    identity: dict[str, Any]
    folder: RunFolder
    made_from: Mapping[str, Any] | None = None
    scoring_files: ScoringFiles = NO_FILES

    @classmethod
    def of_dataset(
        cls, config: RunConfig, source: CaseSource, identity: dict[str, Any], scoring_files: ScoringFiles = NO_FILES
    ) -> RunSpec:
        """A run of a data set, in its folder under `output_dir`."""
        folder = RunFolder.at(Path(config.output_dir), config.name, run_id(identity))
        return cls(config, source, identity, folder, scoring_files=scoring_files)

    @classmethod
    def of_finished_run(cls, finished: FinishedRun, source: CaseSource) -> RunSpec:
        """A run over the frozen cases of a finished run, in a folder beside it; the finished run itself where the overrides
        change nothing."""
        identity = finished.identity()
        folder = finished.folder_of(run_id(identity))
        return cls(finished.config, source, identity, folder, finished.manifest, finished.scoring_files)

    @classmethod
    def of_changed_cases(cls, finished: FinishedRun, source: CaseSource, **changes: Any) -> RunSpec:
        """A run over cases made from those of a finished run, with `changes` to its configuration. It has no gates, which are about
        the system and all of its cases, and its report is written and not printed."""
        config = finished.config
        formats = [name for name in config.report.formats if name != "terminal"]
        config = config.model_copy(
            update={
                "scoring": config.scoring.model_copy(update={"gates": {}}),
                "report": config.report.model_copy(update={"formats": formats}),
                **changes,
            }
        )
        manifest = {**finished.manifest, "data": {**finished.manifest["data"], "digest": source.digest}}
        return cls.of_finished_run(replace(finished, config=config, manifest=manifest), source)

    @property
    def run_id(self) -> str:
        """The id of the run, whatever its folder is called."""
        return run_id(self.identity)

    @property
    def metrics(self) -> list[Metric]:
        """The metrics in the order of the configuration."""
        return list(self.config.metrics.values())

    @property
    def score_specs(self) -> list[ScoreSpec]:
        """The scores that the metrics declare, in the order of the tables."""
        return [spec for metric in self.metrics for spec in metric.score_specs]

    @property
    def iterations(self) -> range:
        """The numbers of the iterations, from 1."""
        return range(1, self.config.iterations + 1)

    @property
    def is_own_source(self) -> bool:
        """Whether this is the run that its cases come from: a task over a run that changes nothing of it."""
        return self.made_from is not None and self.made_from["run_id"] == self.run_id
