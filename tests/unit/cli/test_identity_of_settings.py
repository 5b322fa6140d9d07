"""Every option of every section is tried: one that can change a number makes another run, one that cannot does not.

A field's other value is made from its type; where that is not enough it stands in `OTHERS`. `Operational` says which fields
change no number; `NEVER` repeats the most important of them by hand, so that a mark that is lost is noticed.
"""

import types
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest

from ragpipe.core import registry
from ragpipe.core.settings import NotInIdentity, Settings
from ragpipe.data.settings import DatasetSettings
from ragpipe.data.system_settings import HttpSystem, PythonSystem
from ragpipe.judge.rules.settings import RulesSettings
from ragpipe.metrics.from_config import class_path
from ragpipe.report.settings import ReportSettings
from ragpipe.runs.identity import metric_identity, run_id, run_identity
from ragpipe.runs.settings import LocalRunner, RunConfig, StoreSettings, TopSettings
from ragpipe.score.settings import ScoringSettings
from ragpipe.testing.scripted import shipped_metric, shipped_names

JUDGES, EMBEDDERS, SYSTEMS = (registry.everything(kind) for kind in ("judge", "embedder", "system"))
TRANSPORTS = registry.everything("transport")
MODEL = "openai/gpt-4o-mini-2024-07-18"
NEEDED: dict[type[Settings], dict[str, Any]] = {
    DatasetSettings: {"path": "a.jsonl"},
    PythonSystem: {"kind": "python", "callable": "mine:answer"},
    HttpSystem: {"kind": "http", "url": "http://127.0.0.1:1/ask"},
    JUDGES["llm"]: {"model": MODEL, "capabilities": {"reasoning_effort": True}},
}
SHA = "a" * 64
PRICE = {"input": 1.0, "output": 2.0}
OTHERS: dict[type[Settings], dict[str, Any]] = {
    DatasetSettings: {
        "format": "csv", "files": {"main": "b.jsonl"}, "join": {"texts": {"file": "t.jsonl", "by": "id", "key": "id"}},
        "split": {"hits": {"text": "text", "pattern": "-"}}, "explode": {"one": "answers"}, "fields": {"id": "n", "question": "q"},
        "filter": "answerable", "records": "data", "delimiter": ";", "sample": {"n": 5}, "group": {"by": "query", "as": "rows"},
        "nan": None, "empty": None, "sha256": SHA,
    },
    ScoringSettings: {
        "wanted_cases": {"edge_cases": 20}, "level": 0.9, "weights": {"faithfulness": 0.7}, "thresholds": {"faithfulness": 0.7},
        "passes_with": {"faithfulness": ["correctness"]}, "composites": {"mine": {"weights": {"faithfulness": 1.0}}},
        "gates": {"mine": {"score": "faithfulness", "min": 0.5}}, "failure_modes": {"mine": {"score": "faithfulness", "below": 0.5}},
        "failure_items": {"hallucination": None}, "low_scores": {"by": ["method"]},
        "diagnosis": {"mine": {"when": {"score": "faithfulness", "below": 0.5}, "message": "Low."}},
    },
    PythonSystem: {"callable": "mine:other", "params": {"k": 5}, "methods": {"a": {"version": "2"}}},
    HttpSystem: {
        "url": "http://127.0.0.1:2/ask", "body": {"q": "question"}, "fields": {"answer": "text"}, "params": {"k": 5},
        "methods": {"a": {"version": "2"}},
    },
    JUDGES["llm"]: {
        "model": "openai/gpt-4o-2024-08-06", "client": "litellm", "api_key_env": "MY_KEY", "seed": 7, "reasoning": True,
        "capabilities": {"context_tokens": 8192},
    },
    ReportSettings: {"alerts": {"file": "alerts.jsonl"}}, TopSettings: {"name": "other", "publish": "s3://bucket/runs"},
    StoreSettings: {"url": "postgresql://user@host/database"},
}  # fmt: skip
ANYWHERE = {"weights": SHA, "tokenizer": SHA, "budget": {"calls": 5}}
"""The other value of a field of this name in any system, judge or embedder."""
MAPPED = {"fields": {"id": "n", "question": "q"}}
BESIDE = {(DatasetSettings, name): MAPPED for name in ("group", "join", "split", "explode")}
"""What else the section must have for the field to be set at all."""
SAME_HERE = {
    (JUDGES["llm"], "revision"): "names the weights of a server of one's own",
    (JUDGES["llm"], "api_base"): "is the endpoint where no endpoint is named",
    (JUDGES["llm"], "endpoint"): "stands for the address",
    (DatasetSettings, "references"): "is in the parameters of the metrics that read references",
    (TopSettings, "name"): "names the folder above the run's",
    (ScoringSettings, "fill_defaults"): "is in the sections that it fills in",
    (TopSettings, "seed"): "is in the sample that it draws",
    (TopSettings, "plugins"): "must be importable",
    (TopSettings, "prompt_dirs"): "must be folders; the templates are in the identity",
    (EMBEDDERS["minilm"], "path"): "its files are hashed",
}  # fmt: skip
"""Fields with a test of their own below, or of which the identity says another part, and why."""
if detector := JUDGES.get("detector"):
    OTHERS[detector] = {"files": SHA, "model": "owner/other", "revision": "b" * 40, "device": "cpu"}
    SAME_HERE[detector, "path"] = "its files are hashed"
    BESIDE[detector, "family"] = {"model": "owner/other"}
