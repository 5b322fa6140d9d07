"""Shared by all tests: no ambient keys, no network for litellm's price map, and where the real data stands.

The scripted judge and the case builder are in `ragpipe/testing/scripted.py`; what a room forbids is in `tests/support/rooms.py`.
"""

import gc
import os
import platform
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.support import rooms, thoroughness
from tests.support.finished_runs import FinishedRuns

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

# a shell ignores SIGINT for what it starts in the background, nohup ignores SIGHUP, and all processes inherit that: tests of signals
# would wait for ever
for number, default in ((signal.SIGINT, signal.default_int_handler), (getattr(signal, "SIGHUP", None), signal.SIG_DFL)):
    if number is not None and signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, default)

# the time of one example says more of the machine than of the code; `.ci/run` asks for the same examples each time, at night for more
hypothesis.settings.register_profile(
    "ragpipe",
    deadline=None,
    derandomize="RAGPIPE_SAME_EXAMPLES" in os.environ,
    max_examples=500 if thoroughness.THOROUGH else 25,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("ragpipe")

platform.platform()  # openai's client asks for it, and once per process that starts `uname`: not in a test that may start nothing
rooms.watch()

_SLOW_MODULE = "\npytestmark = pytest.mark.slow"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    rooms.enter(item)
    try:
        return (yield)
    finally:
        rooms.leave()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A module none of whose tests is asked for is not even imported."""
    if collection_path.suffix != ".py" or not collection_path.name.startswith("test_"):
        return None
    text = collection_path.read_text("utf-8")
    all_slow = _SLOW_MODULE in text or rooms.room_of(collection_path) == "slow"
    asked = config.option.markexpr
    only_slow = asked.startswith("slow") and " or " not in asked
    return (asked == "not slow" and all_slow) or (only_slow and not all_slow and "mark.slow" not in text) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what is for thorough runs alone, unless a test is named by its id."""
    if any("::" in argument for argument in config.args):
        return
    left_out = thoroughness.left_out(items)
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]


def pytest_collection_finish() -> None:
    """Thousands of collected tests live to the end: without them a pass of the garbage collector takes no time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


DATA = Path(os.environ.get("RAGPIPE_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data sets (`RAGPIPE_DATA`); tests that need it are skipped where it is absent."""
    if not (DATA / "EXPECTED.json").is_file():
        pytest.skip(f"no real data at {DATA}: set RAGPIPE_DATA")
    return DATA


@pytest.fixture(scope="session")
def finished_runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> FinishedRuns:
    """Finished runs of whole commands, each made once: ask for them in fixtures, before a test patches anything."""
    base = tmp_path_factory.getbasetemp()
    is_worker = hasattr(request.config, "workerinput")  # of xdist: its own folder is inside that of the suite
    return FinishedRuns((base.parent if is_worker else base) / "finished_runs")


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """The current folder, which is empty."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def code_here(tmp_path, monkeypatch) -> Iterator[Path]:
    """The current folder, with modules that can be imported and are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]
