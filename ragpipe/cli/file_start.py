"""From a file to a folder to start from: recognise it, read it, choose metrics, write the options."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from ragpipe.cli import option_files
from ragpipe.cli.guessed_mapping import EITHER, GuessedField, NameInFile, guessed_fields, names_in_file, passages_in
from ragpipe.cli.option_files import FileOrigin, StartFolder, choose_metrics, recorded_entries, scalar, score_names, written_for
from ragpipe.core import registry
from ragpipe.core.digest import sha256
from ragpipe.core.errors import ConfigError, DataError, Problem
from ragpipe.core.resources import BESIDE_THE_FILE
from ragpipe.core.sample import Case, Output, several
from ragpipe.data.dataset import Dataset, FieldShown, open_dataset
from ragpipe.data.faults import Faults
from ragpipe.data.file_formats import SUFFIXES, FileHead, data_file, read_head, read_rows, suffix_of
from ragpipe.data.recognition import NATIVE, Recognised, reader_arguments, recognise, record_list
from ragpipe.data.record_mapping import unread_line
from ragpipe.data.settings import DatasetSettings
from ragpipe.data.text_lines import NAN_IS_NULL, text_lines
from ragpipe.metrics.needs import DataFacts, SeenVerdicts

PROBE_CASES = 50


@dataclass
class FileReading:
    """What a data set holds: questions (`samples`), answers (`cases`), records with neither an answer nor an error (`unanswered`),
    methods in their order, which fields some case has (`facts`), recorded verdicts by name, and the first 50 cases with an answer, to
    try on them what a metric can tell (`probe`)."""

    samples: int = 0
    cases: int = 0
    unanswered: int = 0
    methods: dict[str, None] = field(default_factory=dict)
    facts: DataFacts = field(default_factory=DataFacts)
    verdicts: dict[str, SeenVerdicts] = field(default_factory=dict)
    probe: list[Case] = field(default_factory=list)


def read_whole(dataset: Dataset) -> FileReading:
    """Read every record. A question without an answer counts with its labels. Raises DataError for a file that a run would
    refuse."""
    reading = FileReading()
    ids = set()
    for record in dataset:
        ids.add(record.sample.id)
        output = record.output
        case = Case(record.sample, output or Output(sample_id=record.sample.id))
        reading.facts.add(case)
        reading.unanswered += case.output.answer is None and case.output.error is None
        if output is None:
            continue
        reading.cases += 1
        if len(reading.probe) < PROBE_CASES:
            reading.probe.append(case)
        reading.methods[output.method] = None
        for name, verdict in _verdicts(output.recorded):
            reading.verdicts.setdefault(name, SeenVerdicts()).add(verdict)
    reading.samples = len(ids)
    return reading


def check_readable(source: Path, head: FileHead) -> None:
    """Read a file in whose beginning there are no records by the reader of its suffix. Raises DataError with what that reader
    finds wrong; a file that it reads, a folder and a file of no known suffix pass."""
    if suffix_of(source) not in SUFFIXES or head.form == "folder":
        return
    faults = Faults("this file cannot be evaluated; nothing was written")
    file = data_file(source, str(source), "main", "auto", head.delimiter, faults)
    if file is not None and file.format == "csv":  # other signs than UTF-8 come before the header, which they made unreadable
        for _ in text_lines(file, faults):
            if faults:
                break
    if file is not None and not faults:
        for _ in read_rows(file, faults):
            if faults:
                break
    faults.raise_all()


def _verdicts(recorded: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in recorded.items():
        parts = several(value)
        for verdict in [value] if parts is None else parts.values():
            yield name, verdict


CANNOT = "this file cannot be evaluated; nothing was written"
_RIGHT = {"reference", "references"}
_WHOLE = {"question", "answer"}  # what a guessed mapping must have to be run
_VALUES = frozenset({"nan", "null", "none", "inf", "infinity", "true", "false", "yes", "no", "on", "off"})
"""What `+experiment=NAME` would not read as a name."""
_GROUPS = ("dataset", "experiment", "judge")
_ANSWERED = ("answer", "contexts")  # what a live system will give where the data have questions only


@dataclass(frozen=True)
class FileStart:
    """What was written for a file: `recognised` is None for an unknown shape, `reading` too where its guesses do not read it.

    Attributes:
        first: its first case as it was mapped; empty where there is no reading.
        to_fill_in: the lines that a person must look at, `FILE:LINE: text`.
        misfit: why the guesses do not read the file, where question and answer were guessed.
        remarks: what else is to be said of it: a sentence for each.
        refusal: why the strict reader does not read a file with the native names, where it is read by guesses.
    """

    folder: StartFolder
    recognised: Recognised | None
    reading: FileReading | None
    first: tuple[FieldShown, ...]
    to_fill_in: tuple[str, ...] = ()
    misfit: str = ""
    remarks: tuple[str, ...] = ()
    refusal: str = ""


def folder_for(source: Path) -> Path:
    """The folder that a file gets, named as the file without its suffix, or `NAME_eval` where the name is a shipped option's or the
    source's own. Where another file or folder of the user has that name, a hash of the file's path comes after it."""
    name = source.resolve().name
    stem = Path(name.removesuffix(source.suffix) if suffix_of(source) != source.suffix.lower() else name).stem
    plain = unicodedata.normalize("NFKD", stem).encode("ascii", "ignore").decode() if stem else ""
    name = re.sub(r"\W+", "_", plain, flags=re.ASCII).strip("_")[:40] or "file"
    name = name if name[0].isalpha() else f"file_{name}"
    is_taken = name.lower() in _VALUES or any(name in registry.option_files(group) for group in _GROUPS)
    if is_taken or Path(name).resolve() == source.resolve():
        name += "_eval"
    if not Path(name).exists() or written_for(Path(name), source):
        return Path(name)
    return Path(f"{name}_{sha256(str(source.resolve()))[:6]}")


def start_from(source: Path, folder: Path, option: str = "", arguments: Sequence[str] = ()) -> FileStart:
    """Recognise the file (or take `option`, a shipped one, for it), read it and write the folder. Words that set keys of the data set
    (`dataset.filter=question`) hold while it is read, and are not written.

    Raises DataError for a file that no mapping reads or that the mapping does not fit, ConfigError for one that several
    options fit and for a folder that is not empty, OutputError.
    """
    recognised = _chosen(source, option)
    if recognised is None:
        return _unknown_shape(source, folder, arguments)
    keys = _keys(recognised.arguments)
    plain = {**_shipped(recognised.option), **keys, "path": str(source), "name": recognised.option}
    dataset = open_dataset(_settings(plain, arguments), Path.cwd())
    try:
        reading = read_whole(dataset)
    except DataError as error:
        if recognised.option != NATIVE or option:
            raise
        return _unknown_shape(source, folder, arguments, refused=error)
    remarks, first = _remarks(dataset, reading), dataset.first()
    origin = _origin(source, folder, recognised.description, keys)
    choice = choose_metrics(_with_answers(reading), reading.probe)
    entries, notes = recorded_entries(reading.verdicts, recognised.option, score_names())
    text = option_files.recognised_dataset(folder.name, origin, recognised.option)
    experiment = option_files.experiment(folder, origin, choice, entries, notes)
    written = {"option": recognised.option, "is_runnable": reading.cases > 0, "left_out": choice.left_out}
    start = _write(folder, source, text, experiment, **written)
    return FileStart(start, recognised, reading, first, remarks=tuple(remarks))


def _unknown_shape(source: Path, folder: Path, arguments: Sequence[str], refused: DataError | None = None) -> FileStart:
    """A folder for a file of unknown shape: to be run where its guesses give a question and an answer in every record, else
    to be filled in. Where the strict reader `refused` a file with the native names, that is raised unless the guesses read it."""
    head = read_head(source)
    path, records = record_list(head, _settings({"name": folder.name, "path": str(source)}, arguments).records)
    if not records:
        check_readable(source, head)
        raise _no_records(source, head)
    names = names_in_file(records)
    keys = _keys([*([f"dataset.records={path}"] if path else []), *reader_arguments(source, head)])
    guesses, reading, dataset, misfit = _tried(names, keys, source, folder, arguments)
    if refused is not None and reading is None and not any(guess.doubt for guess in guesses):
        raise refused
    origin = _origin(source, folder, "", keys)
    text = option_files.guessed_dataset(folder.name, origin, names, guesses)
    guessed = {guess.field: guess.origin for guess in guesses if not guess.doubt}
    labels = ["reference"] if {"reference", "references"} & guessed.keys() else []
    facts = _with_answers(reading) if reading else DataFacts([*_ANSWERED, *labels])
    choice = choose_metrics(facts, reading.probe if reading else ())
    is_runnable = reading is not None and reading.cases > 0
    experiment = option_files.experiment(folder, origin, choice, [], [])
    start = _write(folder, source, text, experiment, is_runnable=is_runnable, left_out=choice.left_out, guessed=guessed)
    remarks, first, refusal = list[str](), tuple[FieldShown, ...](), ""
    if reading is not None and dataset is not None:
        remarks, first = _remarks(dataset, reading, names), dataset.first()
    if "nan" in keys:
        remarks.append("NaN in it is read as no value (nan: null)")
    lines = () if reading else tuple(_lines_to_check(text, folder / start.mapping))
    if refused is not None:
        reason = refused.problems[0]
        refusal = f"its names are the native ones, but {reason.key} is {reason.found} ({reason.where})"
    return FileStart(start, None, reading, first, lines, misfit, tuple(remarks), refusal)


def _tried(
    names: Sequence[NameInFile], keys: dict[str, str], source: Path, folder: Path, arguments: Sequence[str]
) -> tuple[list[GuessedField], FileReading | None, Dataset | None, str]:
    """The guesses that read the file, with what they read; else the first guesses, and why they do not."""
    guesses = guessed_fields(names)
    fields = {guess.field for guess in guesses}
    if any(guess.doubt for guess in guesses) or not (fields >= _WHOLE or (fields & _RIGHT and "question" in fields)):
        return guesses, None, None, ""
    misfit, nan, odd = "", dict[str, str](), set[str]()
    for as_text in (False, False, True):
        attempt = guessed_fields(names, as_text=as_text, odd=odd)
        text = option_files.guessed_dataset(folder.name, _origin(source, folder, "", keys | nan), names, attempt)
        reading, dataset, why, faulty = _read_guessed(text, source, arguments, "answer" in fields)
        if reading is not None:
            keys.update(nan)
            return attempt, reading, dataset, ""
        misfit, odd = misfit or why, odd | faulty
        nan = {"nan": option_files.NULL} if NAN_IS_NULL in why else nan
    return guesses, None, None, misfit


def _read_guessed(
    text: str, source: Path, arguments: Sequence[str], has_answers: bool
) -> tuple[FileReading | None, Dataset | None, str, set[str]]:
    """What a guessed mapping reads, with the data set; or why it does not give an answer in every record, and the fields at fault."""
    dataset = open_dataset(_settings({**yaml.safe_load(text), "path": str(source)}, arguments), Path.cwd())
    try:
        reading = read_whole(dataset)
    except DataError as error:
        return None, None, str(error), {re.split(r"\W", problem.key.removeprefix("fields."))[0] for problem in error.problems}
    if has_answers and (reading.unanswered or not reading.cases):
        return None, None, f"{reading.unanswered} records have no answer by them", set()
    return reading, dataset, "", set()


def _remarks(dataset: Dataset, reading: FileReading, names: Sequence[NameInFile] = ()) -> list[str]:
    """What the file has and is not measured: names that are not read, contexts that were not found, an answer that may be the right one."""
    lines = [line] if (line := unread_line(dataset.unread())) else []
    has = reading.facts.fields
    if reading.cases and "contexts" not in has:
        path = passages_in(names)
        perhaps = f"{path} may hold them: `contexts: {scalar(path)}` in the mapping" if path else "no column looks like them"
        lines.append(f"no retrieved passages were found (contexts); {perhaps}")
        if "reference" not in has:
            lines.append(
                "the answers are taken for what a system said. Where they are the right answers, there is nothing to judge yet: write "
                "`reference: ` in the place of `answer: ` in the mapping, and ask a system (system=http system.url=..., "
                "system=python system.callable=...)"
            )
    return lines


def read_mapping(plain: Mapping[str, Any], source: Path, arguments: Sequence[str]) -> FileReading:
    """What an option of a folder reads from the file. Raises ConfigError for wrong settings, DataError for a file that they do not read."""
    bases = [base for base in plain.get("defaults") or [] if isinstance(base, str) and base != "_self_"]
    own = {key: value for key, value in plain.items() if key != "defaults"}
    for base in reversed(bases):
        own = _merged(_shipped(base), own)
    return read_whole(open_dataset(_settings({**own, "path": str(source)}, arguments), Path.cwd()))


def experiment_for(folder: StartFolder, source: Path, reading: FileReading) -> tuple[str, Mapping[str, str]]:
    """The text of the experiment for what a mapping reads, and for each metric that it leaves out what that needs."""
    choice = choose_metrics(_with_answers(reading), reading.probe)
    entries, remarks = recorded_entries(reading.verdicts, folder.option or "file", score_names())
    return option_files.experiment(folder.root, _origin(source, folder.root, "", {}), choice, entries, remarks), choice.left_out


def _lines_to_check(text: str, place: Path) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("#") and ("???" in line or "# guess" in line):
            entry, _, about = line.partition(" # ")
            perhaps = about.partition(option_files.PERHAPS)[2]
            remark = "   (guess)" if "# guess" in line else f"   ({option_files.PERHAPS}{perhaps})" if perhaps else ""
            remark = f"   ({about})" if about.startswith(("`passages`", EITHER)) else remark
            yield f"{place}:{number}: {entry.strip()}{remark}"


def _keys(arguments: Iterable[str]) -> dict[str, str]:
    """The keys of the data set that arguments set: `dataset.format=jsonl` is `format: jsonl`."""
    return {key.removeprefix("dataset."): value for key, _, value in (argument.partition("=") for argument in arguments)}


def _chosen(source: Path, option: str) -> Recognised | None:
    """What the file is, or is to be taken for."""
    if option:
        arguments = tuple(reader_arguments(source, read_head(source), option))
        return Recognised(option, f"read as dataset={option}, as asked", arguments=arguments)
    try:
        recognised = recognise(source)
    except OSError as error:
        problem = Problem(str(source), "file", error.strerror or str(error), "a file that can be read")
        raise DataError(CANNOT, [problem]) from error
    if recognised is not None and recognised.unusable:
        problem = Problem(str(source), "shape", recognised.description, "questions with answers", recognised.unusable)
        raise DataError(CANNOT, [problem])
    if recognised is not None and recognised.others:
        options = [recognised.option, *recognised.others]
        fix = " or ".join(f"python -m ragpipe {source} dataset={name}" for name in options)
        expected = f"one shape; {', '.join(recognised.evidence)} fit {' and '.join(options)}"
        raise ConfigError(CANNOT, [Problem(str(source), "shape", "several shapes", expected, fix)])
    return recognised


def _no_records(source: Path, head: FileHead) -> DataError:
    forms = {"folder": "a folder", "other": "neither JSON nor a table"}
    found = forms.get(head.form, f"{head.form}, without a list of objects")
    found = "a table without rows" if head.form == "csv" else found
    near = [name for name in head.names if name.endswith((".json", ".jsonl", ".csv", ".parquet"))][:5]
    forms_read = "one JSON object a line, a JSON list of objects, CSV or Parquet"
    fix = f"give one of its files: {', '.join(near)}" if near else forms_read
    return DataError(CANNOT, [Problem(str(source), "shape", found, "a file of records, or one of a tool that is known", fix)])


def _settings(plain: dict[str, Any], arguments: Sequence[str]) -> DatasetSettings:
    """The settings that these keys of an option compose with the arguments of a command. Raises ConfigError."""
    for argument in arguments:
        key, is_set, value = argument.lstrip("+").partition("=")
        if is_set and key.startswith("dataset."):
            inner: Any = yaml.safe_load(value)
            for name in reversed(key.split(".")[1:]):
                inner = {name: inner}
            plain = _merged(plain, inner)
    try:
        return DatasetSettings.model_validate(plain)
    except ValidationError as error:
        faults = [(".".join(map(str, fault["loc"])), fault["msg"]) for fault in error.errors(include_url=False)]
        problems = [Problem("command line", f"dataset.{key}", "a wrong value", message) for key, message in faults]
        raise ConfigError(CANNOT, problems) from error


def _shipped(option: str) -> dict[str, Any]:
    """The keys of a shipped option, with those of the options of its defaults list below them."""
    plain = yaml.safe_load(registry.option_files("dataset")[option].read_text(encoding="utf-8")) or {}
    below: dict[str, Any] = {}
    for base in plain.pop("defaults", []):
        if isinstance(base, str) and base != "_self_":
            below = _merged(below, _shipped(base))
    return _merged(below, plain)


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Both mappings, as Hydra merges them: mappings key by key, everything else by what stands above."""
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _merged(merged[key], value) if both else value
    return merged


