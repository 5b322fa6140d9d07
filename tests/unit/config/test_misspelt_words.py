"""A misspelt word of the command line is named, in one message, with what it was meant as."""

from pathlib import Path

import pytest

from ragpipe import cli
from ragpipe.core.errors import ConfigError, Problem

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test

LIVE = ("system=http", "dataset=jsonl", "dataset.path=good.jsonl", "metrics=[format]")


def _problems(*words: str) -> tuple[Problem, ...]:
    with pytest.raises(ConfigError) as caught:
        cli.compose(words)
    return caught.value.problems


@pytest.mark.parametrize(
    ("words", "key", "fix"),
    [
        (("+expermient=quickstart",), "expermient", "did you mean +experiment=quickstart?"),
        (("tsak=plan",), "tsak", "did you mean task=plan?"),
        ((*LIVE, "system.ulr=http://x/ask"), "system.url", "the command line has system.ulr: did you mean system.url?"),
        (
            ("+experiment=quickstart", "judge=llm"),
            "judge.model",
            "pass judge.model=... (for example judge.model=openai/gpt-4o-mini-2024-07-18) or set it in your experiment",
        ),
    ],
)
def test_one_message_names_the_word(words: tuple[str, ...], key: str, fix: str) -> None:
    problems = _problems(*words)
    assert [(problem.key, problem.fix) for problem in problems] == [(key, fix)]


def test_an_address_without_its_scheme() -> None:
    [problem] = _problems(*LIVE, "system.url=127.0.0.1:80")
    assert problem.expected.startswith("an address that begins with http:// or https://")


def test_a_file_of_nearly_this_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inner").mkdir()
    for name in ("good.jsonl", "good.csv", "other.jsonl", "inner/good.jsonl"):
        (tmp_path / name).touch()
    assert _problems("god.jsonl")[0].fix == "did you mean good.jsonl?"
    assert _problems("inner/god.jsonl")[0].fix == "did you mean inner/good.jsonl?"
    assert _problems("nowhere/god.jsonl")[0].fix.startswith("there is no such file or folder here")


def test_an_experiment_in_a_folder_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good" / "experiment").mkdir(parents=True)
    (tmp_path / "good" / "experiment" / "good.yaml").touch()
    assert _problems("+experiment=good")[0].fix == "it is in the folder good/: add --config-dir good"
    assert "--config-dir" not in _problems("+experiment=goods")[0].fix
