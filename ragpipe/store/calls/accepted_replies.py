"""A call store of which some replies may not be used: they count as not there, and are asked again."""

from __future__ import annotations

from collections.abc import Callable

from ragpipe.core.errors import RagpipeError
from ragpipe.schema.call import Call, Payment
from ragpipe.store.calls.call_store import CallStore, Fresh, StoredCalls


class AcceptedReplies:
    """`refused` says which stored calls are passed over; everything else is the store's own."""

    def __init__(self, store: CallStore | StoredCalls, refused: Callable[[Call], bool]):
        self._store, self._refused = store, refused

    async def take(self, key: str, *, fresh: Fresh = False) -> Call | None:
        """As `CallStore.take`; a refused reply is passed over, and the claim on its key taken."""
        found = await self._store.take(key, fresh=fresh)
        while found is not None and self._refused(found):
            before, found = found, await self._store.take(key, fresh=found)  # another process may be asking, too
            if found == before:  # a store that is only read
                return None
        return found

    async def put(self, call: Call) -> Call:
        return await self._store.put(call)

    def pay(self, key: str, iteration: int, payment: Payment) -> None:
        self._store.pay(key, iteration, payment)

    async def release(self, key: str) -> None:
        await self._store.release(key)

    def give_up(self, why: RagpipeError) -> None:
        self._store.give_up(why)

    def close(self) -> None:
        self._store.close()
