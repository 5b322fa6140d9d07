"""A cluster of Ray on this machine, whose nodes are processes that can be killed."""

import os
import re
import subprocess
import sys

from ragpipe.extras.ray.process import end_session
from tests.extras.ray.slice_runs import until


class RayCluster:
    """A cluster on this machine: its address, its nodes by the process that started each, and what others need to join it."""

    def __init__(self, folder):
        self._folder = folder
        (folder / "token").write_text("3f9d" * 16)
        self.environment = {
            "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(folder / "token"), "RAY_TMPDIR": str(folder),
            "RAY_USAGE_STATS_ENABLED": "0",
        }  # fmt: skip
        self.nodes: list[int] = []
        self.address = ""

    def add_node(self, *before):
        """Start a node with one core, with the words of another program before its command."""
        log = self._folder / f"node-{len(self.nodes)}.log"
        first = ["--head", "--port=0", "--include-dashboard=false", f"--temp-dir={self._folder}"]
        joins = [f"--address={self.address}"] if self.address else first
        command = [
            *before,
            sys.executable,
            "-m",
            "ray.scripts.scripts",
            "start",
            *joins,
            "--block",
            "--num-cpus=1",
            "--disable-usage-stats",
        ]
        environment = {**os.environ, **self.environment}
        with open(log, "w") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True, env=environment)
        self.nodes.append(process.pid)
        until(lambda: "Ray runtime started" in log.read_text(), 90)
        if not self.address:
            self.address = re.findall(r"--address='(\S+)'", log.read_text())[0]
        return process.pid

    def close(self):
        for node in reversed(self.nodes):
            end_session(node)
