"""The YAML files of a folder to start from, as text: data set, experiment, judge."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field

from ragpipe.cli.guessed_mapping import GUESSED_FIELDS, GuessedField, NameInFile, passages_in
from ragpipe.core.digest import sha256_file
from ragpipe.core.errors import ConfigError, OutputError, Problem
from ragpipe.core.registry import option_files, option_folders
from ragpipe.core.resources import conf_dir, data_path
from ragpipe.core.sample import Case
from ragpipe.core.settings import did_you_mean
from ragpipe.data.recognition import NATIVE
from ragpipe.metrics.needs import DataFacts, MetricNeed, SeenVerdicts, default_metrics, gives_value, metric_needs
from ragpipe.runs.settings import RUN_KEYS
from ragpipe.score.normalisation import OVERALL
from ragpipe.store.files import atomic_write

_BARE = re.compile(r"[A-Za-z_](?:[\w./+-]|\[\]|:(?=[\w./]))*", re.ASCII)
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
    base = ["defaults:", f"  - {option}   # the shipped mapping; what is set here comes on top", "  - _self_", ""]
    return _text(
        "# yaml-language-server: $schema=../schema/dataset.json",
        f"# {_comment(origin.name)}: {origin.description}.",
        f"# Use: dataset={name}",
        *(base if option != NATIVE else ()),
        f"name: {name}",
        *_path_lines(origin),
        *(f"{key}: {scalar(value)}" for key, value in origin.keys.items()),
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
        "  # recorded: {fields: {NAME: verdict(NAME)}}   # verdicts of people or of another judge, to keep beside the scores",
        "  # meta: {fields: {kept: NAME}}   # anything else to keep; docs/datasets.md has the whole language",
    )


def experiment(
    folder: Path, origin: FileOrigin, choice: MetricChoice, entries: Sequence[RecordedEntry], remarks: Sequence[str]
) -> str:
    """The experiment: the metrics that can run, those that cannot as comments, and the recorded verdicts as scores. The name of the
    folder is that of the experiment, the data set and the judge; `remarks` say which recorded names cannot be scores, and why."""
    name, chosen = folder.name, [*choice.chosen, *(["recorded"] if entries else [])]
    left_out = sorted(choice.left_out.items(), key=lambda item: (item[1] != NEEDS_MODEL, item[0]))
    return _text(
        "# @package _global_",
        "# yaml-language-server: $schema=../schema/run.json",
        f"# Evaluate the answers of {_comment(origin.name)}.",
        f"# Use: python -m ragpipe --config-dir {folder} +experiment={name}",
        f"#      ... judge={name}   with a language model as judge, named in judge/{name}.yaml",
        "defaults:",
        f"  - override /dataset: {name}",
        f"  - override /judge: rules   # no key, no network; `{name}` for a language model",
        "  - override /metrics:",
        *(f"      - {metric}" for metric in chosen),
        *(f"      # - {metric}   # needs {lack}" for metric, lack in left_out),
        "",
        f"name: {name}",
        *_parameter_lines(choice, entries, remarks),
    )


def start_text(file: str) -> str:
    """A file of a folder to start from: `judge.yaml` has `{name}` in it."""
    return data_path(f"package:start/{file}").read_text(encoding="utf-8")


def _text(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)


def _comment(text: str) -> str:
    return " ".join(text.split())


def _path_lines(origin: FileOrigin) -> list[str]:
    remark = "   # `here:` starts at the folder of this YAML file" if origin.yaml_path.startswith("here:") else ""
    return [f"path: {scalar(origin.yaml_path)}{remark}"]


def _split_lines(guesses: Sequence[GuessedField]) -> Iterator[str]:
    """The section that cuts a text into its passages."""
    for guess in guesses:
        if guess.separator is not None:
            pattern = scalar(guess.separator.pattern)
            yield from ("split:", "  passages:", f"    text: {scalar(guess.path)}", f"    pattern: {pattern}")


def _field_lines(guesses: Mapping[str, GuessedField], passages: str) -> Iterator[str]:
    """A line per field: its guess, `???` where a person has to say it, else a comment."""
    is_whole = "question" in guesses and guesses.keys() & {"answer", "reference", "references"}
    asked = () if is_whole else ("question", "answer", "contexts")
    for name in (name for name in GUESSED_FIELDS if name != "contexts" or "chunks" not in guesses):
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
    for name in (name for name in guesses if name not in GUESSED_FIELDS):
        yield f"  {name}: {scalar(guesses[name].path)}   # as the native form calls it"


def _parameter_lines(choice: MetricChoice, entries: Sequence[RecordedEntry], remarks: Sequence[str]) -> Iterator[str]:
    """The section `metrics`: one rank for retrieval, and the recorded verdicts."""
    if "retrieval" in choice.chosen or entries:
        yield "metrics:"
    if "retrieval" in choice.chosen:
        yield "  retrieval: {k: [5]}   # how many passages count; several: [1, 3, 5, 10]"
    if entries:
        yield from ("  recorded:", "    take:   # verdicts that the file holds; check the scales, and which end is good")
    for entry in entries:
        keys = [f"from: {scalar(entry.source)}"]
        keys += [f"low: {entry.scale[0]:g}", f"high: {entry.scale[1]:g}"] if entry.scale else ["low: null", "high: null"]
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


_BAD_WHEN_HIGH = re.compile(
    r"harmful|malicious|hallucinat|toxic|\bbias|noise_?sensitivity|misuse|leakage|violation|perplexity|error_?rate|"
    r"edit_?distance|latency|duration|cost"
)
_GOOD_WHEN_HIGH = {"open_rag_eval": {"hallucination_score"}}  # 1 says that nothing is hallucinated


@dataclass(frozen=True, slots=True)
class RecordedEntry:
    """An entry of `take`: the score made of the recorded value `source`. `scale` has its ends, None for a count; `is_binary`: only
    true and false were seen; `higher_is_better` is told by the name; `seen` is for a comment."""

    score: str
    source: str
    scale: tuple[float, float] | None
    is_binary: bool
    higher_is_better: bool
    seen: str


def recorded_entries(
    verdicts: Mapping[str, SeenVerdicts], option: str, taken: Collection[str]
) -> tuple[list[RecordedEntry], list[str]]:
    """The entries, and a line for each name that cannot be one.

    A score is named as in the file where that name is free, else `OPTION_NAME`: `faithfulness` of another tool is not ours.
    The scale is the narrowest of 0-1, 1-5, 0-5, 0-10 and 0-100 that holds every value seen; a value outside all of them is a
    count without a scale.
    """
    entries, left_out, names = [], [], set(taken)
    for source, seen in verdicts.items():
        if not seen.n:
            kind = "no verdict is a number" if seen.unreadable else "no verdict was given"
            left_out.append(f"{source}: {kind}")
            continue
        if "." in source:
            left_out.append(f"{source}: a name with a point would be read as a part of another")
            continue
        plain = re.sub(r"\W+", "_", source.lower(), flags=re.ASCII).strip("_") or "verdict"
        score = plain if plain not in names else f"{option}_{plain}"
        while score in names:
            score += "_"
        names.add(score)
        is_good = not _BAD_WHEN_HIGH.search(source.lower()) or source.lower() in _GOOD_WHEN_HIGH.get(option, ())
        entries.append(RecordedEntry(score, source, seen.scale, seen.is_boolean, is_good, _remark(seen)))
    return entries, left_out


def _remark(seen: SeenVerdicts) -> str:
    values = "true and false" if seen.is_boolean else f"{seen.low:g} to {seen.high:g}"
    unreadable = f", {seen.unreadable:,} unreadable" if seen.unreadable else ""
    return f"seen: {values} in {seen.n:,} verdict{'' if seen.n == 1 else 's'}{unreadable}"


NEEDS_MODEL = "a language model"
_NOT_OFFERED = ("recorded", "chunk_faithfulness", "chunk_relevancy", "one_chunk_suffices")  # `recorded` has entries of its own


@dataclass(frozen=True, slots=True)
class MetricChoice:
    """The metrics that can run, and for each of the others what it needs, by name."""

    chosen: tuple[str, ...]
    left_out: dict[str, str]


def choose_metrics(facts: DataFacts, probe: Sequence[Case] = ()) -> MetricChoice:
    """Every shipped metric that needs no model of any kind, and whose labels some case has. None about single chunks: they say less
    than `faithfulness` and are easily misread.

    One that the rules judge answers in part is among them where it gives a value on one of the cases of `probe`, or where
    there are none to try: it says for each case what it could not tell.
    """
    needs = [need for need in metric_needs(facts) if need.name not in _NOT_OFFERED]
    lacking = {need.name: ", ".join(_lacks(need, probe)) for need in needs}
    return MetricChoice(
        tuple(name for name, lack in lacking.items() if not lack), {name: lack for name, lack in lacking.items() if lack}
    )


def score_names() -> frozenset[str]:
    """The names of all scores of the shipped metrics with their default parameters, and of the shipped composites."""
    scoring = yaml.safe_load((conf_dir() / "scoring" / "default.yaml").read_text(encoding="utf-8"))
    measured = (score.name for metric in default_metrics() for score in metric.scores())
    return frozenset([*measured, *scoring["composites"], OVERALL.name])


def _lacks(need: MetricNeed, probe: Sequence[Case]) -> Iterator[str]:
    metric = next(metric for metric in default_metrics() if metric.name == need.name)
    is_mute = need.rules_judge == "partly" and not need.missing and probe and not gives_value(metric, probe)
    if need.rules_judge == "no" or is_mute:
        yield NEEDS_MODEL
    if need.needs_embedder:
        yield "an embedder"
    if metric.encoder_settings:
        yield "a model of tokens"
    yield from need.missing


MARKER = "init.json"


class StartFolder(BaseModel):
    """A folder that was written for a file, as its `init.json` has it.

    Attributes:
        source: the file, by its path from the folder.
        name: the name of its experiment, data set and judge.
        option: the shipped option that reads the file; empty for guesses.
        is_runnable: whether its mapping was complete when it was written.
        left_out: for each metric that was left out what it needs.
        guessed: for each field that was guessed from a name its path expression.
        files: the sha256 of each file that was written, by its path within the folder.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    root: Path = Field(exclude=True)
    source: str
    name: str
    option: str = ""
    is_runnable: bool
    left_out: dict[str, str]
    guessed: dict[str, str] = Field(default_factory=dict)
    files: dict[str, str] = Field(default_factory=dict)

    @property
    def mapping(self) -> str:
        """The file with the mapping, by its path within the folder."""
        return f"dataset/{self.name}.yaml"

    @property
    def edited(self) -> tuple[str, ...]:
        """The files that differ from what was written, or are gone."""
        paths = {file: self.root / file for file in self.files}
        return tuple(file for file, path in paths.items() if not path.is_file() or sha256_file(path) != self.files[file])

    def marker(self) -> str:
        """The text of `init.json`."""
        about = "What was written here, by sha256: a start with the same file tells by it whether something was edited."
        return json.dumps({"about": about, **self.model_dump()}, indent=2, ensure_ascii=False) + "\n"


