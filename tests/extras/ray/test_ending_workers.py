"""The process that speaks to Ray, at its end."""

from __future__ import annotations

import asyncio
import sys
import time
from asyncio.subprocess import PIPE

import pytest

from ragpipe.extras.ray import runner as ray_runner

pytestmark = pytest.mark.slow


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("unread", [1_000, 400_000])
async def test_what_is_not_read_does_not_keep_the_process_that_speaks_to_ray(unread: int) -> None:
    """It writes more than a pipe and its reader hold, and ends when its input does."""
    code = f"""
import os, sys, threading
def write():
    sys.stdout.buffer.write(b"x" * {unread})
    sys.stdout.buffer.flush()
threading.Thread(target=write, daemon=True).start()
sys.stdin.buffer.read()
os._exit(0)
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-S", "-c", code, stdin=PIPE, stdout=PIPE, start_new_session=True)
    await asyncio.sleep(0.3)
    began = time.monotonic()
    await ray_runner._end(process)
    assert time.monotonic() - began < ray_runner._END_S / 2
