"""From a metric's YAML to a metric: every fault at once, and no class but a Metric."""

from __future__ import annotations

import sys
import textwrap

import pytest
import yaml

from ragpipe.core.errors import ConfigError
from ragpipe.core.registry import option_files
from ragpipe.core.resources import prompts_dir
from ragpipe.metrics.base import Metric
from ragpipe.metrics.from_config import load_metric
from ragpipe.metrics.shipped_scores import shipped_scores
from ragpipe.prompting.library import PromptLibrary
from ragpipe.testing.scripted import shipped_metric, shipped_names

LIBRARY = PromptLibrary([prompts_dir()])
CLASS = "FaithfulnessMetric"
PROMPTS = {"extract": "v1", "verify": "v1"}


def faults(section, plugins=()):
    with pytest.raises(ConfigError) as caught:
        load_metric("m", section, LIBRARY, plugins)
    return {problem.key.removeprefix("metrics.m."): problem for problem in caught.value.problems}


EXAMPLES = {"rubric": {"criteria"}}  # what a user writes anew is no default


@pytest.mark.parametrize("name", shipped_names())
def test_a_shipped_config_shows_every_parameter_with_its_default(name):
    text = option_files("metrics")[name].read_text(encoding="utf-8")
    assert text.startswith("# ")
    section = yaml.safe_load(text)[name]
    metric = shipped_metric(name)
    assert metric.name == name
    shown = {key: value for key, value in section.items() if key not in ("class", "prompts", "label")}
    assert shown == metric.model_dump(exclude={"name", *metric.step_names()})
    given = {"class", "prompts", *EXAMPLES.get(name, ())}
    bare = load_metric(name, {k: v for k, v in section.items() if k in given}, LIBRARY)
    assert bare.model_dump(exclude=set(metric.step_names())) == metric.model_dump(exclude=set(metric.step_names())), (
        "a value in the YAML differs from the class's default"
    )
    assert len({spec.name for spec in metric.scores()}) == len(metric.scores())
    assert len(type(metric).__doc__ or "") > 100, (
        "the docstring says the range, what the ends mean, and which cases are skipped"
    )


def test_the_scores_of_all_shipped_metrics_are_known_without_loading_them():
    expected = {spec.name: spec for name in shipped_names() for spec in shipped_metric(name).scores()}
    assert shipped_scores() == expected
    assert len(expected) == sum(len(shipped_metric(name).scores()) for name in shipped_names())


SECTIONS = [
    ("no class", {"prompts": PROMPTS}, {"class"}),
    ("not a text", {"class": 7}, {"class"}),
    ("outside", {"class": "os.system"}, {"class"}),
    ("a name that only begins alike", {"class": "ragpipe_evil.metrics.M"}, {"class"}),
    ("no module", {"class": "ragpipe.metrics.nothing.Nothing"}, {"class"}),
    ("no attribute", {"class": "ragpipe.metrics.judged.faithfulness.Nothing"}, {"class"}),
    ("through a module", {"class": "ragpipe.metrics.judged.faithfulness.math.ceil"}, {"class"}),
    ("a function", {"class": "ragpipe.metrics.from_config.load_metric"}, {"class"}),
    ("another class", {"class": "ragpipe.prompting.prompt.Prompt"}, {"class"}),
    ("the base", {"class": "ragpipe.metrics.base.Metric"}, {"class"}),
    ("the computed base", {"class": "ragpipe.metrics.base.Computed"}, {"class"}),
    ("a base of some", {"class": "ragpipe.metrics.shared.judge_metric.JudgeMetric"}, {"class"}),
    ("no prompts", {"class": CLASS}, {"prompts.extract", "prompts.verify"}),
    ("a step missing", {"class": CLASS, "prompts": {"extract": "v1"}}, {"prompts.verify"}),
    ("a step too many", {"class": CLASS, "prompts": PROMPTS | {"verfy": "v1"}}, {"prompts.verfy"}),
    ("a version that is not there", {"class": CLASS, "prompts": PROMPTS | {"verify": "v99"}}, {"prompts.verify"}),
    ("a path as a version", {"class": CLASS, "prompts": PROMPTS | {"verify": "../../x"}}, {"prompts.verify"}),
    ("a number as a version", {"class": CLASS, "prompts": PROMPTS | {"verify": 1}}, {"prompts.verify"}),
    ("prompts not a mapping", {"class": CLASS, "prompts": "v1"}, {"prompts"}),
    ("unknown parameter", {"class": CLASS, "prompts": PROMPTS, "bach": 2}, {"bach"}),
    ("name as a parameter", {"class": CLASS, "prompts": PROMPTS, "name": "x"}, {"name"}),
    ("a step as a parameter", {"class": CLASS, "prompts": PROMPTS, "verify": "v1"}, {"verify"}),
    ("a text for a number", {"class": CLASS, "prompts": PROMPTS, "batch": "2"}, {"batch"}),
    ("a yes for a bool", {"class": CLASS, "prompts": PROMPTS, "reasoning": 1}, {"reasoning"}),
    ("examples for no step", {"class": CLASS, "prompts": PROMPTS, "examples": {"x": ["y"]}}, {"(the whole section)"}),
    ("all at once", {"class": CLASS, "prompts": {"extract": "v9", "x": "v1"}, "batch": 0, "bach": 1},
     {"prompts.extract", "prompts.verify", "prompts.x", "batch", "bach"}),
    ("cut-offs", {"class": "RetrievalMetric", "k": [5, 5]}, {"k"}),
    ("a cut-off of 0", {"class": "RetrievalMetric", "k": [0]}, {"k"}),
    ("no cut-off", {"class": "RetrievalMetric", "k": []}, {"k"}),
    ("negative weights", {"class": "RetrievalMetric", "weights": {"mrr": -1.0, "hit": 2.0}}, {"weights"}),
    ("weights of nothing", {"class": "RetrievalMetric", "weights": {"mrr": 0.0}}, {"weights"}),
    ("weights that are no number", {"class": "RetrievalMetric", "weights": {"mrr": float("nan")}}, {"weights"}),
]  # fmt: skip


