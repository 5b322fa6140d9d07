"""What an audit tries on a judge: attacks, from their versioned file, and probes for bias, which keep the meaning of a case, so that a
fair judge gives the same score."""

from __future__ import annotations

import base64
import codecs
import random
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict

from ragpipe.core.digest import sha256
from ragpipe.core.fences import fence_tag
from ragpipe.core.resources import PACKAGE
from ragpipe.core.sample import Case, Chunk, Turn
from ragpipe.core.yaml_files import FastLoader
from ragpipe.extras.checks.edits import Change, Edit, Subject, shuffle_chunks

_FLOOD, _SHOTS = 200, 40
_FOLDER = PACKAGE / "data" / "attacks"


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
        question, context = case.question, case.contexts[0].text if case.contexts else ""
        values = {"order": order, "verdict": verdict, "question_tag": fence_tag(question), "context_tag": fence_tag(context)}
        text = self.text
        for name, value in {**values, "question": question, "context": context}.items():
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
            return self._split(case, chunks, text)
        field = {"chunk_id": "id", "heading": "heading_path"}.get(self.place, self.place)
        new = {"text": self._joined(chunks[0].text, text)} if self.part == "context" else {field: text}
        return _output(case, chunks=[chunks[0].model_copy(update=new), *chunks[1:]])

    def _split(self, case: Case, chunks: list[Chunk], text: str) -> Case:
        """Half of the text in the first chunk, half in the last one, or in the answer where there is one chunk."""
        half = len(text) // 2
        chunks[0] = chunks[0].model_copy(update={"text": f"{chunks[0].text}\n\n{text[:half]}"})
        if len(chunks) == 1:
            return _output(case, chunks=chunks, answer=f"{case.answer}\n\n{text[half:]}")
        chunks[-1] = chunks[-1].model_copy(update={"text": f"{text[half:]}\n\n{chunks[-1].text}"})
        return _output(case, chunks=chunks)

    def _joined(self, before: str, text: str) -> str:
        pieces = {"before": f"{text}\n\n{before}", "replace": text}
        return pieces.get(self.place, f"{before}\n\n{text}")


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
    content: dict[str, Any] = yaml.load((_FOLDER / "attacks.v1.yaml").read_text(encoding="utf-8"), Loader=FastLoader)
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

_TYPOS = 3
CONTROL = "wrong_answer"
"""The control: another question's answer. A judge that does not notice it cannot be audited."""
PROBES_VERSION = 1
"""Raised whenever the same case gives another text."""


def _answering(subject: Subject, answer: str) -> Edit:
    return subject.changed(subject.answer, answer, answer=answer)


def _as_list(subject: Subject, rng: random.Random) -> Edit:
    sentences = re.split(r"(?<=[.!?])\s+(?=[A-Z])", subject.answer.strip())
    return _answering(subject, "\n".join(["## Answer\n", *(f"- {sentence}" for sentence in sentences)]))


def _with_typos(subject: Subject, rng: random.Random) -> Edit:
    """Two neighbouring letters inside up to three long words are exchanged."""
    matches, answer = list(re.finditer(r"\b[a-z]{5,}\b", subject.answer)), list(subject.answer)
    for match in rng.sample(matches, min(_TYPOS, len(matches))):
        place = match.start() + 1 + rng.randrange(len(match[0]) - 3)
        answer[place], answer[place + 1] = answer[place + 1], answer[place]
    return _answering(subject, "".join(answer))


_EDITS = {"shuffle": shuffle_chunks, "list": _as_list, "typos": _with_typos}


@lru_cache(maxsize=1)
def probe_file() -> dict[str, Any]:
    """The shipped `probes` by name, and the `families` of models: a pattern of their names, and a label."""
    content: dict[str, Any] = yaml.load((_FOLDER / "probes.v1.yaml").read_text(encoding="utf-8"), Loader=FastLoader)
    return content


def probes_of(model: str) -> tuple[Change, ...]:
    """All probes for a judge. The pair of family labels is left out where the model's name says no family."""
    families, name = probe_file()["families"], model.rpartition("/")[2]
    own = next((label for pattern, label in families.items() if re.search(pattern, name, re.IGNORECASE)), None)
    labels = {"{own}": own or "", "{other}": next(label for label in families.values() if label != own)}
    probes = probe_file()["probes"].items()
    return tuple(_probe(name, said, labels) for name, said in probes if own or "_family" not in name)


def _probe(name: str, said: Mapping[str, str], labels: Mapping[str, str]) -> Change:
    what, text = said["what"], said.get("text", "")
    for key, label in labels.items():
        what, text = what.replace(key, label), text.replace(key, label)

    def with_text(subject: Subject, rng: random.Random) -> Edit:
        return _answering(subject, text.replace("{answer}", subject.answer))

    return Change(name, what, _EDITS[said["edit"]] if "edit" in said else with_text, said.get("against"))
