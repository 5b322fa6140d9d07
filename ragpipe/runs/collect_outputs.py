"""Stage `collect`: asks the system under test for every sample. Each answer is one journal line, so that a kill loses none.

The outputs are frozen here: judging, iterations and re-judging use them and never ask the system again.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ragpipe.core.errors import ConfigError, DataError, Incomplete, Interrupted, Problem, ProviderUnusable, RagpipeError
from ragpipe.core.sample import Output, Sample
from ragpipe.core.usage import Amount
from ragpipe.data.faults import Faults
from ragpipe.data.live_system import (
    ANSWER_NAMES,
    CONTEXT_NAMES,
    AddressLimits,
    AnswerCosts,
    AskTally,
    LiveMethod,
    SystemFailure,
    answer_keys,
    ask,
    open_methods,
    shared_limits,
)
from ragpipe.data.native_form import output_of
from ragpipe.data.settings import OUTPUT_FIELDS
from ragpipe.data.system_settings import LiveSystem
from ragpipe.judge.attempts import AttemptRunner
from ragpipe.judge.budget import Budget
from ragpipe.judge.limits import SILENT
from ragpipe.report.console import Console
from ragpipe.runs.collected_outputs import JOURNAL_FIELDS, OutputKey, append_output, last_outputs
from ragpipe.runs.event_loop import SignalHandlers, run_async
from ragpipe.runs.load_dataset import read_samples
from ragpipe.runs.work_meter import WorkDone, WorkMeter
from ragpipe.score.system_usage import USD, figures
from ragpipe.store.journal import HoldJournal, Journal, read_entries
from ragpipe.store.progress import ProgressView
from ragpipe.store.run_folder import RunFolder

_RESUME = "what it answered before is kept; when it is up again, the same command goes on"
_PROBES = 3
"""Questions that fail for reasons which may be their own before a method's first answer ends the collection."""
_WORTH_RECORDING_MS = 1.0  # a shorter wait before a request is the machine's


