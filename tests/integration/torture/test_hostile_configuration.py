"""YAML, words and environments of somebody who means harm: nothing runs, nothing is written, no secret is shown, exit 2."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from ragpipe.cli.command_line import main
from ragpipe.core.secrets import is_secret_name, looks_secret, secrets_of_environment
from tests.support.checks import places_of
from tests.support.harness import ROOT
from tests.support.waiting import HANGS_AFTER_S

has_submitit = pytest.mark.skipif(find_spec("submitit") is None, reason="needs the extra submitit")
pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test
RUN = ("dataset=mine", "metrics=[retrieval]")
X = ("task=plan", "+experiment=x")
HEAD = "# @package _global_\ndefaults:\n  - override /dataset: mine\n  - override /metrics: [retrieval]\n"
RECORD = {"id": "a", "question": "q?", "answer": "x", "contexts": ["x"], "relevant_chunks": ["c1"]}
EVIL = "import pathlib\npathlib.Path(__file__).with_name('evil_ran').touch()\nimport logging\nHandler = logging.NullHandler\n"
SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "MY_PASSWORD": "correct-horse-battery-staple",
    "my_db_pwd": "Tr0ub4dor", "REPORTING_DSN": "Server=db;User Id=me;Pwd=hunter2hunter2;",
    "STORAGE_CONNECTION_STRING": "DefaultEndpointsProtocol=https;AccountKey=abcdefghijklmnop==", "WEBHOOK_AUTH": "plainwords",
}  # fmt: skip


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a data set, a module that must not run and files that must stay as they are."""
    (tmp_path / "conf/dataset").mkdir(parents=True)
    (tmp_path / "conf/experiment").mkdir()
    (tmp_path / "conf/dataset/mine.yaml").write_text("# Mine.\nname: mine\npath: mine.jsonl\n")
    (tmp_path / "mine.jsonl").write_text(json.dumps(RECORD) + "\n")
    (tmp_path / "precious.txt").write_text("precious")
    (tmp_path / "evilmod.py").write_text(EVIL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    return tmp_path


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else b"" for p in folder.rglob("*")}


def refuse(here: Path, words: tuple[str, ...], says: tuple[str, ...], capfd: pytest.CaptureFixture[str]) -> None:
    """The words are refused with these texts; nothing was done and no secret was said."""
    before, environ, cwd = tree(here), dict(os.environ), Path.cwd()
    code = main(words)
    out, err = capfd.readouterr()
    assert code == 2, err
    assert [text for text in says if text not in err] == [], err
    assert "Traceback" not in out + err
    assert [name for name, value in SECRETS.items() if value in out + err] == []
    assert tree(here) == before
    assert (dict(os.environ), Path.cwd()) == (environ, cwd)
    assert "evilmod" not in sys.modules


# --- Hydra's own section ---------------------------------------------------------------------------------------------

TRUNCATE = "{class: logging.FileHandler, filename: precious.txt, mode: w}"
GLOBAL = [  # key, its line below HEAD, and the YAML
    ("hydra.job_logging.handlers.x.class", 3, "hydra:\n  job_logging:\n    handlers: {x: {class: evilmod.Handler}}\n"),
    ("hydra.output_subdir", 2, "hydra:\n  output_subdir: made_by_yaml\n"),
    ("hydra.launcher", 1, "hydra: {launcher: '${judge}'}\n"),
    ("hydra.launcher.setup", 1, "hydra: {launcher: {setup: [touch made_by_yaml]}}\n"),
    ("hydra.launcher.n_jobs", 1, "hydra: {launcher: {n_jobs: '${oc.env:MY_PASSWORD}'}}\n"),
    ("hydra.sweeper.storage", 1, "hydra: {sweeper: {storage: 'sqlite:///made_by_yaml'}}\n"),
    ("hydra.sweeper.params.hydra.job.chdir", 1, "hydra: {sweeper: {params: {hydra.job.chdir: true}}}\n"),
    ("hydra.sweep.subdir", 1, "hydra: {sweep: {subdir: ../../made_by_yaml}}\n"),
]  # fmt: skip


@pytest.mark.thorough(tried=8)
@pytest.mark.parametrize("mode", [(), ("-m",)], ids=["run", "sweep"])
@pytest.mark.parametrize(("key", "line", "body"), GLOBAL, ids=[row[0] for row in GLOBAL])
def test_hydras_section_in_an_experiment(key: str, line: int, body: str, mode: tuple[str, ...], here, capfd) -> None:
    (here / "conf/experiment/x.yaml").write_text(HEAD + body)
    refuse(here, (*mode, *X), (f"conf/experiment/x.yaml:{4 + line}: {key}\n", "found:", "expected:"), capfd)


