"""Runs whose cases Ray measures: the same bytes from a cluster of any size, whatever is killed, and nothing of Ray left behind."""

import os
import re
import signal
import socket
import tempfile
import time
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ragpipe.extras.ray.process import end_session, members_of
from ragpipe.runs.workers import ASKS_HERE
from tests.extras.ray.ray_cluster import RayCluster
from tests.extras.ray.slice_runs import bytes_of, ended, lives, seals, start, until, workers_of, write_place
from tests.support.harness import Server, arguments, finish, surplus, write_cases

pytestmark = [
    pytest.mark.slow,
    pytest.mark.ray,
    pytest.mark.timeout(300),
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: the extra `ray`"),
]

CASES = 1_050
"""Two blocks."""
SECRET = "the-value-of-a-key"
PASSED = "runner.env_vars=[MEASURED,SLOW_S,FATAL,FATAL_ONCE]"


@pytest.fixture(scope="module")
def cluster():
    """Two nodes with a core each."""
    with tempfile.TemporaryDirectory(prefix="ray-") as folder, ExitStack() as stack:  # short: sockets lie in it
        made = RayCluster(Path(folder))
        stack.callback(made.close)
        for _ in range(2):
            made.add_node()
        yield made


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with the cases, and with the run of one process in `local`."""
    folder = write_place(tmp_path_factory.mktemp("ray"), CASES)
    ended(folder, "output_dir=local", SLOW_S="0")
    return folder


@pytest.fixture(autouse=True)
def _measured_by_this_test(place):
    (place / "measured").unlink(missing_ok=True)


def on(cluster, output_dir, *words):
    return [f"output_dir={output_dir}", "runner=ray", f"runner.address={cluster.address}", PASSED, *words]


def variables(cluster=None, **more):
    return {"SLOW_S": "0", "FATAL": "", "FATAL_ONCE": "", **(cluster.environment if cluster else {}), **more}


def assert_same(place, output_dir):
    assert seals(place, output_dir) == seals(place, "local")
    assert bytes_of(place, output_dir) == bytes_of(place, "local")


def children_of(process):
    listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [int(pid) for pid in listed]


def measuring(place, process, count=2):
    """The workers of a run, once there are so many."""
    return until(lambda: len(workers := workers_of(place, process.pid)) == count and workers, 90)


def measured(place):
    """The cases that were measured, in order."""
    return (place / "measured").read_text().split()[1::2]


def leftovers():
    return {path.name for path in Path(tempfile.gettempdir()).glob("ragpipe-ray-*")}


@pytest.mark.parametrize("largest", [1, 100, 1000])
def test_two_nodes_give_the_bytes_of_one_process(place, cluster, largest):
    words = on(cluster, f"of-{largest}", f"runner.slice={largest}")
    out = ended(place, *words, **variables(cluster))
    assert_same(place, f"of-{largest}")
    assert sorted(measured(place)) == sorted(f"q{i}" for i in range(CASES))  # each case once
    assert "Traceback" not in out
    assert "(raylet)" not in out


def test_a_cluster_of_its_own_gives_these_bytes_too(place, tmp_path):
    before, home = leftovers(), tmp_path / "home"
    home.mkdir()
    words = ["runner=ray", "runner.workers=3", "runner.slice=7"]
    ended(place, "output_dir=own", *words, **variables(HOME=str(home), RAY_ADDRESS="127.0.0.1:1"))
    assert_same(place, "own")
    assert len(set((place / "measured").read_text().split()[::2])) <= 3  # a worker measures many slices
    assert leftovers() == before
    assert not (home / ".ray").exists()


def test_slices_of_a_lost_node_are_measured_elsewhere(place, cluster):
    node = cluster.add_node()
    process = start(place, *on(cluster, "lost", "runner.slice=50"), **variables(cluster, SLOW_S="0.02"))
    assert [os.getsid(pid) for pid in measuring(place, process, 3)].count(node) == 1
    end_session(node)
    out, _ = process.communicate(timeout=200)
    assert process.returncode == 0, out
    assert_same(place, "lost")
    assert "a node of the cluster was lost; rows" in out
    assert set(measured(place)) == {f"q{i}" for i in range(CASES)}
    assert len(measured(place)) <= CASES + 2 * 50  # what the worker had under way, and what it had not handed over


def test_a_slice_that_kills_every_worker_ends_the_run_and_names_itself(place, cluster):
    words = on(cluster, "fatal", "runner.slice=10")
    out = ended(place, *words, code=6, **variables(cluster, FATAL="q34"))
    assert "rows 30 to 39 of block 0: 3 workers died over them (out of memory?" in out
    assert measured(place).count("q34") == 3
    once = ended(place, *words, **variables(cluster, FATAL_ONCE="q34"))
    assert "a worker of Ray died; rows 30 to 39 of block 0 are measured again" in once
    assert_same(place, "fatal")


@pytest.mark.parametrize("kind", ["own", "cluster"])
def test_a_killed_driver_leaves_nothing_and_the_next_start_goes_on(place, cluster, kind):
    words = on(cluster, f"killed-{kind}") if kind == "cluster" else [f"output_dir=killed-{kind}", "runner=ray"]
    before, told = leftovers(), variables(cluster if kind == "cluster" else None)
    words += ["runner.workers=2", "runner.slice=9"]
    process = start(place, *words, **{**told, "SLOW_S": "0.2"})
    workers = measuring(place, process)
    (speaking,) = children_of(process)
    process.kill()
    process.wait()
    until(lambda: not any(map(lives, workers)), 10)
    until(lambda: not list(members_of(speaking)), 10)  # Ray's own processes too
    count = len(measured(place))
    time.sleep(0.5)
    assert len(measured(place)) == count
    assert leftovers() == before
    if kind == "own":
        ended(place, *words, **told)
        assert_same(place, f"killed-{kind}")


def test_the_end_of_the_process_that_speaks_to_ray_ends_the_run_and_leaves_nothing(place):
    before = leftovers()
    process = start(place, "output_dir=mute", "runner=ray", "runner.workers=2", **variables(SLOW_S="0.2"))
    measuring(place, process)
    (speaking,) = children_of(process)
    os.kill(speaking, signal.SIGKILL)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 6, out
    assert "the process that speaks to Ray died" in out
    assert not list(members_of(speaking))
    assert leftovers() == before


def test_ctrl_c_ends_the_tasks(place, cluster):
    words = on(cluster, "interrupted", "runner.slice=9")
    process = start(place, *words, **variables(cluster, SLOW_S="0.2"))
    workers = measuring(place, process)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130, out
    assert "Traceback" not in out
    until(lambda: not any(map(lives, workers)), 10)


def test_variables_reach_the_workers_and_no_file(place, cluster):
    ended(place, *on(cluster, "secret"), **variables(cluster, FATAL_ONCE=SECRET))
    roots = (place / "secret", Path(cluster.environment["RAY_TMPDIR"]))
    files = [path for root in roots for path in root.rglob("*") if path.is_file()]
    assert len(files) > 20
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]


KEY_PLUGIN = """
import os
from ragpipe import Computed, Score

