"""The order in which the items of a question are shown to the judge, drawn by a seed, and the way back from its reply.

Judges favour what stands first or last. With `judge.shuffle_seed` the contexts, claims, citations, rules and references of a
question stand in an order of their own, and the numbers of the reply are those of the original items again before a metric
sees them. This is the one place for both: metrics know nothing of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ragpipe.core.digest import sha256
from ragpipe.prompting.fences import printable_texts
from ragpipe.prompting.prompt import Prompt
from ragpipe.schema.judge_answers.answer_type import Answer, ItemRole
from ragpipe.schema.sample import AnyReference, Chunk

A = TypeVar("A", bound=Answer)

_LISTED: tuple[ItemRole, ...] = ("claims", "citations", "rules")
_NUMBERS = "numbers"
_MARK = re.compile(
    r"[\[【［]\s*\^?\d{1,3}\s*[\]】］,;–-]|\(\d{1,2}\)|\b(?:contexts?|passages?|sources?|documents?|chunks?|excerpts?)\s*(?:no\.?\s*|#\s*)?\d",
    re.I,
)
"""What a text may call a context by its number: `[2]`, `(2)`, `source 2`."""


@dataclass(frozen=True, slots=True)
class ShownOrder:
    """The values of a question as they are shown, and by role the original number (from 1) of the item at each place.

    A role without an entry is shown in its own order, or under numbers that the question shows beside the items.
    """

    values: Mapping[str, Any]
    numbers: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def restored(self, answer: A) -> A:
        """The answer with the numbers of the original items. A number that no item was shown under stays as it is, so that
        whoever checks numbers still finds it wrong."""
        if not self.numbers:
            return answer
        updated = {name: self._restored_field(answer, name, value) for name, value in answer}
        return answer.model_copy(update=updated)

    def _restored_field(self, answer: Answer, name: str, value: Any) -> Any:
        if numbers := self.numbers.get(answer.numbered_items.get(name, "")):
            if isinstance(value, list):
                return [_original(number, numbers) for number in value]
            return _original(value, numbers)
        if isinstance(value, list):
            return [self.restored(item) if isinstance(item, Answer) else item for item in value]
        return self.restored(value) if isinstance(value, Answer) else value


def shown_order(
    prompt: Prompt, values: Mapping[str, Any], answer: type[Answer], seed: int, sample_id: str
) -> ShownOrder:
    """The values of a question in an order drawn from sha256(seed, sample, template's folder and step, variable).

    Shuffled are the items of the roles sources, claims, citations and rules, and several references that count alike. Left as
    they are: earlier turns, worked examples, the grades of a rubric (their order has a meaning), and items whose number in the
    reply the answer type does not declare. The numbers that an answer's marks give to contexts move with them (`numbers`). A
    template that numbers contexts by their place, beside a text that names one by its number, keeps them in order.

    Args:
        prompt: The template; its roles say which values are items.
        values: The values of the question, in the metric's order.
        answer: The type of the reply; it declares which of its fields are numbers of items.
        seed: `judge.shuffle_seed`.
        sample_id: The sample that is judged: all methods and iterations share its orders.
    """
    if _has_undeclared_numbers(answer):
        return ShownOrder(values)
    draw = _Draw(f"{seed}\n{sample_id}\n{prompt.name}")
    updated = dict(values)
    numbers: dict[str, Sequence[int]] = {}
    _shuffle_sources(prompt, updated, numbers, draw)
    for name, role in prompt.roles.items():
        items = updated.get(name)
        if isinstance(items, AnyReference):
            updated[name] = AnyReference([items.texts[place] for place in draw.places(name, len(items.texts))])
        elif role in _LISTED and isinstance(items, list | tuple) and [*prompt.roles.values()].count(role) == 1:
            places = draw.places(name, len(items))
            updated[name] = [items[place] for place in places]
            numbers[role] = [place + 1 for place in places]
    return ShownOrder(updated, numbers)


@dataclass(frozen=True, slots=True)
class _Draw:
    """Orders drawn by hashes: the same on every machine and in every version of Python."""

    text: str

    def places(self, name: str, count: int) -> list[int]:
        """The original places, from 0, in the drawn order."""
        return sorted(range(count), key=lambda place: sha256(f"{self.text}\n{name}\n{place}"))


def _shuffle_sources(prompt: Prompt, values: dict[str, Any], numbers: dict[str, Sequence[int]], draw: _Draw) -> None:
    """Shuffle each list of contexts within itself, and what refers to its places with it."""
    groups = [name for name, role in prompt.roles.items() if role == "sources" and _holds_chunks(values.get(name))]
    others = [name for name, value in values.items() if name not in groups and _holds_chunks(value)]
    are_numbered = _NUMBERS in values
    if are_numbered and len(values[_NUMBERS]) != sum(len(values[name]) for name in groups):
        return
    if not are_numbered and (len(groups) > 1 or _names_a_number(values, {*groups, *others})):
        return
    parallel: list[int] = []  # the numbers of all groups, one after another, as the step gives them
    for name in groups:
        places = draw.places(name, len(values[name]))
        values[name] = [values[name][place] for place in places]
        if are_numbered:
            parallel += [values[_NUMBERS][len(parallel) : len(parallel) + len(places)][place] for place in places]
        else:
            numbers["sources"] = [place + 1 for place in places]
        _point_to_places(prompt, values, places)
    if are_numbered:
        values[_NUMBERS] = parallel
    for name in others:
        _shuffle_with_numbers(values, name, draw)


def _shuffle_with_numbers(values: dict[str, Any], name: str, draw: _Draw) -> None:
    """Shuffle a list of contexts that no role names, with its own list of numbers (`free`, `free_numbers`)."""
    places = draw.places(name, len(values[name]))
    values[name] = [values[name][place] for place in places]
    if own := values.get(f"{name}_{_NUMBERS}"):
        values[f"{name}_{_NUMBERS}"] = [own[place] for place in places]


def _point_to_places(prompt: Prompt, values: dict[str, Any], places: Sequence[int]) -> None:
    """Let citations point to the new places of their contexts (`source`, from 1)."""
    new_place = {place + 1: number for number, place in enumerate(places, 1)}
    for name, role in prompt.roles.items():
        if role == "citations" and isinstance(values.get(name), list | tuple):
            values[name] = [
                {**item, "source": new_place[item["source"]]} if _points_to(item, new_place) else item
                for item in values[name]
            ]


def _points_to(item: Any, places: Mapping[int, int]) -> bool:
    return isinstance(item, Mapping) and item.get("source") in places


def _holds_chunks(value: Any) -> bool:
    """Whether a value of a question is a list of retrieved chunks, and not empty."""
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(item, Chunk) for item in value)


def _names_a_number(values: Mapping[str, Any], sources: set[str]) -> bool:
    """Whether a text beside the contexts may name one of them by its number."""
    texts = (text for name, value in values.items() if name not in sources for text in printable_texts(value))
    return any(_MARK.search(text) for text in texts)


def _has_undeclared_numbers(answer: type[Answer]) -> bool:
    """Whether a field `index` of the answer, or of its items, is not declared: nobody could lead it back."""
    for name, fact in answer.model_fields.items():
        if name == "index" and name not in answer.numbered_items:
            return True
        arguments = (fact.annotation, *getattr(fact.annotation, "__args__", ()))
        items = (item for item in arguments if isinstance(item, type) and issubclass(item, Answer))
        if any(_has_undeclared_numbers(item) for item in items):
            return True
    return False


def _original(number: int, numbers: Sequence[int]) -> int:
    return numbers[number - 1] if 1 <= number <= len(numbers) else number