PACKAGES = [
    ("@package", 1, "# @package hydra\njob:\n  chdir: true\n"),
    ("@package", 2, "\n# @package hydra.run\ndir: made_by_yaml\n"),
    ("@package", 1, f"# @package _global_.hydra.job_logging\nhandlers: {{x: {TRUNCATE}}}\n"),
    ("defaults.0", 3, "# @package _global_\ndefaults:\n  - override /hydra/job_logging: default\n"),
    ("defaults.1", 4, "# @package _global_\ndefaults:\n  - override /dataset: mine\n  - override hydra/hydra_logging: default\n"),
    ("defaults.0", 3, "# @package _global_\ndefaults:\n  - optional /hydra/callbacks@hydra.callbacks.x: evil\n"),
    ("defaults.0", 3, "# @package _global_\ndefaults:\n  - /dataset@hydra.job_logging: mine\n"),
    ("hydra.searchpath", 2, "# @package _global_\nhydra: {searchpath: ['file://elsewhere']}\n"),
    ("defaults.0", 3, "# @package _global_\ndefaults:\n  - {/dataset: mine, /judge: llm}\n"),
    ("defaults.1", 4, "# @package _global_\ndefaults:\n  - _self_\n  - /dataset: 3\n"),
    ("nogroup", 3, "# @package _global_\ndefaults:\n  - override /nogroup: x\n"),
    ("hydra.job.chdir", 2, "# @package nowhere\nhydra: {job: {chdir: true}}\n"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "line", "text"), PACKAGES)
