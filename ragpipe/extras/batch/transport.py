"""The batch transport: questions wait until no other can come, and then go to the provider's Batch API together.

All questions that wait at that moment are a round. A metric that asks in several steps takes several rounds. A batch is on disk
before it is sent, so a process that dies is followed by one that picks its batches up.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from ragpipe.core.call import Call, Paid
from ragpipe.core.errors import ProviderUnusable, RagpipeError
from ragpipe.core.usage import Amount
from ragpipe.extras.batch.api import AnthropicBatches, BatchApi, OpenAIBatches, Outcome
from ragpipe.extras.batch.folder import BatchFolder, Line, new_token, open_folders
from ragpipe.extras.batch.job import BatchJob, NoBatch
from ragpipe.extras.batch.settings import MAX_REQUESTS, BatchSettings
from ragpipe.judge.attempts import RETRYABLE
from ragpipe.judge.budget import Budget, BudgetUsedUp, Hold
from ragpipe.judge.call_records import AttemptTally
from ragpipe.judge.client import AttemptError, Completion
from ragpipe.judge.http_responses import parse_response
from ragpipe.judge.live_transport import LiveTransport
from ragpipe.judge.provider_state import RequestForm
from ragpipe.judge.question import Question
from ragpipe.judge.settings import JudgeSettings

QUIET_S = 1.0
"""Seconds without a new question after which those that wait are sent."""
POLL_S = 10.0
"""Seconds before a batch is looked after for the first time; each later wait is half as long again, up to six times this."""
MAX_BYTES = 100_000_000
"""Bytes of one batch. OpenAI takes 200 MB, Anthropic 256 MB."""
_SLICES = 5  # of the quiet time: a loop that was blocked must not look quiet
_EMPTY_RETRIES = 2


class _Reply(NamedTuple):
    """What a batch has for a question, and how it was asked there."""

    outcome: Outcome
    line: Line
    folder: BatchFolder


@dataclass(slots=True)
class _NewBatch:
    """Questions that will be a batch: its name, its lines by key, its requests and their bytes."""

    token: str = field(default_factory=new_token)
    lines: dict[str, Line] = field(default_factory=dict)
    requests: list[bytes] = field(default_factory=list)
    size: int = 0


def _hold_name(token: str, key: str) -> str:
    """The name of what is held for a question in a batch."""
    return f"{token}/{key}"


class BatchTransport(LiveTransport):
    """Asks one provider in batches. What it does with a reply, its price and its failures is what the live transport does.

    Args:
        settings: the judge.
        batch: how large a batch may be, how often it is looked after, and its prices.
        folder: where batches are kept; all runs over one call store share it.
        run_id: the run that pays for what it collects.
        tell: gets the notices for the user.
        budget: what the run may spend; None without a limit. A question that does not fit waits for the batches under way.
    """

    def __init__(
        self,
        settings: JudgeSettings,
        batch: BatchSettings,
        folder: Path,
        *,
        run_id: str,
        tell: Callable[[str], None] = lambda _: None,
        budget: Budget | None = None,
    ):
        super().__init__(settings, run_id=run_id, tell=tell, budget=budget, rates=batch.rates(settings))
        self._batch, self._root = batch, folder
        self._api: BatchApi | None = None
        self._rounds = 0  # that this process has sent
        self._parked: dict[str, Question] = {}
        self._waiting: dict[str, tuple[Question, asyncio.Future[_Reply]]] = {}
        self._spare: dict[str, _Reply] = {}  # replies of earlier batches to questions that this start has not asked yet
        self._parkings = 0
        self._sent_keys: set[str] = set()
        self._folders: dict[str, BatchFolder] = {}
        self._held: dict[str, Hold] = {}  # by name, of the questions that this start has sent
        self._jobs: set[asyncio.Task[None]] = set()
        self._gatherer: asyncio.Task[None] | None = None
        self._replied: dict[asyncio.Task[object] | None, tuple[BatchFolder, str]] = {}

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Any number of questions may wait. A slot that ends without an error says that its reply is in the call store."""
        task: asyncio.Task[object] | None = asyncio.current_task()
        try:
            yield
            if (replied := self._replied.get(task)) is not None:
                folder, key = replied
                folder.deliver(key)
        finally:
            self._replied.pop(task, None)

    async def ask(self, question: Question, paid: Paid) -> Call:
        """Ask one question, in one batch or, where its reply is missing or of no use, in up to `judge.retries` more."""
        self._admit(question)
        tally, failures, empty = AttemptTally(question=question, paid=paid), 0, 0
        while True:
            try:
                reply = await self._reply(question)
                tally.form = form = RequestForm(*reply.line[:3])  # type: ignore[arg-type]
                held = await self._held_for(question, reply, form)
            except BudgetUsedUp as error:
                return self._held_back(tally, error)
            tally.attempts, tally.wire_hash = tally.attempts + 1, reply.line.wire_hash
            self._replied[asyncio.current_task()] = (reply.folder, question.key)
            modes, complete = self.provider.output_modes, partial(self._completion, reply.outcome, tally)
            try:
                if held is None or self._costs is None:
                    completion = await complete()
                else:
                    completion = await self._costs.send(held, tally, complete)
            except AttemptError as error:
                tally.last_error = error.message
                if has_other_form := modes.fall_back(error, question, form):
                    self._notify_of_form(question, form, error)
                else:
                    failures, empty = failures + 1, empty + (error.kind == "empty_reply")
                is_last = failures > self.settings.retries or empty > _EMPTY_RETRIES or error.permanent
                if has_other_form or (error.kind in RETRYABLE and not is_last):
                    reply.folder.deliver(question.key)
                    continue
                self.provider.answered = True  # the batch was
                return self._failed_call(tally, form, error)
            return self._answered(tally, form, completion)

    async def _held_for(self, question: Question, reply: _Reply, form: RequestForm) -> Hold | None:
        """What is held for a reply; a reply to what another start or run has sent needs room in this budget too. Raises BudgetUsedUp."""
        if self._costs is None:
            return None
        name = _hold_name(reply.folder.mark.token, question.key)
        if (held := self._held.pop(name, None)) is not None:
            return held
        body = self.provider.output_modes.body(question, form)
        return await self._costs.budget.reserve(self._costs.bound(body), name)

    async def _completion(self, outcome: Outcome, tally: AttemptTally) -> Completion:
        """The completion of one request, paid for. Raises AttemptError."""
        traffic = self.attempts.traffic
        try:
            if isinstance(outcome, AttemptError):
                raise outcome
            completion = parse_response(outcome)
        except AttemptError as error:
            traffic.failed += 1
            self._pay_for_error(error, tally)
            raise
        traffic.answered += 1
        self.provider.answered = self.provider.responded = True
        self._pay(tally, completion)
        return completion

    async def _reply(self, question: Question) -> _Reply:
        """Wait for the reply of a batch: of one that has the question already, or of the next round."""
        self.attempts.check()
        key = question.key
        if (reply := self._spare.pop(key, None)) is not None:
            self.attempts.traffic.sent += 1
            return reply
        future: asyncio.Future[_Reply] = asyncio.get_running_loop().create_future()
        self._waiting[key] = question, future
        if key not in self._sent_keys:
            self._park(question)
        try:
            return await future
        finally:
            self._waiting.pop(key, None)
            self._parked.pop(key, None)

    def _park(self, question: Question) -> None:
        """Let a question wait for the next round."""
        self._parkings += 1
        self._parked[question.key] = question
        if self._gatherer is None or self._gatherer.done():
            self._gatherer = asyncio.create_task(self._gather())

    async def _gather(self) -> None:
        """Send what waits whenever it is quiet, until nothing waits."""
        try:
            while self._parked:
                await self._quiet()
                await self._send_round(await self._attach())
                if self._parked:  # another process has their batch in hand
                    await self.attempts.sleep(POLL_S)
        except Exception as error:
            self._fail(error)

    async def _quiet(self) -> None:
        """Wait until no question has come for `QUIET_S` and nothing goes on that may ask one."""
        calm = 0
        while calm < _SLICES:
            before = self._parkings
            await self.attempts.sleep(QUIET_S / _SLICES)
            calm = calm + 1 if before == self._parkings and not self.is_busy() else 0

    async def _attach(self) -> set[str]:
        """Pick up the batches on disk that have questions which wait. The keys that another live process has in hand."""
        held: set[str] = set()
        for folder in await asyncio.to_thread(open_folders, self._root, self.settings.label, tuple(self._folders)):
            if not (keys := folder.open_keys & self._parked.keys()):
                continue
            if not folder.lock():
                held |= keys
                continue
            folder.reread()
            if folder.mark.state == "done":
                folder.unlock()
                continue
            count = f"{len(keys):,} question{'s' if len(keys) > 1 else ''} that wait"
            self._notify(f"batch {folder.mark.token} of an earlier start has {count}: it is picked up ({folder.mark.state})")
            self._start(folder, folder.open_keys, fresh=False)
        return held

    async def _send_round(self, held: set[str]) -> None:
        """Send the questions that wait as one round, in as few batches as the limits allow."""
        waiting = [question for key, question in self._parked.items() if key not in held]
        if not waiting:
            return
        api = self._open_api()
        try:
            batches = self._divided(api, waiting)
        except BudgetUsedUp as error:
            for question in waiting:
                self._parked.pop(question.key, None)
                if (waits := self._waiting.get(question.key)) is not None and not waits[1].done():
                    waits[1].set_exception(error)
            return
        for batch in batches:
            body = api.join(batch.requests)
            folder = BatchFolder.create(self._root, batch.token, self.settings.label, batch.lines, body)
            self._start(folder, set(batch.lines), fresh=True)
        if not batches:
            return  # none fits into the budget before those under way have ended
        self._rounds += 1
        count, asked = len(batches), sum(len(batch.lines) for batch in batches)
        self._notify(
            f"round {self._rounds}: {asked:,} questions in {count:,} batch{'es' if count > 1 else ''}; this may take "
            "hours. If it is stopped, the same command resumes it"
        )

    def _divided(self, api: BatchApi, questions: list[Question]) -> list[_NewBatch]:
        """The questions in order as batches, up to the first without room in the budget. Raises BudgetUsedUp where none has."""
        batches: list[_NewBatch] = []
        for question in questions:
            form = self.provider.output_modes.form(question)
            body = self.provider.output_modes.body(question, form)
            request = api.encode(question.key, body)
            last = batches[-1] if batches else None
            if last is None or len(last.lines) >= MAX_REQUESTS or last.size + len(request) > MAX_BYTES:
                last = _NewBatch()
            if self._costs is not None:
                name = _hold_name(last.token, question.key)
                if (held := self._costs.budget.reserve_now(self._costs.bound(body), name)) is None:
                    break
                self._held[name] = held
            if not last.lines:
                batches.append(last)
            last.lines[question.key] = Line(form.mode, form.limit_name, form.system_role, sha256(request).hexdigest())
            last.requests.append(request)
            last.size += len(request) + 1
        return batches

    def _release(self, folder: BatchFolder, keys: set[str]) -> None:
        """Nothing of a batch was sent: it costs nothing."""
        if self._costs is None:
            return
        for name in (_hold_name(folder.mark.token, key) for key in keys):
            if (held := self._held.pop(name, None)) is not None:
                self._costs.budget.settle(held, Amount())
            else:
                self._costs.budget.drop(name)

    def _start(self, folder: BatchFolder, keys: set[str], *, fresh: bool) -> None:
        """Drive a batch beside the others; its questions wait for it."""
        self._folders[folder.mark.token] = folder
        self._sent_keys |= keys
        self.attempts.traffic.sent += len(keys & self._waiting.keys())
        for key in keys:
            self._parked.pop(key, None)
        task = asyncio.create_task(self._drive(folder, keys, fresh=fresh))
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)

    async def _drive(self, folder: BatchFolder, keys: set[str], *, fresh: bool) -> None:
        job = BatchJob(
            self._open_api(),
            folder,
            POLL_S,
            self.settings.outage_s,
            sleep=self.attempts.sleep,
            give_up=self._unusable,
            tell=self._notify,
            redact=self._redact_reply,
        )
        try:
            await job.run(fresh=fresh)
        except NoBatch:
            self._notify(f"batch {folder.mark.token} was never made: its questions are asked anew")
            folder.discard()
            self._release(folder, keys)
            self._sent_keys -= keys
            for key in keys & self._waiting.keys():
                self._park(self._waiting[key][0])
        except Exception as error:
            if not folder.path.exists():  # it was refused
                self._release(folder, keys)
            self._fail(error)
        else:
            self._hand_out(folder, keys, job.outcomes)

    def _hand_out(self, folder: BatchFolder, keys: set[str], outcomes: dict[str, Outcome]) -> None:
        """Give each question its reply, or say that the batch has none."""
        if missing := len(keys - outcomes.keys()):
            self._notify(f"batch {folder.mark.token}: {missing:,} of {len(keys):,} questions have no line in its results")
        lost = AttemptError("server_error", "the batch ended without a line for it")
        self._sent_keys -= keys
        for key in [key for key in folder.lines if key in keys]:  # in their order: a budget may end among them
            reply = _Reply(outcomes.get(key, lost), folder.lines[key], folder)
            if key not in self._waiting:
                self._spare[key] = reply
            elif not (future := self._waiting[key][1]).done():
                future.set_result(reply)

    def _open_api(self) -> BatchApi:
        if self._api is None:
            variable = self._batch.key_variable(self.settings)
            key = os.environ.get(variable) or None if variable else None
            if variable and key is None:
                raise self._unusable("auth", f"the environment variable {variable} is not set")
            is_anthropic = self.settings.provider == "anthropic"
            self._api = (AnthropicBatches if is_anthropic else OpenAIBatches)(self.settings, key)
        return self._api

    def _fail(self, error: Exception) -> None:
        self._parked.clear()
        for _, future in tuple(self._waiting.values()):
            if not future.done():
                is_dead = isinstance(error, ProviderUnusable)
                future.set_exception(ProviderUnusable(str(error), error.kind) if is_dead else error)  # type: ignore[attr-defined]

    def stop(self, why: RagpipeError) -> None:
        """Wait for no batch any longer: they go on at the provider, and the next start picks them up."""
        super().stop(why)
        self._fail(why)

    def _unusable(self, kind: str, what: str) -> ProviderUnusable:
        dead = super()._unusable(kind, what)
        self._fail(dead)
        return dead

    async def close(self) -> None:
        """Stop looking after batches, and free their folders."""
        tasks = [*self._jobs, *([self._gatherer] if self._gatherer else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for folder in self._folders.values():
            folder.unlock()
        if self._api is not None:
            await self._api.close()
            self._api = None
        await super().close()
