"""Question templates: versioned YAML files, shipped in `ragpipe/data/question_templates/<name>.v<N>.yaml` or the user's own.

    kind: complete                      which kind of case the templates make
    version: v1
    templates:
      - name: value_of_key
        about: fact                     what of the documents a template is filled with
        questions: ["What {is} the {key} {of_subject}?", "Tell me the {key} {of_subject}."]
        reference: "The {key} {of_subject} {is} {value}."

`questions` are phrasings of one question, of which a case gets one. `reference` is the right answer; without one the case has none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, field_validator, model_validator

from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.patterns import compile_timed
from ragpipe.core.resources import SHIPPED_DATA, data_path
from ragpipe.core.settings import NoOrigins, Settings, did_you_mean, validated
from ragpipe.core.yaml_files import FastLoader, check_yaml, lines_of
from ragpipe.extras.test_sets.english import slot_names, word_set

Kind = Literal[
    "complete", "quote_only", "citation_pair", "conflict", "partial_list", "partial_dates", "partial_entities", "policy",
    "no_context", "edge",
]  # fmt: skip
_SUBJECT = word_set("subject of_subject for_subject source does topic period")
_FACT = word_set("key only_key is was value") | _SUBJECT
_ENTRY = word_set("entry only_entry participle value") | _SUBJECT
_PARAGRAPH = word_set("heading only_heading text") | _SUBJECT
SLOTS: Mapping[str, Mapping[str, frozenset[str]]] = {
    "complete": {
        "fact": _FACT,
        "entry": _ENTRY,
        "entry_under_heading": _ENTRY | {"heading", "headings"},
        "person": word_set("person value"),
        "paragraph": _PARAGRAPH,
    },
    "quote_only": {"passage": word_set("source heading quote")},
    "citation_pair": {"two_facts": word_set("key is that does subject other_subject value other_value")},
    "conflict": {"fact": _FACT | {"old_value"}, "paragraph": _PARAGRAPH},
    "partial_list": {"list": word_set("asked known items noun only_noun heading") | _SUBJECT},
    "partial_dates": {"series": word_set("first last periods missing rows noun") | _SUBJECT},
    "partial_entities": {"fact": word_set("key is value subject other")},
    "policy": {**{about: word_set(about) for about in ("name", "person", "organisation")}, "nothing": word_set("")},
    "no_context": {"attribute": word_set("attribute is subject"), "name": word_set("name")},
    "edge": {
        "shared_key": word_set("key is"),
        "false_premise": _FACT | {"wrong_value"},
        "two_parts": _FACT,
        "name": word_set("name"),
    },
}
"""The slots that a template may use, by kind and by what it is about. A slot is empty where the documents give nothing for it: then
the template is not used."""
_NAME = re.compile(r"[a-z][a-z0-9_]*\.v\d+\Z")
_FOLDER = f"{SHIPPED_DATA}question_templates"
_TITLE = "question templates are wrong; nothing was written"


class QuestionTemplate(Settings):
    """One question in several phrasings, and the labels that belong to it alone."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$", description="Name of the template: lower-case letters, digits, '_'.")
    about: str = Field(description="What of the documents it is filled with: it decides which slots there are.")
    questions: list[str] = Field(min_length=1, description="Phrasings of the question; a case gets one of them.")
    reference: str | None = Field(default=None, description="The right answer. null: the case has none.")
    where: dict[str, str] = Field(
        default_factory=dict,
        description=(
            "Regular expressions by slot that must match, case ignored. Where such a template fits, templates without are not used."
        ),
    )
    behavior: Literal["answer", "reject"] | None = Field(
        default=None, description="Edge cases: what a right answer does. null: people may differ."
    )
    subcategory: str | None = Field(default=None, description="Subcategory of the cases. null: what the kind gives.")

    @field_validator("where")
    @classmethod
    def _compiles(cls, where: dict[str, str]) -> dict[str, str]:
        for pattern in where.values():
            compile_timed(pattern)
        return where

    @property
    def slots(self) -> list[str]:
        """The slots that its texts use."""
        return list(dict.fromkeys(name for text in (*self.questions, self.reference or "") for name in slot_names(text)))

    def fits(self, slots: Mapping[str, str]) -> bool:
        """Whether every slot has a value and every condition holds."""
        return all(name in slots for name in self.slots) and all(
            name in slots and compile_timed(pattern).search(slots[name]) for name, pattern in self.where.items()
        )


