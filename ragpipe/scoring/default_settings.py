"""What `conf/scoring/default.yaml` says that every scoring option is merged with."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ragpipe.core.resources import conf_dir
from ragpipe.core.yaml_lines import FastLoader

MERGED = (
    "weights",
    "thresholds",
    "passes_with",
    "composites",
    "failure_modes",
    "failure_items",
    "diagnosis",
    "low_scores",
)


@lru_cache(maxsize=1)
def shipped() -> dict[str, dict[str, Any]]:
    """The sections of MERGED as they are shipped."""
    import yaml

    found = yaml.load((conf_dir() / "scoring" / "default.yaml").read_text(encoding="utf-8"), Loader=FastLoader)
    return {key: found[key] for key in MERGED}


WHOLE = {"scoring_is_whole": True}
"""Context to validate the scoring of a finished run in: it was merged when the run was made, and shipped defaults that
came or changed since must not become part of it."""

_BY_KEY = (
    "composites",
    "failure_items",
    "diagnosis",
    "low_scores",
)  # where an entry is a mapping of settings, and not a rule


def merged(section: str, given: Mapping[str, Any], context: Mapping[str, Any] | None) -> dict[str, Any]:
    """A section with what it does not name taken from the shipped one; the keys of a composite or a diagnosis are merged
    one by one. As it is in the context WHOLE."""
    if context and context.get("scoring_is_whole"):
        return dict(given)
    default = shipped()[section]
    both = [name for name, one in given.items() if isinstance(one, dict) and isinstance(default.get(name), dict)]
    both = both if section in _BY_KEY else []
    return {**default, **given, **{name: {**default[name], **given[name]} for name in both}}