class CollectStage:
    """Collects the outputs of every method: `repeats` per sample.

    Before anything else one question of each method is asked alone and read completely: what would go wrong with every question
    ends the collection there. Later, a system that fails, times out or answers in the wrong shape gives an output with `error`
    set: its cases are counted as system errors, never as zeros, and a later collection asks for them again. After `concurrency`
    + 5 failures in a row the collection stops, and can be resumed. `resumed` outputs were collected by an earlier start.
    """

    def __init__(self, methods: Sequence[LiveMethod], journal: Path, tell: Callable[[str], None] = lambda _: None):
        self._limits = shared_limits(methods, tell)
        self._methods = [_MethodCollection(self, *pair) for pair in zip(methods, self._limits, strict=True)]
        self._path = journal
        self._stopped: RagpipeError | None = None
        self._tasks: set[asyncio.Task[SystemFailure | None]] = set()
        self._counts: Counter[str] = Counter()
        self.resumed = 0
        self.failure_kinds: Counter[str] = Counter()

    @property
    def collected(self) -> int:
        """Outputs so far, with those of earlier starts and those that failed."""
        return self._counts.total()

    @property
    def failed(self) -> int:
        """Outputs of this start that failed."""
        return self.failure_kinds.total()

    @property
    def servers(self) -> list[AttemptRunner]:
        """The requests to each address."""
        return [limits.attempts for limits in dict.fromkeys(self._limits)]

    def stop(self, why: RagpipeError) -> None:
        """Ask for nothing more; answers in flight are kept."""
        self._stopped = self._stopped or why
        for limits in self._limits:
            limits.attempts.stop(why)

    def cancel(self) -> None:
        """Give up the answers in flight."""
        for task in tuple(self._tasks):
            task.cancel()

    async def run(self, samples: Callable[[], Iterable[Sample]]) -> Counter[str]:
        """Ask each method for every repeat of every sample that has no output in the journal; `samples` gives them anew for
        each method. Returns the number of outputs by method.

        Raises ConfigError where the first answers show that every question would fail, ProviderUnusable for a system that
        cannot be reached or is down for too long, Incomplete for one that keeps failing.
        """
        with Journal.open(self._path, form=JOURNAL_FIELDS) as journal:
            self._journal = journal
            outputs = last_outputs(journal)
            self._collected = {key for key, output in outputs.items() if output.error is None}
            for method in self._methods:
                method.note_costs(outputs.values())
            self._counts = Counter(key.method for key in self._collected)
            self._answering = set(self._counts)
            self.resumed = self._counts.total()
            try:
                for method in self._methods:
                    await method.probe(samples())
                await asyncio.gather(*(method.collect(samples()) for method in self._methods))
                while self._tasks:
                    await asyncio.wait(tuple(self._tasks))
            finally:
                for method in self._methods:
                    await method.close()
        if self._stopped:
            raise self._stopped
        return self._counts

    @property
    def is_stopped(self) -> bool:
        """Whether nothing more is to be asked."""
        return self._stopped is not None

    def has_answers_of(self, method: str) -> bool:
        """Whether the method has answered, in this start or an earlier one."""
        return method in self._answering

    def is_collected(self, key: OutputKey) -> bool:
        """Whether the journal has this output, and it is no failure."""
        return key in self._collected

    def start(self, work: Coroutine[Any, Any, SystemFailure | None]) -> asyncio.Task[SystemFailure | None]:
        """Let one answer be under way."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def keep(self, output: Output, failure: SystemFailure | None = None) -> None:
        """Write one output down, with the failure that it is."""
        append_output(self._journal, output)
        if output.error is None:
            self._collected.add(OutputKey(output.sample_id, output.method, output.repeat))
            self._answering.add(output.method)
        self._counts[output.method] += 1
        if failure is not None:
            self.failure_kinds[failure.kind] += 1


class _MethodCollection:
    def __init__(self, stage: CollectStage, method: LiveMethod, limits: AddressLimits):
        self._stage, self._method, self._limits = stage, method, limits
        self._settings = method.settings
        self._failures_in_a_row = 0
        self._failed: set[OutputKey] = set()  # in this start

    def note_costs(self, outputs: Iterable[Output]) -> None:
        """Learn from the outputs of earlier starts what an answer of this method may cost."""
        costs = self._method.costs
        for output in outputs if costs is not None else ():
            if costs is not None and output.method == self._settings.method and output.error is None:
                costs.note_usage(output.usage)

    async def close(self) -> None:
        await self._method.system.close()

    async def probe(self, samples: Iterable[Sample]) -> None:
        """Ask one question after another until one is answered: the first alone, where all is well."""
        for number, (sample, repeat) in enumerate(self._missing(samples), 1):
            if self._stage.is_stopped:
                return
            await self._limits.attempts.questions.acquire()
            task = self._stage.start(self._collect_output(sample, repeat, is_probe=True))
            await asyncio.wait({task})
            failure = None if task.cancelled() else task.result()
            if failure is None or self._stage.has_answers_of(self._settings.method):
                return
            if number == _PROBES:
                self._stage.stop(self._nothing_answered(failure))

    async def collect(self, samples: Iterable[Sample]) -> None:
        """Ask for every output that is missing, as long as the stage is not stopped."""
        for sample, repeat in self._missing(samples):
            await self._limits.attempts.questions.acquire()
            if self._stage.is_stopped:
                self._limits.attempts.questions.release()
                return
            self._stage.start(self._collect_output(sample, repeat))

    def _missing(self, samples: Iterable[Sample]) -> Iterator[tuple[Sample, int]]:
        """The questions, each with the number of its repeat, that have no output yet and did not fail in this start."""
        for sample in samples:
            for repeat in range(1, self._settings.repeats + 1):
                key = OutputKey(sample.id, self._settings.method, repeat)
                if not self._stage.is_collected(key) and key not in self._failed:
                    yield sample, repeat

    async def _collect_output(self, sample: Sample, repeat: int, *, is_probe: bool = False) -> SystemFailure | None:
        """Ask for one output and keep it, be it a failure, which is returned. The caller has taken a slot, which is freed."""
        stop = self._stage.stop
        try:
            output, failure = await self._asked(sample, repeat)
            if failure is not None:
                self._end_where_all_fail(failure, is_probe=is_probe)
            self._stage.keep(output, failure)
            if output.error is not None:
                self._failed.add(OutputKey(sample.id, self._settings.method, repeat))
            self._failures_in_a_row = self._failures_in_a_row + 1 if output.error else 0
            if self._failures_in_a_row >= self._settings.concurrency + 5:
                reason = f"the system under test failed {self._failures_in_a_row} times in a row, last with: {output.error}"
                stop(Incomplete(f"{reason}\n    {_RESUME}"))
            return failure
        except RagpipeError as error:
            stop(error)
        except asyncio.CancelledError:
            stop(Interrupted("the run was cancelled"))
        except Exception as error:  # a task's exception would be lost, and its sample with it
            why = RagpipeError(f"the output of sample {sample.id!r} could not be kept: {error}")
            why.__cause__ = error
            stop(why)
        finally:
            self._limits.attempts.questions.release()
        return None

    def _end_where_all_fail(self, failure: SystemFailure, *, is_probe: bool) -> None:
        """Raises what ends the collection, where later questions would meet the same failure."""
        place = f"the system at {self._limits.place}"
        has_answered = self._stage.has_answers_of(self._settings.method)
        if is_probe and not has_answered and failure.problem is not None:
            title = f"the first answer of {place} cannot be used; nothing else was asked"
            raise ConfigError(title, [failure.problem])
        if failure.kind == "auth":
            raise ProviderUnusable(f"{place} refuses the key: {failure.message}; {_RESUME}", "auth")
        if is_probe and (failure.no_connection or failure.kind == "unreachable"):
            raise ProviderUnusable(f"{place} cannot be reached: {failure.message}; nothing else was asked")

    def _nothing_answered(self, failure: SystemFailure) -> RagpipeError:
        title = f"the system at {self._limits.place} answered none of the first {_PROBES} questions; nothing else was asked"
        if failure.kind in SILENT:
            return ProviderUnusable(f"{title}. The last: {failure.message}")
        what = "the function" if self._settings.kind == "python" else "the request (system.body) or the system"
        fix = f"correct {what}; what failed is asked again by the same command"
        problem = Problem(self._limits.place, "answer", failure.message, "an answer", fix)
        return ConfigError(title, [problem])

    async def _asked(self, sample: Sample, repeat: int) -> tuple[Output, SystemFailure | None]:
        """The system's output for one sample, or one that says how it failed, with the failure."""
        tally = AskTally()
        key = f"{self._settings.method}/{sample.id}/{repeat}"
        try:
            raw = dict(await ask(self._method, self._limits, sample, key, tally))
            raw |= {"method": self._settings.method, "repeat": repeat}
            if self._settings.version:
                raw.setdefault("version", self._settings.version)
            output, failure = self._checked_retrieval(read_output(raw, sample)), None
        except SystemFailure as error:
            output, failure = self._failed_output(sample, repeat, error), error
        return _with_times(output, tally), failure

    @property
    def _retrieves(self) -> bool:
        return self._settings.says_it_retrieves(self._settings.method)

    def _checked_retrieval(self, output: Output) -> Output:
        """The output, with `retrieves: false` where the settings say so."""
        if self._retrieves:
            return output
        if output.chunks:
            problem = Problem(
                f"the output of sample {output.sample_id!r}, method {output.method!r}",
                "system.retrieves",
                f"false, and {len(output.chunks)} chunks in the answer",
                "no chunks",
                "system.retrieves=true, or let the system give no chunks; what it answered before is kept",
            )
            raise ConfigError("the system under test retrieves something; the collection was stopped", [problem])
        return output.model_copy(update={"retrieves": False})

    def _failed_output(self, sample: Sample, repeat: int, failure: SystemFailure) -> Output:
        return Output(
            sample_id=sample.id,
            method=self._settings.method,
            repeat=repeat,
            error=failure.message or failure.kind,
            version=self._settings.version or None,
            retrieves=self._retrieves,
        )


