"""The YAML files of a folder to start from, as text: data set, experiment, judge."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ragpipe.core import registry
from ragpipe.datasets.recognition import NATIVE
from ragpipe.starting.guessed_mapping import GUESSED_FIELDS, GuessedField, NameInFile, judged_names, passages_in
from ragpipe.starting.metric_choice import NEEDS_MODEL, MetricChoice
from ragpipe.starting.recorded_scales import RecordedEntry

_BARE = re.compile(r"[A-Za-z_](?:[\w./+-]|\[\]|:(?=[\w./]))*", re.ASCII)
_WHOLE = {"question", "answer"}
PERHAPS = "perhaps "
"""Before the path that a field may have, in the comment of its line."""
NULL = "null "
"""The value null of a key, as no text is written."""
_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
_ABOUT_FIELDS = {
    "id": "without it the hash of question, history and references is the id",
    "question": "required",
    "answer": "what the system said; without answers only a live system can be evaluated",
    "contexts": "the retrieved passages: a list of texts, in rank order",
    "reference": "one right answer",
    "references": "several right answers, a list",
    "method": "which variant of the system gave the answer",
}


@dataclass(frozen=True, slots=True)
class FileOrigin:
    """The file that the options are written for.

    Attributes:
        name: how the user named it.
        yaml_path: how `path:` in a YAML file of the folder `dataset/` names it.
        description: what it was recognised as; empty where its shape is unknown.
        keys: further keys of the data set that the file needs: its format, the path of its records.
    """

    name: str
    yaml_path: str
    description: str
    keys: Mapping[str, str] = field(default_factory=dict)


def recognised_dataset(name: str, origin: FileOrigin, option: str) -> str:
    """The data set's option for a file that a shipped mapping reads."""
    base = (
        []
        if option == NATIVE
        else ["defaults:", f"  - {option}   # the shipped mapping; what is set here comes on top", "  - _self_", ""]
    )
    shipped = [] if option == NATIVE else _shipped_fields(option)
    return _text(
        "# yaml-language-server: $schema=../schema/dataset.json",
        f"# {_comment(origin.name)}: {origin.description}.",
        f"# Use: dataset={name}",
        *base,
        f"name: {name}",
        *_path_lines(origin),
        *(f"{key}: {scalar(value)}" for key, value in origin.keys.items()),
        *shipped,
    )


def guessed_dataset(name: str, origin: FileOrigin, names: Sequence[NameInFile], guesses: Sequence[GuessedField]) -> str:
    """The data set's option for a file of an unknown shape: every name in it, and the guesses, each marked as one."""
    width = max((len(entry.path) for entry in names), default=0)
    return _text(
        "# yaml-language-server: $schema=../schema/dataset.json",
        f"# {_comment(origin.name)} has a shape that ragpipe does not know. Fill in the lines with `???`, or take them out; check those with `guess`.",
        "# Paths are JMESPath: a.b, list[0], list[].name, length(x). A name is written as below: with its double quotes, if it has some,",
        """# in single quotes for YAML: '"a b"'. A cell that holds JSON is read by parse(cell).""",
        f"# Use: dataset={name}",
        "#",
        "# The names in the first records, with their types and a value:",
        *(f"#   {_comment(entry.path):<{width}}  {entry.kind:<16} {entry.shown_example}".rstrip() for entry in names),
        f"name: {name}",
        *_path_lines(origin),
        *(f"{key}: {scalar(value)}" for key, value in origin.keys.items()),
        *_split_lines(guesses),
        "fields:",
        *_field_lines({guess.field: guess for guess in guesses}, passages_in(names)),
        *_recorded_lines(judged_names(names, guesses)),
        "  # meta: {fields: {kept: NAME}}   # anything else to keep; docs/datasets.md has the whole language",
    )


def experiment(
    name: str,
    folder: str,
    origin: FileOrigin,
    choice: MetricChoice,
    entries: Sequence[RecordedEntry],
    remarks: Sequence[str],
) -> str:
    """The experiment: the metrics that can run, those that cannot as comments, and the recorded verdicts as scores.

    Args:
        name: the name of the experiment, of the data set and of the judge.
        folder: how the user named the folder.
        origin: the file.
        choice: the metrics.
        entries: the recorded verdicts.
        remarks: recorded names that cannot be scores, and why.
    """
    chosen = [*choice.chosen, *(["recorded"] if entries else [])]
    return _text(
        "# @package _global_",
        "# yaml-language-server: $schema=../schema/run.json",
        f"# Evaluate the answers of {_comment(origin.name)}.",
        f"# Use: python -m ragpipe --config-dir {folder} +experiment={name}",
        f"#      ... judge={name}   with a language model as judge, named in judge/{name}.yaml",
        "defaults:",
        f"  - override /dataset: {name}",
        f"  - override /judge: evidence   # no key, no network; `{name}` for a language model",
        "  - override /metrics:",
        *(f"      - {metric}" for metric in chosen),
        *_left_out_lines(choice.left_out),
        "",
        f"name: {name}",
        *_parameter_lines(choice, entries, remarks),
    )


def judge(name: str) -> str:
    """The judge: a language model, to be named."""
    return JUDGE.format(name=name)


JUDGE = """\
# yaml-language-server: $schema=../schema/judge.json
# A language model as judge. Use: judge={name}
defaults:
  - llm
  - _self_

model: openai/gpt-4o-mini-2024-07-18   # 1. provider/model, pinned by a date, a digest or a revision
api_key_env: OPENAI_API_KEY            # 2. the NAME of the variable that holds the key, never the key
# api_base: http://127.0.0.1:8000/v1   # any OpenAI-compatible server (vLLM, Ollama, llama.cpp)
"""


