"""Everything that is shipped composes and validates; every YAML says what it is for."""

from pathlib import Path

import pytest
import yaml

from ragpipe.cli import compose, main
from ragpipe.core.errors import ConfigError
from ragpipe.core.registry import option_files, option_folders
from ragpipe.core.resources import conf_dir
from tests.support.minilm import needs_files

CONF = conf_dir()
BASE = {"dataset": "dataset=demo", "metrics": "metrics=[retrieval]"}
GIVEN = {
    "judge.model": "judge.model=openai/gpt-4o-mini-2024-07-18",
    "embedder.model": "embedder.model=openai/vectors-2024-07-18",
    "dataset.path": "dataset.path=somewhere",
    "system.url": "system.url=http://127.0.0.1:9/answer",
    "system.callable": "system.callable=json:dumps",
    "system.params.model": "system.params.model=bot-2026-01-01",
    "dir": "dir=my",
    "run": "run=outputs/run/latest",
    "case": "case=dao-01",
    "build.dir": "build.dir=sets/march",
    "synthesize.documents": "synthesize.documents=docs",
    "synthesize.dir": "synthesize.dir=testset",
    "base": "base=outputs/run/latest",
    "candidate": "candidate=outputs/run/latest",
    "metrics.recorded": "metrics.recorded.take={human: {}}",
}
"""What a user has to give for the options that cannot know it."""


def _options() -> list[str]:
    folders = [path for folder in option_folders() for path in folder.iterdir() if path.is_dir()]
    groups = sorted({path.name for path in folders} - {"patterns"})  # those are no options
    return [f"{group}/{name}" for group in groups for name in option_files(group)]


ALL_METRICS = list(option_files("metrics"))


def _words(option: str) -> list[str]:
    group, name = option.split("/")
    if group == "experiment":
        return [f"+experiment={name}"]
    words = [word for key, word in BASE.items() if key != group]
    if group == "compare":
        return ["task=compare", f"compare={name}"]
    if group == "mode":
        return [*words, f"+mode={name}"]
    return [*words, f"metrics=[{name}]" if group == "metrics" else f"{group}={name}"]


@pytest.mark.slow
@needs_files
def test_all_metrics_compose_together() -> None:
    assert len(
        compose(["dataset=demo", f"metrics=[{','.join(ALL_METRICS)}]", GIVEN["metrics.recorded"]]).metrics
    ) >= len(ALL_METRICS)


DEFAULT = {"experiment/quickstart", "experiment/trec", "experiment/expertqa", "judge/evidence", "judge/llm"}


def _marked(option: str) -> object:  # one composition costs 0.2 s: most stand with the slow tests
    return option if option in DEFAULT else pytest.param(option, marks=pytest.mark.slow)


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which `outputs/run/latest` is a finished run, for the tasks over one."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(folder)
        assert main([BASE["dataset"], "metrics=[retrieval,faithfulness]", "dataset.limit=1", "report.formats=[]"]) == 0
    return folder


@pytest.mark.thorough(tried=20)
@pytest.mark.slow
@pytest.mark.parametrize("option", [_marked(option) for option in _options()])
def test_composes_and_validates(option: str, finished_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(finished_run)
    words = (
        ["task=store"] if option == "task/store" else _words(option)
    )  # it is about no run: other keys are misspelt ones
    if option == "system/python":
        words.append("plugins=[json]")
    if option == "task/drift":
        words += ["judge=llm", GIVEN["judge.model"]]
    try:
        config = compose(words)
    except ConfigError as error:
        missing = [p.key for p in error.problems]
        if len(missing) == 1 and missing[0].endswith(".kind") and "pip install" in error.problems[0].fix:
            return  # it needs a package that is not here, and says which
        if {"run", "base"} & set(missing):  # a task over a finished run
            words = words if option.startswith("compare/") else [option.replace("/", "=")]
            if option == "task/spot_check":
                words.append("judge.threshold=0.5")  # a second judge
        if option == "task/publish":
            words.append("publish=s3://bucket/runs")
        if option == "task/fetch":
            missing, words = [], ["task=fetch", "run=s3://bucket/runs/x/latest"]
        config = compose([*words, *(GIVEN[key] for key in missing)])
    assert config is not None


@pytest.mark.parametrize(
    "file",
    [file for folder in option_folders() for file in sorted(folder.rglob("*.yaml"))],
    ids=lambda p: "/".join(p.parts[-2:]),
)
def test_every_yaml_opens_with_a_comment_that_says_how_to_use_it(file: Path) -> None:
    lines = file.read_text(encoding="utf-8").splitlines()
    comments = [line for line in lines[:8] if line.startswith("#") and "@package" not in line]
    assert comments, f"{file} has no opening comment"
    assert lines[0].startswith("#")


def test_the_primary_lists_no_overlay() -> None:
    primary = yaml.safe_load((CONF / "ragpipe.yaml").read_text(encoding="utf-8"))
    groups = {key for entry in primary["defaults"] if isinstance(entry, dict) for key in entry}
    assert not groups & {"mode", "experiment"}
    assert not {"mode", "experiment"} & set(primary)


@pytest.mark.slow
def test_identity_leaves_out_what_cannot_change_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    base = ["dataset=demo", "metrics=[retrieval]", "judge=llm", "judge.model=openai/gpt-4o-mini-2024-07-18"]
    one = compose(base).identity()
    same = ["output_dir=elsewhere", "iterations=3", "name=other", "transport=stored", "judge.concurrency=2",
            "judge.client=litellm", "judge.retries=1", "log_level=debug", "store.path=s", "retry_errors=true"]  # fmt: skip
    assert compose([*base, *same]).identity() == one
    sampled = [*base, "dataset.sample={n: 3}"]
    assert compose(["seed=1", *sampled]).identity() != compose(sampled).identity()
    assert compose(["seed=1", *base]).identity() == one, "nothing is drawn"
    for other in (
        "dataset.sample={n: 3}",
        "judge.temperature=1",
        "dataset.limit=3",
        "scoring.weights.retrieval_score=0.7",
    ):
        assert compose([*base, other]).identity() != one, other