def _with_times(output: Output, tally: AskTally) -> Output:
    """The output with its requests, the time of the last as `total` unless it has one, and any before as `waited`."""
    timings = {"total": tally.latency_ms or 0.0, **output.timings}
    if tally.attempts > 1 or tally.waited_ms >= _WORTH_RECORDING_MS:
        timings["waited"] = tally.waited_ms
    return output.model_copy(update={"timings": timings, "attempts": tally.attempts})


ANSWER_PLACE = "the system's answer"
"""Where a fault stands that was found in what the system gave."""
_OURS = frozenset({"method", "repeat"})  # the collection names them, whatever the system says
_PARTS_OF_USAGE = {
    ("prompt_tokens_details", "cached_tokens"): "cached_tokens",
    ("completion_tokens_details", "reasoning_tokens"): "reasoning_tokens",
    ("input_tokens_details", "cached_tokens"): "cached_tokens",
    ("output_tokens_details", "reasoning_tokens"): "reasoning_tokens",
    ("input_token_details", "cache_read"): "cached_tokens",
    ("output_token_details", "reasoning"): "reasoning_tokens",
}
"""Where providers and LangChain put the parts of a token count, and the name of such a part."""


def read_output(raw: Mapping[str, Any], sample: Sample) -> Output:
    """A system's raw answer as an output: without a key `answer` or `contexts` that part is not recorded. An output with
    `abstained` and no answer has the empty answer. Raises SystemFailure for an answer in another shape."""
    fields = dict(raw)
    if isinstance(fields.get("usage"), Mapping):
        fields["usage"] = token_usage(fields["usage"])
    _check_names(fields)
    try:
        return _output(fields, sample)
    except DataError as error:
        first = error.problems[0]
        problem = Problem(ANSWER_PLACE, first.key, first.found, first.expected, first.fix)
        message = f"{first.key}: {first.found}, expected {first.expected}"[:500]
        raise SystemFailure("not_an_api_answer", message, permanent=True, problem=problem) from None


