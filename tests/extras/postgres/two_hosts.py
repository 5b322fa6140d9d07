"""Two hosts on one machine: network namespaces that see each other over a pair of virtual cards, and nothing else."""

from __future__ import annotations

import shutil
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Host:
    """One of the two. `name` is that of its namespace."""

    name: str
    address: str

    @property
    def prefix(self) -> Sequence[str]:
        """What the command of a process on this host begins with; its host name is the namespace's."""
        change = f'hostname {self.name} && exec "$@"'
        return ("ip", "netns", "exec", self.name, "unshare", "--uts", "sh", "-c", change, "sh")


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no network namespaces here (ip {' '.join(words)}: {done.stderr.strip()})")


@contextmanager
def two_hosts() -> Iterator[tuple[Host, Host]]:
    """Both hosts; the test is skipped with a reason where namespaces cannot be made."""
    missing = [name for name in ("ip", "unshare", "hostname") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"no network namespaces here: {', '.join(missing)} not installed")
    mark = uuid.uuid4().hex[:6]
    hosts = Host(f"rp{mark}a", "10.213.7.1"), Host(f"rp{mark}b", "10.213.7.2")
    try:
        for host in hosts:
            _ip("netns", "add", host.name)
        cards = [f"v{host.name}" for host in hosts]
        _ip("link", "add", cards[0], "netns", hosts[0].name, "type", "veth", "peer", "name", cards[1], "netns", hosts[1].name)
        for host, card in zip(hosts, cards, strict=True):
            _ip("-n", host.name, "addr", "add", f"{host.address}/24", "dev", card)
            for name in (card, "lo"):
                _ip("-n", host.name, "link", "set", name, "up")
        yield hosts
    finally:
        for host in hosts:
            subprocess.run(["ip", "netns", "del", host.name], capture_output=True, check=False)
