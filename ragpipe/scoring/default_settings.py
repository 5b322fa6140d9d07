"""The shipped scoring settings, which fill in what an option of the user's own does not name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ragpipe.core.resources import conf_dir
from ragpipe.core.yaml_files import FastLoader

FILLED = (
    "weights",
    "thresholds",
    "passes_with",
    "composites",
    "failure_modes",
    "failure_items",
    "diagnosis",
    "low_scores",
)
"""The sections that are filled in from the shipped ones."""

_FILLED_BY_KEY = ("composites", "failure_items", "diagnosis", "low_scores")
"""Sections whose entries are mappings of settings: those are filled in key by key. An entry of the others is one rule."""

_PARTS = ("weights", "thresholds", "diagnosis", "low_scores")
"""Sections with a folder and a file of their own; `failure_modes/default.yaml` has two sections."""


@lru_cache(maxsize=1)
def shipped() -> dict[str, dict[str, Any]]:
    """The shipped sections of FILLED."""
    sections = {**_read("default"), **_read("failure_modes/default")}
    sections |= {name: _read(f"{name}/default") for name in _PARTS}
    return {name: sections[name] for name in FILLED}


def _read(option: str) -> dict[str, Any]:
    import yaml

    text = (conf_dir() / "scoring" / f"{option}.yaml").read_text(encoding="utf-8")
    content: dict[str, Any] = yaml.load(text, Loader=FastLoader)
    return content


def filled(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A scoring section with what it does not name taken from the shipped one."""
    sections = {name: settings.get(name, {}) for name in FILLED}
    return {
        **settings,
        **{
            name: _filled_section(name, section) if isinstance(section, Mapping) else section
            for name, section in sections.items()
        },
    }


def _filled_section(name: str, section: Mapping[str, Any]) -> dict[str, Any]:
    default = shipped()[name]
    merged = {**default, **section}
    if name in _FILLED_BY_KEY:
        for key, value in section.items():
            if isinstance(value, dict) and isinstance(default.get(key), dict):
                merged[key] = {**default[key], **value}
    return merged
