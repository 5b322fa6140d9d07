"""How the time of a piece of work grows with its size: against the same work on less, in the same run."""

import time
from collections.abc import Callable

TIMES = 16
SLACK = 4
"""What is linear takes 16 times as long on 16 times as much, what is quadratic 256 times: 64 tells them apart."""


def assert_linear(work: Callable[[int], object], size: int) -> None:
    """`work(size)` takes at most 64 times the processor time of `work(size // 16)`, the fastest of three of each."""
    small = min(_seconds(work, size // TIMES) for _ in range(3))
    limit = TIMES * SLACK * max(small, 1e-4)
    large: list[float] = []
    while len(large) < 3 and (not large or min(large) > limit):
        large.append(_seconds(work, size))
    assert min(large) <= limit, f"{small:.4f} s at {size // TIMES}, {min(large):.4f} s at {size}"


def _seconds(work: Callable[[int], object], size: int) -> float:
    """Of processor time: other work on the machine adds to it, and never takes from it."""
    started = time.process_time()
    work(size)
    return time.process_time() - started