def test_packages_and_defaults_lead_nowhere_else(key: str, line: int, text: str, here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (here / "conf/experiment/x.yaml").write_text(text)
    refuse(here, (*X, *RUN), (f"conf/experiment/x.yaml:{line}: {key}\n",), capfd)


WORDS = [
    "hydra.job_logging.handlers.x.class=evilmod.Handler", "++hydra.job.chdir=true", "hydra/job_logging=default", "+hydra/callbacks=x",
    "dataset@hydra.job_logging=mine", "~hydra.launcher", "hydra.launcher={n_jobs: 1}", "hydra.launcher._args_=[1]",
    "+hydra.sweeper.params={hydra.job.chdir: true}", "hydra/launcher@hydra.callbacks=basic", "hydra=x",
]  # fmt: skip


@pytest.mark.parametrize("word", WORDS)
def test_words_about_hydra(word: str, here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    refuse(here, ("-m" if "sweep" in word else "task=plan", *RUN, word), ("hydra",), capfd)


def test_options_of_hydras_in_a_folder_are_not_seen(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """`hydra/config` is composed into every start: a file of that name would be Hydra's configuration."""
    for name, text in {
        "config": "job_logging: {handlers: {x: {class: evilmod.Handler}}}\n", "env/default": "# @package hydra\njob: {chdir: true}\n",
        "job_logging/none": f"version: 1\nroot: {{handlers: [x]}}\nhandlers: {{x: {TRUNCATE}}}\n", "launcher/basic": "n_jobs: 1\n",
    }.items():  # fmt: skip
        (here / f"conf/hydra/{name}.yaml").parent.mkdir(parents=True, exist_ok=True)
        (here / f"conf/hydra/{name}.yaml").write_text(text)
    before = tree(here)
    assert main(["task=plan", *RUN]) == 0, capfd.readouterr().err
    assert tree(here) == before
    assert "evilmod" not in sys.modules


@pytest.mark.thorough
def test_what_starts_a_sweep_may_be_set(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (here / "conf/experiment/x.yaml").write_text(HEAD + "hydra:\n  launcher: {n_jobs: 1, verbose: 0}\n  sweeper: {max_batch_size: 1}\n")
    (here / "conf/experiment/y.yaml").write_text(HEAD.replace("mine\n", "mine\n  - override /hydra/launcher: joblib\n", 1))
    words = ("task=plan", "seed=1,2")
    assert main(["-m", "+experiment=y", *words]) == 0, capfd.readouterr().err
    assert main(["task=plan", "+experiment=x"]) == 2, "the basic launcher has no n_jobs"
    (here / "conf/experiment/x.yaml").write_text(HEAD + "hydra: {sweeper: {max_batch_size: 1}}\n")
    assert main(["-m", "+experiment=x", "hydra.sweep.dir=jobs", *words]) == 0, capfd.readouterr().err


@pytest.mark.parametrize("words", [("hydra.sweep.dir=work",), ("hydra.sweep.dir=link",), ()], ids=" ".join)
def test_no_file_is_replaced_by_a_sweep(words: tuple[str, ...], here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Hydra writes a `multirun.yaml`, and would follow a link."""
    for folder in ("work", "outputs/.sweep"):
        (here / folder).mkdir(parents=True)
    (here / "work/multirun.yaml").write_text("mine")
    (here / "link").symlink_to(here / "work")
    (here / "outputs/.sweep/multirun.yaml").symlink_to(here / "precious.txt")
    before = tree(here)
    assert main(["-m", *RUN, "task=plan", "seed=1,2", *words]) == 0, capfd.readouterr().err
    assert tree(here) == before


LOGGING = "{version: 1, handlers: {f: {class: logging.FileHandler, filename: made_by_yaml}}, root: {handlers: [f]}}"
DOORS = {
    "escaped key": {"experiment/x": f'# @package _global_\n"hydr\\x61": {{job_logging: {LOGGING}}}\n'},
    "escaped group": {"experiment/x": '# @package _global_\ndefaults:\n  - "override /hydr\\x61/job_logging": default\n'},
    "brackets": {"experiment/x": f"# @package hydra[job_logging]\n{LOGGING[1:-1].replace(', h', chr(10) + 'h', 1).replace(', r', chr(10) + 'r')}\n"},
    "package of the parent": {"experiment/x": "# @package hydra\ndefaults:\n  - /job_logging: bar\n", "job_logging/bar": f"a: {LOGGING}\n"},
    "global twice": {"experiment/x": "# @package _global_\ndefaults:\n  - /foo@_global_._global_.hydra.job_logging: bar\n", "foo/bar": "root: x\n"},
    "group in brackets": {"experiment/x": "# @package _global_\ndefaults:\n  - /foo@[hydra].run: bar\n", "foo/bar": "dir: made_by_yaml\n"},
    "secret as option": {"experiment/x": "# @package _global_\ndefaults:\n  - /foo: ${oc.env:WEBHOOK_AUTH}\n"},
    "alias in itself": {"experiment/x": "# @package _global_\nplugins: &a [*a]\n"},
    "itself": {"experiment/x": "# @package _global_\ndefaults:\n  - /experiment: x\n"},
}  # fmt: skip


@pytest.mark.parametrize("name", DOORS)
def test_no_other_door_is_open(name: str, here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Hydra takes a package and a key in many forms, and resolves some interpolations while it composes."""
    for option, text in DOORS[name].items():
        (here / f"conf/{option}.yaml").parent.mkdir(exist_ok=True)
        (here / f"conf/{option}.yaml").write_text(text)
    refuse(here, ("-m", *RUN, *X), ("x.yaml" if name != "itself" else "found:",), capfd)


@pytest.mark.parametrize("word", [
    "+dataset@_global_._global_.hydra.job_logging=mine", "judge=${oc.env:WEBHOOK_AUTH}", "hydra.sweep.dir='${oc.env:WEBHOOK_AUTH}/job.x'",
    "output_dir=${oc.env:WEBHOOK_AUTH}", "+x.y=${oc.env:WEBHOOK_AUTH}", "name='${oc.${storage.region}:WEBHOOK_AUTH}'", "plugins=[os]",
    "plugins=[ragpipe.cli.command_line]",
])  # fmt: skip
def test_nor_by_a_word(word: str, here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    refuse(here, ("-m", *RUN, "task=plan", word), ("found:", "expected:"), capfd)


def test_an_option_named_hydra_is_not_seen(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """`_name_` would make its name its package."""
    (here / "conf/dataset/hydra.yaml").write_text("# @package _name_\njob: {chdir: true}\n")
    refuse(here, ("-m", *RUN, "dataset=mine,hydra", "task=plan"), ("'hydra'", "mine"), capfd)


@pytest.mark.thorough(tried=3)
@pytest.mark.parametrize("is_package", [False, True])
@pytest.mark.parametrize("words", [
    ("task=plan",),
    ("-m", "task=plan", "seed=1,2"),
    ("-m", "task=plan", "seed=1,2", "hydra/launcher=joblib"),
    pytest.param(("-m", "task=plan", "seed=1", "hydra/launcher=submitit_local", "output_dir=../out"), marks=has_submitit),
])  # fmt: skip
def test_plug_ins_in_the_working_folder_are_not_executed(words: tuple[str, ...], is_package: bool, here: Path) -> None:
    """Hydra looks for its plug-ins wherever Python finds a folder `hydra_plugins`."""
    (here / "hydra_plugins").mkdir()
    for name in ("evil", "__init__")[: 2 if is_package else 1]:
        (here / f"hydra_plugins/{name}.py").write_text(EVIL)
    before = tree(here)
    done = subprocess.run(
        [sys.executable, "-B", "-m", "ragpipe", *words, *RUN], cwd=here, text=True, capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=HANGS_AFTER_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert tree(here) == before


# --- secrets ---------------------------------------------------------------------------------------------------------

ENV = {
    "plain": "${oc.env:%s}", "inside": "a-${oc.env:%s}-b", "quoted": "${oc.env:'%s'}", "with a default": "${oc.env:%s,x}",
    "decoded": "${oc.decode:'\\${oc.env:%s}'}", "name by interpolation": "${oc.env:${seeds.name}}",
    "selected": "${oc.select:seeds.value}", "by another key": "${seeds.value}", "values": "${oc.dict.values:seeds}",
    "created": "${oc.create:'{a: \"\\${oc.env:%s}\"}'}",
}  # fmt: skip
WAYS = [(how, "MY_PASSWORD") for how in ENV] + [("plain", name) for name in SECRETS if name != "MY_PASSWORD"]


@pytest.mark.thorough(tried=5)
@pytest.mark.parametrize(("how", "variable"), WAYS)
def test_the_value_of_a_secret_variable_goes_nowhere(how: str, variable: str, here: Path, capfd) -> None:
    value = ENV[how].replace("%s", variable)
    (here / "conf/experiment/x.yaml").write_text(
        HEAD + f"dataset:\n  name: {json.dumps(value)}\nseeds: {{name: {variable}, value: '${{oc.env:{variable}}}'}}\n"
    )
    refuse(here, X, ("conf/experiment/x.yaml:", variable, "not shown"), capfd)


@pytest.mark.parametrize(("variable", "place"), [
    ("AWS_SECRET_ACCESS_KEY", "dataset.name='%s'"), ("MY_PASSWORD", "+dataset.tags=['%s']"),
    ("REPORTING_DSN", "+dataset.tags={'%s': 1}"), ("STORAGE_CONNECTION_STRING", "dataset.name='%s'"),
])  # fmt: skip
def test_typed_by_the_shell(variable: str, place: str, here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    refuse(here, ("task=plan", *RUN, place.replace("%s", SECRETS[variable])), ("not shown",), capfd)


@pytest.mark.parametrize("task", ["init", "runs", "store", "export", "verify", "explain"])
def test_no_task_shows_one(task: str, here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = (f"task={task}", "run=${oc.env:MY_PASSWORD}", "dir=${oc.env:MY_PASSWORD}")
    refuse(here, words, ("MY_PASSWORD", "not shown"), capfd)


def test_other_variables_are_read_and_the_environment_is_not_written_down(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUN_NAME", "from-the-environment")
    monkeypatch.setenv("MAX_TOKENS", "12")
    assert main([*RUN, "name=${oc.env:RUN_NAME}", 'seed="${oc.decode:${oc.env:MAX_TOKENS}}"']) == 0
    assert (here / "outputs/from-the-environment/latest/seal.json").is_file()
    assert [value for value in SECRETS.values() if places_of(here, value)] == []


def test_resolvers_of_the_programme_are_not_a_configurations(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """`eval` is what many register; a file from somewhere else would call it."""
    OmegaConf.register_new_resolver("eval", eval)
    try:
        refuse(here, ("task=plan", *RUN, "seed=${eval:'__import__(\"evilmod\")'}"), ("eval", "oc.env"), capfd)
        assert OmegaConf.create({"a": "${eval:'1 + 1'}"}).a == 2, "the programme keeps it"
    finally:
        OmegaConf.clear_resolver("eval")


UNFOLDING = {
    "texts": "'${a%d}${a%d}'", "trees": "{x: '${a%d}', y: '${a%d}'}", "relative": "{x: '${..a%d.x}${..a%d.x}'}", "brackets": "'${[a%d]}${[a%d]}'",
    "by another": "{x: '${a%d.x}${a%d.y}'}", "nested": "'${r.${n%d}}${r.${n%d}}'", "selected": "'${oc.select:a%d}${oc.select:a%d}'",
}  # fmt: skip


@pytest.mark.parametrize("start", [("task=plan",), ("-m", "task=plan", "seed=1,2"), ("--cfg", "job", "--resolve")])
@pytest.mark.parametrize("kind", UNFOLDING)
def test_interpolations_that_unfold_without_end(kind: str, start: tuple[str, ...], here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lines = [f"a{i}: {UNFOLDING[kind] % (i + 1, i + 1)}" for i in range(40)] + ["a40: {x: laugh, y: laugh}"]
    (here / "conf/experiment/x.yaml").write_text(HEAD + "\n".join(lines) + "\n")
    refuse(here, (*start, "+experiment=x"), ("conf/experiment/x.yaml:", "interpolation"), capfd)


SECRET_NAMES = [
    "OPENAI_API_KEY", "api_key", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "DB_PASSWORD", "DB_PASSWD", "DB_PWD",
    "dbpassword", "OPENAIKEY", "PGPASSWORD", "REPORTING_DSN", "GOOGLE_CREDENTIALS", "SSH_AUTH_SOCK", "AZURE_STORAGE_CONNECTION_STRING",
    "ConnectionString", "PRIVATE_KEY", "KEY_METRIC", "apiKey", "GITHUB_PAT", "SESSION_COOKIE", "API_TOKENS", "SMTP_PASS", "Slack-Token",
    "JWT",
]  # fmt: skip
OTHER_NAMES = [
    "PWD", "OLDPWD", "HOME", "PATH", "RUN_NAME", "MAX_TOKENS", "NUM_TOKENS", "TOKENIZERS_PARALLELISM", "KEYBOARD", "AUTHOR",
    "OPENAI_KEY_FILE", "TOKEN_PATH", "SECRETS_DIR", "KEY_NAME", "DATASET_NAME", "KEYCLOAK_URL", "PASSENGERS", "COMPASS", "STR",
]  # fmt: skip


def test_secrets_are_told_from_honest_names_and_texts(tmp_path: Path) -> None:
    assert [name for name in SECRET_NAMES if not is_secret_name(name)] == []
    assert [name for name in OTHER_NAMES if is_secret_name(name)] == []
    environ = {
        "A_KEY": str(tmp_path), "B_KEY": "short", "C_KEY": "HOME_OF_EVERYTHING", "HOME_OF_EVERYTHING": "/", "D_KEY": "a/b/c/d/e/f/g/h",
    }  # fmt: skip
    assert secrets_of_environment(environ) == {"a/b/c/d/e/f/g/h": "D_KEY"}


@pytest.mark.parametrize(("text", "is_secret"), [
    *((text, True) for text in (
        "postgres://me:p/a@ss@db/x", "https://u:pw@host/v1", "Server=db;Pwd=abc123;", "user=x password = hunter2",
        "AccountKey=abcd==",
        "SharedAccessSignature=sv=2020&sig=abc", "mongodb+srv://a:b@c/d", "redis://:secretword@cache:6379/0",
    )),
    *((text, False) for text in (
        "http://127.0.0.1:8000/v1/users@example.org", "http://host:8080/a", "the password is asked for at the door", "Pwd=",
        "pwd=${oc.env:X}",
        "How do I reset my password? me@example.org", "mailto:me@example.org",
    )),
])  # fmt: skip
def test_a_connection_string_or_address_with_a_password_is_a_secret_and_an_honest_text_none(text: str, is_secret: bool) -> None:
    assert (looks_secret(text) is not None) is is_secret


# --- names that become paths -----------------------------------------------------------------------------------------

UP = ["v1/../../../outside", "../v1", "/tmp/v1", "v1\0", "", "v", "V1", "v1/x", "..", "v1.jinja"]


@pytest.mark.thorough(tried=3)
@pytest.mark.parametrize("version", UP)
def test_a_version_is_no_path(version: str, here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A folder `direct.v1` would make `direct.v1/../../../outside.jinja` a file outside."""
    (here / "prompts/answer_relevance/direct.v1").mkdir(parents=True)
    (here / "outside.jinja").write_text((ROOT / "prompts/answer_relevance/direct.v1.jinja").read_text())
    (here / "conf/experiment/x.yaml").write_text(
        HEAD.replace("retrieval", "answer_relevance")
        + f"prompt_dirs: [prompts]\nmetrics: {{answer_relevance: {{prompts: {{direct: {json.dumps(version)}}}}}}}\n"
    )
    refuse(here, X, ("metrics.answer_relevance.prompts.direct",) if "\0" not in version else ("conf/experiment/x.yaml:", "NUL"), capfd)


@pytest.mark.parametrize("word", [
    "name=a/b/c", "name=..", "name='../up'", "name=.hidden", 'name="a\\0b"', "output_dir='a\0b'",
    "+metrics={'../up': {class: RetrievalMetric}}", "metrics.retrieval.prompts={'../../up': v1}",
])  # fmt: skip
def test_names_are_no_paths(word: str, here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    refuse(here, ("task=plan", *RUN, word), ("found:",), capfd)
