"""A call store without the replies that a run may not use: they count as missing, and are asked again."""

from __future__ import annotations

from collections.abc import Callable

from ragpipe.core.errors import RagpipeError
from ragpipe.schema.call import Call, Payment
from ragpipe.store.calls.call_store import CallStore, StoredCalls
from ragpipe.store.calls.store_requests import Freshness


class AcceptedReplies:
    """The calls of a store for which `is_rejected` is false; everything else is the store's own."""

    def __init__(self, store: CallStore | StoredCalls, is_rejected: Callable[[Call], bool]):
        self._store, self._is_rejected = store, is_rejected

    async def get_or_claim(
        self, key: str, *, freshness: Freshness = Freshness.ANY, rejected: Call | None = None
    ) -> Call | None:
        """As `CallStore.get_or_claim`. A rejected reply is passed over, and its key is claimed."""
        call = await self._store.get_or_claim(key, freshness=freshness, rejected=rejected)
        while call is not None and self._is_rejected(call):
            previous = call  # another process may store a reply meanwhile
            call = await self._store.get_or_claim(key, freshness=Freshness.NO_FAILURES, rejected=previous)
            if call == previous:  # a store that is only read
                return None
        return call

    async def put(self, call: Call) -> Call:
        """As `CallStore.put`."""
        return await self._store.put(call)

    def record_payment(self, key: str, iteration: int, payment: Payment) -> None:
        """As `CallStore.record_payment`."""
        self._store.record_payment(key, iteration, payment)

    async def release_claim(self, key: str) -> None:
        """As `CallStore.release_claim`."""
        await self._store.release_claim(key)

    def abort(self, reason: RagpipeError) -> None:
        """As `CallStore.abort`."""
        self._store.abort(reason)

    def close(self) -> None:
        """Close the store."""
        self._store.close()
