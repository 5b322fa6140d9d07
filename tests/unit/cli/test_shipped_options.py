"""Everything that is shipped composes and validates; every YAML says what it is for."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from ragpipe.cli.command_line import compose, main
from ragpipe.cli.tasks.schema import GROUPS, shipped_metrics, task_keys
from ragpipe.core.errors import ConfigError
from ragpipe.core.registry import option_files, option_folders
from ragpipe.core.resources import conf_dir
from ragpipe.core.yaml_files import FastLoader
from ragpipe.metrics.needs import needed_labels
from ragpipe.runs.settings import StoreSettings, TopSettings
from ragpipe.score.settings import ScoringSettings, filled, shipped
from tests.support.minilm import needs_files

CONF = conf_dir()
BASE = {"dataset": "dataset=demo", "metrics": "metrics=[retrieval]"}
GIVEN = {
    "judge.model": "judge.model=openai/gpt-4o-mini-2024-07-18", "embedder.model": "embedder.model=openai/vectors-2024-07-18",
    "dataset.path": "dataset.path=somewhere", "system.url": "system.url=http://127.0.0.1:9/answer",
    "system.callable": "system.callable=tests.support.waiting:wait_until", "system.params.model": "system.params.model=bot-2026-01-01", "dir": "dir=my",
    "run": "run=outputs/run/latest", "case": "case=dao-01", "build.dir": "build.dir=sets/march",
    "synthesize.documents": "synthesize.documents=docs", "synthesize.dir": "synthesize.dir=testset", "base": "base=outputs/run/latest",
    "candidate": "candidate=outputs/run/latest", "metrics.recorded": "metrics.recorded.take={human: {}}",
}  # fmt: skip
"""What a user has to give for the options that cannot know it."""


def _options():
    folders = [path for folder in option_folders() for path in folder.iterdir() if path.is_dir()]
    groups = sorted({path.name for path in folders} - {"patterns"})  # those are no options
    return [f"{group}/{name}" for group in groups for name in option_files(group)]


ALL_METRICS = list(option_files("metrics"))
YAMLS = [file for folder in option_folders() for file in sorted(folder.rglob("*.yaml"))]


def _words(option):
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
def test_all_metrics_compose_together():
    assert len(compose(["dataset=demo", f"metrics=[{','.join(ALL_METRICS)}]", GIVEN["metrics.recorded"]]).metrics) >= len(ALL_METRICS)


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory):
    """The folder in which `outputs/run/latest` is a finished run, for the tasks over one."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(folder)
        assert main([BASE["dataset"], "metrics=[retrieval,faithfulness]", "dataset.limit=1", "report.formats=[]"]) == 0
    return folder


@pytest.mark.thorough(tried=20)
@pytest.mark.slow
@pytest.mark.parametrize("option", _options())
def test_composes_and_validates(option, finished_run, monkeypatch):
    monkeypatch.chdir(finished_run)
    words = ["task=store"] if option == "task/store" else _words(option)  # it is about no run: other keys are misspelt ones
    if option == "system/python":
        words.append("plugins=[tests]")
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


@pytest.mark.parametrize("file", YAMLS, ids=lambda path: "/".join(path.parts[-2:]))
def test_every_yaml_opens_with_a_comment_that_says_how_to_use_it(file):
    lines = file.read_text(encoding="utf-8").splitlines()
    comments = [line for line in lines[:8] if line.startswith("#") and "@package" not in line]
    assert comments, f"{file} has no opening comment"
    assert lines[0].startswith("#")


def test_the_primary_lists_no_overlay():
    primary = yaml.safe_load((CONF / "ragpipe.yaml").read_text(encoding="utf-8"))
    groups = {key for entry in primary["defaults"] if isinstance(entry, dict) for key in entry}
    assert not groups & {"mode", "experiment"}
    assert not {"mode", "experiment"} & set(primary)


@pytest.mark.slow
def test_identity_leaves_out_what_cannot_change_a_number(here):
    base = ["dataset=demo", "metrics=[retrieval]", "judge=llm", "judge.model=openai/gpt-4o-mini-2024-07-18"]
    one = compose(base).identity()
    same = ["output_dir=elsewhere", "iterations=3", "name=other", "transport=stored", "judge.concurrency=2",
            "judge.client=litellm", "judge.retries=1", "log_level=debug", "store.path=s", "retry_errors=true"]  # fmt: skip
    assert compose([*base, *same]).identity() == one
    sampled = [*base, "dataset.sample={n: 3}"]
    assert compose(["seed=1", *sampled]).identity() != compose(sampled).identity()
    assert compose(["seed=1", *base]).identity() == one, "nothing is drawn"
    for other in ("dataset.sample={n: 3}", "judge.temperature=1", "dataset.limit=3", "scoring.weights.retrieval_score=0.7"):
        assert compose([*base, other]).identity() != one, other


