"""Columns that grow block by block: of a million cases each byte of a column is a megabyte."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

_Kind = TypeVar("_Kind", bound=np.generic)
_CODES = 256  # different values that fit into a byte


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


class GrowingValues:
    """Floats of which most columns have few different ones (0 and 1, a fraction of ten claims, a rank): a byte each for up to 256
    different values, else eight. Every bit of a value is kept."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._codes = GrowingArray(np.uint8)
        self._values: GrowingArray[np.float64] | None = None

    def add(self, values: NDArray[np.float64]) -> None:
        """Values behind those that are there."""
        if self._values is None:
            bits = np.ascontiguousarray(values, dtype=np.float64).view(np.int64)
            different, places = np.unique(bits, return_inverse=True)
            codes = [self._numbers.setdefault(value, len(self._numbers)) for value in different.tolist()]
            if len(self._numbers) <= _CODES:
                self._codes.add(np.array(codes, dtype=np.int64)[places])
                return
            self._values = GrowingArray(np.float64)
            self._values.add(_floats(list(self._numbers))[self._codes.array()])
            self._codes, self._numbers = GrowingArray(np.uint8), {}
        self._values.add(values)

    def column(self) -> CodedValues:
        """All of them: nothing may be added any more."""
        if self._values is not None:
            return CodedValues(self._values.array(), None)
        return CodedValues(self._codes.array(), _floats(list(self._numbers)))


class CodedValues:
    """Floats that are decoded where they are read: `values[places]` are those at some places, `values[:]` all."""

    def __init__(self, stored: NDArray[Any], different: NDArray[np.float64] | None):
        self._stored, self._different = stored, different

    def __len__(self) -> int:
        return len(self._stored)

    def __getitem__(self, places: Any) -> NDArray[np.float64]:
        chosen: NDArray[Any] = self._stored[places]
        return chosen if self._different is None else self._different[chosen]


def _floats(bits: list[int]) -> NDArray[np.float64]:
    return np.array(bits, dtype=np.int64).view(np.float64)