def _with_answers(reading: FileReading) -> DataFacts:
    """The facts; where the data have questions only, with what a live system will give."""
    return reading.facts if reading.cases else DataFacts([*reading.facts.fields, *_ANSWERED])


def yaml_path(source: Path, folder: Path) -> str:
    """The `path` of the mapping in a folder: from the YAML file's folder where both are below the working directory."""
    path = source.resolve()
    if path.is_relative_to(Path.cwd().resolve()):
        return BESIDE_THE_FILE + Path(os.path.relpath(path, (folder / "dataset").resolve())).as_posix()
    return str(path)


def _origin(source: Path, folder: Path, description: str, keys: Mapping[str, str]) -> FileOrigin:
    return FileOrigin(str(source), yaml_path(source, folder), description, keys)


def _write(folder: Path, source: Path, dataset: str, experiment: str, **written: Any) -> StartFolder:
    """Write the folder; `written` are the other fields of its `StartFolder`."""
    name, path = folder.name, os.path.relpath(source.resolve(), folder.resolve())
    files = {
        f"dataset/{name}.yaml": dataset,
        f"experiment/{name}.yaml": experiment,
        f"judge/{name}.yaml": option_files.start_text("judge.yaml").format(name=name),
    }
    digests = {file: sha256(text) for file, text in files.items()}
    start = StartFolder(root=folder, source=path, name=name, files=digests, **written)
    option_files.write_new(folder, {**files, option_files.MARKER: start.marker()})
    return start
