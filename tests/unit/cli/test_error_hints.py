"""What a key means stands in the hint of an error about it."""

import pytest

from ragpipe.core.errors import Problem
from ragpipe.core.settings import NoOrigins, validated
from ragpipe.judge.settings import JudgeSettings
from ragpipe.runs.settings import TopSettings
from ragpipe.score.settings import ScoringSettings

MODEL = "openai/gpt-4o-mini-2024-07-18"


@pytest.mark.parametrize(("model", "section", "key", "fix"), [
    (JudgeSettings, {"model": MODEL, "temprature": 1}, "x.temprature", "did you mean temperature? Sampling"),
    (JudgeSettings, {"model": MODEL, "temperature": 3}, "x.temperature", "Sampling temperature, 0 to 2."),
    (JudgeSettings, {}, "x.model", "pass x.model=... or set it in your experiment: The model, as provider/name"),
    (ScoringSettings, {"gates": {"g": {"scor": "a"}}}, "x.gates.g.scor", "did you mean score? Score that the gate"),
    (ScoringSettings, {"level": 2}, "x.level", "Confidence level of every interval"),
    (JudgeSettings, {"model": MODEL, "zzz": 1}, "x.zzz", ""),  # near to nothing: no hint
    (JudgeSettings, {"model": "gpt"}, "x.model", ""),  # its own message says what is expected
])  # fmt: skip
def test_a_section(model, section, key, fix):
    problems: list[Problem] = []
    assert validated(model, section, "x", NoOrigins(), problems) is None
    hints = {problem.key: problem.fix for problem in problems}
    assert hints[key].startswith(fix)
    assert fix or not hints[key]


@pytest.mark.parametrize(
    ("value", "expected"), [("ABC", "a list, such as [ABC]"), (7, "a list, such as [7]"), (True, "a list"), ({"a": "b"}, "a list")]
)
def test_one_value_for_a_list_is_shown_as_a_list(value, expected):
    problems: list[Problem] = []
    assert validated(TopSettings, {"plugins": value}, "", NoOrigins(), problems) is None
    assert [(problem.key, problem.expected) for problem in problems] == [("plugins", expected)]
    assert problems[0].fix.startswith("Your own Python packages, whose metrics")
