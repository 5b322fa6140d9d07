"""A table of fixed-size values by digest, for millions of names: 40 bytes each, where a dict takes several hundred."""

from __future__ import annotations

from hashlib import blake2b

DIGEST = 16
"""Bytes of a digest: two of a billion names have the same one with a probability below 1e-20."""
_BUCKETS = 1 << 12


def name_digest(*parts: str) -> bytes:
    """The digest of some texts: other texts, or other borders between them, give another one."""
    digest = blake2b(digest_size=DIGEST)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return digest.digest()


class DigestTable:
    """Values of `size` bytes by digest. An entry cannot be removed.

    The entries whose digests begin alike stand one after the other in one array of bytes, which is searched.
    """

    def __init__(self, size: int = 0):
        self._size, self._width = size, DIGEST + size
        self._buckets: list[bytearray | None] = [None] * _BUCKETS
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, digest: bytes) -> bool:
        return self.get(digest) is not None

    def get(self, digest: bytes) -> bytes | None:
        """The value of a digest; None where there is none."""
        bucket = self._buckets[self._place(digest)]
        at = -1 if bucket is None else self._find(bucket, digest)
        return None if bucket is None or at < 0 else bytes(bucket[at + DIGEST : at + self._width])

    def setdefault(self, digest: bytes, value: bytes = b"") -> bytes | None:
        """The value of a digest that is there already; None for a new one, which has this value now."""
        place = self._place(digest)
        bucket = self._buckets[place]
        if bucket is None:
            bucket = self._buckets[place] = bytearray()
        elif (at := self._find(bucket, digest)) >= 0:
            return bytes(bucket[at + DIGEST : at + self._width])
        self._add(bucket, digest, value)
        return None

    def __setitem__(self, digest: bytes, value: bytes) -> None:
        place = self._place(digest)
        bucket = self._buckets[place]
        if bucket is None:
            bucket = self._buckets[place] = bytearray()
        elif (at := self._find(bucket, digest)) >= 0:
            bucket[at + DIGEST : at + self._width] = value
            return
        self._add(bucket, digest, value)

    def _add(self, bucket: bytearray, digest: bytes, value: bytes) -> None:
        if len(digest) != DIGEST or len(value) != self._size:
            raise ValueError(f"{len(digest)} and {len(value)} bytes, where {DIGEST} and {self._size} are expected")
        bucket += digest
        bucket += value
        self._count += 1

    def _place(self, digest: bytes) -> int:
        return (digest[0] << 4) | (digest[1] >> 4)

    def _find(self, bucket: bytearray, digest: bytes) -> int:
        """Where the entry begins; -1 where there is none."""
        at = bucket.find(digest)
        while at > 0 and at % self._width:  # the bytes stand across two entries
            at = bucket.find(digest, at + 1)
        return at
