"""What a live system is shown of a sample."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from ragpipe.schema.sample import Sample

_SENT = ("id", "question", "history", "meta")


def question_fields(sample: Sample, params: Mapping[str, Any]) -> dict[str, Any]:
    """`id`, `question`, `history` and `meta` of the sample, no reference and no label, and the `params` of the method: a copy,
    which the system may change."""
    return {**sample.model_dump(mode="json", include=set(_SENT)), "params": deepcopy(dict(params))}
