"""A programme that uses Hydra itself, threads, and ragpipe in the same process: each finds the process as it left it."""

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hydra import compose as own_compose
from hydra import initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.core.singleton import Singleton
from hydra.core.utils import JobRuntime
from hydra.version import VersionBase
from omegaconf import OmegaConf

import ragpipe
from ragpipe.cli import compose, main
from ragpipe.core.errors import ConfigError
from tests.support.harness import environment
from tests.support.rows import first_rows

pytestmark = pytest.mark.slow  # whole runs, several per test

RUN = ["dataset=jsonl", "dataset.path=mine.jsonl", "metrics=[retrieval]"]
WRONG = [
    [*RUN, "judge.threshold=hot"], [*RUN, "name=${nowhere}"], [*RUN, "hydra.run.dir=x"], ["dataset=none"], [*RUN, "name=${oc.env:A_KEY}"],
    [*RUN, "name='"], ["+experiment=broken"], [*RUN, "seed=1,2"], [*RUN, "task=plan", "--x"],
]  # fmt: skip


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("A_KEY", "not-said")
    record = {"id": "a", "question": "q?", "answer": "x", "contexts": ["x"], "relevant_chunks": ["c1"]}
    (tmp_path / "mine.jsonl").write_text(json.dumps(record) + "\n")
    (tmp_path / "conf/experiment").mkdir(parents=True)
    (tmp_path / "conf/experiment/broken.yaml").write_text("a: [\n")
    (tmp_path / "own").mkdir()
    (tmp_path / "own/cfg.yaml").write_text("opt: {_target_: torch.optim.Adam, lr: 0.1}\nrun: ${eval:'6 * 7'}\n")
    return tmp_path


def state() -> dict[str, Any]:
    """What of the process ragpipe, Hydra and OmegaConf could leave changed."""
    root = logging.getLogger()
    return {
        "hydra": GlobalHydra.instance().hydra, "config": HydraConfig.instance().cfg,
        "resolvers": [name for name in ("now", "hydra", "python_version", "eval", "oc.env") if OmegaConf.has_resolver(name)],
        "singletons": {*Singleton._instances},
        "runtime": JobRuntime.instance().get("name"), "version": VersionBase.instance().version_base, "cwd": os.getcwd(),
        "environ": {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}, "handlers": list(root.handlers), "level": root.level, "filters": list(warnings.filters),
        "signals": {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}, "path": list(sys.path),
        "streams": (sys.stdout, sys.stderr), "threads": {t.name for t in threading.enumerate() if not t.daemon},
        "excepthook": sys.excepthook,
    }  # fmt: skip


@pytest.fixture
def settled(here: Path) -> dict[str, Any]:
    """The state once all is imported that any of it imports: what an import does to the process, it does once."""
    for singleton in (GlobalHydra, HydraConfig, JobRuntime, VersionBase, ConfigStore):
        singleton.instance()
    Plugins.instance()
    ragpipe.run([*RUN, "name=first"])
    return state()


def differences(before: dict[str, Any]) -> list[str]:
    now = state()
    return [key for key in before if before[key] != now[key]]


@pytest.mark.thorough
def test_a_run_leaves_the_process_as_it_was(settled: dict[str, Any]) -> None:
    ragpipe.run([*RUN, "name=second"])
    assert differences(settled) == []
    assert main([*RUN, "name=third"]) == 0
    assert differences(settled) == []


