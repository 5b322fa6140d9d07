"""From a live system's raw answer to an output, by the rules of a data file."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ragpipe.core.errors import DataError, Problem, RagpipeError
from ragpipe.datasets.fault_list import Faults
from ragpipe.datasets.native_form import output_of
from ragpipe.datasets.settings import OUTPUT_FIELDS
from ragpipe.judging.limits.budget import Budget
from ragpipe.schema.sample import Output, Sample
from ragpipe.schema.usage import Amount
from ragpipe.scoring.system_usage import USD, figures
from ragpipe.stages.collected_outputs import JOURNAL_FIELDS
from ragpipe.store.run.hold_journal import HoldJournal
from ragpipe.store.run.journal import read_entries
from ragpipe.systems.settings import LiveSystem
from ragpipe.systems.system_failures import ANSWER_NAMES, CONTEXT_NAMES, SystemFailure, answer_keys

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
    raise SystemFailure(
        "not_an_api_answer", f"no key of an output: {names}; {fix}"[:500], permanent=True, problem=problem
    )


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
    """(key, value, what is expected) for each number or text of an answer that no file can hold: NaN, infinities, lone
    surrogates."""
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
    price, limits = settings.prices.usd if settings.prices else None, settings.budget

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
def open_system_budget(
    settings: LiveSystem, outputs_journal: Path, taken_over: Collection[str]
) -> Iterator[Budget | None]:
    """The budget of a collection, None where it has none. It goes on from what the outputs say that they have cost.

    Args:
        settings: the section of the system.
        outputs_journal: the journal of the outputs.
        taken_over: methods whose outputs another run had collected: this one did not pay for them.

    Raises DataError for a damaged journal, OutputError.
    """
    if not settings.budget.is_set:
        yield None
        return
    costs, ledger, before = cost_of_answer(settings), Amount(), Amount()
    for output in _answers(outputs_journal):
        cost = costs({"usage": output.usage}) or Amount(calls=1)
        ledger += cost
        before += cost if output.method not in taken_over else Amount()
    journal = HoldJournal.open(outputs_journal.with_name(JOURNAL), ledger, spent_before=before)
    try:
        yield Budget(settings.budget, "system", journal)
    finally:
        journal.close()


def _answers(outputs_journal: Path) -> Iterator[Output]:
    for entry in read_entries(outputs_journal, form=JOURNAL_FIELDS):
        if not entry["failed"]:
            yield Output.model_validate_json(entry["output"])
