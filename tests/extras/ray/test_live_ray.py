"""A run with a language model and `runner=ray`: its own process asks, and says so."""

from importlib.util import find_spec

import pytest

from ragpipe.runs.iteration_judging import ASKS_HERE
from tests.extras.ray.live_runs import Place
from tests.support.harness import Server, surplus

pytestmark = [
    pytest.mark.slow,
    pytest.mark.ray,
    pytest.mark.timeout(300),
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: the extra `ray`"),
]

RAY = ["runner=ray", "runner.workers=2", "runner.slice=6"]


def test_a_run_that_asks_a_server_asks_in_its_own_process(tmp_path):
    with Server(tmp_path / "log", ("--latency-ms", "20")) as server:
        place = Place(tmp_path, server)
        assert f"runner=ray: {ASKS_HERE}" in place.ended("out", "task=plan", *RAY)
        text = place.ended("out", *RAY, "judge.budget.calls=70", code=4)
        assert "judge.budget.calls=140" in text
        assert len(server.requests()) == 70
        assert f"runner=ray: {ASKS_HERE}" in place.ended("out", *RAY)
        assert surplus(server) == 0
        place.same_as_one_process("out")