def token_usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    """The token counts of an answer as one level: the parts that providers nest are taken out, null is left out."""
    counts = {name: value for name, value in usage.items() if value is not None and not isinstance(value, Mapping)}
    for (outer, inner), name in _PARTS_OF_USAGE.items():
        part = usage.get(outer)
        if isinstance(part, Mapping) and isinstance(part.get(inner), int | float):
            counts.setdefault(name, part[inner])
    return counts


def _check_names(fields: Mapping[str, Any]) -> None:
    """Raises SystemFailure for a key that no output has, with the key that was probably meant."""
    unknown = [name for name in fields if name not in OUTPUT_FIELDS]
    if not unknown:
        return
    fixes = [f"{name} -> {meant}" for name in unknown if (meant := _meant(name, fields))]
    expected = "keys of an output: answer, contexts or chunks, citations, abstained, timings, usage, version ..."
    fix = f"rename {', '.join(fixes)}" if fixes else "leave it out, or put it below meta of the data set"
    problem = Problem(
        ANSWER_PLACE,
        ", ".join(map(str, unknown)),
        answer_keys({k: v for k, v in fields.items() if k not in _OURS}),
        expected,
        fix,
    )
    names = ", ".join(map(repr, unknown))
    raise SystemFailure("not_an_api_answer", f"no key of an output: {names}; {fix}"[:500], permanent=True, problem=problem)


def _meant(name: str, fields: Mapping[str, Any]) -> str | None:
    if name in CONTEXT_NAMES and not {"contexts", "chunks"} & fields.keys():
        return "contexts"
    return "answer" if name in ANSWER_NAMES and "answer" not in fields else None


def _output(fields: dict[str, Any], sample: Sample) -> Output:
    faults = Faults("the system's answer has the wrong shape")
    for key, value, expected in _unstorable_values(fields, ""):
        faults.add(ANSWER_PLACE, key, value, expected)
    faults.raise_all()
    output = output_of(fields, sample.id, None, ANSWER_PLACE, faults)
    faults.raise_all()
    if output is None:
        raise RagpipeError("the system's answer has the wrong shape")
    silent = output.abstained and output.answer is None and output.error is None
    return output.model_copy(update={"answer": ""}) if silent else output


