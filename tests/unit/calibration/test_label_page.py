"""What a page of labels asks, of the caller, of the metric's section, or by the scale; what it holds as a file, and
that no text becomes markup."""

import re
from typing import Any

import pytest
import yaml

from ragpipe.calibration.label_files import Draw, LabelGrade, ShownCase, StratumSize
from ragpipe.core.errors import ConfigError
from ragpipe.core.resources import conf_dir, prompts_dir
from ragpipe.core.sample import Turn
from ragpipe.core.score import ScoreSpec, whole_grades
from ragpipe.judge.prompt_library import PromptLibrary
from ragpipe.metrics.base import Computed
from ragpipe.metrics.from_config import load_metric
from ragpipe.report.label_page import asked_question, label_page
from ragpipe.runs.identity import metric_identity
from tests.support.page_blocks import block_json

ATTACK = '</script><img src=x onerror="alert(1)">'
DRAW = Draw(
    draw_id="f-1", run_id="run7", metric="f", score="f", question=f"All? {ATTACK}", grades=[LabelGrade(name=ATTACK, value=0.125)],
    low=0.0, high=1.0, seed=77, cases=99, strata=[StratumSize(name="stratum_7", cases=99, drawn=2)], settings={"near": 0.375},
)  # fmt: skip
CASES = {
    "i2": ShownCase(ATTACK, [Turn(role="user", text=ATTACK)], ATTACK, [ATTACK, "two"], ["the reference"], "d" * 64),
    "i1": ShownCase("Who?", [], None, None, [], "e" * 64),
}


def html(**changes):
    options: dict[str, Any] = {"annotators": ["ann"], "with_reference": False, **changes}
    return label_page(DRAW, CASES, {"i1": None, "i2": ["ann"]}, **options)


def test_texts_never_become_markup():
    page = html()
    assert "<img" not in page
    assert page.count("<script>") == 1
    assert block_json(page, "d0")[1]["answer"] == ATTACK
    assert "&lt;img" in page  # the question, as text


def test_the_page_has_the_texts_and_nothing_of_the_draw_and_the_reference_only_where_it_is_asked_for():
    page = html()
    about, cases = block_json(page, "about"), block_json(page, "d0")
    assert [case["item"] for case in cases] == ["i1", "i2"]
    assert about["items"] == [{"item": "i1", "asked": None}, {"item": "i2", "asked": ["ann"]}]
    assert about["grades"] == [ATTACK]  # names without values
    text = re.sub(r'<script type="text/plain".*?</script>', "", page) + repr(about) + repr(cases)
    for secret in ("run7", "stratum_7", "0.125", "0.375", "the reference", "d" * 64, "strata"):
        assert secret not in text
    assert block_json(html(with_reference=True), "d0")[1]["references"] == ["the reference"]


def test_the_page_loads_nothing():
    page = html()
    assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", re.sub(r"<script>.*</script>", "", page, flags=re.S))
    assert "default-src 'none'" in page


def test_a_page_of_many_cases_has_several_blocks():
    cases = {f"i{number:03}": CASES["i1"] for number in range(130)}
    page = label_page(DRAW, cases, dict.fromkeys(cases), annotators=[], with_reference=False)
    assert [len(block_json(page, f"d{number}")) for number in range(3)] == [64, 64, 2]


LIBRARY = PromptLibrary([prompts_dir()])
SECTION = yaml.safe_load((conf_dir() / "metrics" / "faithfulness.yaml").read_text(encoding="utf-8"))["faithfulness"]


COUNT = ScoreSpec("m", None, None)


class Declared(Computed):
    """A metric that declares the scores of the test."""

    specs: tuple[ScoreSpec, ...]

    def scores(self):
        return self.specs

    def compute(self, cases):  # type: ignore[no-untyped-def]
        return []


def asked(*specs, name="m", question=None, grades=None):
    """What is asked of a metric with these scores."""
    return asked_question([Declared(name="m", specs=specs)], name, question, grades)


def grades_in(asked):
    return [(grade.name, grade.value) for grade in asked.grades]


@pytest.mark.parametrize(("spec", "grades"), [
    (ScoreSpec("m", binary=True), {"yes": 1, "no": 0}),
    (ScoreSpec("m"), {"all": 1, "partly": 0.5, "none": 0}),
    (ScoreSpec("m", 0, 100), {"all": 100, "partly": 50, "none": 0}),
    (ScoreSpec("m", 1, 5), {"5": 5, "4": 4, "3": 3, "2": 2, "1": 1}),
    (ScoreSpec("m", 0, 3, grades=whole_grades(0, 3)), {"3": 3, "2": 2, "1": 1, "0": 0}),
    (ScoreSpec("m", 0, 100, grades=(("A", 90.0), ("B", 50.0), ("C", 0.0))), {"A": 90, "B": 50, "C": 0}),
])  # fmt: skip
def test_the_scale_gives_the_grades(spec, grades):
    assert grades_in(asked(spec)) == list(grades.items())


def test_the_section_of_the_metric_is_asked_unless_the_caller_asks_otherwise():
    metric = load_metric("faithfulness", SECTION, LIBRARY)
    of_section = asked_question([metric], "faithfulness", None, None)
    assert of_section.question == "Do the contexts support every claim of the answer?"
    assert grades_in(of_section) == [("all", 1), ("partly", 0.5), ("none", 0)]
    own = asked_question([metric], "faithfulness", "Right?", {"right": 1, "wrong": 0})
    assert (own.question, grades_in(own)) == ("Right?", [("right", 1), ("wrong", 0)])


def test_without_a_section_the_score_is_named_and_the_caller_may_name_grades():
    specs = ScoreSpec("m_first"), ScoreSpec("m_second", binary=True)
    assert asked(*specs).question == "How do you grade this case for m first?"
    assert asked(*specs, name="m_second").spec.name == "m_second"
    assert grades_in(asked(COUNT, grades={"few": 1, "many": 9})) == [("few", 1), ("many", 9)]


@pytest.mark.parametrize(("spec", "name", "grades", "message"), [
    (ScoreSpec("m"), None, None, "label.metric=m"),
    (ScoreSpec("m"), "mm", None, r"did you mean m\?"),
    (ScoreSpec("m"), "m", {"good": 2, "bad": 0}, "values from 0 to 1"),
    (COUNT, "m", None, "m has no scale"),
])  # fmt: skip
def test_what_cannot_be_asked_is_refused(spec, name, grades, message):
    with pytest.raises(ConfigError, match=message):
        asked(spec, name=name, grades=grades)


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
    one, other = (load_metric("faithfulness", {**SECTION, "label": label}, LIBRARY) for label in (None, {"question": "Right?"}))
    assert one.label_question != other.label_question
    assert metric_identity(one) == metric_identity(other)
