"""A worker that measures nothing and cannot close its store: every slice fails, and so does the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from ragpipe.core.errors import OutputError
from ragpipe.engine.runners import slice_measuring, slice_process


class _Session:
    def stop(self, why: Exception) -> None: ...

    def cancel(self) -> None: ...

    async def drain(self) -> None: ...


class _Run:
    asks_servers = True
    session = _Session()

    def figures(self) -> dict[str, Any]:
        return {"servers": [], "paid": [], "used_up": None}

    async def measure(self, _: object) -> None:
        await asyncio.sleep(0.1)
        raise OutputError("not measured")


@asynccontextmanager
async def _opened(*_: object) -> AsyncIterator[_Run]:
    yield _Run()
    raise OutputError("replies are kept in /tmp/replies.jsonl")


if __name__ == "__main__":
    slice_measuring.open_measuring = _opened  # type: ignore[assignment]
    slice_process.main()
