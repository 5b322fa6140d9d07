"""Marks for a provider's cache: where they stand in a request, who writes, and who finds what was written."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpipe.judging.cache_key import Question
from ragpipe.judging.shared_prefixes import BLOCK, LEAST, SharedPrefixes, prompt_text
from ragpipe.judging.transports.cache_marks import with_cache_marks
from tests.unit.judging.test_shared_prefixes import CONTEXTS, asked

MARK = {"cache_control": {"type": "ephemeral"}}


def marked(*places: int, system: str = "abc", user: str = "defghi") -> list[Any]:
    body = {"messages": [{"role": "system", "content": system}, {"role": "user", "content": user}], "max_tokens": 5}
    return [message["content"] for message in with_cache_marks(body, places)["messages"]]


def part(text: str, mark: bool = True) -> dict[str, Any]:
    return {"type": "text", "text": text, **(MARK if mark else {})}


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        # "system\nabc\nuser\ndefghi\n": the system's text is 7 to 10, the user's 16 to 22
        ((), ["abc", "defghi"]),
        ((18,), ["abc", [part("de"), part("fghi", mark=False)]]),
        ((18, 20), ["abc", [part("de"), part("fg"), part("hi", mark=False)]]),
        ((22,), ["abc", [part("defghi")]]),
        ((9, 18), [[part("ab"), part("c", mark=False)], [part("de"), part("fghi", mark=False)]]),
        ((11,), [[part("abc")], "defghi"]),
        ((14,), [[part("abc")], "defghi"]),  # in the role: at the end of the text before it
        ((3,), ["abc", "defghi"]),  # before any text
    ],
)
def test_a_mark_ends_a_part(places: tuple[int, ...], expected: list[Any]) -> None:
    assert marked(*places) == expected


def test_no_part_is_blank() -> None:
    assert marked(18, user="de  \n ") == ["abc", [part("de  \n ")]]


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from(["system", "user"]), st.text(min_size=1)), min_size=1, max_size=4), st.lists(st.integers(0, 80), max_size=3))  # fmt: skip
def test_a_marked_request_has_the_same_text(texts: list[tuple[str, str]], places: list[int]) -> None:
    messages = [{"role": role, "content": text} for role, text in texts]
    body = {"messages": messages}
    after = with_cache_marks(body, places)["messages"]
    plain = [m["content"] if isinstance(m["content"], str) else "".join(p["text"] for p in m["content"]) for m in after]
    assert plain == [text for _, text in texts]
    assert body == {"messages": messages}
    marks = [p for m in after if not isinstance(m["content"], str) for p in m["content"] if "cache_control" in p]
    assert len(marks) <= len(set(places))


async def turns(prefixes: SharedPrefixes, *questions: Question) -> list[tuple[int, ...]]:
    """Ask all at once; the marks of each, in the order of the questions."""

    async def one(each: Question) -> tuple[int, ...]:
        async with prefixes.turn(each) as marks:
            await asyncio.sleep(0.01)
            return marks

    return await asyncio.gather(*map(one, questions))


SHARED = len("system\nt\nuser\n") + len(CONTEXTS)
WHOLE = LEAST + (SHARED - LEAST) // BLOCK * BLOCK  # what they share, in whole blocks


async def test_the_second_writes_and_the_rest_find_it() -> None:
    prefixes = SharedPrefixes(by_schema=False, marks=True)
    questions = [asked(CONTEXTS + f"Task {number}.") for number in range(4)]
    assert prompt_text(questions[0].payload.messages)[:WHOLE] == prompt_text(questions[1].payload.messages)[:WHOLE]
    assert await turns(prefixes, *questions) == [(), (WHOLE,), (WHOLE,), (WHOLE,)]
    assert await turns(prefixes, asked(CONTEXTS + "Task 9.")) == [(WHOLE,)]


async def test_two_alone_write_nothing_and_a_third_later_one_does() -> None:
    prefixes = SharedPrefixes(by_schema=False, marks=True)
    assert await turns(prefixes, asked(CONTEXTS + "Task 0."), asked(CONTEXTS + "Task 1.")) == [(), ()]
    assert await turns(prefixes, asked(CONTEXTS + "Task 2.")) == [(WHOLE,)]


async def test_a_longer_beginning_is_marked_beside_the_one_that_is_kept() -> None:
    prefixes = SharedPrefixes(by_schema=False, marks=True)
    await turns(prefixes, *(asked(CONTEXTS + f"Task {number}.") for number in range(3)))
    longer = CONTEXTS + "x" * 8 * BLOCK
    marks = await turns(prefixes, *(asked(longer + f"Task {number}.") for number in range(3)))
    assert [len(each) for each in marks] == [
        1,
        2,
        1,
    ]  # the first finds the shorter one, the second writes the longer one, the third finds it
    assert marks[0] == marks[1][:1] == (WHOLE,)
    assert marks[2] == marks[1][1:]


async def test_other_providers_get_no_marks() -> None:
    for prefixes in (SharedPrefixes(by_schema=False), SharedPrefixes(by_schema=False, waits=False, marks=True)):
        assert await turns(prefixes, *(asked(CONTEXTS + f"Task {number}.") for number in range(3))) == [(), (), ()]
