"""The scores of all shipped metrics with their default parameters, switched on or not."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import yaml

from ragpipe.core.registry import option_files
from ragpipe.core.yaml_files import FastLoader
from ragpipe.metrics.from_config import SECTION_KEYS, metric_class
from ragpipe.schema.score import ScoreSpec


@lru_cache(maxsize=1)
def shipped_scores() -> Mapping[str, ScoreSpec]:
    """By name what each score is declared as. Neither templates are compiled nor parameters checked, which takes a second."""
    scores: dict[str, ScoreSpec] = {}
    for path in option_files("metrics").values():
        for name, section in yaml.load(path.read_text(encoding="utf-8"), Loader=FastLoader).items():
            parameters = {key: value for key, value in section.items() if key not in SECTION_KEYS}
            metric = metric_class(name, section["class"]).model_construct(name=name, **parameters)
            scores |= {spec.name: spec for spec in metric.scores()}
    return scores