@pytest.mark.thorough(tried=3)
@pytest.mark.parametrize(
    "words", first_rows((pytest.param(words, id=words[-1]) for words in WRONG), {"name=${nowhere}", "hydra.run.dir=x"})
)
def test_so_does_one_that_is_refused(words: list[str], settled: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        compose(words)
    assert differences(settled) == []
    assert main(words) == 2
    if words[-1] != "seed=1,2":  # which is right there
        assert main(["-m", *words, "iterations=1,2"]) == 2
    assert differences(settled) == []


@pytest.mark.thorough
def test_a_hydra_of_the_programmes_own_goes_on(here: Path, settled: dict[str, Any]) -> None:
    """It is initialised before, used after, and its resolver and its `_target_` are its own business."""
    OmegaConf.register_new_resolver("eval", eval)
    store = ConfigStore.instance()
    store.store(group="dataset", name="jsonl", node={"name": "of the programme"})  # a name that ragpipe has too
    try:
        with initialize_config_dir(str(here / "own"), version_base="1.2"):
            mine, base = GlobalHydra.instance().hydra, VersionBase.instance().version_base
            expected = {"opt": {"_target_": "torch.optim.Adam", "lr": 0.1}, "run": 42}
            assert OmegaConf.to_container(own_compose("cfg"), resolve=True) == expected
            for work in (
                lambda: ragpipe.run([*RUN, "name=inside"]),
                lambda: compose(WRONG[0]),
                lambda: compose(WRONG[1]),
            ):
                with suppress(ConfigError):
                    work()
                assert (GlobalHydra.instance().hydra, VersionBase.instance().version_base) == (mine, base)
                assert OmegaConf.to_container(own_compose("cfg", ["opt.lr=0.1"]), resolve=True) == expected
    finally:
        OmegaConf.clear_resolver("eval")
        del store.repo["dataset"]


@pytest.mark.thorough
def test_four_threads_at_once(here: Path, settled: dict[str, Any]) -> None:
    """Four runs and two that are refused, started together; a fifth thread resolves with the programme's own resolver."""
    found: dict[str, Any] = {}
    gate, stop = threading.Barrier(7), threading.Event()
    OmegaConf.register_new_resolver("mine", lambda: "mine")

    def run(number: int) -> None:
        gate.wait()
        try:
            words = [*RUN, f"name=thread{number}"] if number < 4 else WRONG[number - 4]
            found[str(number)] = len(ragpipe.run(words).records)
        except BaseException as error:
            found[str(number)] = error

    def resolve() -> None:
        gate.wait()
        wrong = 0
        while not stop.wait(0.001):
            wrong += OmegaConf.create({"a": "${mine:}", "b": "${oc.env:A_KEY}"}) != {"a": "mine", "b": "not-said"}
        found["wrong"] = wrong

    threads = [threading.Thread(target=run, args=(i,)) for i in range(6)]
    other = threading.Thread(target=resolve)
    for thread in (*threads, other):
        thread.start()
    for thread in threads:
        thread.join(60)
    stop.set()
    other.join(10)
    OmegaConf.clear_resolver("mine")
    assert [found[str(i)] for i in range(4)] == [1, 1, 1, 1], found
    assert [type(found[str(i)]) for i in (4, 5)] == [ConfigError, ConfigError], found
    assert found["wrong"] == 0
    assert differences(settled) == []


PROGRAMME = """
import sys, hydra, ragpipe
from hydra.core.hydra_config import HydraConfig

@hydra.main(config_path="own", config_name="cfg", version_base="1.3")
def train(cfg):
    before = HydraConfig.get().job.name
    run = ragpipe.run(["dataset=jsonl", "dataset.path=mine.jsonl", "metrics=[retrieval]"])
    assert HydraConfig.get().job.name == before == "programme", HydraConfig.get().job.name
    print("trained", cfg.opt._target_, len(run.records))

train()
"""


def test_inside_a_programme_that_hydra_started(here: Path) -> None:
    (here / "own/cfg.yaml").write_text("opt: {_target_: torch.optim.Adam}\n")
    (here / "programme.py").write_text(PROGRAMME)
    for words in (["hydra.run.dir=trained"], ["-m", "hydra.sweep.dir=swept", "+x=1,2"]):
        done = subprocess.run(
            [sys.executable, "programme.py", *words],
            cwd=here,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.returncode == 0, done.stderr
        assert "trained torch.optim.Adam 1" in done.stdout
