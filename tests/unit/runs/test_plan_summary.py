"""The limits that a plan is held to before anything is spent."""

from types import SimpleNamespace
from typing import Any

import pytest

from ragpipe.core.errors import ConfigError
from ragpipe.judge.settings import JudgeSettings
from ragpipe.runs.plan_notices import check_call_budget
from ragpipe.runs.settings import LiveTransportSettings, StoredTransportSettings


def config_of(max_calls: int, transport: str = "live") -> Any:
    judge = JudgeSettings.model_construct(max_calls=max_calls)
    return SimpleNamespace(judge=judge, transport=StoredTransportSettings() if transport == "stored" else LiveTransportSettings())


@pytest.mark.parametrize(("new_calls", "transport"), [(0, "live"), (10, "live"), (11, "stored")])
def test_a_plan_within_the_budget_starts(new_calls: int, transport: str) -> None:
    check_call_budget(SimpleNamespace(new_calls=new_calls), config_of(10, transport))  # type: ignore[arg-type]


def test_one_call_more_than_the_budget_does_not() -> None:
    with pytest.raises(ConfigError, match="about 11 new calls"):
        check_call_budget(SimpleNamespace(new_calls=11), config_of(10))  # type: ignore[arg-type]