class QuestionTemplateFile(Settings):
    """A file of templates of one kind. `names` are invented names and `attributes` invented attributes; both are used only where no
    document has them."""

    kind: Kind = Field(description="The kind of case.")
    version: str = Field(default="own", description="Name of this version; it stands in the origin of each case.")
    policy: str | None = Field(
        default=None, description="Policies: the one that the questions try to break; it is the reason of the rejection."
    )
    names: list[str] = Field(default_factory=list, description="Invented names. Default: none.")
    attributes: list[str] = Field(default_factory=list, description="Attributes that documents rarely give. Default: none.")
    templates: list[QuestionTemplate] = Field(min_length=1, description="The templates.")

    @model_validator(mode="after")
    def _known_slots(self) -> QuestionTemplateFile:
        for template in self.templates:
            known = SLOTS[self.kind]
            if template.about not in known:
                raise ValueError(f"{template.name}: about: one of {', '.join(known)}, found {template.about!r}")
            for slot in (*template.slots, *template.where):
                if slot not in known[template.about]:
                    names = sorted(known[template.about])
                    hint = did_you_mean(slot, names) or f"there are {', '.join(names) or 'none'}"
                    raise ValueError(f"{template.name}: {{{slot}}} is no slot of {self.kind} about {template.about}; {hint}")
        names = [template.name for template in self.templates]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"the name {twice[0]!r} stands twice")
        if self.kind == "policy" and self.policy is None:
            raise ValueError("policy: the name of the policy that the questions try to break")
        return self


@dataclass(frozen=True, slots=True)
class Template:
    """A template with the file that it stands in, by its name."""

    file: str
    settings: QuestionTemplateFile
    question: QuestionTemplate

    @property
    def name(self) -> str:
        """What names it in the origin of a case: `complete.v1/value_of_key`."""
        return f"{self.file}/{self.question.name}"


class Templates:
    """All templates of a synthesis, by kind, in the order of the files. `paths` are the files by their names."""

    def __init__(self, files: Mapping[str, QuestionTemplateFile], paths: Mapping[str, Path]):
        self.files, self.paths = dict(files), dict(paths)
        self._all = [Template(name, file, question) for name, file in files.items() for question in file.templates]

    def of(self, kind: Kind, about: str) -> list[Template]:
        """The templates of a kind that are about this."""
        return [item for item in self._all if item.settings.kind == kind and item.question.about == about]

    def fitting(self, kind: Kind, about: str, slots: Mapping[str, str]) -> list[Template]:
        """The templates that these slots fill: those with conditions where any of them fits, else those without."""
        fitting = [item for item in self.of(kind, about) if item.question.fits(slots)]
        return [item for item in fitting if item.question.where] or fitting

    def names(self, kind: Kind) -> list[str]:
        """The invented names of a kind, in order."""
        return list(dict.fromkeys(name for file in self.files.values() if file.kind == kind for name in file.names))

    def attributes(self) -> list[str]:
        """The attributes that documents rarely give, in order."""
        return list(dict.fromkeys(item for file in self.files.values() for item in file.attributes))


def template_names() -> list[str]:
    """The names of the shipped files, sorted."""
    return sorted(path.stem for path in data_path(_FOLDER).glob("*.yaml"))


def read_templates(names: Sequence[str]) -> Templates:
    """The templates of shipped files by name (`complete.v1`) and of the user's files by path; all shipped ones where no name is given.

    Raises ConfigError with every fault.
    """
    problems: list[Problem] = []
    files: dict[str, QuestionTemplateFile] = {}
    paths: dict[str, Path] = {}
    for name in names or template_names():
        path = data_path(f"{_FOLDER}/{name}.yaml") if _NAME.match(name) else Path(name)
        if not path.is_file():
            known = template_names()
            expected = f"one of {', '.join(known)}, or the path of a YAML file"
            problems.append(Problem("synthesize.templates", name, "no such file", expected, did_you_mean(name, known)))
            continue
        if (file := _read_file(path, problems)) is not None:
            if path.stem in files:
                state = f"a second file of the name {path.stem}"
                problems.append(Problem("synthesize.templates", str(path), state, "a name of its own"))
            files[path.stem], paths[path.stem] = file, path
    if problems:
        raise ConfigError(_TITLE, problems)
    return Templates(files, paths)


def _read_file(path: Path, problems: list[Problem]) -> QuestionTemplateFile | None:
    if faults := check_yaml(path):
        problems += faults
        return None
    content: Any = yaml.load(path.read_text(encoding="utf-8"), Loader=FastLoader)
    file, lines = validated(QuestionTemplateFile, content, "", NoOrigins(), faults), lines_of(path)
    for fault in faults:
        if fault.key:
            problems.append(replace(fault, where=f"{path}:{lines.get(fault.key, 1)}"))
        else:  # a fault of the file as a whole, whose content would hide what is wrong
            problems.append(Problem(str(path), "templates", fault.expected, "templates that fit their kind"))
    return file
