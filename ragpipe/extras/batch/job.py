"""One batch from its folder to its results: made once, waited for, collected; picked up where an earlier process left it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from ragpipe.core.errors import FATAL
from ragpipe.extras.batch.api import BatchApi, BatchStatus, Outcome
from ragpipe.extras.batch.folder import BatchFolder
from ragpipe.judge.attempts import RETRYABLE
from ragpipe.judge.client import AttemptError

T = TypeVar("T")

GRACE_S = 600.0
"""Seconds after a batch has expired at which it is cancelled, and what it has is collected."""
_SLOWER, _SLOWEST = (1.5, 6)  # each wait between two looks is so many times the one before, and at most so many times the first
_UNSURE = RETRYABLE | {"unreachable"}
"""Errors after which a batch may have been made all the same."""


class NoBatch(Exception):
    """No batch was made of a folder of an earlier start: its questions are free again."""


@dataclass(slots=True)
class BatchJob:
    """Drives one batch. `run` ends with its results in the folder; whatever ends it earlier leaves a folder to go on from.

    Args:
        api: the provider's Batch API.
        folder: the batch on disk, locked for this process.
        poll_s: seconds before the first look at the batch.
        outage_s: seconds without any answer after which the run ends.
        sleep: waits, and raises when the run ends meanwhile.
        give_up: the error that ends the run, from the kind and the words of a failure.
        tell: gets the notices for the user.
        redact: takes the key out of what the provider sent, before it is written.
    """

    api: BatchApi
    folder: BatchFolder
    poll_s: float
    outage_s: float
    sleep: Callable[[float], Awaitable[None]]
    give_up: Callable[[str, str], Exception]
    tell: Callable[[str], None]
    redact: Callable[[str], str]
    outcomes: dict[str, Outcome] = field(init=False, default_factory=dict)
    """The results by key, once `run` has returned: of several lines with one key the first reply."""

    async def run(self, *, fresh: bool) -> None:
        """Make the batch where it is not made yet, wait for its end, and read its results.

        `fresh` is a batch of this start. Raises NoBatch where an earlier start made none of its folder, and what `give_up`
        gives where the provider cannot be used.
        """
        if self.folder.mark.state != "collected":
            if self.folder.mark.id is None and fresh:
                await self._make()
            elif self.folder.mark.id is None:
                if (found := await self._found()) is None:
                    raise NoBatch
                self._sent(found)
            status = await self._wait_for_end()
            if status.refused:
                self.folder.discard()
                raise self.give_up("bad_request", f"the batch was refused: {status.refused}")
            await self._collect(status)
        await asyncio.to_thread(self._read)

    async def _make(self) -> None:
        """Upload and create, until a batch exists. After an error it is looked for before it is made again."""
        body = await asyncio.to_thread((self.folder.path / "body").read_bytes)
        upload = await self._patiently(partial(self.api.upload, body))
        since = time.monotonic()
        while self.folder.mark.id is None:
            try:
                self._sent(await self.api.create(self.folder.mark.token, upload, body))
            except AttemptError as error:
                if error.kind not in _UNSURE:
                    self.folder.discard()  # a refusal: there is no batch
                    raise self._unusable(error) from None
                if time.monotonic() - since > self.outage_s:
                    raise self._unusable(error) from None
                await self.sleep(max(self.poll_s, error.retry_after or 0.0))
                if (found := await self._found()) is not None:
                    self._sent(found)

    async def _found(self) -> BatchStatus | None:
        """The batch of this folder at the provider. Without tokens: an ended one, as large, whose results have a key of it."""
        mark = self.folder.mark
        batches = await self._patiently(partial(self.api.batches_since, mark.created))
        if self.api.shows_token:
            return next((status for status in batches if status.token == mark.token), None)
        for status in batches:
            if status.total == mark.requests and await self._is_ours(status):
                return status
        return None

    async def _is_ours(self, status: BatchStatus) -> bool:
        """Whether the first result of a batch has a key of this folder; its end is waited for."""
        for file in (await self._until_end(status)).files:
            data = await self._patiently(partial(self.api.results, file))
            with suppress(ValueError, RecursionError):
                first = json.loads(data.partition(b"\n")[0])
                result = self.api.outcome(first) if isinstance(first, dict) else None
                return result is not None and result[0] in self.folder.lines
        return False

    def _sent(self, status: BatchStatus) -> None:
        self.folder.write(mark := replace(self.folder.mark, state="sent", id=status.id))
        self.tell(f"batch {mark.token}: {mark.requests:,} questions, at the provider as {status.id}")

    async def _wait_for_end(self) -> BatchStatus:
        """Look after the batch until it has ended. One that is gone at the provider has ended without results."""
        name = self.folder.mark.id or ""
        try:
            status = await self._patiently(partial(self.api.status, name), "model_not_found")
        except AttemptError:
            self.tell(f"batch {self.folder.mark.token}: the provider does not know {name} any more")
            return BatchStatus(name, ended=True)
        return await self._until_end(status)

    async def _until_end(self, status: BatchStatus) -> BatchStatus:
        """The batch at its end: cancelled `GRACE_S` after it has expired, and given up after as long again."""
        wait, cancelled = self.poll_s, False
        while not status.ended:
            late = time.time() - status.expires_at if status.expires_at is not None else -1.0
            if late > GRACE_S and not cancelled:
                token = self.folder.mark.token
                self.tell(f"batch {token}: {late:,.0f} s past its end, so it is cancelled and collected")
                with suppress(AttemptError):  # it has ended meanwhile
                    await self._patiently(partial(self.api.cancel, status.id), "bad_request", "model_not_found")
                cancelled = True
            elif late > 2 * GRACE_S + _SLOWEST * self.poll_s:
                return replace(status, ended=True)
            await self.sleep(wait)
            wait = self._next(wait)
            status = await self._patiently(partial(self.api.status, status.id))
        return status

    async def _collect(self, status: BatchStatus) -> None:
        files = []
        for file in status.files:
            try:
                files.append(await self._patiently(partial(self.api.results, file), "model_not_found"))
            except AttemptError:
                self.tell(f"batch {self.folder.mark.token}: the provider does not have its file {file} any more")
        texts = [self.redact(file.decode("utf-8", "replace")).encode("utf-8") for file in files]
        await asyncio.to_thread(self.folder.collect, texts)

    def _read(self) -> None:
        for key, outcome in filter(None, map(self.api.outcome, self.folder.results())):
            if key in self.folder.lines and (key not in self.outcomes or _is_reply(outcome) > _is_reply(self.outcomes[key])):
                self.outcomes[key] = outcome

    async def _patiently(self, ask: Callable[[], Awaitable[T]], *passes: str) -> T:
        """Ask until there is an answer, or no answer for `outage_s`. Errors of a kind in `passes` are the caller's."""
        since, wait = time.monotonic(), self.poll_s
        while True:
            try:
                return await ask()
            except AttemptError as error:
                if error.kind in passes:
                    raise
                if error.kind not in RETRYABLE or time.monotonic() - since > self.outage_s:
                    raise self._unusable(error) from None
                await self.sleep(max(wait, error.retry_after or 0.0))
                wait = self._next(wait)

    def _next(self, wait: float) -> float:
        return min(wait * _SLOWER, _SLOWEST * self.poll_s)

    def _unusable(self, error: AttemptError) -> Exception:
        if error.kind == "model_not_found":
            return self.give_up("no_batch_api", f"no Batch API at this address: {error.message}")
        kind = error.kind if error.kind in FATAL else "unreachable" if error.kind in RETRYABLE else "bad_request"
        return self.give_up(kind, f"its Batch API: {error.message}")


def _is_reply(outcome: Outcome) -> bool:
    return not isinstance(outcome, AttemptError) and outcome.status == 200