class Keys(Computed):
    \"\"\"How many keys the process that measures holds.\"\"\"

    def compute(self, cases):
        held = sum(os.environ.get(name) == "sk-sentinel" for name in ("MY_API_KEY", "PGPASSWORD"))
        return [Score(held / 2) for _ in cases]
"""


def test_tasks_hold_no_key(place):
    (place / "key_plugin.py").write_text(KEY_PLUGIN)
    words = ["plugins=[slow_plugin,key_plugin]", "+metrics.keys.class=key_plugin.Keys"]
    told = variables(MY_API_KEY="sk-sentinel", PGPASSWORD="sk-sentinel")
    for runner, held, more in (("ray", 0.0, ["runner.workers=2"]), ("local", 1.0, [])):
        ended(place, f"output_dir=keys-{runner}", f"runner={runner}", *words, *more, **told)
        table = (place / f"keys-{runner}" / "workers" / "latest").resolve() / "iteration-1" / "scores.parquet"
        scores = pq.read_table(table, filters=[("metric", "=", "keys")])
        assert set(scores["value"].to_pylist()) == {held}


def test_what_cannot_be_used_ends_the_run_with_exit_code_2(place):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{free.getsockname()[1]}"
        out = ended(place, "output_dir=no", "runner=ray", f"runner.address={nobody}", code=2, **variables())
        assert f"runner.address\n    found:    {nobody}: " in out
    out = ended(place, "output_dir=no", "runner=ray", "runner.num_gpus=64", code=2, **variables())
    assert re.search(r"found: +CPU \d+ on this machine\n +expected: CPU 1, GPU 64 for a slice", out)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a node other mounts")
def test_a_node_that_does_not_see_the_run_folder_is_named(place, cluster):
    hidden = place / "hidden"
    hidden.mkdir()
    node = cluster.add_node("unshare", "-m", "sh", "-c", f'mount -t tmpfs none "{hidden}" && exec "$@"', "sh")
    out = ended(place, *on(cluster, "hidden", "runner.slice=20"), code=2, **variables(cluster))
    end_session(node)
    assert f"node {socket.gethostname()}: output_dir\n    found:    no run in {hidden}" in out


def results_of(folder, out):
    """All files of a run with a judge that say what came of it."""
    run = (folder / out / "torture" / "latest").resolve()
    paths = [*run.glob("*.parquet"), *run.glob("iteration-1/*.*"), *run.glob("final/*"), run / "gates.json"]
    return {str(p.relative_to(run)): p.read_bytes() for p in paths if p.name[0] != "." and "journal" not in p.name}


def test_a_run_that_asks_a_server_asks_in_its_own_process(tmp_path):
    """And says so; one process over the same replies asks nothing, and comes to the same bytes."""
    ray = ["runner=ray", "runner.workers=2", "runner.slice=6"]
    common = ["metrics.chunk_faithfulness.exhaustive=true", f"store.path={tmp_path / 'store'}", "report.formats=[markdown]"]
    data = write_cases(tmp_path / "cases.jsonl", 60)

    def run(out, *words, code=0):
        found, text = finish(arguments(data, tmp_path / out, server.url, *common, *words), tmp_path)
        assert found == code, text
        return text

    with Server(tmp_path / "log", ("--latency-ms", "20")) as server:
        assert f"runner=ray: {ASKS_HERE}" in run("out", "task=plan", *ray)
        assert "judge.budget.calls=140" in run("out", *ray, "judge.budget.calls=70", code=4)
        assert len(server.requests()) == 70
        assert f"runner=ray: {ASKS_HERE}" in run("out", *ray)
        assert surplus(server) == 0
        asked = len(server.requests())
        run("local")
        assert len(server.requests()) == asked
    local, by_ray = results_of(tmp_path, "local"), results_of(tmp_path, "out")
    assert len(local) >= 8
    assert {name: by_ray[name] == data for name, data in local.items()} == dict.fromkeys(by_ray, True)
