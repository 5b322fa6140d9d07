"""How tests wait: for an event, with one limit for all that no working machine reaches, however loaded it is."""

import subprocess
import time
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit

import psutil

HANGS_AFTER_S = 600.0
"""What takes longer hangs, on the busiest machine. Less than pytest's own limit, which does not say what was waited for; more than any
test takes, and less than the hour for which a fault hangs."""

T = TypeVar("T")


def wait_until(condition: Callable[[], T], process: subprocess.Popen[Any] | None = None) -> T:
    """The first true value of the condition. AssertionError where the process ends before, or none comes."""
    end = time.monotonic() + HANGS_AFTER_S
    while not (value := condition()):
        if process is not None and process.poll() is not None:
            raise AssertionError(f"ended too early: {process.communicate()[0]}")
        assert time.monotonic() < end, f"it did not happen in {HANGS_AFTER_S:g} s"
        time.sleep(0.01)
    return value


def wait_for_hang_up(url: str) -> None:
    """Wait until the server at this address has read all that its dead clients sent, and closed their connections."""
    port = urlsplit(url).port
    waiting = (psutil.CONN_ESTABLISHED, psutil.CONN_CLOSE_WAIT)
    wait_until(
        lambda: not any(connection.laddr.port == port and connection.status in waiting for connection in psutil.net_connections("tcp"))
    )
