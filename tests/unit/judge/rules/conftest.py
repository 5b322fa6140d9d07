"""Questions to the rules judge without templates: it reads a prompt's roles only."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ragpipe.judge.answer_type import Answer
from ragpipe.judge.prompt import Prompt
from ragpipe.judge.rules.rules_judge import RulesJudge
from ragpipe.judge.rules.settings import RulesSettings


def prompt_with(roles: dict[str, str], optional: dict[str, Any] | None = None) -> Prompt:
    """A prompt with these roles by their variables."""
    return Prompt("test/step", "v1", Path("step.v1.jinja"), "", "", roles, optional or {}, (), frozenset(roles), {})


@pytest.fixture
def ask() -> Callable[..., Any]:
    """`ask(answer_type, role=value, ...)`: each value stands under a variable that is not called like its role."""

    def _ask(answer: type[Answer], settings: RulesSettings | None = None, **by_role: Any) -> Any:
        prompt = prompt_with({f"the_{role}": role for role in by_role})
        values = {f"the_{role}": value for role, value in by_role.items()}
        return RulesJudge(settings or RulesSettings()).answer(prompt, answer, values)

    return _ask
