"""Interpolations of a configuration: which resolvers it may use, how far it may expand, and no value of a secret variable.

OmegaConf's resolvers belong to the whole process, and a program that uses ragpipe may have registered its own (`eval` is a
common one). `guarded` watches them in the calling thread only, and restores them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.base import Container
from omegaconf.basecontainer import BaseContainer
from omegaconf.errors import OmegaConfBaseException

from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.secret_detection import FIX, is_secret_name
from ragpipe.core.validation import ConfigOrigins, did_you_mean

TITLE = "the configuration is wrong; nothing was started"
RESOLVERS = frozenset(
    {
        "oc.env",
        "oc.select",
        "oc.decode",
        "oc.create",
        "oc.deprecated",
        "oc.dict.keys",
        "oc.dict.values",
        "hydra",
        "now",
        "python_version",
    }
)
MAX_INTERPOLATIONS = 2_000  # `a: ${b}${b}`, `b: ${c}${c}`, ... doubles at each step; one takes 0.3 ms
MAX_VALUES = 100_000  # `a: {x: ${b}, y: ${b}}`, ... doubles too
MAX_CHARACTERS = 20_000_000  # of all texts that interpolations give
_LOCK = threading.RLock()
_here = threading.local()


class Refused(Exception):
    """An interpolation that no configuration may hold. OmegaConf wraps it: see `Watch.refusals`."""


@dataclass
class Watch:
    """What was refused in this thread, and how much was expanded. With `hide`, a secret is masked instead of refused.

    `refusals` are pairs of what was found and what was expected.
    """

    hide: bool = False
    refusals: list[tuple[str, str]] = field(default_factory=list)
    interpolations: int = 0
    values: int = 0
    characters: int = 0

    def refuse(self, refusal: str, expected: str) -> Refused:
        """Note a refusal; returns the exception to raise."""
        self.refusals.append((refusal, expected))
        return Refused(refusal)

    @property
    def full(self) -> bool:
        """Whether more was expanded than a configuration may hold."""
        limits = (
            (self.interpolations, MAX_INTERPOLATIONS),
            (self.values, MAX_VALUES),
            (self.characters, MAX_CHARACTERS),
        )
        return any(count > limit for count, limit in limits)

    def step(self, value: Any, *, interpolation: bool = False) -> None:
        """Count one expanded value. Raises Refused when there are too many."""
        self.values += 1
        self.interpolations += interpolation
        self.characters += len(value) if isinstance(value, str) else 0
        if self.full:
            limits = f"{MAX_INTERPOLATIONS:,} interpolations, {MAX_VALUES:,} values or {MAX_CHARACTERS:,} characters"
            raise self.refuse(f"more than {limits} once the interpolations are expanded", "a configuration")

    def problems(self, where: str, key: str) -> list[Problem]:
        """What was refused, as faults of a key."""
        return [
            Problem(where, key, refusal, expected, FIX if expected == NO_SECRET else "")
            for refusal, expected in dict.fromkeys(self.refusals)
        ]


NO_SECRET = "no secret in a configuration"
_EXAMPLES = {
    "judge.model": "openai/gpt-4o-mini-2024-07-18",
    "system.url": "http://127.0.0.1:8000/ask",
    "system.callable": "myrag:answer",
}


@contextmanager
def guarded(*, hide: bool = False) -> Iterator[Watch]:
    """Watch every interpolation that this thread resolves. Other threads see no difference, nor does the program afterwards."""
    watch = getattr(_here, "watch", None)
    if watch is not None:
        yield watch
        return
    with _LOCK:
        resolvers = BaseContainer._resolvers
        before = dict(resolvers)
        watched = {name: _watched(name, resolver) for name, resolver in before.items()}
        plain = Container._resolve_node_interpolation
        resolvers.update(watched)
        Container._resolve_node_interpolation = _counted(plain)  # type: ignore[method-assign]
        _here.watch = watch = Watch(hide)
        try:
            yield watch
        finally:
            del _here.watch
            Container._resolve_node_interpolation = plain  # type: ignore[method-assign]
            for name, resolver in watched.items():
                if resolvers.get(name) is resolver:  # not one that another thread registered meanwhile
                    resolvers[name] = before[name]


def _watched(name: str, resolver: Callable[..., Any]) -> Callable[..., Any]:
    def call(config: Any, parent: Any, node: Any, args: tuple[Any, ...], texts: tuple[str, ...]) -> Any:
        watch: Watch | None = getattr(_here, "watch", None)
        if watch is None:
            return resolver(config, parent, node, args, texts)
        if name not in RESOLVERS:
            raise watch.refuse(f"the resolver {name!r}", f"one of {', '.join(sorted(RESOLVERS))}")
        if name == "oc.env" and args and is_secret_name(str(args[0])):
            if watch.hide:
                return f"<value of {args[0]}>"
            what = f"the environment variable {args[0]}, whose name says that its value is secret (not shown)"
            raise watch.refuse(what, NO_SECRET)
        value = resolver(config, parent, node, args, texts)
        watch.step(value, interpolation=True)
        return value

    return call


def _counted(plain: Callable[..., Any]) -> Callable[..., Any]:
    def resolve(self: Container, *args: Any, **kwargs: Any) -> Any:
        node = plain(self, *args, **kwargs)
        watch: Watch | None = getattr(_here, "watch", None)
        if watch is not None and node is not None and not isinstance(node, Container):
            watch.step(node._value(), interpolation=True)
        elif watch is not None:
            watch.step(None, interpolation=True)
        return node

    return resolve


def resolved(config: DictConfig, origins: ConfigOrigins) -> dict[str, Any]:
    """The configuration as plain data, every interpolation resolved.

    Raises ConfigError that lists every `???` and every interpolation that cannot be resolved or is refused: another
    resolver than those of `RESOLVERS`, a variable whose name says that it is secret, more than may be expanded.
    """
    problems: list[Problem] = []
    with guarded() as watch:
        plain = _plain(config, "", origins, problems, watch)
    if problems:
        raise ConfigError(TITLE, problems)
    return plain  # type: ignore[no-any-return]


def _plain(node: Any, key: str, origins: ConfigOrigins, problems: list[Problem], watch: Watch) -> Any:
    if isinstance(node, DictConfig):
        return {_name(k): _child(node, k, key, origins, problems, watch) for k in node} if node else {}
    if isinstance(node, ListConfig):
        return [_child(node, i, key, origins, problems, watch) for i in range(len(node))]
    return node


def _name(key: Any) -> str:
    """A YAML key as text: `true` and `no` are keys of JSON, too."""
    return str(key).lower() if isinstance(key, bool) else str(key)


def _child(node: Any, name: Any, above: str, origins: ConfigOrigins, problems: list[Problem], watch: Watch) -> Any:
    key = f"{above}.{_name(name)}" if above else _name(name)
    if OmegaConf.is_missing(node, name):
        problems.append(_to_be_given(node, key, above, origins))
        return None
    if watch.full:
        return None  # reported already
    watch.refusals.clear()
    value, text = None, ""
    try:
        value = node[name]
        if not isinstance(value, Container):
            watch.step(value)
    except Refused:
        pass
    except (OmegaConfBaseException, RecursionError) as error:
        text = str(error)
        if isinstance(error, RecursionError) or "Recursive" in text:
            text = "an interpolation that leads back to itself"
    if watch.refusals:
        problems += watch.problems(origins.location(key), key)
        return None
    if text:
        problems.append(
            Problem(
                origins.location(key),
                key,
                text.split("\n")[0],
                "an interpolation that can be resolved",
                "define the key or the environment variable it names",
            )
        )
        return None
    if isinstance(value, str) and "\0" in value:
        problems.append(Problem(origins.location(key), key, "a text with a NUL character", "a text without one"))
        return None
    return _plain(value, key, origins, problems, watch)


def _to_be_given(node: Any, key: str, above: str, origins: ConfigOrigins) -> Problem:
    """A key without its value; where the command line set one of nearly the same name beside it, that one is named."""
    missing = key.removeprefix(f"{above}.")
    beside = [str(name) for name in node] if isinstance(node, DictConfig) else []
    close = [name for name in beside if name != missing and did_you_mean(name, [missing])]
    near = [typed for name in close if origins.typed_text(typed := f"{above}.{name}" if above else name) is not None]
    example = f" (for example {key}={_EXAMPLES[key]})" if key in _EXAMPLES else ""
    fix = f"pass {key}=...{example} or set it in your experiment"
    if near:
        fix = f"the command line has {near[0]}: did you mean {key}?"
    return Problem(origins.location(key), key, "??? (to be given)", "a value", fix)
