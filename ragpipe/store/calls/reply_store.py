"""What a store of replies can do, and what stores in front of another one have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from ragpipe.core.errors import JudgeError, RagpipeError
from ragpipe.schema.call import Call, Payment
from ragpipe.store.calls.store_requests import Freshness


class ReplyStore(Protocol):
    """Where replies are looked up and stored by key. `CallStore` documents each method."""

    async def get_or_claim(
        self, key: str, *, freshness: Freshness = ..., rejected: Call | None = ...
    ) -> Call | None: ...

    async def put(self, call: Call) -> Call: ...

    def record_payment(self, key: str, iteration: int, payment: Payment) -> None: ...

    async def release_claim(self, key: str) -> None: ...

    def abort(self, reason: RagpipeError) -> None: ...

    def end_waiting(self, reason: JudgeError) -> None: ...

    def close(self) -> None: ...


@runtime_checkable
class RepliesAtHand(Protocol):
    """A store that gives some replies without waiting and without a claim, so that no task is needed to ask for them."""

    def at_hand(self, key: str, freshness: Freshness) -> Call | None:
        """The stored call; None where `get_or_claim` has to be asked."""
        ...


class WrappedStore:
    """A store in front of another one: what it does not do itself is done by that one."""

    def __init__(self, store: ReplyStore):
        self._store = store

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

    def end_waiting(self, reason: JudgeError) -> None:
        """As `CallStore.end_waiting`."""
        self._store.end_waiting(reason)

    def close(self) -> None:
        """Close the store."""
        self._store.close()


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
