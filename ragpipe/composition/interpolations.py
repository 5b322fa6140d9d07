"""Interpolations of a configuration: which resolvers it may use, how far it may expand, and no value of a secret variable."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from ragpipe.config.secret_values import secrets_in
from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.secret_detection import FIX, is_secret_name
from ragpipe.core.validation import ConfigOrigins, did_you_mean

TITLE = "the configuration is wrong; nothing was started"
MAX_CHARACTERS = 5_000_000  # `a: ${b}${b}`, `b: ${c}${c}`, ... doubles at each step
_VALUE = 50  # what a value counts beside its text
_KEY = r"(?![.\[]*hydra\b)[^\\${}()\s'\":,]+"
_ARGUMENTS = r"[^{}$]*"
_ALLOWED = re.compile(
    rf"""\$\{{\s*(?:
    (?:oc\.decode\s*:\s*\$\{{\s*)?oc\.env\s*:\s*['"]?(?P<variable>\w+)['"]?\s*(?:,{_ARGUMENTS})?(?:\}}\s*)?
    | oc\.(?:select|dict\.values)\s*:\s*['"]?(?P<selected>{_KEY})['"]?\s*(?:,{_ARGUMENTS})?
    | (?:hydra|now|oc\.dict\.keys|python_version)\s*:{_ARGUMENTS}
    | (?P<key>{_KEY})\s*)\}}""",
    re.X,
)
_FORMS = (
    "${KEY}, ${oc.env:NAME}, ${oc.decode:${oc.env:NAME}}, or a plain argument to oc.select, oc.dict.keys, oc.dict.values, hydra, now, "
    "python_version"
)
Nodes = Mapping[tuple[str, ...], Any]
_EXAMPLES = {
    "judge.model": "openai/gpt-4o-mini-2024-07-18",
    "system.url": "http://127.0.0.1:8000/ask",
    "system.callable": "myrag:answer",
}


def interpolation_fault(text: str) -> tuple[str, str, str] | None:
    """What a text with `${...}` may not hold: what, expected, how to fix it. None when it may stand."""
    for match in _ALLOWED.finditer(text):
        if (name := match["variable"]) and is_secret_name(name):
            what = f"the environment variable {name}, whose name says that its value is secret (not shown)"
            return what, "no secret in a configuration", FIX
    if "${" in (rest := _ALLOWED.sub("", text)):
        return f"the interpolation {rest[rest.index('${') :][:60]}", _FORMS, ""
    return None


def check_interpolations(config: DictConfig, origins: ConfigOrigins, *, secrets: bool = True) -> Nodes:
    """Every node of the configuration by its place, nothing in it resolved, without Hydra's section. Raises ConfigError for what no
    interpolation may be, of secret variables only where `secrets`, and for more than may be expanded."""
    raw: Any = OmegaConf.to_container(config, resolve=False)
    raw.pop("hydra", None)
    nodes = dict(_nodes(raw, ()))
    faults = {
        path: fault
        for path, text in nodes.items()
        if isinstance(text, str) and "${" in text and (fault := interpolation_fault(text))
        if secrets or fault[2] != FIX
    }
    if not faults and (large := _too_large(nodes)):
        faults = {
            large: (f"interpolations that give more than {MAX_CHARACTERS:,} characters, or a long chain", "less", "")
        }
    if faults:
        keys = {".".join(path): fault for path, fault in faults.items()}
        raise ConfigError(TITLE, [Problem(origins.location(key), key, *fault) for key, fault in keys.items()])
    return nodes


def resolved(config: DictConfig, origins: ConfigOrigins) -> dict[str, Any]:
    """The configuration as plain data, every interpolation resolved, without Hydra's section.

    Raises ConfigError as `check_interpolations`, and for every `???`, every secret, and interpolations that cannot be resolved.
    """
    nodes = check_interpolations(config, origins)
    faults, plain = {}, {}
    for path, text in nodes.items():
        key = ".".join(path)
        if text == "???":
            faults[key] = "??? (to be given)", "a value", _to_be_given(key, origins)
        elif isinstance(text, str) and "\0" in text:
            faults[key] = "a text with a NUL character", "a text without one", ""
    for name in config:
        try:
            value = config[name] if name != "hydra" else None
            plain[str(name)] = OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
        except MissingMandatoryValue:
            continue  # it is among the faults
        except (OmegaConfBaseException, RecursionError) as error:
            key = re.sub(r"\[(\d+)\]", r".\1", str(getattr(error, "full_key", None) or name))
            faults[key] = str(error).split("\n")[0], "an interpolation that can be resolved", "define what it names"
    plain.pop("hydra", None)
    problems = [Problem(origins.location(key), key, *fault) for key, fault in faults.items()]
    if problems := problems + secrets_in(plain, origins):
        raise ConfigError(TITLE, problems)
    return plain


def _to_be_given(key: str, origins: ConfigOrigins) -> str:
    """How to give a value; a typed key of nearly the same name beside it is named."""
    above, _, name = key.rpartition(".")
    for typed in getattr(origins, "chosen", ()):
        if typed != key and typed.rpartition(".")[0] == above and did_you_mean(typed.rpartition(".")[2], [name]):
            return f"the command line has {typed}: did you mean {key}?"
    example = f" (for example {key}={_EXAMPLES[key]})" if key in _EXAMPLES else ""
    return f"pass {key}=...{example} or set it in your experiment"


def _nodes(node: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """A node and all below it, by their places."""
    yield path, node
    for name, item in _items(node):
        yield from _nodes(item, (*path, name))


def _items(node: Any) -> Iterator[tuple[str, Any]]:
    items = node.items() if isinstance(node, dict) else enumerate(node if isinstance(node, list) else ())
    return ((str(name), item) for name, item in items)


def _too_large(nodes: Nodes) -> tuple[str, ...]:
    """The first place whose interpolations would expand to more than a configuration may hold, counted before any is resolved; empty
    where there is none."""
    sizes: dict[tuple[str, ...], int] = {}

    def size(path: tuple[str, ...]) -> int:
        if path not in sizes:
            sizes[path] = 0  # meanwhile, for one that leads back to itself: OmegaConf says so
            node = nodes.get(path)
            below = _references(node, path) if isinstance(node, str) else [(*path, name) for name, _ in _items(node)]
            sizes[path] = _VALUE + (len(node) if isinstance(node, str) else 0) + sum(map(size, below))
        return sizes[path]

    try:
        size(())
    except RecursionError:
        return next(reversed(sizes))
    return next((path for path, count in sizes.items() if path and count > MAX_CHARACTERS), ())


def _references(text: str, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The places that a text's interpolations lead to."""
    for match in _ALLOWED.finditer(text):
        if name := match["key"] or match["selected"]:
            dots = len(name) - len(name.lstrip("."))
            yield (*(path[: len(path) - dots] if dots else ()), *re.findall(r"[^.\[\]]+", name))