def _unstorable_values(value: Any, key: str) -> Iterator[tuple[str, str, str]]:
    """(key, value, what is expected) for each NaN, infinity and lone surrogate of an answer."""
    if isinstance(value, float) and not math.isfinite(value):
        yield key, str(value), "a finite number"
    elif isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
        yield key, f"a lone surrogate (half a character) in {value[:40]!a}", "whole characters"
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _unstorable_values(str(name), f"{key}.{name!a}")
            yield from _unstorable_values(item, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from _unstorable_values(item, f"{key}[{number}]")


JOURNAL = ".system-budget.jsonl"
"""The journal of the holds, beside that of the outputs."""


def cost_of_answer(settings: LiveSystem) -> Callable[[Mapping[str, Any]], Amount | None]:
    """What an answer costs by its `usage`; None where that lacks what the budget limits: money, or tokens."""
    price, limits = settings.prices.of("system", "system.prices") if settings.prices else None, settings.budget

    def cost(answer: Mapping[str, Any]) -> Amount | None:
        usage = answer.get("usage")
        if not isinstance(usage, Mapping):
            return None
        numbers = {name: value for name, value in token_usage(usage).items() if _is_number(value)}
        counted = figures(numbers, price)
        needed = [name for name, limit in ((USD, limits.usd), ("tokens_total", limits.tokens)) if limit is not None]
        if not all(name in counted for name in needed):
            return None
        return Amount(counted.get(USD, 0.0), round(counted.get("tokens_total", 0.0)), 1)

    return cost


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e15


@contextmanager
def open_system_budget(settings: LiveSystem, outputs_journal: Path, taken_over: Collection[str]) -> Iterator[Budget | None]:
    """The budget of a collection, None where it has none. It goes on from what the outputs say that they have cost, but for
    those of the methods `taken_over`, which another run paid for. Raises DataError for a damaged journal, OutputError."""
    if not settings.budget.is_set:
        yield None
        return
    costs, ledger, before = cost_of_answer(settings), Amount(), Amount()
    answered = (entry for entry in read_entries(outputs_journal, form=JOURNAL_FIELDS) if not entry["failed"])
    for output in (Output.model_validate_json(entry["output"]) for entry in answered):
        cost = costs({"usage": output.usage}) or Amount(calls=1)
        ledger += cost
        before += cost if output.method not in taken_over else Amount()
    journal = HoldJournal.open(outputs_journal.with_name(JOURNAL), ledger, spent_before=before)
    try:
        yield Budget(settings.budget, "system", journal)
    finally:
        journal.close()


def ask_system(
    folder: RunFolder, settings: LiveSystem, plugins: Sequence[str], taken_over: Sequence[str], name: str, console: Console
) -> None:
    """Ask a live system for every output that is missing or failed, with progress on the console. `taken_over` are methods
    whose outputs are those of an earlier run, `name` is that of the data set."""
    with open_system_budget(settings, folder.outputs_journal, taken_over) as budget:
        try:
            run_async(_collect(folder, settings, plugins, budget, name, console))
        finally:
            if budget is not None:
                console.say(budget.line())


async def _collect(
    folder: RunFolder, settings: LiveSystem, plugins: Sequence[str], budget: Budget | None, name: str, console: Console
) -> None:
    methods = open_methods(settings, plugins)
    if budget is not None:
        costs = cost_of_answer(settings)
        methods = [replace(method, costs=AnswerCosts(budget, costs)) for method in methods]
    stage = CollectStage(methods, folder.outputs_journal, tell=console.warn)
    samples = sum(1 for _ in read_samples(folder.samples))
    total = samples * sum(method.settings.repeats for method in methods)
    meter = WorkMeter(
        "collecting",
        total,
        lambda: WorkDone(stage.collected, stage.resumed, stage.failed, dict(stage.failure_kinds)),
        servers=stage.servers,
    )
    view = ProgressView(folder.iteration(1).create().progress, name=name, iteration=1, total=total)
    with console.progress(meter.state, label="collecting", noun="outputs", keep=view.show), SignalHandlers(stage, console.warn):
        try:
            counts = await stage.run(lambda: read_samples(folder.samples))
        finally:
            for note in (note for method in methods for note in method.system.notes):
                console.warn(note)
    for method in settings.method_names:
        console.say(f"collected {counts[method]:,} outputs of {method}")
