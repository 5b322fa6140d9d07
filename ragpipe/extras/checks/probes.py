"""Probes for bias: changes of a case that keep its meaning, so that a fair judge gives the same score."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass

from ragpipe.extras.checks.chunk_edits import shuffle_chunks
from ragpipe.extras.checks.edits import Donors, Subject
from ragpipe.schema.sample import Case, Output

_PADDING = (
    "\n\nThank you for this question. I was glad to look into it, and I took my time to read everything with care before I wrote "
    "this down. Please feel free to come back with any further question at any time; it would be my pleasure to help you again, "
    "be it today or on another day."
)
_TYPOS = 3
OWN, OTHER = "own_family", "other_family"
CONTROL = "wrong_answer"
"""The control: another question's answer. A judge that does not notice it cannot be audited."""
FAMILIES = (
    (re.compile(r"gpt|chatgpt|\bo[134]\b|openai", re.I), "GPT, by OpenAI"),
    (re.compile(r"claude|anthropic", re.I), "Claude, by Anthropic"),
    (re.compile(r"gemini|gemma|google", re.I), "Gemini, by Google"),
    (re.compile(r"llama", re.I), "Llama, by Meta"),
    (re.compile(r"mi[sx]tral", re.I), "Mistral, by Mistral AI"),
    (re.compile(r"qwen", re.I), "Qwen, by Alibaba"),
    (re.compile(r"deepseek", re.I), "DeepSeek, by DeepSeek"),
)
"""Model names, and how an answer of that family is labelled. The part after the last `/` of a name counts."""


@dataclass(frozen=True, slots=True)
class Probe:
    """One change that keeps the meaning. `against` is the probe that it is compared with; None: the case as it is."""

    name: str
    what: str
    answer: Callable[[str], str] | None = None
    against: str | None = None

    def change(self, case: Case, rng: random.Random) -> Output | None:
        """The output with the change; None where it does not apply."""
        if self.name == "context_order":
            edit = shuffle_chunks(Subject(case, Donors([])), rng)
            return edit.output if edit else None
        answer = self.answer(case.answer) if self.answer else _with_typos(case.answer, rng)
        return case.output.model_copy(update={"answer": answer})


def _as_list(answer: str) -> str:
    items = "\n".join(f"- {sentence}" for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z])", answer.strip()))
    return f"## Answer\n\n{items}"


def _with_typos(text: str, rng: random.Random) -> str:
    """Two neighbouring letters inside up to three long words are exchanged."""
    matches, answer = list(re.finditer(r"\b[a-z]{5,}\b", text)), list(text)
    for match in rng.sample(matches, min(_TYPOS, len(matches))):
        place = match.start() + 1 + rng.randrange(len(match[0]) - 3)
        answer[place], answer[place + 1] = answer[place + 1], answer[place]
    return "".join(answer)


_PROBES = (
    Probe("context_order", "the contexts come in another order"),
    Probe("padding", "polite sentences without a claim are added", lambda text: text + _PADDING),
    Probe("markdown", "a heading, and each sentence as an item", _as_list),
    Probe("false_citation", "a journal is named that nobody retrieved", lambda text: f"{text} (Journal of Applied Research, 2021)"),
    Probe("bandwagon", "90 % agree, it says", lambda text: f"{text}\n\n(90 % of readers agree.)"),
    Probe("confident_tone", "it says that there is no doubt", lambda text: f"Without any doubt: {text}"),
    Probe("improved", "it is called improved", lambda text: f"Improved answer:\n{text}"),
    Probe("idle_sentence", "one friendly sentence is added", lambda text: f"{text} I hope this helps."),
    Probe("typos", "letters of three words are exchanged"),
    Probe("date", "it is dated", lambda text: f"(Updated on 1 March 2026)\n{text}"),
)  # fmt: skip
PROBE_NAMES = (*(probe.name for probe in _PROBES), OTHER, OWN)
VERSION = 1
"""Raised whenever the same case gives another text."""


def family_of(model: str) -> str | None:
    """How an answer of the judge's own family is labelled; None where the model's name says no family."""
    name = model.rpartition("/")[2]
    return next((label for pattern, label in FAMILIES if pattern.search(name)), None)


def probes_of(model: str) -> tuple[Probe, ...]:
    """All probes for a judge. The pair of family labels is left out where the model's name says no family."""
    if (own := family_of(model)) is None:
        return _PROBES
    other = next(family for _, family in FAMILIES if family != own)
    return (
        *_PROBES,
        Probe(OTHER, f"labelled as an answer of {other}", lambda text: f"Answer of {other}:\n{text}"),
        Probe(OWN, f"labelled as an answer of {own}", lambda text: f"Answer of {own}:\n{text}", OTHER),
    )
