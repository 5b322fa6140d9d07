"""The embedded judge with vectors: overlaps as in `evidence`, and the cosine of the nearest sentence by MiniLM."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from ragpipe.embedding.model_files import Floats, packaged_folder
from ragpipe.embedding.settings import INSTALL, MINILM_TOKENIZER, MINILM_WEIGHTS, MiniLM
from ragpipe.judging.heuristic.settings import HeuristicSettings
from ragpipe.schema.settings import NotInIdentity

_KEPT = 20_000  # vectors of texts; 1.5 kB each
_DIGITS = 4  # of a cosine: what differs between machines stands in the seventh


class EvidenceMiniLMSettings(HeuristicSettings):
    """The embedded judge with the vectors of all-MiniLM-L6-v2: no key, no network, 84 MB of weights. Not calibrated.

    `threshold`: the mean of overlap and cosine (0..1, a cosine below 0 counts as 0) from which a claim counts as supported. Everything else is as
    in `evidence`. The hashes of weights and tokenizer are part of the judge's identity; other weights need another threshold.
    """

    kind: Annotated[Literal["evidence_minilm"], NotInIdentity] = "evidence_minilm"  # type: ignore[assignment]
    rules: Literal["evidence-minilm-v1"] = "evidence-minilm-v1"  # type: ignore[assignment]
    threshold: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 0.54
    contradicts_from: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 0.54

    def missing(self) -> str | None:
        """The line that installs the weights; None when they are there."""
        return None if packaged_folder() is not None else INSTALL

    def nearest(self, claim: str, sentences: Sequence[str]) -> tuple[float, str] | None:
        """The cosine (-1..1, four digits) of the sentence that is nearest to the claim, the first of equals; 0 and ''
        without a sentence. Raises DataError when the model's files are missing or other ones."""
        if not sentences or not claim.strip():
            return 0.0, ""
        wide = np.stack([_vector(text) for text in sentences]).astype(np.float64)
        cosines = np.round(wide @ _vector(claim.strip()).astype(np.float64), _DIGITS)
        best = int(np.argmax(cosines))
        return float(cosines[best]), sentences[best]

    def identity_of_judge(self) -> dict[str, Any]:
        """The rules, every setting, and what the vectors are made by."""
        return {**super().identity_of_judge(), "weights": MINILM_WEIGHTS, "tokenizer": MINILM_TOKENIZER}


@lru_cache(maxsize=_KEPT)
def _vector(text: str) -> Floats:
    """The vector of one text, computed alone: beside others its last digits would depend on them."""
    readable = text.encode("utf-8", "replace").decode("utf-8")  # the tokenizer takes no lone surrogate
    found: Floats = _model()([readable])[0]
    return found


@cache
def _model() -> Any:
    from ragpipe.embedding.numpy_minilm import MiniLMVectors

    return MiniLMVectors(MiniLM())
