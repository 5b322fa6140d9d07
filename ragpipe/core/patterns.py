r"""Regular expressions from users and files, with a time limit: the regex library can be stopped, `re` cannot.

`^(\w+\s?)*$` on 25 characters takes `re` more than a second, and each further character doubles the time.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import yaml

from ragpipe.core.digest import sha256
from ragpipe.core.errors import JudgeError
from ragpipe.core.resources import conf_dir
from ragpipe.core.settings import did_you_mean
from ragpipe.core.yaml_files import FastLoader

TIME_LIMIT_S = 1.0
CASE_LIMIT_S = 10.0
MAX_PATTERN = 2_000
MAX_TEXT = 200_000


def check_length(text: str) -> None:
    """Raises JudgeError (`too_long`) for a text that is too long for patterns."""
    if len(text) > MAX_TEXT:
        raise JudgeError("too_long", f"{len(text):,} characters; patterns read at most {MAX_TEXT:,}")


@lru_cache(maxsize=1024)
def compile_timed(pattern: str, match_case: bool = False) -> Any:
    """The compiled pattern; it ignores case unless `match_case`. Raises ValueError for an invalid pattern and for one longer
    than `MAX_PATTERN` characters."""
    import regex  # type: ignore[import-untyped, unused-ignore]

    if len(pattern) > MAX_PATTERN:
        raise ValueError(f"a pattern of at most {MAX_PATTERN:,} characters, found {len(pattern):,}")
    try:
        return regex.compile(pattern, 0 if match_case else regex.IGNORECASE)
    except regex.error as error:
        raise ValueError(f"a regular expression; {pattern!r}: {error}") from None


def compile_splitter(pattern: str) -> Callable[[str], list[str]]:
    """The function that cuts a text at every match, without blank pieces; it raises TimeoutError after `TIME_LIMIT_S`. The
    pattern minds the case. Raises ValueError for an invalid pattern."""
    import regex  # type: ignore[import-untyped, unused-ignore]

    try:
        compiled = regex.compile(pattern)
    except regex.error as error:
        raise ValueError(f"pattern {pattern!r}: {error}") from None

    def split(text: str) -> list[str]:
        return [piece for piece in compiled.split(text, timeout=TIME_LIMIT_S) if piece and not piece.isspace()]

    return split


class Search:
    """All searches for one case: `search(pattern, text, name)` returns the first match or None. It ignores case unless
    `match_case`.

    Raises JudgeError naming the pattern: `slow_pattern` after `TIME_LIMIT_S` for one search or `CASE_LIMIT_S` for all searches
    of the case together, `too_long` for a text over `MAX_TEXT` characters. A search releases the interpreter lock, so in a
    thread it does not block other cases.
    """

    def __init__(self) -> None:
        self._spent = 0.0

    def __call__(self, pattern: str, text: str, name: str, *, match_case: bool = False) -> Any:
        check_length(text)
        compiled = compile_timed(pattern, match_case)
        start = time.monotonic()
        try:
            match = compiled.search(text, timeout=TIME_LIMIT_S, concurrent=True)
        except TimeoutError:
            message = f"the pattern {name} took longer than {TIME_LIMIT_S:g} s on {len(text):,} characters: make it simpler"
            raise JudgeError("slow_pattern", message) from None
        self._spent += time.monotonic() - start
        if self._spent >= CASE_LIMIT_S:
            message = f"the patterns took longer than {CASE_LIMIT_S:g} s together, the last was {name}: make them simpler"
            raise JudgeError("slow_pattern", message)
        return match


_NAME = re.compile(r"[a-z][a-z0-9_]*\.v\d+\Z")


def pattern_files() -> list[str]:
    """The names of the shipped files, sorted."""
    return sorted(path.stem for path in (conf_dir() / "patterns").glob("*.yaml"))


@lru_cache(maxsize=64)
def read_patterns(name: str) -> dict[str, Any]:
    """The content of the file of this name, includes merged. Raises ValueError naming the known files.

    A name is not a path: a configuration from elsewhere cannot read any other file.
    """
    path = conf_dir() / "patterns" / f"{name}.yaml"
    if not _NAME.match(name) or not path.is_file():
        names = pattern_files()
        raise ValueError(f"one of {', '.join(names)} or patterns written out; {did_you_mean(name, names)}".rstrip("; "))
    content: dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), Loader=FastLoader)
    for include in content.pop("include", ()):
        content = _merge(read_patterns(include), content)
    return content


def _merge(included: dict[str, Any], content: dict[str, Any]) -> dict[str, Any]:
    """The included keys with the file's content: lists are joined, mappings too, other values are the file's."""
    merged = {**included, **content}
    for key in included.keys() & content.keys():
        if isinstance(content[key], list):
            merged[key] = [*included[key], *(item for item in content[key] if item not in included[key])]
        elif isinstance(content[key], dict):
            merged[key] = {**included[key], **content[key]}
    return merged


def pattern_hashes(patterns: Iterable[Any]) -> dict[str, str]:
    """The sha256 of the content of each named file. Patterns written out have no name and are left out."""
    return {name: sha256(read_patterns(name)) for name in patterns if isinstance(name, str)}