@pytest.mark.parametrize(("section", "keys"), [pytest.param(*row[1:], id=row[0]) for row in SECTIONS])
def test_a_wrong_section_is_refused_with_all_its_faults(section, keys):
    found = faults(section)
    assert {key.split(".mrr")[0] for key in found} == keys
    for problem in found.values():
        assert problem.found
        assert problem.expected


def test_messages_name_what_there_is():
    found = faults({"class": CLASS, "prompts": {"extract": "v1", "verfy": "v1"}, "bach": 2})
    assert "v1" in found["prompts.verify"].expected
    assert "verify" in found["prompts.verfy"].fix
    assert "batch" in found["bach"].fix
    assert "v1" in faults({"class": CLASS, "prompts": PROMPTS | {"verify": "v99"}})["prompts.verify"].expected


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    package = tmp_path / "my_metrics_for_tests"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "length.py").write_text(
        textwrap.dedent("""
        from ragpipe.metrics.base import Computed
        from ragpipe.schema.score import Score

        class Length(Computed):
            unit: int = 1
            def compute(self, cases):
                return [Score(len(c.answer) / self.unit) for c in cases]
    """)
    )
    (package / "broken.py").write_text("raise RuntimeError('no such device')\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield package.name
    for name in [name for name in sys.modules if name.split(".")[0] == package.name]:
        del sys.modules[name]


def test_a_class_of_the_users_own_needs_its_package_listed(plugin):
    section = {"class": f"{plugin}.length.Length", "unit": 2}
    assert f"'plugins=[{plugin}]'" in faults(section)["class"].fix
    assert f"'plugins=[other,{plugin}]'" in faults(section, ["other"])["class"].fix
    assert plugin not in sys.modules, "it must not even be imported"
    metric = load_metric("m", section, LIBRARY, [plugin])
    assert isinstance(metric, Metric)
    assert metric.prompt_folder("grade") == "length"


def test_a_module_at_the_top_has_a_prompt_folder_and_calls_must_be_told(plugin, tmp_path):
    """Without `planned_calls` a plan would say 0 calls, and nothing would hold them below judge.max_calls."""
    text = textwrap.dedent("""
        from ragpipe import Metric, PlannedCall, Prompt, Score
        from ragpipe.schema.judge_answers.grade_answers import Grade15

        class Silent(Metric):
            grade: Prompt
            async def measure(self, case, judge):
                return Score((await judge(self.grade, Grade15, answer=case.answer)).score)

        class Telling(Silent):
            def planned_calls(self, case):
                yield PlannedCall(self.grade, Grade15, {"answer": case.answer})
    """)
    (tmp_path / f"{plugin}_alone.py").write_text(text)
    module = f"{plugin}_alone"
    assert "planned_calls" in faults({"class": f"{module}.Silent", "prompts": {"grade": "v1"}}, [module])["class"].fix
    assert "my_metrics_for_tests_alone" in str(
        faults({"class": f"{module}.Telling", "prompts": {"grade": "v1"}}, [module])
    )


def test_a_plugin_that_fails_at_import_says_how(plugin):
    found = faults({"class": f"{plugin}.broken.Length"}, [plugin])
    assert "RuntimeError: no such device" in found["class"].found


def test_an_attribute_without_a_type_is_named_with_what_to_write(plugin, tmp_path):
    text = "from ragpipe.metrics.base import Computed\n\n\nclass Length(Computed):\n    unit = 1\n"
    (tmp_path / plugin / "untyped.py").write_text(text)
    (problem,) = faults({"class": f"{plugin}.untyped.Length"}, [plugin]).values()
    assert problem.found == f"'{plugin}.untyped.Length', whose import fails: the attribute `unit` has no type"
    assert problem.expected == "a type on every attribute"
    assert problem.fix == (
        "write `unit: TYPE = ...` for a key of the metric's section, `unit: ClassVar[TYPE] = ...` for a constant"
    )


def test_another_fault_of_a_class_body_is_told_without_an_address_of_pydantic(plugin, tmp_path):
    text = "from ragpipe.metrics.base import Computed\n\n\nclass Length(Computed):\n    name = 'length'\n"
    (tmp_path / plugin / "odd.py").write_text(text)
    (problem,) = faults({"class": f"{plugin}.odd.Length"}, [plugin]).values()
    assert problem.found == (
        f"'{plugin}.odd.Length', whose import fails: Field 'name' defined on a base class was overridden by a non-annotated "
        "attribute. All field definitions, including overrides, require a type annotation."
    )