def _text(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)


def _comment(text: str) -> str:
    return " ".join(text.split())


def _path_lines(origin: FileOrigin) -> list[str]:
    remark = "   # `here:` starts at the folder of this YAML file" if origin.yaml_path.startswith("here:") else ""
    return [f"path: {scalar(origin.yaml_path)}{remark}"]


def _shipped_fields(option: str) -> list[str]:
    """The shipped mapping's fields as comments, to be changed one by one."""
    lines = registry.option_files("dataset")[option].read_text(encoding="utf-8").splitlines()
    start = next((place for place, line in enumerate(lines) if line.startswith("fields:")), None)
    if start is None:
        return []
    end = next((place for place in range(start + 1, len(lines)) if lines[place][:1] not in ("", " ", "#")), len(lines))
    shown = [f"# {line}".rstrip() for line in lines[start:end] if line.strip()]
    return ["", "# The fields of the shipped mapping; what is set under `fields:` here replaces one of them.", *shown]


def _split_lines(guesses: Sequence[GuessedField]) -> Iterator[str]:
    """The section that cuts a text into its passages."""
    for guess in guesses:
        if guess.separator is not None:
            pattern = scalar(guess.separator.pattern)
            yield from ("split:", "  passages:", f"    text: {scalar(guess.path)}", f"    pattern: {pattern}")


def _recorded_lines(judged: Sequence[NameInFile]) -> Iterator[str]:
    """What looks like verdicts of people, as comments to take in."""
    if judged:
        yield "  # These look like verdicts of people: take the signs `#` away to keep them beside the scores."
        yield "  # recorded:"
        yield "  #   fields:"
    for name in judged:
        words = dict.fromkeys(
            value
            for value in name.values
            if isinstance(value, str) and not re.fullmatch(r"[-+.\d]*|(?i:true|false)", value)
        )
        table = ", ".join(f"{json.dumps(word, ensure_ascii=False)}: ???" for word in list(words)[:4])
        path = scalar(name.path if words else f"verdict({name.path})")
        yield f"  #     {scalar(name.own_name)}: " + (f"{{path: {path}, map: {{{table}}}}}" if words else path)


def _field_lines(guesses: Mapping[str, GuessedField], passages: str) -> Iterator[str]:
    """A line per field: its guess, `???` where a person has to say it, else a comment. Without a question and an answer nothing can
    be run, so a person has to look anyway, and the contexts are asked for as well; questions with right answers are whole.

    Args:
        guesses: the guess by field.
        passages: what the contexts may be, where no name says so; may be empty.
    """
    is_whole = (
        guesses.keys() >= _WHOLE
        or guesses.keys() >= {"question", "reference"}
        or guesses.keys() >= {"question", "references"}
    )
    asked = () if is_whole else ("question", "answer", "contexts")
    for name in GUESSED_FIELDS:
        about = _ABOUT_FIELDS[name]
        if name == "contexts" and passages and name not in guesses:
            about += f"; {PERHAPS}{passages}"
        if name in guesses and guesses[name].doubt:
            yield f"  {name}: ???   # {guesses[name].doubt}"
        elif name in guesses:
            path = "passages" if guesses[name].separator else scalar(guesses[name].path)
            yield f"  {name}: {path}   # guess, by its name: {about}"
        elif name in asked:
            yield f"  {name}: ???   # {about}"
        else:
            yield f"  # {name}: NAME   # {about}"


def _left_out_lines(left_out: Mapping[str, str]) -> Iterator[str]:
    for metric, lack in sorted(left_out.items(), key=lambda item: (item[1] != NEEDS_MODEL, item[0])):
        yield f"      # - {metric}   # needs {lack}"


def _parameter_lines(choice: MetricChoice, entries: Sequence[RecordedEntry], remarks: Sequence[str]) -> Iterator[str]:
    """The section `metrics`: one rank for retrieval, and the recorded verdicts."""
    if "retrieval" in choice.chosen or entries:
        yield "metrics:"
    if "retrieval" in choice.chosen:
        yield "  retrieval: {k: [5]}   # how many passages count; several: [1, 3, 5, 10]"
    if entries:
        yield from (
            "  recorded:",
            "    take:   # verdicts that the file holds; check the scales, and which end is good",
        )
    for entry in entries:
        keys = [f"from: {scalar(entry.source)}"]
        keys += (
            [f"low: {entry.scale[0]:g}", f"high: {entry.scale[1]:g}"] if entry.scale else ["low: null", "high: null"]
        )
        keys += ["binary: true"] if entry.is_binary else []
        keys += [] if entry.higher_is_better else ["higher_is_better: false"]
        turned = "" if entry.higher_is_better else "; high is bad, by its name: turn it if not"
        yield f"      {entry.score}: {{{', '.join(keys)}}}   # {entry.seen}{turned}"
    for remark in remarks:
        yield f"# not taken from the file: {_comment(remark)}"


def scalar(text: str) -> str:
    """A text as YAML reads it back, in quotes where it needs them."""
    if text == NULL or (_BARE.fullmatch(text) and text.lower() not in _WORDS):
        return text.strip()
    in_single = '"' in text and "'" not in text and "\\" not in text and text.isprintable()
    return f"'{text}'" if in_single else json.dumps(text, ensure_ascii=False)