if "litellm" in EMBEDDERS:
    provider, local = EMBEDDERS["litellm"], EMBEDDERS["sentence_transformers"]
    NEEDED[provider] = {"kind": "litellm", "model": "openai/text-embedding-3-small", "allow_unpinned": True}
    OTHERS[provider] = {"model": "openai/text-embedding-3-large", "api_key_env": "MY_KEY", "allow_unpinned": True}
    SAME_HERE |= {(provider, name): "as the judge's" for name in ("revision", "api_base", "endpoint")}
    SAME_HERE[local, "path"] = "its files are hashed"
NEVER = {
    "judge": ["concurrency", "rpm", "timeout_s", "retries", "max_calls", "prices", "client",
              "output_mode", "api_key_env", "allow_unpinned"],
    "": ["output_dir", "iterations", "log_level", "on_metric_error", "retry_errors", "lock_wait_s", "task", "publish"],
    "system": ["concurrency", "rpm", "timeout_s", "retries", "outage_s", "index_manifest"],
    "dataset": ["name", "path", "files"],
}  # fmt: skip
SECTIONS: list[tuple[str, type[Settings]]] = [
    ("", TopSettings), ("dataset", DatasetSettings), ("runner", LocalRunner), ("store", StoreSettings),
    ("scoring", ScoringSettings), ("report", ReportSettings),
    *(("system", kind) for kind in SYSTEMS.values()), *(("judge", kind) for kind in JUDGES.values()),
    *(("embedder", kind) for kind in EMBEDDERS.values()), *(("transport", kind) for kind in TRANSPORTS.values()),
]  # fmt: skip


def config(section="", kind=None, **keys):
    plain: dict[str, Any] = {
        "dataset": DatasetSettings, "system": SYSTEMS["recorded"], "judge": JUDGES["rules"], "transport": TRANSPORTS["live"], "runner": LocalRunner,
        "embedder": EMBEDDERS["none"], "scoring": ScoringSettings, "report": ReportSettings, "store": StoreSettings,
    }  # fmt: skip
    if section:
        plain[section] = kind
    found = {name: cls.model_validate({**NEEDED.get(cls, {}), **(keys if name == section else {})}) for name, cls in plain.items()}
    return RunConfig(**found, metrics={}, **({} if section else keys))


def named(made):
    return run_id(run_identity(made.identity(), [], data=SHA, judge=made.judge))


@cache
def named_by_default(section, kind):
    return named(config(section, kind))


