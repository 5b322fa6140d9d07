"""Question and grades: of the caller, of the metric's section, or by the scale."""

import pytest
import yaml

from ragpipe.core.errors import ConfigError
from ragpipe.core.resources import conf_dir, prompts_dir
from ragpipe.core.score import ScoreSpec, whole_grades
from ragpipe.judge.prompt_library import PromptLibrary
from ragpipe.metrics.base import Computed
from ragpipe.metrics.from_config import load_metric
from ragpipe.report.label_page import asked_question
from ragpipe.runs.identity import metric_identity

LIBRARY = PromptLibrary([prompts_dir()])
SECTION = yaml.safe_load((conf_dir() / "metrics" / "faithfulness.yaml").read_text(encoding="utf-8"))["faithfulness"]


class Declared(Computed):
    """A metric that declares the scores of the test."""

    specs: tuple[ScoreSpec, ...]

    def scores(self):
        return self.specs

    def compute(self, cases):  # type: ignore[no-untyped-def]
        return []


def grades_of(spec):
    asked = asked_question([Declared(name="m", specs=(spec,))], "m", None, None)
    return {grade.name: grade.value for grade in asked.grades}


@pytest.mark.parametrize(("spec", "grades"), [
    (ScoreSpec("m", binary=True), {"yes": 1, "no": 0}),
    (ScoreSpec("m"), {"all": 1, "partly": 0.5, "none": 0}),
    (ScoreSpec("m", 0, 100), {"all": 100, "partly": 50, "none": 0}),
    (ScoreSpec("m", 1, 5), {"5": 5, "4": 4, "3": 3, "2": 2, "1": 1}),
    (ScoreSpec("m", 0, 3, grades=whole_grades(0, 3)), {"3": 3, "2": 2, "1": 1, "0": 0}),
    (ScoreSpec("m", 0, 100, grades=(("A", 90.0), ("B", 50.0), ("C", 0.0))), {"A": 90, "B": 50, "C": 0}),
])  # fmt: skip
def test_the_scale_gives_the_grades(spec, grades):
    assert list(grades_of(spec).items()) == list(grades.items())


def test_a_count_needs_grades():
    metric = Declared(name="m", specs=(ScoreSpec("m", None, None),))
    with pytest.raises(ConfigError, match="m has no scale"):
        asked_question([metric], "m", None, None)
    assert [grade.value for grade in asked_question([metric], "m", None, {"few": 1, "many": 9}).grades] == [1, 9]


def test_the_section_of_the_metric_is_asked_unless_the_caller_asks_otherwise():
    metric = load_metric("faithfulness", SECTION, LIBRARY)
    asked = asked_question([metric], "faithfulness", None, None)
    assert asked.question == "Do the contexts support every claim of the answer?"
    assert [(grade.name, grade.value) for grade in asked.grades] == [("all", 1), ("partly", 0.5), ("none", 0)]
    asked = asked_question([metric], "faithfulness", "Right?", {"right": 1, "wrong": 0})
    assert (asked.question, [grade.name for grade in asked.grades]) == ("Right?", ["right", "wrong"])


def test_without_a_section_the_score_is_named():
    metrics = [Declared(name="m", specs=(ScoreSpec("m_first"), ScoreSpec("m_second", binary=True)))]
    assert asked_question(metrics, "m", None, None).question == "How do you grade this case for m first?"
    assert asked_question(metrics, "m_second", None, None).spec.name == "m_second"


@pytest.mark.parametrize(("name", "grades", "message"), [
    (None, None, "label.metric=m"),
    ("mm", None, "did you mean m?"),
    ("m", {"good": 2, "bad": 0}, "values from 0 to 1"),
])  # fmt: skip
def test_what_cannot_be_asked_is_refused(name, grades, message):
    with pytest.raises(ConfigError, match=message.replace("?", r"\?")):
        asked_question([Declared(name="m", specs=(ScoreSpec("m"),))], name, None, grades)


@pytest.mark.parametrize(("label", "key", "message"), [
    ({"question": ""}, "label.question", "at least 1 character"),
    ({"question": "x", "grades": {"only": 1}}, "label.grades", "2 to 9 grades"),
    ({"question": "x", "grades": {"a": 1, "b": 1}}, "label.grades", "different finite values"),
    ({"question": "x", "grade": {}}, "label.grade", "one of"),
    ("Right?", "label", "a mapping"),
])  # fmt: skip
def test_a_wrong_section_is_refused_with_its_key(label, key, message):
    with pytest.raises(ConfigError) as error:
        load_metric("faithfulness", {**SECTION, "label": label}, LIBRARY)
    (problem,) = error.value.problems
    assert (problem.key, message in problem.expected) == (f"metrics.faithfulness.{key}", True)


def test_what_people_are_asked_is_in_no_identity():
    asked, other = (load_metric("faithfulness", {**SECTION, "label": label}, LIBRARY) for label in (None, {"question": "Right?"}))
    assert asked.label_question != other.label_question
    assert metric_identity(asked) == metric_identity(other)
