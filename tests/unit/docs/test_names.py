"""The page that leads from other names to ragpipe's: what it leads to exists, and every design's score is on it."""

import re

import pytest

from ragpipe.cli.command_line import compose
from ragpipe.core import registry
from ragpipe.core.sample import Expected
from ragpipe.data.settings import OUTPUT_FIELDS, SAMPLE_FIELDS
from tests.support.pages import DOCS

_CODE = re.compile(r"`([^`]+)`")


def rows(page: str, title: str) -> list[list[str]]:
    section = (DOCS / page).read_text(encoding="utf-8").split(f"## {title}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.fixture(scope="module")
def scores() -> set[str]:
    """The names of all shipped scores and composites; those by cut-off with their first one as `@k`."""
    shipped = list(registry.option_files("metrics"))
    chosen = [name for name in shipped if name != "recorded"]  # it names its scores after the data
    config = compose(["dataset=demo", f"metrics=[{','.join(chosen)}]"])
    names = {spec.name for metric in config.metrics.values() for spec in metric.scores()}
    return names | set(config.scoring.composites)


OF_EXTRAS = {"bert_score_f1", "bert_score_f1_raw"}
"""Scores of the designs that an extra brings."""


@pytest.mark.slow
def test_every_score_that_the_page_names_exists(scores: set[str]) -> None:
    known = {name.partition("@")[0] for name in scores}
    named = {name.partition("@")[0] for row in rows("deviations.md", "Scores") for name in _CODE.findall(row[1])}
    assert named - known <= OF_EXTRAS


def test_fields_exist_and_deviations_have_no_gap() -> None:
    known = SAMPLE_FIELDS | OUTPUT_FIELDS | {f"expected.{name}" for name in Expected.model_fields}
    named = {name for row in rows("deviations.md", "Fields of a case") for name in _CODE.findall(row[1])}
    assert named - known == set()
    text = (DOCS / "deviations.md").read_text(encoding="utf-8")
    numbers = [int(number) for number in re.findall(r"^\| D(\d+) \|", text, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= 17


@pytest.mark.parametrize("name", [
    "ragas_faithfulness", "ragas_context_precision", "ragas_context_recall", "ragas_answer_relevance", "ragas_score",
    "factual_accuracy_percentage", "semantic_similarity_percentage", "bert_score_f1", "correct_answers_count",
    "wrong_answers_count", "dont_know_answers_count", "Recall_any@K", "Recall_all@K", "FaithfulnessEvaluator",
    "RelevancyEvaluator", "CorrectnessEvaluator", "judge_reliability", "completenessScore",
])  # fmt: skip
def test_every_name_of_the_designs_is_found_on_the_page(name: str) -> None:
    """The names are those of the designs' own summary tables and result objects."""
    assert name in (DOCS / "deviations.md").read_text(encoding="utf-8")


def test_the_options_that_the_configuration_page_lists_are_those_that_are_shipped() -> None:
    text = (DOCS / "configuration.md").read_text(encoding="utf-8").partition("<!-- end -->")[0]
    listed = {group: set(_CODE.findall(cells)) for group, cells in re.findall(r"^\| \[?`\+?(\w+)`[^|]*\|[^|]*\|(.*)\|$", text, re.M)}
    groups = [
        path
        for folder in registry.option_folders()
        for path in folder.iterdir()
        if path.is_dir() and path.name not in ("metrics", "patterns", "schema")
    ]
    shipped = {path.name: set(registry.option_files(path.name)) for path in groups}
    page = {group: listed.get(group, set()) for group in shipped}
    wrong = {group: sorted(page[group] ^ options) for group, options in shipped.items() if page[group] != options}
    assert wrong == {}, f"docs/configuration.md, the table of option groups, and conf/ differ: {wrong}"
