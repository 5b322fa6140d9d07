"""What `conf/scoring/default.yaml` says that every scoring option is merged with."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ragpipe.resources import conf_dir
from ragpipe.yaml_lines import FastLoader

MERGED = ("weights", "thresholds", "passes_with", "composites", "failure_modes", "diagnosis", "low_scores")


@lru_cache(maxsize=1)
def shipped() -> dict[str, dict[str, Any]]:
    """The sections of MERGED as they are shipped."""
    import yaml

    found = yaml.load((conf_dir() / "scoring" / "default.yaml").read_text(encoding="utf-8"), Loader=FastLoader)
    return {key: found[key] for key in MERGED}


_BY_KEY = ("composites", "diagnosis", "low_scores")  # where an entry is a mapping of settings, and not a rule


def merged(section: str, given: dict[str, Any]) -> dict[str, Any]:
    """A section with what it does not name taken from the shipped one; the keys of a composite or a diagnosis are merged one by one."""
    default = shipped()[section]
    both = [name for name, one in given.items() if isinstance(one, dict) and isinstance(default.get(name), dict)]
    both = both if section in _BY_KEY else []
    return {**default, **given, **{name: {**default[name], **given[name]} for name in both}}
