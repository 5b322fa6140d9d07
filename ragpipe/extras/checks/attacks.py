"""What an audit tries on a judge: attacks, from their versioned file, and probes for bias, which keep the meaning of a case, so that a fair
judge gives the same score."""

from __future__ import annotations

import base64
import codecs
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict

from ragpipe.core.digest import sha256
from ragpipe.core.resources import PACKAGE
from ragpipe.core.yaml_files import FastLoader
from ragpipe.extras.checks.chunk_edits import shuffle_chunks
from ragpipe.extras.checks.edits import Donors, Subject
from ragpipe.prompting.fences import fence_tag
from ragpipe.schema.sample import Case, Chunk, Output, Turn

_FLOOD, _SHOTS = 200, 40
_FILE = PACKAGE / "data" / "attacks" / "attacks.v1.yaml"


class Attack(BaseModel):
    """One technique: which part of a case it changes, where in it, and the text. `group` is the family of the technique."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    part: Literal["answer", "context", "question", "reference", "history", "id", "metadata"]
    group: str
    text: str
    place: str = "after"
    encode: str | None = None

    def fill(self, case: Case, order: str, verdict: str) -> str:
        """The text for this case, hidden as `encode` says. The tags are those that an attacker can calculate."""
        context = case.contexts[0].text if case.contexts else ""
        values = {
            "order": order,
            "verdict": verdict,
            "question_tag": fence_tag(case.question),
            "context_tag": fence_tag(context),
            "question": case.question,
            "context": context,
        }
        text = self.text
        for name, value in values.items():
            text = text.replace(f"{{{name}}}", value)
        return ENCODINGS[self.encode](text) if self.encode else text

    def put(self, case: Case, text: str) -> Case | None:
        """The case with this text in the part that the attack is about; None where the case lacks the part."""
        sample, chunks = case.sample, list(case.contexts)
        match self.part:
            case "answer":
                return _output(case, answer=self._joined(case.answer, text))
            case "question":
                return _sample(case, question=self._joined(case.question, text))
            case "reference":
                joined = [self._joined(reference, text) for reference in case.references]
                return _sample(case, references=joined) if joined else None
            case "history":
                return _sample(case, history=[*sample.history, Turn(role="user", text=text)])
            case "metadata" if self.place != "heading":
                values = {"category": text, "tags": [*sample.tags, text], "meta": {**sample.meta, "note": text}}
                return _sample(case, **{self.place: values[self.place]})
        if not chunks:
            return None
        if self.place == "split":
            return _split(case, chunks, text)
        field = {"chunk_id": "id", "heading": "heading_path"}.get(self.place, self.place)
        new = {"text": self._joined(chunks[0].text, text)} if self.part == "context" else {field: text}
        return _output(case, chunks=[chunks[0].model_copy(update=new), *chunks[1:]])

    def _joined(self, before: str, text: str) -> str:
        pieces = {"before": f"{text}\n\n{before}", "replace": text}
        return pieces.get(self.place, f"{before}\n\n{text}")


def _split(case: Case, chunks: list[Chunk], text: str) -> Case:
    """Half of the text in the first chunk, half in the last one, or in the answer where there is one chunk."""
    half = len(text) // 2
    chunks[0] = chunks[0].model_copy(update={"text": f"{chunks[0].text}\n\n{text[:half]}"})
    if len(chunks) == 1:
        return _output(case, chunks=chunks, answer=f"{case.answer}\n\n{text[half:]}")
    chunks[-1] = chunks[-1].model_copy(update={"text": f"{text[half:]}\n\n{chunks[-1].text}"})
    return _output(case, chunks=chunks)


def _output(case: Case, **fields: Any) -> Case:
    return Case(case.sample, case.output.model_copy(update=fields), case.iteration)


def _sample(case: Case, **fields: Any) -> Case:
    return Case(case.sample.model_copy(update=fields), case.output, case.iteration)


class AttackSuite(BaseModel):
    """All attacks of the file, by name; `order` and `verdict` are what their texts ask the judge for."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: int
    order: str
    verdict: str
    attacks: dict[str, Attack]

    @property
    def digest(self) -> str:
        """The digest of the content: other words are another audit."""
        return sha256(self.model_dump(mode="json"))

    def attacked(self, name: str, case: Case) -> Case | None:
        """The case with one attack in it. None where the case lacks the part: no context, no reference."""
        attack = self.attacks[name]
        return attack.put(case, attack.fill(case, self.order, self.verdict))


@lru_cache(maxsize=1)
def attack_suite() -> AttackSuite:
    """The shipped attacks."""
    content: dict[str, Any] = yaml.load(_FILE.read_text(encoding="utf-8"), Loader=FastLoader)
    content["attacks"] = {name: {"name": name, **attack} for name, attack in content["attacks"].items()}
    return AttackSuite.model_validate(content)


def _each_after(text: str, code: int) -> str:
    return "".join(chr(code + ord(letter)) for letter in text if letter.isascii())


_LOOKALIKES = str.maketrans("aceopxyiABCEHKMOPTX", "асеорхуіАВСЕНКМОРТХ")
_LEET = str.maketrans("aeiostAEIOST", "431057431057")
ENCODINGS: Mapping[str, Callable[[str], str]] = {
    "zero_width": lambda text: "\u200b".join(text),
    "tag_characters": lambda text: _each_after(text, 0xE0000),
    "variation_selectors": lambda text: _each_after(text, 0xE0100),
    "bidi": lambda text: f"\u202e{text[::-1]}\u202c",
    "homoglyphs": lambda text: text.translate(_LOOKALIKES),
    "leetspeak": lambda text: text.translate(_LEET),
    "spaced": lambda text: " ".join(text),
    "base64": lambda text: base64.b64encode(text.encode()).decode("ascii"),
    "rot13": lambda text: codecs.encode(text, "rot13"),
    "flood": lambda text: " ".join([text] * _FLOOD),
    "many_shot": lambda text: "\n".join([text] * _SHOTS),
}
"""By the name that an attack gives as `encode`."""

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
PROBES_VERSION = 1
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
