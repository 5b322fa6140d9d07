"""Messages between a driver and its worker processes: a JSON object, and bytes behind it.

Plain data only, read as such: nothing in a message can run. A worker that needs no more imports no more.
"""

from __future__ import annotations

import json
import os
import struct
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from asyncio import StreamReader

HEAD = struct.Struct(">QQ")
"""The lengths of the JSON object and of the bytes behind it."""


def packed_message(values: Any, *contents: bytes | memoryview) -> bytes:
    """A message, ready to be sent. Raises ValueError and TypeError for what is no plain JSON.

    Args:
        values: the JSON object.
        contents: the bytes behind it, in pieces. They are copied once.
    """
    text = json.dumps(values, allow_nan=False).encode("ascii")
    return b"".join([HEAD.pack(len(text), sum(map(len, contents))), text, *contents])


def read_message(file: BinaryIO) -> Any:
    """The JSON value of the next message, which has no bytes behind it. Raises EOFError where the other side is gone."""
    head = file.read(HEAD.size)
    size = HEAD.unpack(head)[0] if len(head) == HEAD.size else 0
    text = file.read(size)
    if not size or len(text) < size:
        raise EOFError
    return json.loads(text)


async def awaited_message(stream: StreamReader) -> tuple[Any, bytes]:
    """The JSON value of the next message, and the bytes behind it. Raises EOFError and OSError where the other side is gone."""
    values_size, size = HEAD.unpack(await stream.readexactly(HEAD.size))
    return json.loads(await stream.readexactly(values_size)), await stream.readexactly(size)


def parted_message(message: bytes) -> tuple[Any, bytes]:
    """The JSON value of a packed message, and the bytes behind it. Raises ValueError for what is none."""
    try:
        size, _ = HEAD.unpack_from(message)
    except struct.error as error:
        raise ValueError("a message without its head") from error
    return json.loads(message[HEAD.size : HEAD.size + size]), message[HEAD.size + size :]


def own_streams() -> tuple[BinaryIO, BinaryIO]:
    """The driver's messages, and where answers go. What anything in this process prints goes to stderr instead."""
    incoming, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)

    def leave() -> None:
        """In a child that code of the user's forks: it must not keep the driver's pipes open when this process has died."""
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (incoming, answers):
            os.dup2(nothing, stream, inheritable=False)
        os.close(nothing)

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=leave)
    return os.fdopen(incoming, "rb"), os.fdopen(answers, "wb")
