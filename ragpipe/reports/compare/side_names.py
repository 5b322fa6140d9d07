"""What the sides of a comparison are called on a page, in an address and in a chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def side_names(document: Mapping[str, Any]) -> list[str]:
    """The names of the base and of each candidate, all different: methods where methods are compared, else the names of the
    runs, or with their ids where names are equal, or with their methods where the runs are."""
    sides = [document["base"], *document["candidates"]]
    methods = [str(side["method"] or "all methods") for side in sides]
    if document["kind"] == "methods":
        return methods
    runs = [str(side["run_id"]) for side in sides]
    names = [str(side["name"]) for side in sides]
    with_ids = [f"{name} {run}" for name, run in zip(names, runs, strict=True)]
    with_methods = [f"{name} {method}" for name, method in zip(with_ids, methods, strict=True)]
    choices = [names, with_ids, with_methods]
    return next((choice for choice in choices if len(set(choice)) == len(choice)), _numbered(with_methods))


def _numbered(names: Sequence[str]) -> list[str]:
    return [f"{number}: {name}" for number, name in enumerate(names)]
