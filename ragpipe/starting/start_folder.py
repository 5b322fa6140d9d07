"""A folder to start from on disk: written once, never over a file, and known again by its hashes."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from ragpipe.config.settings import RUN_KEYS
from ragpipe.core.digest import sha256_file
from ragpipe.core.errors import ConfigError, OutputError, Problem
from ragpipe.core.registry import option_files, option_folders
from ragpipe.core.resources import conf_dir
from ragpipe.core.validation import did_you_mean
from ragpipe.datasets.recognition import NATIVE
from ragpipe.store.files.atomic import atomic_write

MARKER = "init.json"


@dataclass(frozen=True, slots=True)
class StartFolder:
    """A folder that was written for a file.

    Attributes:
        root: the folder.
        name: the name of its experiment, data set and judge.
        is_runnable: whether its mapping was complete when it was written.
        left_out: for each metric that was left out what it needs.
        edited: the files that differ from what was written, or are gone.
        guessed: for each field that was guessed from a name its path expression; empty for a known shape.
    """

    root: Path
    name: str
    is_runnable: bool
    left_out: Mapping[str, str]
    edited: tuple[str, ...]
    guessed: Mapping[str, str] = field(default_factory=dict)

    @property
    def mapping(self) -> str:
        """The file with the mapping, by its path within the folder."""
        return f"dataset/{self.name}.yaml"


def write_new(folder: Path, files: Mapping[str, str]) -> None:
    """Write files by their paths within a folder, with the JSON Schemas that the YAML names. Raises ConfigError for a folder
    that is not empty, OutputError."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        existing = f"{str(folder)!r}, which exists already"
        problem = Problem("command line", "dir", existing, "a new or empty folder", "choose another name")
        raise ConfigError("task=init overwrites nothing", [problem])
    try:
        for file, text in (dict(files) | _shipped_schemas()).items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            with open(folder / file, "x", encoding="utf-8") as stream:
                stream.write(text)
    except OSError as error:
        raise OutputError(f"cannot write {error.filename}: {error.strerror}") from error


def write_again(folder: StartFolder, source: Path, experiment: str) -> None:
    """Replace the experiment of a folder, and take all of its files as they are now for written. Raises OutputError."""
    name = f"experiment/{folder.name}.yaml"
    kept = [file for file in (folder.mapping, f"judge/{folder.name}.yaml") if (folder.root / file).is_file()]
    files = {file: (folder.root / file).read_text(encoding="utf-8") for file in kept} | {name: experiment}
    atomic_write(folder.root / name, experiment)
    atomic_write(folder.root / MARKER, marker(folder, source, files))


def marker(start: StartFolder, source: Path, files: Mapping[str, str]) -> str:
    """The text of `init.json`: the file that the folder was written for, and the hashes of what was written.

    Args:
        start: the folder as it is to be known again.
        source: the file that it is written for.
        files: what is written, by its paths within the folder.
    """
    content = {
        "about": "What was written here, by sha256: a start with the same file tells by it whether something was edited.",
        "source": os.path.relpath(source.resolve(), start.root.resolve()),
        "name": start.name,
        "is_runnable": start.is_runnable,
        "left_out": dict(start.left_out),
        "guessed": dict(start.guessed),
        "files": {file: hashlib.sha256(text.encode("utf-8")).hexdigest() for file, text in files.items()},
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


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
        problem = Problem(
            "the folder", str(folder), what, "no folder of this name, or the one written for this file", fix
        )
        raise ConfigError("nothing is overwritten; nothing was written", [problem])
    edited = tuple(file for file, digest in written.files.items() if _digest(folder / file) != digest)
    return StartFolder(folder, written.name, written.is_runnable, written.left_out, edited, written.guessed)


class _Marker(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    source: str
    name: str
    is_runnable: bool
    left_out: dict[str, str]
    guessed: dict[str, str]
    files: dict[str, str]


def _marker_of(folder: Path) -> _Marker | None:
    try:
        return _Marker.model_validate_json((folder / MARKER).read_bytes())
    except (OSError, ValidationError):
        return None


def _digest(path: Path) -> str | None:
    try:
        return sha256_file(path)
    except OSError:
        return None


def _shipped_schemas() -> dict[str, str]:
    """The JSON Schemas that the YAML written here names, by their paths in the folder."""
    folder = conf_dir() / "schema"
    return {
        f"schema/{path.relative_to(folder).as_posix()}": path.read_text(encoding="utf-8")
        for path in folder.rglob("*.json")
    }


_TITLE = "nothing was written and nothing was started"


def check_words(words: Sequence[str]) -> None:
    """Raises ConfigError for words whose first name is no section, key or group of a run; with `task=` they may be of another
    task and are left to it."""
    if any(word.startswith("task=") for word in words):
        return
    groups = {path.name for folder in option_folders() for path in folder.iterdir() if path.is_dir()}
    known = sorted({*RUN_KEYS, *groups, "hydra"})
    problems = []
    for word in words:
        key = word.partition("=")[0].lstrip("+~").partition("@")[0].strip()
        first = key.partition("/")[0].partition(".")[0]
        if "=" in word and first not in known:
            near = did_you_mean(first, known)
            fix = near.replace("?", f"{key[len(first) :]}?") if near and " or " not in near else near
            problems.append(Problem("command line", key, "an unknown key", f"one of {', '.join(known)}", fix))
    if problems:
        raise ConfigError(_TITLE, problems)


def check_option(option: str, key: str = "dataset") -> None:
    """Raises ConfigError for an option of `dataset` that is not shipped; `key` is the word that named it."""
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
    written = _option_of(folder)
    if written != option:
        how = f"dataset={written}" if written else "a mapping of its own"
        fix = f"remove {folder.root}/ and start again, or task=init from={source} as={option} dir=OTHER"
        found = f"{option!r}, and {folder.root}/ was written for this file with {how}"
        raise ConfigError(_TITLE, [Problem("command line", "dataset", found, "the mapping of the folder", fix)])


def _option_of(folder: StartFolder) -> str:
    """The shipped option that the folder's mapping is based on; empty for a guessed one, or one that cannot be read."""
    try:
        keys = yaml.safe_load((folder.root / folder.mapping).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return ""
    keys = keys if isinstance(keys, dict) else {}
    bases = [base for base in keys.get("defaults") or [] if base != "_self_"]
    return str(bases[0]) if bases else "" if "fields" in keys else NATIVE
