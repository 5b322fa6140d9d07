"""Values by digest: as a dict, in less memory."""

import pytest

from ragpipe.core.digest_table import DIGEST, DigestTable, name_digest


def test_it_keeps_what_a_dict_keeps() -> None:
    table, expected = DigestTable(3), {}
    for number in range(20_000):
        name = name_digest(f"q{number % 15_000}", "m")
        value = number.to_bytes(3, "big")
        assert table.setdefault(name, value) == expected.get(name)
        expected.setdefault(name, value)
    assert len(table) == 15_000
    assert all(table.get(name) == value for name, value in expected.items())
    name = name_digest("q7", "m")
    table[name] = b"new"
    table[name_digest("other")] = b"one"
    assert (table.get(name), table.get(name_digest("other")), len(table)) == (b"new", b"one", 15_001)
    assert name_digest("absent") not in table


def test_borders_between_texts_count() -> None:
    assert len({name_digest("ab", "c"), name_digest("a", "bc"), name_digest("abc"), name_digest("ab", "c", "")}) == 4


def test_a_digest_that_stands_across_two_entries_is_none() -> None:
    """The value of one entry with the beginning of the next looks like a digest of the same bucket."""
    table = DigestTable(8)
    first, second = b"\0" * DIGEST, b"\0" * 8 + b"\1" * 8
    table[first], table[second] = b"\0" * 8, b"\2" * 8
    across = b"\0" * 8 + b"\1" * 4 + b"\1" * 4  # found at 32, as `second` itself
    assert table.get(across) == b"\2" * 8
    shifted = b"\0" * 12 + b"\1" * 4  # the bytes 20 to 36: four of the value, eight of `second`, four of its end
    assert shifted not in table
    table[shifted] = b"\3" * 8
    assert [table.get(digest) for digest in (first, second, shifted)] == [b"\0" * 8, b"\2" * 8, b"\3" * 8]


def test_other_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="16 and 4 are expected"):
        DigestTable(4)[b"short"] = b"1234"
