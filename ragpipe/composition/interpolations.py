"""Interpolations of a configuration: which resolvers it may use, how far it may expand, and no value of a secret variable."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import reduce
from operator import getitem
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ragpipe.config.secret_values import secrets_in
from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.secret_detection import FIX, is_secret_name
from ragpipe.core.validation import ConfigOrigins, did_you_mean

TITLE = "the configuration is wrong; nothing was started"
RESOLVERS = ("hydra", "now", "oc.decode", "oc.dict.keys", "oc.dict.values", "oc.env", "oc.select", "python_version")
MAX_CHARACTERS = 5_000_000  # `a: ${b}${b}`, `b: ${c}${c}`, ... doubles at each step
_VALUE = 50  # what a value counts beside its text
_RESOLVER = re.compile(r"\$\{\s*([\w.]+)\s*:")
_VARIABLE = re.compile(r"oc\.env\s*:\s*['\"]?(\w+|\S)")
_DECODED = re.compile(r"oc\.decode\s*:\s*(?!\$\{\s*oc\.env\s*:)")
_NESTED = re.compile(r"\$\{(?!\s*oc\.(?:env|decode)\s*:)[^{}]*\$\{")
_REFERENCE = re.compile(r"\$\{\s*(?:oc\.(?:select|dict\.keys|dict\.values)\s*:\s*)?['\"]?(\.*)([\w.\[\]]+)")
_EXAMPLES = {
    "judge.model": "openai/gpt-4o-mini-2024-07-18",
    "system.url": "http://127.0.0.1:8000/ask",
    "system.callable": "myrag:answer",
}


def interpolation_fault(text: str) -> tuple[str, str, str] | None:
    """What a text with `${...}` may not hold: what, expected, how to fix it. None when it may stand."""
    if _NESTED.search(text):
        return "an interpolation inside the name of another", "the name itself: ${section.key}", ""
    if unknown := next((name for name in _RESOLVER.findall(text) if name not in RESOLVERS), None):
        return f"the resolver {unknown!r}", f"one of {', '.join(RESOLVERS)}", ""
    for name in _VARIABLE.findall(text):
        if not re.fullmatch(r"\w+", name):
            return "an environment variable whose name is computed", "the name itself: ${oc.env:NAME}", ""
        if is_secret_name(name):
            what = f"the environment variable {name}, whose name says that its value is secret (not shown)"
            return what, "no secret in a configuration", FIX
    if _DECODED.search(text):
        return "oc.decode of a text", "oc.decode of an environment variable: ${oc.decode:${oc.env:NAME}}", ""
    if re.search(r"\$\{\W*hydra\W*[.\[}]", text):
        return "a key of Hydra's section", "${hydra:KEY}, such as ${hydra:job.num}", ""
    return None


def check_interpolations(config: DictConfig, origins: ConfigOrigins, *, secrets: bool = True) -> dict[str, Any]:
    """The configuration as plain data, nothing in it resolved, without Hydra's section. Raises ConfigError for what no interpolation
    may be, of secret variables only where `secrets`, and for more than may be expanded."""
    raw: Any = OmegaConf.to_container(config, resolve=False)
    raw.pop("hydra", None)
    problems = [
        Problem(origins.location(key), key, *fault)
        for key, text in _texts(raw, ())
        if (fault := interpolation_fault(text)) and (secrets or fault[2] != FIX)
    ]
    if not problems and (key := _too_large(raw)):
        what = f"more than {MAX_CHARACTERS:,} characters or a chain too long once the interpolations are expanded"
        problems.append(Problem(origins.location(key), key, what, "a configuration"))
    if problems:
        raise ConfigError(TITLE, problems)
    return raw  # type: ignore[no-any-return]


def resolved(config: DictConfig, origins: ConfigOrigins) -> dict[str, Any]:
    """The configuration as plain data, every interpolation resolved, without Hydra's section.

    Raises ConfigError that lists every `???`, every secret, and every interpolation that cannot be resolved or is refused:
    another resolver than those of `RESOLVERS`, a secret variable, more than may be expanded.
    """
    problems: list[Problem] = []
    plain = _plain(check_interpolations(config, origins, secrets=False), (), config, origins, problems)
    problems += secrets_in(plain, origins)
    if problems:
        raise ConfigError(TITLE, problems)
    return plain  # type: ignore[no-any-return]


def _texts(node: Any, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Every text with an interpolation, by its dotted key."""
    if isinstance(node, str) and "${" in node:
        yield ".".join(path), node
    for place, item in _parts(node, path):
        yield from _texts(item, place)


