"""Where the scores of an iteration come from: which metric gave each of them, and what that metric asked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ragpipe.scoring.composites import OVERALL
from ragpipe.scoring.settings import ScoringSettings
from ragpipe.store.run.run_tables import open_table


@dataclass(frozen=True)
class ScoreOrigins:
    """By score of a metric the name of the metric; the metrics that asked the judge, and those that asked an embedder."""

    metrics: dict[str, str]
    asking: set[str]
    embedding: set[str]

    @property
    def asked(self) -> set[str]:
        """The scores of the metrics that asked the judge."""
        return {score for score, metric in self.metrics.items() if metric in self.asking}

    def behind(self, settings: ScoringSettings) -> dict[str, set[str]]:
        """By score, composites and the overall score included, the metrics that it comes from."""
        behind = {score: {metric} for score, metric in self.metrics.items()}
        parts = {name: composite.parts for name, composite in settings.active_composites().items()}
        for name, names in {**parts, OVERALL.name: [*settings.weights]}.items():
            behind[name] = {self.metrics[part] for part in names if part in self.metrics}
        return behind


def score_origins(folder: Path) -> ScoreOrigins:
    """The origins of an iteration's scores, by its tables. A text for an embedder is no question: it has no template."""
    asking, embedding = set[str](), set[str]()
    with open_table(folder / "judge_inputs.parquet", ["metric", "template"], read_dictionary=["metric"]) as file:
        for batch in file.iter_batches(columns=["metric", "template"]):
            is_question = batch["template"].is_valid()
            asking.update(batch["metric"].filter(is_question).unique().to_pylist())
            embedding.update(batch["metric"].filter(batch["template"].is_null()).unique().to_pylist())
    with open_table(folder / "scores.parquet") as file:
        if not file.num_row_groups:
            return ScoreOrigins({}, asking, embedding)
        rows = file.read_row_group(0, columns=["metric", "score_name"])  # a case has a row for every score
    pairs = zip(rows["score_name"].to_pylist(), rows["metric"].to_pylist(), strict=True)
    return ScoreOrigins(dict(pairs), asking, embedding)
