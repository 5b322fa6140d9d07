"""Data blocks come out as they went in, equal content gives equal blocks, and no text can leave its element."""

import base64
import gzip
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpipe.core.safe_text import printable
from ragpipe.pages.data_blocks import TEXTS_PER_BLOCK, DataBlock, JsonList, TextPool, column_block, json_block, pack


def content(block: DataBlock) -> bytes:
    return gzip.decompress(base64.b64decode(block.text))


@given(st.binary(max_size=300))
def test_bytes_come_out_as_they_went_in(raw: bytes) -> None:
    block = pack("d0", raw)
    assert content(block) == raw
    assert pack("d0", raw) == block
    assert "<" not in block.text


@pytest.mark.slow
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=9), lambda v: st.lists(v, max_size=3)
    )
)
def test_json_comes_out_with_control_characters_shown(value: Any) -> None:
    def expected(item: Any) -> Any:
        if isinstance(item, str):
            return printable(item)
        return [expected(part) for part in item] if isinstance(item, list) else item

    assert json.loads(content(json_block("index", value))) == expected(value)


def test_a_lone_surrogate_and_an_end_tag_are_text() -> None:
    block = json_block("d0", {"\ud800": "</script><script>alert(1)</script>\x1b"})
    assert json.loads(content(block)) == {"\\ud800": "</script><script>alert(1)</script>\\x1b"}


def test_columns_lie_one_after_the_other_floats_first() -> None:
    codes, values = np.array([1, 2, 255], np.uint8), np.array([0.5, np.nan, -1.0], np.float32)
    block, layout = column_block({"verdict": codes, "difference": values})
    assert layout == [
        {"name": "difference", "type": "f4", "offset": 0},
        {"name": "verdict", "type": "u1", "offset": 12},
    ]
    raw = content(block)
    np.testing.assert_array_equal(np.frombuffer(raw[:12], "<f4"), values)
    assert list(raw[12:]) == [1, 2, 255]


@pytest.mark.parametrize(("columns", "message"), [
    ({"a": np.zeros(2, np.float32), "b": np.zeros(3, np.uint8)}, "not equally long"),
    ({"a": np.zeros(2)}, "column a is float64; a page has float32 and uint8"),
])  # fmt: skip
def test_other_columns_are_refused(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        column_block(columns)


def test_a_shared_text_is_kept_once() -> None:
    pool = TextPool()
    texts = [f"chunk {n}" for n in range(TEXTS_PER_BLOCK + 2)]
    numbers = [pool.number(text) for text in texts]
    assert numbers == list(range(TEXTS_PER_BLOCK + 2))
    assert [pool.number(text) for text in texts] == numbers
    blocks = list(pool.blocks())
    assert [block.name for block in blocks] == ["t0", "t1"]
    assert [len(json.loads(content(block))) for block in blocks] == [TEXTS_PER_BLOCK, 2]
    assert json.loads(content(blocks[1])) == texts[TEXTS_PER_BLOCK:]


@pytest.mark.slow
@given(st.lists(st.text(max_size=9) | st.integers(-9, 9), max_size=5))
def test_a_list_that_is_packed_while_it_grows_is_the_same_list(values: list[Any]) -> None:
    growing = JsonList()
    for value in values:
        growing.append(value)
    block = growing.block("text")
    assert block.name == "text"
    assert content(block) == content(json_block("text", values))


def test_full_blocks_of_texts_are_taken_once() -> None:
    pool = TextPool()
    numbers = [pool.number(f"text {n % 300}") for n in range(600)]
    assert numbers == [*range(300), *range(300)]
    taken = list(pool.full_blocks())
    assert [block.name for block in taken] == ["t0", "t1"]
    (last,) = pool.blocks()
    assert last.name == "t2"
    assert json.loads(content(last)) == [f"text {n}" for n in range(2 * TEXTS_PER_BLOCK, 300)]
