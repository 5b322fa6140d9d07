"""Attacks on a judge: read from their versioned file, and put into a case."""

from __future__ import annotations

import base64
import codecs
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict

from ragpipe.core.digest import sha256
from ragpipe.core.resources import PACKAGE
from ragpipe.core.yaml_files import FastLoader
from ragpipe.prompting.foreign_tags import fence_tag
from ragpipe.schema.sample import Case, Chunk, Turn

_LOOKALIKES = str.maketrans("aceopxyiABCEHKMOPTX", "асеорхуіАВСЕНКМОРТХ")
_LEET = str.maketrans("aeiostAEIOST", "431057431057")
_FLOOD, _SHOTS = 200, 40
Part = Literal["answer", "context", "question", "reference", "history", "id", "metadata"]
VERSION = 1
_FILE = PACKAGE / "data" / "attacks" / f"attacks.v{VERSION}.yaml"


class Attack(BaseModel):
    """One technique: which part of a case it changes, where in it, and the text. `group` is the family of the technique."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    part: Part
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
        return _PARTS[attack.part](case, attack, attack.fill(case, self.order, self.verdict))


@lru_cache(maxsize=1)
def attack_suite() -> AttackSuite:
    """The shipped attacks."""
    content: dict[str, Any] = yaml.load(_FILE.read_text(encoding="utf-8"), Loader=FastLoader)
    content["attacks"] = {name: {"name": name, **attack} for name, attack in content["attacks"].items()}
    return AttackSuite.model_validate(content)


def _output(case: Case, **fields: Any) -> Case:
    return Case(case.sample, case.output.model_copy(update=fields), case.iteration)


def _sample(case: Case, **fields: Any) -> Case:
    return Case(case.sample.model_copy(update=fields), case.output, case.iteration)


def _joined(attack: Attack, before: str, text: str) -> str:
    pieces = {"after": f"{before}\n\n{text}", "before": f"{text}\n\n{before}", "replace": text}
    return pieces.get(attack.place, pieces["after"])


def _in_answer(case: Case, attack: Attack, text: str) -> Case:
    return _output(case, answer=_joined(attack, case.answer, text))


def _in_context(case: Case, attack: Attack, text: str) -> Case | None:
    """In the first chunk; half of a split text in the last one, or in the answer where there is one chunk."""
    chunks = list(case.contexts)
    if not chunks:
        return None
    if attack.place != "split":
        chunks[0] = _with_text(chunks[0], _joined(attack, chunks[0].text, text))
        return _output(case, chunks=chunks)
    half = len(text) // 2
    chunks[0] = _with_text(chunks[0], f"{chunks[0].text}\n\n{text[:half]}")
    if len(chunks) == 1:
        return _output(case, chunks=chunks, answer=f"{case.answer}\n\n{text[half:]}")
    chunks[-1] = _with_text(chunks[-1], f"{text[half:]}\n\n{chunks[-1].text}")
    return _output(case, chunks=chunks)


def _with_text(chunk: Chunk, text: str) -> Chunk:
    return chunk.model_copy(update={"text": text})


def _in_question(case: Case, attack: Attack, text: str) -> Case:
    return _sample(case, question=_joined(attack, case.question, text))


def _in_reference(case: Case, attack: Attack, text: str) -> Case | None:
    if not case.references:
        return None
    return _sample(case, references=[_joined(attack, reference, text) for reference in case.references])


def _in_history(case: Case, attack: Attack, text: str) -> Case:
    return _sample(case, history=[*case.sample.history, Turn(role="user", text=text)])


def _in_ids(case: Case, attack: Attack, text: str) -> Case | None:
    """As an identifier of the first chunk, or as its path."""
    if not case.contexts:
        return None
    field = {"chunk_id": "id"}.get(attack.place, attack.place)
    first, *later = case.contexts
    return _output(case, chunks=[first.model_copy(update={field: text}), *later])


def _in_metadata(case: Case, attack: Attack, text: str) -> Case | None:
    if attack.place == "heading":
        if not case.contexts:
            return None
        first, *later = case.contexts
        return _output(case, chunks=[first.model_copy(update={"heading_path": text}), *later])
    values = {"category": text, "tags": [*case.sample.tags, text], "meta": {**case.sample.meta, "note": text}}
    return _sample(case, **{attack.place: values[attack.place]})


_PARTS: Mapping[Part, Callable[[Case, Attack, str], Case | None]] = {
    "answer": _in_answer,
    "context": _in_context,
    "question": _in_question,
    "reference": _in_reference,
    "history": _in_history,
    "id": _in_ids,
    "metadata": _in_metadata,
}


def _each_after(text: str, place: Callable[[int], int]) -> str:
    return "".join(chr(place(ord(letter))) for letter in text if letter.isascii())


ENCODINGS: Mapping[str, Callable[[str], str]] = {
    "zero_width": lambda text: "\u200b".join(text),
    "tag_characters": lambda text: _each_after(text, lambda code: 0xE0000 + code),
    "variation_selectors": lambda text: _each_after(text, lambda code: 0xE0100 + code),
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
