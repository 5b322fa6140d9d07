"""How patterns are given in a metric's YAML: the name of a shipped file, or written out."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Discriminator, Tag

from ragpipe.patterns.policies import Policy, named_policy
from ragpipe.patterns.refusals import RefusalPatterns, named_refusals


def _form(given: Any) -> str:
    return "name" if isinstance(given, str) else "written_out"


def _known_policy(given: Policy | str) -> Policy | str:
    named_policy(given)
    return given


def _known_refusals(given: RefusalPatterns | str) -> RefusalPatterns | str:
    named_refusals(given)
    return given


# The form is told first, so that a fault is named once and not for each member of the union.
Policies = Annotated[
    Annotated[str, Tag("name")] | Annotated[Policy, Tag("written_out")],
    Discriminator(_form),
    AfterValidator(_known_policy),
]
Refusals = Annotated[
    Annotated[str, Tag("name")] | Annotated[RefusalPatterns, Tag("written_out")],
    Discriminator(_form),
    AfterValidator(_known_refusals),
]
