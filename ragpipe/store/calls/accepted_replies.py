"""A call store without the replies that a run may not use: they count as missing, and are asked again."""

from __future__ import annotations

from collections.abc import Callable

from ragpipe.schema.call import Call
from ragpipe.store.calls.reply_store import ReplyStore, WrappedStore
from ragpipe.store.calls.store_requests import Freshness


class AcceptedReplies(WrappedStore):
    """The calls of a store for which `is_rejected` is false; everything else is the store's own."""

    def __init__(self, store: ReplyStore, is_rejected: Callable[[Call], bool]):
        super().__init__(store)
        self._is_rejected = is_rejected

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