def write_new(folder: Path, files: Mapping[str, str]) -> None:
    """Write files by their paths within a folder, with the JSON Schemas that the YAML names. Raises ConfigError for a folder
    that is not empty, OutputError."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        existing = f"{str(folder)!r}, which exists already"
        problem = Problem("command line", "dir", existing, "a new or empty folder", "choose another name")
        raise ConfigError("task=init overwrites nothing", [problem])
    schemas = conf_dir() / "schema"
    texts = {
        f"schema/{path.relative_to(schemas).as_posix()}": path.read_text(encoding="utf-8") for path in schemas.rglob("*.json")
    }
    try:
        for file, text in {**files, **texts}.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            with open(folder / file, "x", encoding="utf-8") as stream:
                stream.write(text)
    except OSError as error:
        raise OutputError(f"cannot write {error.filename}: {error.strerror}") from error


def write_again(folder: StartFolder, experiment: str) -> StartFolder:
    """Replace the experiment of a folder, and take all of its files as they are now for written. Raises OutputError."""
    atomic_write(folder.root / f"experiment/{folder.name}.yaml", experiment)
    digests = {file: sha256_file(folder.root / file) for file in folder.files if (folder.root / file).is_file()}
    again = folder.model_copy(update={"files": digests})
    atomic_write(folder.root / MARKER, again.marker())
    return again


def written_for(folder: Path, source: Path) -> bool:
    """Whether a folder was written for a file."""
    written = _marker_of(folder)
    return written is not None and (folder / written.source).resolve() == source.resolve()


def read_folder(folder: Path, source: Path) -> StartFolder:
    """The folder as it is now. Raises ConfigError where it was not written for this file."""
    written = _marker_of(folder)
    if written is None or not written_for(folder, source):
        what = "a folder that was written for another file" if written else "a folder of yours"
        fix = f"task=init from={source} dir=OTHER writes to another folder, which `--config-dir OTHER +experiment=OTHER` runs"
        problem = Problem("the folder", str(folder), what, "no folder of this name, or the one written for this file", fix)
        raise ConfigError("nothing is overwritten; nothing was written", [problem])
    return written


def _marker_of(folder: Path) -> StartFolder | None:
    try:
        return StartFolder(root=folder, **json.loads((folder / MARKER).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


_TITLE = "nothing was written and nothing was started"


def check_words(arguments: Sequence[str]) -> None:
    """Raises ConfigError for arguments whose first name is no section, key or group of a run; with `task=` they may be of another
    task and are left to it."""
    if any(argument.startswith("task=") for argument in arguments):
        return
    groups = {path.name for folder in option_folders() for path in folder.iterdir() if path.is_dir()}
    known = sorted({*RUN_KEYS, *groups, "hydra"})
    problems = []
    for argument in arguments:
        key = argument.partition("=")[0].lstrip("+~").partition("@")[0].strip()
        first = key.partition("/")[0].partition(".")[0]
        if "=" in argument and first not in known:
            near = did_you_mean(first, known)
            fix = near.replace("?", f"{key[len(first) :]}?") if near and " or " not in near else near
            problems.append(Problem("command line", key, "an unknown key", f"one of {', '.join(known)}", fix))
    if problems:
        raise ConfigError(_TITLE, problems)


def check_option(option: str, key: str = "dataset") -> None:
    """Raises ConfigError for an option of `dataset` that is not shipped; `key` is the argument that named it."""
    known = list(option_files("dataset"))
    if option not in known:
        problem = Problem("command line", key, repr(option), f"one of {', '.join(known)}", did_you_mean(option, known))
        raise ConfigError("there is no such option; nothing was written", [problem])


def check_same_option(option: str, folder: StartFolder, source: str) -> None:
    """Raises ConfigError where `dataset=` names an option that is not shipped, or not the one by which a folder that was
    written before reads its file."""
    if not option or option == folder.name:
        return
    check_option(option)
    if folder.option != option:
        how = f"dataset={folder.option}" if folder.option else "a mapping of its own"
        fix = f"remove {folder.root}/ and start again, or task=init from={source} as={option} dir=OTHER"
        found = f"{option!r}, and {folder.root}/ was written for this file with {how}"
        raise ConfigError(_TITLE, [Problem("command line", "dataset", found, "the mapping of the folder", fix)])
