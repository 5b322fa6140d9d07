"""One batch from its folder to its results: made once, waited for, collected; picked up where an earlier process left it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

from ragpipe.core.errors import FATAL
from ragpipe.judging.batches.batch_api import BatchApi, BatchLine, BatchStatus
from ragpipe.judging.batches.batch_folder import BatchFolder
from ragpipe.judging.batches.settings import BatchSettings
from ragpipe.judging.clients.client import AttemptError
from ragpipe.judging.limits.retries import RETRYABLE, Sleep

T = TypeVar("T")

_UNSURE = RETRYABLE | {"unreachable"}
"""Errors after which a batch may have been made all the same."""


class NoBatch(Exception):
    """No batch was made of a folder of an earlier start: its questions are free again."""


class BatchJob:
    """Drives one batch. `run` ends with its results in the folder; whatever ends it earlier leaves a folder to go on from.

    Args:
        api: the provider's Batch API.
        folder: the batch on disk, locked for this process.
        settings: the waits.
        sleep: waits, and raises when the run ends meanwhile.
        give_up: the error that ends the run, from the kind and the words of a failure.
        outage_s: seconds without any answer after which the run ends.
        tell: gets the notices for the user.
        redact: takes the key out of what the provider sent, before it is written.
    """

    def __init__(
        self,
        api: BatchApi,
        folder: BatchFolder,
        settings: BatchSettings,
        *,
        sleep: Sleep,
        give_up: Callable[[str, str], Exception],
        outage_s: float,
        tell: Callable[[str], None],
        redact: Callable[[str], str],
    ):
        self._api, self.folder, self._settings = api, folder, settings
        self._sleep, self._give_up, self._outage_s, self._tell = sleep, give_up, outage_s, tell
        self._redact = redact
        self.status: BatchStatus | None = None
        self.lines: dict[str, BatchLine] = {}
        """The results by key, once `run` has returned: of several lines with one key the first reply."""

    async def run(self, *, fresh: bool) -> None:
        """Make the batch where it is not made yet, wait for its end, and read its results.

        `fresh` is a batch of this start. Raises NoBatch where an earlier start made none of its folder, and what `give_up`
        gives where the provider cannot be used.
        """
        while self.folder.mark.state != "collected":
            if self.folder.mark.id is None:
                await (self._make() if fresh else self._find_earlier())
            status = await self._wait_for_end()
            if status.refused:
                self.folder.discard()
                raise self._give_up("bad_request", f"the batch was refused: {status.message or status.state}")
            await self._collect(status)
        await asyncio.to_thread(self._read)

    async def _make(self) -> None:
        """Upload and create, until a batch exists. After an error it is looked for before it is made again."""
        body = await asyncio.to_thread(self.folder.body)
        mark = self.folder.mark
        upload = await self._patiently(partial(self._api.upload, body))
        self.folder.write(replace(mark, upload=upload))
        last_answer = time.monotonic()
        while self.folder.mark.id is None:
            try:
                self._sent(await self._api.create(mark.token, upload, body))
            except AttemptError as error:
                if error.kind not in _UNSURE:
                    self.folder.discard()  # a refusal: there is no batch
                    raise self._unusable(error) from None
                if time.monotonic() - last_answer > self._outage_s:
                    raise self._unusable(error) from None
                await self._sleep(max(self._settings.poll_s, error.retry_after or 0.0))
                if (found := await self._found()) is not None:
                    self._sent(found)

    async def _find_earlier(self) -> None:
        """Find the batch that an earlier process may have made. Raises NoBatch where it made none."""
        found = await self._found()
        if found is None:
            raise NoBatch
        self._sent(found)

    async def _found(self) -> BatchStatus | None:
        """The batch of this folder at the provider. Without tokens: one of as many requests whose results have a key of it, which
        is only known when it has ended."""
        mark = self.folder.mark
        batches = await self._patiently(partial(self._api.batches_since, mark.created))
        if self._api.carries_token:
            return next((status for token, status in batches if token == mark.token), None)
        for _, status in batches:
            if status.total == mark.requests and await self._is_ours(status):
                return status
        return None

    async def _is_ours(self, status: BatchStatus) -> bool:
        """Whether the first result of a batch has a key of this folder; its end is waited for."""
        ended = await self._until_end(status)
        for file in ended.files:
            data = await self._patiently(partial(self._api.results, file))
            with suppress(ValueError, RecursionError):
                first = json.loads(data.partition(b"\n")[0])
                line = self._api.line(first) if isinstance(first, dict) else None
                return line is not None and line.key in self.folder.lines
        return False

    def _sent(self, status: BatchStatus) -> None:
        self.status = status
        mark = replace(self.folder.mark, state="sent", id=status.id, expires_at=status.expires_at)
        self.folder.write(mark)
        self._tell(f"batch {mark.token}: {mark.requests:,} questions, at the provider as {status.id}")

    async def _wait_for_end(self) -> BatchStatus:
        """Look after the batch until it has ended. One that is gone at the provider has ended without results."""
        name = self.folder.mark.id or ""
        try:
            status = await self._patiently(partial(self._api.status, name), passes={"model_not_found"})
        except AttemptError:
            self._tell(f"batch {self.folder.mark.token}: the provider does not know {name} any more")
            return BatchStatus(name, "gone", ended=True)
        return await self._until_end(status)

    async def _until_end(self, status: BatchStatus) -> BatchStatus:
        """The batch at its end: looked after every `poll_s` to `longest_poll_s`; cancelled `grace_s` after it has expired, and given
        up after as long again."""
        wait, grace, cancelled = self._settings.poll_s, self._settings.grace_s, False
        while not status.ended:
            late = time.time() - status.expires_at if status.expires_at is not None else -1.0
            if late > grace and not cancelled:
                self._tell(
                    f"batch {self.folder.mark.token}: {late:,.0f} s past its end, so it is cancelled and collected"
                )
                with suppress(AttemptError):  # it has ended meanwhile
                    await self._patiently(
                        partial(self._api.cancel, status.id), passes={"bad_request", "model_not_found"}
                    )
                cancelled = True
            elif late > 2 * grace + self._settings.longest_poll_s:
                return replace(status, ended=True)
            await self._sleep(wait)
            wait = min(wait * 1.5, self._settings.longest_poll_s)
            status = await self._patiently(partial(self._api.status, status.id))
            self.status = status
        return status

    async def _collect(self, status: BatchStatus) -> None:
        files = []
        for file in status.files:
            try:
                files.append(await self._patiently(partial(self._api.results, file), passes={"model_not_found"}))
            except AttemptError:
                self._tell(f"batch {self.folder.mark.token}: the provider does not have its file {file} any more")
        texts = [self._redact(file.decode("utf-8", "replace")).encode("utf-8") for file in files]
        await asyncio.to_thread(self.folder.collect, texts)

    def _read(self) -> None:
        for data in self.folder.results():
            line = self._api.line(data)
            if line is None or line.key not in self.folder.lines:
                continue
            before = self.lines.get(line.key)
            if before is None or (_is_reply(line) and not _is_reply(before)):
                self.lines[line.key] = line

    async def _patiently(self, ask: Callable[[], Awaitable[T]], passes: frozenset[str] | set[str] = frozenset()) -> T:
        """Ask until there is an answer, or no answer for `outage_s`. Errors of a kind in `passes` are the caller's."""
        since, wait = time.monotonic(), self._settings.poll_s
        while True:
            try:
                return await ask()
            except AttemptError as error:
                if error.kind in passes:
                    raise
                if error.kind not in RETRYABLE or time.monotonic() - since > self._outage_s:
                    raise self._unusable(error) from None
                await self._sleep(max(wait, error.retry_after or 0.0))
                wait = min(wait * 1.5, self._settings.longest_poll_s)

    def _unusable(self, error: AttemptError) -> Exception:
        kind = error.kind if error.kind in FATAL else "unreachable" if error.kind in RETRYABLE else "bad_request"
        if error.kind == "model_not_found":
            return self._give_up("no_batch_api", f"no Batch API at this address: {error.message}")
        return self._give_up(kind, f"its Batch API: {error.message}")


def _is_reply(line: BatchLine) -> bool:
    return not isinstance(line.response, AttemptError) and line.response.status == 200
