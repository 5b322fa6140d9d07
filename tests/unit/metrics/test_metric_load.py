"""From a metric's YAML to a metric: every fault at once, and no class but a Metric."""

import json
import sys
import textwrap

import pytest
import yaml

from ragpipe.core.errors import ConfigError, RagpipeError
from ragpipe.core.registry import option_files
from ragpipe.core.resources import prompts_dir
from ragpipe.judge.prompt_library import PromptLibrary
from ragpipe.metrics.base import Metric
from ragpipe.metrics.from_config import load_metric, shipped_scores
from ragpipe.testing.scripted import make_case, score_of, shipped_metric, shipped_names

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
    assert len(type(metric).__doc__ or "") > 100, "the docstring says the range, what the ends mean, and which cases are skipped"


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
    ("another class", {"class": "ragpipe.judge.prompt.Prompt"}, {"class"}),
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
    assert found["bach"].fix.startswith("did you mean batch? Claims per verifying call")
    assert faults({"class": CLASS, "prompts": PROMPTS, "batch": 0})["batch"].fix.startswith("Claims per verifying call")
    assert "v1" in faults({"class": CLASS, "prompts": PROMPTS | {"verify": "v99"}})["prompts.verify"].expected


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    package = tmp_path / "my_metrics_for_tests"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "length.py").write_text(
        textwrap.dedent("""
        from ragpipe.metrics.base import Computed
        from ragpipe.core.score import Score

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


def test_a_module_at_the_top_has_a_prompt_folder(plugin, tmp_path):
    text = textwrap.dedent("""
        from ragpipe import Metric, Prompt, Score
        from ragpipe.judge.answers import Grade15

        class Graded(Metric):
            grade: Prompt
            async def measure(self, case, judge):
                return Score((await judge(self.grade, Grade15, answer=case.answer)).score)
    """)
    module = f"{plugin}_alone"
    (tmp_path / f"{module}.py").write_text(text)
    assert module in str(faults({"class": f"{module}.Graded", "prompts": {"grade": "v1"}}, [module]))


def test_a_plugin_that_fails_at_import_says_how(plugin):
    found = faults({"class": f"{plugin}.broken.Length"}, [plugin])
    assert "RuntimeError: no such device" in found["class"].found


@pytest.mark.parametrize(("line", "said"), [
    ("unit = 1", "non-annotated attribute was detected: `unit = 1`"), ("name = 'length'", "'name' defined on a base class was overridden"),
])  # fmt: skip
def test_a_class_that_pydantic_does_not_take_says_why_without_an_address(plugin, tmp_path, line, said):
    text = f"from ragpipe.metrics.base import Computed\n\n\nclass Length(Computed):\n    {line}\n"
    (tmp_path / plugin / "odd.py").write_text(text)
    (problem,) = faults({"class": f"{plugin}.odd.Length"}, [plugin]).values()
    assert said in problem.found
    assert "https://" not in problem.found


NODE = {"type": "object", "properties": {"child": {"$ref": "#/$defs/node"}}, "additionalProperties": False}
TREE = {"$ref": "#/$defs/node", "$defs": {"node": NODE}}


def held(schema, answer):
    """Whether the answer fits the schema."""
    text = answer if isinstance(answer, str) else json.dumps(answer)
    return score_of(shipped_metric("format", length={}, json_schema=schema), make_case(text))["format"].value == 1


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"$ref": "#"}, "leads back to itself"),
        ({"anyOf": [{"type": "null"}, {"$ref": "#"}]}, "leads back to itself"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"not": {"$ref": "#/$defs/b"}}, "b": {"$ref": "#/$defs/a"}}}, "leads back"),
        ({"$ref": "#/$defs/absent"}, "'#/$defs/absent' points to nothing"),
        ({"properties": {"a": {"items": {"$ref": "#nowhere"}}}}, "'#nowhere' points to nothing"),
        ({"$ref": "#/required", "required": ["a"]}, "points to list"),
        ({"items": {"$ref": "other.json"}}, "points elsewhere"),
        ({"items": {"pattern": "("}}, "a regular expression"),
        ({"patternProperties": {"(": {}}}, "a regular expression"),
        ({"properties": {"at": {"format": "uri"}}}, "'uri' is not checked: take it out, or use a pattern"),
    ],
)
def test_a_schema_that_would_fail_at_the_first_case_is_refused_at_once(schema, says):
    with pytest.raises((ValueError, RagpipeError)) as fault:
        shipped_metric("format", json_schema=schema)
    assert says in str(fault.value)


@pytest.mark.parametrize(
    ("schema", "fits", "does_not"),
    [
        (TREE, {"child": {"child": {}}}, {"child": {"kind": 1}}),
        ({"items": {"$ref": "#"}, "type": ["array", "null"]}, [None, [None]], [1]),
        ({"$defs": {"n": {"$anchor": "num", "type": "number"}}, "items": {"$ref": "#num"}}, [1], ["a"]),
        # RFC 6901 and draft 2020-12, section 8.2.1: a reference is looked up from the nearest $id
        ({"items": {"$id": "urn:x:y", "$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}}}, [None], [1]),
        # names and values that look like keywords are none
        ({"properties": {"$ref": {"type": "string"}, "format": {"const": "uri"}}}, {"$ref": "https://x"}, {"format": "a"}),
        ({"enum": [{"$ref": "https://example.org", "format": "uri"}]}, {"$ref": "https://example.org", "format": "uri"}, 1),
        # draft 2020-12 validation, section 6.3.3: expressions as in ECMA-262, which minds the case
        ({"pattern": "^[A-Z]{3}$"}, '"ABC"', '"abc"'),
        ({"format": "date"}, '"2024-02-29"', '"banana"'),
        ({"format": "date"}, '"2024-02-28"', '"2023-02-29"'),
        # RFC 3339, section 5.8: the first two are its own examples
        ({"format": "date-time"}, '"1985-04-12T23:20:50.52Z"', '"1985-04-12T23:20:50.52"'),
        ({"format": "date-time"}, '"1996-12-19T16:39:57-08:00"', '"1996-13-19T16:39:57-08:00"'),
        ({"format": "date-time"}, "5", '"1996-12-19"'),
        ({"format": "ipv4"}, '"192.0.2.1"', '"192.0.2.256"'),
        ({"format": "uuid"}, '"f81d4fae-7dec-11d0-a765-00a0c91e6bf6"', '"f81d4fae"'),
    ],
)
def test_what_a_schema_holds_an_answer_to(schema, fits, does_not):
    assert held(schema, fits)
    assert not held(schema, does_not)


def test_an_answer_nested_deeper_than_can_be_checked_does_not_fit():
    layered = {"allOf": [{"anyOf": [{"oneOf": [{"allOf": [NODE]}]}]}]}
    deep = '{"child":' * 90 + "{}" + "}" * 90
    assert held(TREE, deep)
    assert not held({**TREE, "$defs": {"node": layered}}, deep)


def test_own_expressions_ignore_case_unless_they_say_so():
    for pattern, value in (("[A-Z]{3}-1", 1), ("(?-i:[A-Z]{3})-1", 0)):
        assert score_of(shipped_metric("format", matches={"code": pattern}), make_case("abc-1"))["format"].value == value
