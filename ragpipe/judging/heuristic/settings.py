"""The `judge` section for the embedded judge."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from ragpipe.schema.settings import NotInIdentity, Settings


class HeuristicSettings(Settings):
    """The embedded judge: no key, no network, no weights. Everything here can change a verdict, so all of it is identity.

    `threshold`: mean overlap (0..1) from which a claim counts as supported; `window`: sentences in a row that are
    compared with a claim; `contradicts_from`: overlap from which a claim with such an objection counts as contradicted and
    not only as unsupported (apart from the threshold, so that a stricter one never raises a grade); `require_*`: a claim with a number, name or quotation that no source has, or with the opposite
    negation of its twin sentence, is not supported whatever the overlap.
    """

    kind: Annotated[Literal["evidence"], NotInIdentity] = "evidence"
    rules: Literal["evidence-v1"] = "evidence-v1"
    threshold: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 0.33
    contradicts_from: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 0.33
    window: Annotated[int, Field(ge=1, le=20)] = 3
    require_numbers: bool = True
    require_names: bool = True
    require_quotes: bool = True
    require_negation: bool = True

    @property
    def label(self) -> str:
        """Short printable name."""
        return self.rules

    def identity_of_judge(self) -> dict[str, Any]:
        """What an answer depends on beside the question: part of every question's key."""
        return self.identity()