def _plain(raw: Any, path: tuple[Any, ...], config: DictConfig, origins: ConfigOrigins, problems: list[Problem]) -> Any:
    if isinstance(raw, dict):
        return {_name(name): _plain(item, (*path, name), config, origins, problems) for name, item in raw.items()}
    if isinstance(raw, list):
        return [_plain(item, (*path, place), config, origins, problems) for place, item in enumerate(raw)]
    if not isinstance(raw, str):
        return raw
    key = ".".join(map(_name, path))
    if "\0" in raw:
        fault = "a text with a NUL character", "a text without one", ""
    elif raw == "???":
        fault = "??? (to be given)", "a value", _to_be_given(config, path, key, origins)
    elif "${" not in raw:
        return raw
    elif (refused := interpolation_fault(raw)) is not None:
        fault = refused
    else:
        try:
            value = reduce(getitem, path, config)
            return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
        except (OmegaConfBaseException, RecursionError) as error:
            loops = isinstance(error, RecursionError) or "Recursive" in str(error)
            what = "an interpolation that leads back to itself" if loops else str(error).split("\n")[0]
            expected = "an interpolation that can be resolved"
            fault = what, expected, "define the key or the environment variable it names"
    problems.append(Problem(origins.location(key), key, *fault))
    return None


def _name(key: Any) -> str:
    """A YAML key as text: `true` and `no` are keys of JSON, too."""
    return str(key).lower() if isinstance(key, bool) else str(key)


def _to_be_given(config: DictConfig, path: tuple[Any, ...], key: str, origins: ConfigOrigins) -> str:
    """How to give a value; where the command line set a key of nearly the same name beside it, that one is named."""
    section = reduce(getitem, path[:-1], config)
    above = key.rpartition(".")[0]
    for name in map(str, section) if isinstance(section, DictConfig) else ():
        typed = f"{above}.{name}".lstrip(".")
        if name != path[-1] and did_you_mean(name, [str(path[-1])]) and origins.typed_text(typed) is not None:
            return f"the command line has {typed}: did you mean {key}?"
    example = f" (for example {key}={_EXAMPLES[key]})" if key in _EXAMPLES else ""
    return f"pass {key}=...{example} or set it in your experiment"


def _too_large(raw: Any) -> str:
    """The first key whose interpolations would expand to more than a configuration may hold, counted before any is resolved; empty
    where there is none."""
    sizes: dict[tuple[str, ...], int] = {}

    def size(node: Any, path: tuple[str, ...]) -> int:
        if path not in sizes:
            sizes[path] = 0  # meanwhile, for one that leads back to itself: OmegaConf says so
            parts = _references(raw, node, path) if isinstance(node, str) else _parts(node, path)
            letters = len(node) if isinstance(node, str) else 0
            sizes[path] = _VALUE + letters + sum(size(part, place) for place, part in parts)
        return sizes[path]

    try:
        size(raw, ())
    except RecursionError:
        return ".".join(list(sizes)[-1])
    return next((".".join(path) for path, count in sizes.items() if path and count > MAX_CHARACTERS), "")


def _parts(node: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    items = node.items() if isinstance(node, dict) else enumerate(node if isinstance(node, list) else ())
    for name, item in items:
        yield (*path, _name(name)), item


def _references(raw: Any, text: str, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """What a text's interpolations lead to."""
    for dots, name in _REFERENCE.findall(text):
        above = path[: len(path) - len(dots)] if dots else ()
        place, node = (*above, *filter(None, re.split(r"[.\[\]]", name))), raw
        for part in place:
            node = next((item for (*_, last), item in _parts(node, ()) if last == part), None)
        yield place, node
