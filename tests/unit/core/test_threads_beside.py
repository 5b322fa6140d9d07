"""Work in a thread beside: the order of the items, and errors where their turn comes."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from ragpipe.stages.score_iteration import done_behind, made_ahead


def numbers(count: int, made: list[int], *, fault_at: int = -1) -> Iterator[int]:
    for number in range(count):
        if number == fault_at:
            raise ValueError(f"no {number}")
        made.append(number)
        yield number


@pytest.mark.parametrize("count", [0, 1, 5])
def test_items_come_in_their_order(count: int) -> None:
    assert list(made_ahead(numbers(count, []))) == list(range(count))


def test_the_next_item_is_made_while_the_last_one_is_worked_on_and_no_more() -> None:
    made: list[int] = []
    second = threading.Event()

    def items() -> Iterator[int]:
        for number in numbers(4, made):
            if number == 1:
                second.set()
            yield number

    ahead = made_ahead(items())
    assert next(ahead) == 0
    assert second.wait(30), "item 1 is made although nobody asked for it"
    assert next(ahead) == 1
    ahead.close()  # type: ignore[attr-defined]  # it is a generator
    assert made in ([0, 1], [0, 1, 2]), "at most one more was under way"


def test_what_making_an_item_raises_comes_in_its_place() -> None:
    ahead = made_ahead(numbers(9, [], fault_at=3))
    assert [next(ahead) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="no 3"):
        next(ahead)


def test_items_are_done_in_their_order_and_all_of_them() -> None:
    done: list[int] = []
    with done_behind(done.append) as hand_over:
        for number in range(50):
            hand_over(number)
    assert done == list(range(50))


@pytest.mark.parametrize("fault_at", [0, 1, 2])
def test_what_work_raises_ends_the_block(fault_at: int) -> None:
    """Also the last item's: no error is lost. What came behind the error is not begun."""
    done = []

    def work(number: int) -> None:
        if number == fault_at:
            raise OSError("disk full")
        done.append(number)

    def hand_over_three() -> None:
        with done_behind(work) as hand_over:
            for number in range(3):
                hand_over(number)

    with pytest.raises(OSError, match="disk full"):
        hand_over_three()
    assert done == list(range(fault_at))


def test_an_error_of_the_caller_wins() -> None:
    def fail() -> None:
        with done_behind(lambda _: 1 / 0) as hand_over:
            hand_over(0)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
