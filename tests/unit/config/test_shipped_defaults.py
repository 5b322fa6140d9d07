"""A default exists once: where a shipped YAML repeats one of a class, they are equal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from ragpipe.config.json_schemas import GROUPS, shipped_metrics
from ragpipe.config.settings import StoreSettings, TopSettings
from ragpipe.core.registry import option_files
from ragpipe.core.resources import conf_dir
from ragpipe.core.yaml_files import FastLoader
from ragpipe.tasks.schema import task_keys

CONF = conf_dir()
CHOICES = {
    ("dataset/jsonl", "name"): "the name of the option",
    ("scoring/default", "slices"): "a breakdown of the shipped option, not of every scoring",
    ("scoring/default", "fill_defaults"): "the file that others are filled in from",
    ("scoring/default", "passes_with"): "filled in from this file by the class itself",
    ("scoring/default", "composites"): "filled in from this file by the class itself",
}
"""Values that are a choice of the option and no default of the setting."""


def _file(option: str) -> Path:
    group, _, name = option.rpartition("/")
    return option_files(group)[name] if "/" not in group and group else CONF / f"{option}.yaml"


def content(option: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.load(_file(option).read_text(encoding="utf-8"), Loader=FastLoader)
    return loaded


def sections() -> list[tuple[str, dict[str, Any], type[BaseModel]]]:
    """(option, its keys, the class that checks them) of every option that holds a whole section."""
    rows: list[tuple[str, dict[str, Any], type[BaseModel]]] = []
    for group, settings in GROUPS.items():
        for path in option_files(group).values():
            section = content(f"{group}/{path.stem}")
            model = settings.get(section.get("kind", "")) if isinstance(settings, dict) else settings
            overlay = "defaults" in section and group != "scoring"
            if (
                model
                and not overlay
                and (group, path.stem) not in (("scoring", "tiers"), ("scoring", "success_criteria"))
            ):
                if group == "dataset" and path.stem != "jsonl":
                    continue  # a mapping of one data set
                rows.append((f"{group}/{path.stem}", section, model))
    rows += [(f"metrics/{name}", content(f"metrics/{name}")[name], cls) for name, cls in shipped_metrics().items()]
    primary = content("ragpipe")
    rows += [("ragpipe", primary, TopSettings), ("ragpipe", primary["store"], StoreSettings)]
    for task, keys in task_keys().items():
        if keys is not None and task in ("explain", "schema", "store", "weights", "rejudge"):
            rows.append((f"task/{task}", content(f"task/{task}"), keys))
            inner = {name: field.annotation for name, field in keys.model_fields.items()}
            rows += [(f"task/{task}", content(f"task/{task}")[task], inner[task])] if task in inner else []
    return rows


ROWS = sections()


@pytest.mark.parametrize(("option", "section", "model"), ROWS, ids=[f"{row[0]}-{row[2].__name__}" for row in ROWS])
def test_a_repeated_default_is_that_of_the_class(option: str, section: dict[str, Any], model: type[BaseModel]) -> None:
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    repeated = {
        key: (value, default(fields[key]))
        for key, value in section.items()
        if key in fields and not fields[key].is_required() and (option, key) not in CHOICES
    }
    assert {key: pair for key, pair in repeated.items() if pair[0] != pair[1]} == {}


def default(field: Any) -> Any:
    value = field.get_default(call_default_factory=True)
    return value.model_dump(by_alias=True) if isinstance(value, BaseModel) else value


def test_the_rows_are_all_there() -> None:
    assert len(ROWS) > 45
    assert {Path(option).parts[0] for option, _, _ in ROWS} >= {*GROUPS, "metrics", "task", "ragpipe"}