# rag-evaluation-framework.md, "Weight Tuning Process", step 2
PRIORITIES = {
    "financial_legal": {"faithfulness", "source_policy"}, "customer_support": {"answer_relevance", "rejection_calibration"},
    "research_assistant": {"citation", "context_relevance"}, "chatbot": {"answer_relevance", "faithfulness"},
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("pack", PRIORITIES)
def test_a_pack_weighs_its_priorities_most(pack):
    config = compose(["dataset=demo", f"+mode=pack_{pack}"])
    weights = {name: weight for name, weight in config.scoring.weights.items() if weight}
    assert set(sorted(weights, key=lambda name: -weights[name])[:2]) == PRIORITIES[pack]
    assert sum(weights.values()) == pytest.approx(1)
    given = {spec.name for metric in config.metrics.values() for spec in metric.scores()}
    assert set(weights) <= given, "a weight on a score that no metric of the pack gives"
    assert {gate.score for gate in config.scoring.gates.values()} <= given
    names_sources = getattr(config.metrics.get("source_policy"), "attribution", "") == "required"
    assert names_sources or pack != "financial_legal", "its answers name the source of a quote"


# rag-evaluation-framework.md: 4.2 stages and weights, 3.4 tiers, 4.3 thresholds, 9.1 success criteria, 4.2 categories
STAGES = {
    "retrieval": 0.10, "context_relevance": 0.10, "faithfulness": 0.20, "answer_relevance": 0.15,
    "citation": 0.15, "source_policy": 0.10, "policy_compliance": 0.10, "rejection_calibration": 0.10,
}  # fmt: skip
TIERS = {
    "policy_compliance": ("critical", 0.95), "groundedness": ("critical", 0.85), "source_policy": ("critical", 1),
    "context_relevance": ("quality", 0.80), "answer_relevance": ("quality", 0.80), "faithfulness": ("quality", 0.85),
    "rejection_calibration": ("quality", 0.80), "retrieval": ("diagnostic", 0.6),
}  # fmt: skip
PASSES_FROM = {
    "retrieval_score": 0.6, "context_relevance": 0.7, "faithfulness": 0.85, "answer_relevance": {"direct": 0.7, "questions": None},
    "citation": 0.7, "source_policy": 1, "policy_compliance": 1, "rejection_calibration": 1,
}  # fmt: skip
CRITERIA = {
    "false_rejection_partial": ("false_rejection", 0.2, {"category": "should_answer_partial"}),
    "training_cutoff_excuse": ("training_cutoff_excuse", 0, {}),
}
WANTED = {
    "should_answer_complete": 100, "should_answer_partial": 50, "should_reject_policy": 100, "should_reject_no_context": 30, "edge_cases": 20,
}  # fmt: skip


@pytest.mark.slow
def test_the_pack_of_the_framework_is_what_its_document_says():
    config = compose(["dataset=demo", "+mode=pack_rag"])
    scoring, gates = config.scoring, config.scoring.active_gates()
    assert list(config.metrics) == [*STAGES, "groundedness"]
    assert {name.replace("retrieval_score", "retrieval"): weight for name, weight in scoring.weights.items()} == STAGES
    assert {name: (gates[name].tier, gates[name].min) for name in TIERS} == TIERS
    assert {name: scoring.thresholds[name] for name in PASSES_FROM} == PASSES_FROM
    assert {name: (gates[name].failure_mode, gates[name].max, gates[name].where) for name in CRITERIA} == CRITERIA
    policy = gates["reject_policy_compliance"]
    assert (policy.score, policy.min, policy.where) == ("policy_compliance", 0.95, {"category": "should_reject_policy"})
    assert scoring.wanted_cases == WANTED
    modes = {"false_rejection", "training_cutoff_excuse", "unsupported_claim", "policy_violation", "irrelevant_answer"}
    assert modes <= set(scoring.failure_modes)


IN_A_LOG = {"answer", "contexts", "citations", "contexts[].policy"}
"""What the system itself records; everything else would have to be labelled."""


@pytest.mark.slow
def test_monitoring_needs_what_a_log_holds_and_blocks_nothing():
    config = compose(["dataset=demo", "+mode=monitoring"])
    # rag-evaluation-framework.md, "Evaluation Run Modes", mode 1
    assert set(config.metrics) == {"faithfulness", "context_relevance", "answer_relevance", "citation", "source_policy"}
    assert {label for metric in config.metrics.values() for label in needed_labels(metric)} <= IN_A_LOG
    assert {gate.tier for gate in config.scoring.active_gates().values()} == {"quality"}
    assert set(config.scoring.active_gates()) == {*config.metrics, "empty_answer", "declined"}


@pytest.mark.slow
def test_a_full_evaluation_has_every_metric_that_needs_nothing_but_labels():
    words = ["scoring.gates.overall_drop.against=0123456789ab", "scoring.gates.overall_drop.accept=[data]"]
    config = compose(["dataset=demo", "+mode=full_evaluation", *words])
    shipped = {file.stem for file in (conf_dir() / "metrics").glob("*.yaml")}
    assert shipped - set(config.metrics) == {"preference", "recorded", "rubric", "semantic_similarity", "one_chunk_suffices"}
    gates = config.scoring.active_gates()
    assert {gate.against for gate in gates.values()} == {"0123456789ab"}, "one word names the baseline of all"
    assert {gate.max_drop for gate in gates.values()} == {0.05}
    assert [gate.accept for gate in gates.values()] == [["data"]] * 4, "one word says what may differ for all"
    critical = {gate.score for gate in gates.values() if gate.tier == "critical"}
    assert critical == {"retrieval_score", "rejection_calibration"}, "what no judge decides"


@pytest.mark.slow
@pytest.mark.parametrize(("words", "limit"), [([], 0.95), (["scoring.gates.policy_compliance.min=0.8"], 0.8)])
def test_a_regression_gate_has_one_limit_and_asks_no_judge(words, limit):
    config = compose(["dataset=demo", "+mode=regression_gate", *words])
    assert not [name for name, metric in config.metrics.items() if metric.prompts()]
    gates = {name: (gate.min, gate.tier) for name, gate in config.scoring.active_gates().items()}
    assert gates == dict.fromkeys(("policy_compliance", "rejection_calibration"), (limit, "critical"))


@pytest.mark.slow
def test_custom_weights_weigh_what_is_measured_and_nothing_else():
    config = compose(["dataset=demo", "+mode=custom_weights", "scoring.weights={faithfulness: 0.6}"])
    weights = {name: weight for name, weight in config.scoring.weights.items() if weight}
    assert weights == {"faithfulness": 0.6, "citation": 0.3, "answer_relevance": 0.2}, "named ones change, others stay"
    assert set(weights) == set(config.metrics)


CHOICES = {
    ("dataset/jsonl", "name"): "the name of the option",
    ("scoring/default", "slices"): "a breakdown of the shipped option, not of every scoring",
    ("scoring/default", "fill_defaults"): "the file that others are filled in from",
    ("scoring/default", "passes_with"): "filled in from this file by the class itself",
    ("scoring/default", "composites"): "filled in from this file by the class itself",
}  # fmt: skip
"""Values that are a choice of the option and no default of the setting."""


def _file(option):
    group, _, name = option.rpartition("/")
    return option_files(group)[name] if "/" not in group and group else CONF / f"{option}.yaml"


def content(option):
    return yaml.load(_file(option).read_text(encoding="utf-8"), Loader=FastLoader)


def sections():
    """(option, its keys, the class that checks them) of every option that holds a whole section."""
    rows: list[tuple[str, dict[str, Any], type[BaseModel]]] = []
    for group, settings in GROUPS.items():
        for path in option_files(group).values():
            section = content(f"{group}/{path.stem}")
            model = settings.get(section.get("kind", "")) if isinstance(settings, dict) else settings
            overlay = "defaults" in section and group != "scoring"
            if model and not overlay and (group, path.stem) not in (("scoring", "tiers"), ("scoring", "success_criteria")):
                if group == "dataset" and path.stem != "jsonl":
                    continue  # a mapping of one data set
                rows.append((f"{group}/{path.stem}", section, model))
    rows += [(f"metrics/{name}", content(f"metrics/{name}")[name], cls) for name, cls in shipped_metrics().items()]
    primary = content("ragpipe")
    rows += [("ragpipe", primary, TopSettings), ("ragpipe", primary["store"], StoreSettings)]
    for task, keys in task_keys().items():
        if keys is not None and task in ("explain", "schema", "store", "weights", "rejudge"):
            rows.append((f"task/{task}", content(f"task/{task}"), keys))
            inner = {name: field.annotation for name, field in keys.model_fields.items()}
            rows += [(f"task/{task}", content(f"task/{task}")[task], inner[task])] if task in inner else []
    return rows


ROWS = sections()


@pytest.mark.parametrize(("option", "section", "model"), ROWS, ids=[f"{row[0]}-{row[2].__name__}" for row in ROWS])
def test_a_repeated_default_is_that_of_the_class(option, section, model):
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    repeated = {key for key in section if key in fields and not fields[key].is_required() and (option, key) not in CHOICES}
    assert {key: section[key] for key in repeated} == {key: default(fields[key]) for key in repeated}


def default(field):
    value = field.get_default(call_default_factory=True)
    return value.model_dump(by_alias=True) if isinstance(value, BaseModel) else value


def test_the_rows_are_all_there():
    assert len(ROWS) > 45
    assert {Path(option).parts[0] for option, _, _ in ROWS} >= {*GROUPS, "metrics", "task", "ragpipe"}


BASE_OF_SCORING_PARTS = ["dataset=demo", "metrics=[faithfulness,retrieval]"]


def scoring(*words):
    return compose([*BASE_OF_SCORING_PARTS, *words]).scoring


@pytest.mark.slow
def test_the_composed_default_is_what_an_option_is_filled_in_with():
    slices = ["method*question_type"]
    assert scoring() == ScoringSettings(slices=slices)
    assert scoring().identity() == ScoringSettings.model_validate({**filled({}), "slices": slices}).identity()
    assert not scoring().fill_defaults


@pytest.mark.slow
@pytest.mark.parametrize(("part", "text"), [
    ("weights", "faithfulness: 1.0\n"),
    ("thresholds", "faithfulness: 0.5\n"),
    ("failure_modes", "slow:\n  - {field: answer_chars, above: 9}\n"),
    ("diagnosis", "long:\n  when: [{field: answer_chars, above: 9}]\n  message: It is long.\n"),
    ("low_scores", "by: [method]\nbands:\n  default: [{name: low}]\n"),
])  # fmt: skip
def test_a_part_of_ones_own_replaces_the_shipped_one(part, text, here):
    folder = here / "conf" / "scoring" / part
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text(f"# One of our own. Use: scoring/{part}=mine\n{text}")
    without = ["scoring/diagnosis=none"] if part == "failure_modes" else []
    found = getattr(scoring(f"scoring/{part}=mine", *without), part)
    if part == "low_scores":
        assert (list(found.bands), found.by) == (["default"], ["method"])
    else:
        assert list(found) == [text.partition(":")[0]]


@pytest.mark.slow
def test_no_failure_modes_are_a_choice_and_tiers_keep_the_parts_and_may_choose_others():
    found = scoring("scoring/failure_modes=none", "scoring/diagnosis=none")
    assert (found.failure_modes, found.failure_items, found.diagnosis) == ({}, {}, {})
    found = scoring("scoring=tiers", "scoring/diagnosis=none")
    assert "policy_compliance" in found.gates
    assert (found.diagnosis, found.weights) == ({}, scoring().weights)


@pytest.mark.slow
def test_an_option_of_ones_own_is_filled_in(here):
    (here / "conf" / "scoring").mkdir(parents=True)
    (here / "conf" / "scoring" / "mine.yaml").write_text("weights:\n  faithfulness: 0.9\n")
    found = scoring("scoring=mine")
    assert found.weights == {**shipped()["weights"], "faithfulness": 0.9}
    assert set(found.diagnosis) == set(shipped()["diagnosis"])


@pytest.mark.slow
@pytest.mark.parametrize("experiment", ["quickstart", "clapnq dataset.path=x", "trec dataset.path=x"])
def test_an_experiment_may_set_what_the_choice_leaves_out(experiment):
    config = compose([f"+experiment={experiment.split()[0]}", *experiment.split()[1:], "metrics=[faithfulness]"])
    assert list(config.metrics) == ["faithfulness"]


@pytest.mark.slow
def test_a_metric_that_was_not_chosen_or_is_misspelt_is_refused_where_its_parameter_stands(tmp_path):
    with pytest.raises(ConfigError, match=r"command line \(metrics\.retrieval\.k=\[5\]\)|metrics\.retrieval\.class"):
        compose(["+experiment=quickstart", "metrics=[faithfulness]", "metrics.retrieval.k=[5]"])
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text(
        "# @package _global_\ndefaults:\n  - override /dataset: demo\n  - override /metrics: [retrieval]\nmetrics: {retreival: {k: [5]}}\n"
    )
    with pytest.raises(ConfigError, match=r"mine\.yaml:5: metrics\.retreival\.class"):
        compose(["+experiment=mine"], config_dir=str(tmp_path))
