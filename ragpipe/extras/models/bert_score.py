"""BERTScore: how well the tokens of answer and reference match, in the hidden states of a model. 0 to 100."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field

from ragpipe.core.errors import Skipped
from ragpipe.core.sample import Case, OutputPart
from ragpipe.core.score import Score, ScoreSpec
from ragpipe.extras.models.token_matching import EncoderSettings
from ragpipe.judge.embedder import MINILM_WEIGHTS
from ragpipe.judge.question import Judge
from ragpipe.metrics.base import Need
from ragpipe.metrics.shared.multi_reference import ReferenceMetric, by_reference

_BASELINES = {
    ("microsoft/deberta-xlarge-mnli", 40): 0.5150192,  # bert-score's own file
    (MINILM_WEIGHTS, 6): 0.1252,  # mean F1 of 1,000 random pairs of sentences of different CLAPnq passages
}


class BertScoreMetric(ReferenceMetric):
    """100 x BERTScore's F1: every token of one text is matched with the most similar token of the other; precision
    over the answer's tokens, recall over the reference's.

    Two unrelated texts do not score 0. `_f1_raw` is the plain F1; `_f1` is rescaled by the score of unrelated texts
    with the encoder, (F1 - baseline) / (1 - baseline), and never below 0. `baseline: null` takes the known one of
    model and layer (MiniLM 6: 0.1252, deberta-xlarge-mnli 40: 0.5150192); where none is known, `_f1` is skipped
    (`no_baseline`). Scores of two encoders or layers are not comparable: the details hold model, layer and baseline.

    With `idf` a token has the weight log((N + 1) / (n + 1)), where n of the N references of the whole data set contain
    it: frequent words count little. The weights belong to the data set, so no baseline is known, and scores over two
    data sets are not comparable. A text whose every token is in every reference has no weight: skipped,
    `no_idf_weight`.

    A text that was cut at `encoder.max_tokens` is flagged. An answer without a character is 0. Needs a reference.
    Equal to the package bert-score for single pairs. Source: arXiv 1904.09675.
    """

    version: ClassVar[int] = 2
    needs: ClassVar[frozenset[Need]] = frozenset({"reference"})
    best_of_each: ClassVar[bool] = True
    reads: ClassVar[frozenset[OutputPart]] = frozenset({"answer"})

    encoder: EncoderSettings = Field(
        default=EncoderSettings(),
        description="The model that encodes the tokens, and the layer whose hidden states are compared.",
    )
    idf: bool = Field(
        default=False,
        description=(
            "Whether tokens are weighted by their rarity in the data set's references (inverse document "
            "frequency). Default: all tokens weigh the same."
        ),
    )
    baseline: Annotated[float, Field(ge=-1, lt=1, allow_inf_nan=False)] | None = Field(
        default=None,
        description=(
            "Score of unrelated texts, from -1 to below 1, by which `bert_score_f1` is rescaled. null: the known "
            "value of model and layer; without one only `bert_score_f1_raw` is given."
        ),
    )

    @property
    def encoder_settings(self) -> EncoderSettings:
        return self.encoder

    @property
    def rescale_baseline(self) -> float | None:
        """The F1 of unrelated texts: `baseline`, else the known one of model and layer; None where none is known. With `idf` it
        depends on the data set's references too, so none is known."""
        if self.baseline is not None or self.idf:
            return self.baseline
        return _BASELINES.get((self.encoder.model or str(self.encoder.files().weights), self.encoder.layer))

    def scores(self) -> tuple[ScoreSpec, ...]:
        return (ScoreSpec(f"{self.name}_f1", 0, 100), ScoreSpec(f"{self.name}_f1_raw", 0, 100, diagnostic=True))

    def explain_value(self, score: str, value: float, details: Mapping[str, Any]) -> str | None:
        if "f1" not in details:
            return None
        precision, recall, f1 = (details[name] for name in ("precision", "recall", "f1"))
        plain = f"F1 = 2 x {precision:.4f} x {recall:.4f} / ({precision:.4f} + {recall:.4f}) = {f1:.4f}"
        if score.endswith("_raw"):
            return f"{plain}; 100 x F1 = {value:.2f}"
        base = details["baseline"]
        return f"{plain}; 100 x ({f1:.4f} - {base:.4f}) / (1 - {base:.4f}) = {value:.2f}"

    @by_reference
    async def measure(self, case: Case, judge: Judge) -> list[Score]:
        names = [spec.name for spec in self.scores()]
        if not case.answer.strip():
            return [Score(0.0, name, reason="no_answer") for name in names]
        match = await judge.match(self.encoder, case.answer, case.reference or "", idf=self.idf)
        if match.weightless:
            raise Skipped("no_idf_weight")
        details = (
            match.model_dump(exclude={"cut", "weightless"})
            | ({"idf": True} if self.idf else {})
            | {"encoder": self.encoder.label, "baseline": self.rescale_baseline, "flags": [f"{name}_cut" for name in match.cut]}
        )
        raw = Score(_percent(match.f1), names[1], details=details)
        base = self.rescale_baseline
        if base is None:
            return [Score(None, names[0], "skipped", "no_baseline", details), raw]
        return [Score(_percent((match.f1 - base) / (1 - base)), names[0], details=details), raw]


def _percent(share: float) -> float:
    """100 x a share, kept within 0 to 100: rounding may lift equal texts over 1."""
    return min(100.0, max(0.0, 100 * share))
