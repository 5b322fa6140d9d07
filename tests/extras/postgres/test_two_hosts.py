"""Two hosts, one database: sweeps at once ask each question once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.extras.postgres.postgres_server import postgres_server
from tests.extras.postgres.two_hosts import two_hosts
from tests.support.harness import Server, arguments, environment, write_cases
from tests.support.waiting import HANGS_AFTER_S

pytestmark = pytest.mark.slow


def test_two_sweeps_on_two_hosts_ask_nothing_twice(tmp_path: Path) -> None:
    data = write_cases(tmp_path / "data.jsonl", 30)
    with two_hosts() as (one, two):
        netns = ("ip", "netns", "exec", one.name)
        with (
            postgres_server(address=one.address, port=5432, prefix=netns) as database,
            Server(tmp_path / "log", ("--host", one.address, "--latency-ms", "20"), prefix=netns) as judge,
        ):
            processes = []
            for host in (one, two):
                words = arguments(data, tmp_path / host.name, judge.url, f"store.url={database.url}", "report.formats=[terminal]")
                command = [*host.prefix, sys.executable, "-m", "ragpipe", "-m", *words, "judge.temperature=0.0,0.5"]
                processes.append(
                    subprocess.Popen(command, cwd=tmp_path, env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                )
            texts = [process.communicate(timeout=HANGS_AFTER_S)[0] for process in processes]
            assert [process.returncode for process in processes] == [0, 0], "\n".join(texts)
            times = judge.bodies()
            assert set(times.values()) == {1}
            assert len(times) >= 2 * 30