def other(annotation, value):
    """Another value of this type; raises LookupError where its type does not say one."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return other(parts[0], value)
    if origin is Literal:
        return next(part for part in parts if part != value)
    if origin in (Union, types.UnionType):
        wanted = [part for part in parts if part is not type(None) and (part is not bool or isinstance(value, bool))]
        return other(wanted[0], value)
    if annotation is bool:
        return not value
    if annotation is int:
        return (value or 1) + 1
    if annotation is float:
        return (value or 1.0) / 2
    if annotation is str:
        return f"{value or ''}z"
    if origin is list and parts[0] is str:
        return ["z"]
    if origin is list and get_origin(parts[0]) is Literal:
        return [get_args(parts[0])[0]]
    if origin is dict and parts == (str, str):
        return {"X": "Y"}
    if getattr(annotation, "__name__", "") == "PriceSettings":
        return PRICE
    raise LookupError(f"no other value is known for {annotation}: add one to OTHERS")


def fields():
    return [
        pytest.param(section, kind, name, field, id=f"{section or 'top'}-{kind.__name__}-{name}")
        for section, kind in SECTIONS
        for name, field in kind.model_fields.items()
        if (kind, name) not in SAME_HERE and len(get_args(field.annotation) or "12") > 1  # more than one value
    ]


@pytest.mark.parametrize(("section", "kind", "name", "field"), fields())
def test_an_option_makes_another_run_just_when_it_can_change_a_number(section, kind, name, field):
    if name == "kind":
        pytest.skip("another class; compared below")
    if (kind, name) == (StoreSettings, "url") and not registry.names("store"):
        pytest.skip("no extra opens a database")
    needed = NEEDED.get(kind, {})
    before = needed.get(name, None if field.is_required() else field.get_default(call_default_factory=True))
    beyond = kind in {*SYSTEMS.values(), *JUDGES.values(), *EMBEDDERS.values()}
    given = (ANYWHERE if beyond else {}) | OTHERS.get(kind, {})
    value = given[name] if name in given else other(field.annotation, before)
    assert value != before or name in given
    beside = BESIDE.get((kind, name), {})
    unchanged = named(config(section, kind, **beside)) if beside else named_by_default(section, kind)
    same = unchanged == named(config(section, kind, **{**beside, field.alias or name: value}))
    operational = NotInIdentity in field.metadata or section in ("report", "transport", "runner", "store")
    assert same == operational


def test_what_changes_no_number_is_marked():
    for section, names in NEVER.items():
        for kind in (kind for name, kind in SECTIONS if name == section):
            marked = {name for name, field in kind.model_fields.items() if NotInIdentity in field.metadata}
            assert {name for name in names if name in kind.model_fields} <= marked, kind


def test_every_kind_is_another_run():
    """But two that compute the same vectors from the same files."""
    for section in ("system", "judge", "embedder"):
        made = {
            kind: named(config(section, kind))
            for name, kind in SECTIONS
            if name == section and kind is not EMBEDDERS.get("sentence_transformers")
        }
        assert len(set(made.values())) == len(made) > 1
    if local := EMBEDDERS.get("sentence_transformers"):
        assert named(config("embedder", local)) == made[EMBEDDERS["minilm"]]


@pytest.mark.parametrize(
    ("section", "kind"), [("judge", JUDGES["llm"]), *(("embedder", EMBEDDERS[name]) for name in ("litellm",) if name in EMBEDDERS)]
)
def test_an_address_counts_unless_the_endpoint_is_named(section, kind):
    def at(port, **keys):
        return named(config(section, kind, api_base=f"http://127.0.0.1:{port}/v1", **keys))

    assert len({named(config(section, kind)), at(1), at(2), at(1, endpoint="lab"), at(1, revision="abc123")}) == 5
    assert at(1, endpoint="lab") == at(2, endpoint="lab")


def test_the_rule_of_references_is_in_the_metrics_that_read_them():
    rules = [metric_identity(shipped_metric("correctness", references=rule)) for rule in ("any", "first", "all")]
    assert len({str(rule) for rule in rules}) == 3


def test_the_order_of_what_a_judge_is_shown_is_in_the_identity():
    """The rules of a mapping are numbered in its order."""
    rules = {"a": "No advice.", "b": "No names."}
    turned = dict(reversed(rules.items()))
    metric = shipped_metric("policy_compliance")
    found = [metric_identity(metric.model_copy(update={"policies": some})) for some in (rules, turned)]
    assert found[0]["parameters"] == found[1]["parameters"]
    assert run_id(found[0]) != run_id(found[1])


def test_the_format_of_a_joined_file_is_in_the_identity():
    join = {"file": "t.txt", "by": "id", "key": "id"}
    runs = {named(config("dataset", DatasetSettings, **MAPPED, join={"texts": {**join, "format": form}})) for form in ("csv", "jsonl")}
    assert len(runs) == 2


SHIPPED_METRICS = shipped_names()


def run_of(*metrics):
    return run_id(run_identity({}, metrics, data="a" * 64, judge=RulesSettings()))


@pytest.mark.parametrize("name", SHIPPED_METRICS)
def test_a_shipped_class_that_moves_changes_no_run(name, monkeypatch):
    before = run_of(metric := shipped_metric(name))
    monkeypatch.setattr(type(metric), "__module__", "ragpipe.metrics.somewhere.else_now")
    assert run_of(metric) == before


def test_shipped_classes_have_identities_of_their_own_that_hold_no_module():
    classes = {type(shipped_metric(name)) for name in SHIPPED_METRICS}
    assert len({class_path(metric_class) for metric_class in classes}) == len(classes) > 20
    for name in SHIPPED_METRICS:
        assert "ragpipe." not in str(metric_identity(shipped_metric(name))), name


def test_another_class_name_or_version_of_a_metric_is_another_run(monkeypatch):
    before = run_of(metric := shipped_metric("scope_miss"))
    twin = type("TwinMetric", (type(metric),), {"__module__": type(metric).__module__})
    assert run_of(twin.model_validate(metric.model_dump())) != before
    assert run_of(metric.model_copy(update={"name": "another_name"})) != before
    monkeypatch.setattr(type(metric), "version", metric.version + 1)
    assert run_of(metric) != before


def test_a_users_class_is_named_by_its_dotted_path():
    metric_class = type(shipped_metric("scope_miss"))
    own = [type("OwnMetric", (metric_class,), {"__module__": module}) for module in ("mine.metrics", "mine.moved")]
    assert [class_path(users) for users in own] == ["mine.metrics.OwnMetric", "mine.moved.OwnMetric"]
