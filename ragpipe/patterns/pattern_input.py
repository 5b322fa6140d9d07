"""Types of metric parameters that take patterns: the name of a shipped file, or the patterns written out."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Discriminator, Tag

from ragpipe.patterns.policies import Policy, load_policy
from ragpipe.patterns.refusals import RefusalPatterns, load_refusals


def _form(value: Any) -> str:
    return "name" if isinstance(value, str) else "written_out"


def _check_policy(value: Policy | str) -> Policy | str:
    load_policy(value)
    return value


def _check_refusals(value: RefusalPatterns | str) -> RefusalPatterns | str:
    load_refusals(value)
    return value


# The discriminator decides first, so that an error is reported once and not for each member of the union.
Policies = Annotated[
    Annotated[str, Tag("name")] | Annotated[Policy, Tag("written_out")],
    Discriminator(_form),
    AfterValidator(_check_policy),
]
Refusals = Annotated[
    Annotated[str, Tag("name")] | Annotated[RefusalPatterns, Tag("written_out")],
    Discriminator(_form),
    AfterValidator(_check_refusals),
]
