"""Columns that grow block by block: of a million cases each byte of a column is a megabyte."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

_Kind = TypeVar("_Kind", bound=np.generic)
_IN_A_BYTE = 256
_MOST_DIFFERENT = 4096


def unique_numbers(numbers: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[np.int64]]:
    """The different numbers by size, the first place of each one, and for each of all which one it is: those of `np.unique`. Where all are
    equal, as in most columns of a block, nothing is sorted."""
    if len(numbers) and np.all(numbers == numbers[0]):
        return numbers[:1], np.zeros(1, dtype=np.int64), np.zeros(len(numbers), dtype=np.int64)
    return np.unique(numbers, return_index=True, return_inverse=True)


class GrowingArray(Generic[_Kind]):
    """Numbers of one type, in one piece of memory that grows."""

    def __init__(self, kind: type[_Kind]):
        self._kind = kind
        self._bytes = bytearray()

    def add(self, values: NDArray[Any]) -> None:
        """Numbers that the type holds exactly come behind those that are there."""
        self._bytes += np.ascontiguousarray(values, dtype=self._kind).tobytes()

    def array(self) -> NDArray[_Kind]:
        """All of them, not copied: nothing may be added any more."""
        return np.frombuffer(self._bytes, dtype=self._kind)


class GrowingCodes:
    """Whole numbers of which few are different: a byte each for up to 256 different ones, else two."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._bytes: GrowingArray[np.uint8] | None = GrowingArray(np.uint8)
        self._words = GrowingArray(np.uint16)

    def __len__(self) -> int:
        """How many are different."""
        return len(self._numbers)

    def add(self, numbers: NDArray[np.int64]) -> None:
        """Numbers behind those that are there; of all of them at most 65,536 are different."""
        different, _, places = unique_numbers(numbers)
        codes = [self._numbers.setdefault(number, len(self._numbers)) for number in different.tolist()]
        if self._bytes is not None and len(self._numbers) > _IN_A_BYTE:
            self._words.add(self._bytes.array())
            self._bytes = None
        (self._bytes or self._words).add(np.array(codes, dtype=np.int64)[places])

    def codes(self) -> NDArray[Any]:
        """The number of each in `different`: nothing may be added any more."""
        return (self._bytes or self._words).array()

    def different(self) -> NDArray[np.int64]:
        """The different numbers in the order of their first appearance, those of one block by size."""
        return np.array(list(self._numbers), dtype=np.int64)


class GrowingValues:
    """Floats of which most columns have few different ones (0 and 1, a fraction of ten claims, a rank): a byte or two each for up to
    4,096 different values, else eight. Every bit of a value is kept."""

    def __init__(self) -> None:
        self._coded: GrowingCodes | None = GrowingCodes()
        self._values = GrowingArray(np.float64)

    def add(self, values: NDArray[np.float64]) -> None:
        """At most 60,000 values behind those that are there."""
        if self._coded is None:
            self._values.add(values)
            return
        self._coded.add(np.ascontiguousarray(values, dtype=np.float64).view(np.int64))
        if len(self._coded) > _MOST_DIFFERENT:
            self._values.add(self.column()[:])
            self._coded = None

    def column(self) -> CodedColumn:
        """All of them: nothing may be added any more."""
        if self._coded is None:
            return CodedColumn(self._values.array())
        return CodedColumn(self._coded.codes(), self._coded.different().view(np.float64))


class CodedColumn:
    """A column that is decoded where it is read: `column[places]` is what it has at some places, `column[:]` all."""

    def __init__(self, stored: NDArray[Any], different: NDArray[Any] | None = None):
        self._stored, self._different = stored, different

    def __len__(self) -> int:
        return len(self._stored)

    def __getitem__(self, places: Any) -> NDArray[Any]:
        chosen: NDArray[Any] = self._stored[places]
        return chosen if self._different is None else self._different[chosen]
