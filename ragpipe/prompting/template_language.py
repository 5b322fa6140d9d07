"""The language of prompt templates: a subset of Jinja without calls, unbounded growth or endless loops.

A template may come from someone else: `task=rescore` and `task=verify` render those of a run folder again. So what a
template may contain is a list (`_NODES`, `FILTERS`, `TESTS`), checked when it is parsed, and its work is counted while it is
rendered (`Meter`).
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import jinja2.filters
import jinja2.nodes as n
import jinja2.sandbox
import jinja2.tests
from jinja2.runtime import Context, LoopContext
from pydantic import BaseModel

from ragpipe.core.digest import canonical_json
from ragpipe.prompting.fences import OnOneLine

MAX_RENDERED = 4_000_000  # characters; a longer question fits no judge and is a mistake in the data
MAX_FILTERED = 8 * MAX_RENDERED  # characters that filters make of the values, in all
MAX_STEPS = 20_000_000  # parts of the template that loops go through
MAX_SECONDS = 10.0  # of processor time; the counts above end a template earlier, and in the same way on every machine
_CLOCK_INTERVAL = 500  # parts between two readings of the clock, which cost more than the parts
MAX_PARTS = 5_000  # of one template with all that it includes; the largest shipped one has some 100
MAX_DEEP = 30
LOOPS_DEEP = 2  # a loop walks over what a case holds; deeper ones could run for ever without printing a character
METER = "ragpipe.meter"
_EACH = "ragpipe.each"
_ALLOWED = "what prompt templates may hold (docs/prompts.md)"

_NODES: tuple[type[n.Node], ...] = (
    n.Template,
    n.Output,
    n.TemplateData,
    n.Name,
    n.Const,
    n.If,
    n.For,
    n.Include,
    n.Assign,
    n.Getattr,
    n.Getitem,
    n.Slice,
    n.Compare,
    n.Operand,
    n.And,
    n.Or,
    n.Not,
    n.CondExpr,
    n.Test,
    n.Filter,
    n.Keyword,
    n.Add,
    n.Sub,
    n.Neg,
    n.Tuple,
    n.List,
)
_REFUSED_NODES: Mapping[type[n.Node], str] = {
    n.Call: "a call",
    n.Macro: "a macro",
    n.CallBlock: "a call block",
    n.FilterBlock: "a filter block",
    n.Import: "an import",
    n.FromImport: "an import",
    n.Extends: "an extends",
    n.Block: "a block",
    n.With: "a with block",
    n.AssignBlock: "a set block",
    n.Scope: "an autoescape block",
    n.Dict: "a mapping in braces",
    n.Concat: "the operator ~",
    n.Mul: "the operator *",
    n.Div: "the operator /",
    n.FloorDiv: "the operator //",
    n.Mod: "the operator %",
    n.Pow: "the operator **",
}
TESTS = (
    "defined",
    "undefined",
    "none",
    "true",
    "false",
    "boolean",
    "integer",
    "float",
    "number",
    "string",
    "mapping",
    "sequence",
    "iterable",
    "odd",
    "even",
    "divisibleby",
    "in",
    "eq",
    "==",
    "equalto",
    "ne",
    "!=",
    "lt",
    "<",
    "lessthan",
    "le",
    "<=",
    "gt",
    ">",
    "greaterthan",
    "ge",
    ">=",
)


class TooMuch(jinja2.exceptions.SecurityError):
    """The values are too many or too long for this template: an error of the case, not of the template."""


class Meter:
    """Counts the work of one rendering. The clock is first read after `_CLOCK_INTERVAL` parts: most renderings end before."""

    def __init__(self) -> None:
        self._characters = self._steps = self._clock_read_at = 0
        self._end: float | None = None

    def step(self, weight: int) -> None:
        """Count one pass of a loop over `weight` parts. Raises TooMuch."""
        self._steps += weight
        if self._steps - self._clock_read_at < _CLOCK_INTERVAL:
            return
        self._clock_read_at = self._steps
        if self._steps > MAX_STEPS:
            raise TooMuch(f"loops that go through more than {MAX_STEPS:,} parts")
        now = time.thread_time()
        self._end = self._end or now + MAX_SECONDS
        if now > self._end:
            raise TooMuch(f"more than {MAX_SECONDS:g} s of rendering")

    def add_characters(self, characters: int) -> None:
        """Count characters that a filter makes. Raises TooMuch."""
        self._characters += characters
        if characters > MAX_RENDERED or self._characters > MAX_FILTERED:
            raise TooMuch(f"filters that make more than {MAX_RENDERED:,} characters (all together {MAX_FILTERED:,})")


# --- filters ---------------------------------------------------------------------------------------------------------


def _attribute(env: jinja2.Environment, item: Any, name: str | None) -> Any:
    if name is None:
        return item
    if not isinstance(name, str) or name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"the attribute {name!r}")
    return env.getitem(item, name)


def _join(
    env: jinja2.Environment, meter: Meter, values: Iterable[Any], separator: str = "", attribute: str | None = None
) -> str:
    texts = [str(_attribute(env, value, attribute)) for value in values]
    meter.add_characters(sum(map(len, texts)) + len(separator) * len(texts))
    return separator.join(texts)


def _replace(env: jinja2.Environment, meter: Meter, text: str, old: str, new: str) -> str:
    text = str(text)
    meter.add_characters(len(text) + text.count(old) * len(new))
    return text.replace(old, new)


def _case(name: str) -> Callable[..., str]:
    def change(env: jinja2.Environment, meter: Meter, text: str) -> str:
        meter.add_characters(len(str(text)))
        changed: str = getattr(str(text), name)()
        return changed

    return change


def _trim(env: jinja2.Environment, meter: Meter, text: str, characters: str | None = None) -> str:
    meter.add_characters(len(str(text)))
    return str(text).strip(characters)


def _truncate(
    env: jinja2.Environment,
    meter: Meter,
    text: str,
    length: int = 255,
    killwords: bool = False,
    end: str = "...",
    leeway: int | None = None,
) -> str:
    meter.add_characters(len(str(text)) + len(end))
    return jinja2.filters.do_truncate(env, str(text), length, killwords, end, leeway)


def _tojson(env: jinja2.Environment, meter: Meter, value: Any) -> str:
    text = canonical_json(value)
    meter.add_characters(len(text))
    return text


def _default(env: jinja2.Environment, meter: Meter, value: Any, fallback: Any = "", boolean: bool = False) -> Any:
    return fallback if isinstance(value, jinja2.Undefined) or (boolean and not value) else value


def _sort(
    env: jinja2.Environment, meter: Meter, values: Iterable[Any], reverse: bool = False, attribute: str | None = None
) -> list[Any]:
    return sorted(values, key=lambda value: _attribute(env, value, attribute), reverse=reverse)


def _unique(env: jinja2.Environment, meter: Meter, values: Iterable[Any], attribute: str | None = None) -> list[Any]:
    return list({_attribute(env, value, attribute): value for value in reversed(list(values))}.values())[::-1]


def _on_one_line(env: jinja2.Environment, meter: Meter, value: Any) -> Any:
    """A text to be fenced on one line; anything else is printed as without the filter."""
    if not isinstance(value, str):
        return value
    meter.add_characters(len(value))
    return OnOneLine(value)


def _map(env: jinja2.Environment, meter: Meter, values: Iterable[Any], *, attribute: str) -> list[Any]:
    return [_attribute(env, value, attribute) for value in values]


_FILTERS: Mapping[str, Callable[..., Any]] = {
    "default": _default,
    "length": lambda env, meter, values: len(values),
    "count": lambda env, meter, values: len(values),
    "first": lambda env, meter, values: next(iter(values), env.undefined("an empty list has no first item")),
    "last": lambda env, meter, values: values[-1] if values else env.undefined("an empty list has no last item"),
    "join": _join,
    "replace": _replace,
    "trim": _trim,
    "truncate": _truncate,
    "upper": _case("upper"),
    "lower": _case("lower"),
    "capitalize": _case("capitalize"),
    "title": _case("title"),
    "tojson": _tojson,
    "sort": _sort,
    "unique": _unique,
    "map": _map,
    "reverse": lambda env, meter, values: list(values)[::-1],
    "items": lambda env, meter, values: list(values.items()),
    "on_one_line": _on_one_line,
}
FILTERS = tuple(sorted(_FILTERS))


def _metered(template_filter: Callable[..., Any]) -> Callable[..., Any]:
    @jinja2.pass_context
    @functools.wraps(template_filter)
    def metered(context: Context, *args: Any, **kwargs: Any) -> Any:
        return template_filter(context.environment, context[METER], *args, **kwargs)

    return metered


@jinja2.pass_context
def _each(context: Context, values: Iterable[Any], weight: int) -> Iterator[Any]:
    """The items of a loop, each counted."""
    if isinstance(values, str):
        raise jinja2.exceptions.SecurityError("a loop over the letters of a text")
    step = context[METER].step
    for value in values:
        step(weight)
        yield value


# --- the environment -------------------------------------------------------------------------------------------------


class _Sandbox(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """No access to private attributes, no globals; only numbers can be added."""

    intercepted_binops = frozenset(["+", "-"])

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Fields of our own models directly: they are data, and the sandbox's checks cost more than the rendering."""
        if attribute == "index" and type(obj) is LoopContext:
            return obj.index
        if isinstance(obj, BaseModel) and attribute in type(obj).model_fields:
            return getattr(obj, attribute)
        return super().getattr(obj, attribute)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if not (isinstance(left, int | float) and isinstance(right, int | float)):
            raise jinja2.exceptions.SecurityError(f"{operator!r} between things that are no numbers")
        return super().call_binop(context, operator, left, right)

    def _parse(self, source: str, name: str | None, filename: str | None) -> n.Template:
        tree = super()._parse(source, name, filename)
        _check(tree, name, filename)
        for loop in list(tree.find_all(n.For)):
            parts = 1 + sum(template_parts(child) for child in loop.body)
            loop.iter = n.Filter(
                loop.iter, _EACH, [n.Const(parts)], [], None, None, lineno=loop.lineno, environment=self
            )
        return tree


def environment(folders: Sequence[Path], finalize: Callable[[Any], Any]) -> jinja2.Environment:
    """A Jinja environment that reads templates below the folders and knows only the language of prompts."""
    env = _Sandbox(
        loader=jinja2.FileSystemLoader([str(f) for f in folders]),
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=False,
        finalize=finalize,
        auto_reload=False,
    )
    env.globals.clear()  # range, lipsum, cycler, joiner, namespace: a prompt only needs its values
    env.filters = {name: _metered(template_filter) for name, template_filter in _FILTERS.items()} | {_EACH: _each}
    env.tests = {name: jinja2.tests.TESTS[name] for name in TESTS}
    return env


def _check(tree: n.Template, name: str | None, filename: str | None) -> None:
    """Raises TemplateSyntaxError for what a prompt may not contain."""

    def walk(node: n.Node, deep: int, line: int) -> None:
        line = node.lineno or line  # a few nodes have none
        if deep > MAX_DEEP:
            raise jinja2.TemplateSyntaxError(f"more than {MAX_DEEP} levels", line, name, filename)
        if fault := _fault(node):
            raise jinja2.TemplateSyntaxError(f"{fault}: not in {_ALLOWED}", line, name, filename)
        for child in node.iter_child_nodes():
            walk(child, deep + 1, line)

    walk(tree, 0, 1)


def _fault(node: n.Node) -> str | None:
    """What is wrong with one part of a template, None when it is allowed."""
    if type(node) not in _NODES:
        return _REFUSED_NODES.get(type(node), f"a {type(node).__name__.lower()}")
    if isinstance(node, n.Filter):
        return _filter_fault(node)
    if isinstance(node, n.Test) and node.name not in TESTS:
        return f"the test {node.name!r} (there are {', '.join(TESTS)})"
    if isinstance(node, n.For) and node.recursive:
        return "a recursive loop"
    if isinstance(node, n.Getattr) and node.attr.startswith("_"):
        return f"the attribute {node.attr!r}"
    if isinstance(node, n.Assign) and not isinstance(node.target, n.Name):
        return "a set of more than one name"
    if isinstance(node, n.Tuple | n.List) and not all(map(_is_written_out, node.items)):
        return "a list of values that are not written out"
    if isinstance(node, n.Include) and not _has_literal_name(node):
        return 'an include whose name is computed (expected a literal name, such as "shared/preamble.v1.jinja")'
    return None


def _filter_fault(node: n.Filter) -> str | None:
    if node.name not in FILTERS:
        return f"the filter {node.name!r} (there are {', '.join(FILTERS)})"
    return None if node.dyn_args is None and node.dyn_kwargs is None else "arguments given by * or **"


def _is_written_out(item: n.Expr) -> bool:
    """A constant, or a name that a loop or `set` assigns."""
    return isinstance(item, n.Const) or (isinstance(item, n.Name) and item.ctx == "store")


def _has_literal_name(node: n.Include) -> bool:
    return isinstance(node.template, n.Const) and isinstance(node.template.value, str)


def template_parts(node: n.Node) -> int:
    """The number of parts of a piece of a template, itself included."""
    return 1 + sum(template_parts(child) for child in node.iter_child_nodes())


def included_names(node: n.Node) -> list[str]:
    """The names of the templates that a piece includes, as often as it includes them."""
    return [str(tag.template.value) for tag in node.find_all(n.Include) if isinstance(tag.template, n.Const)]


def loop_depth(node: n.Node, include_depth: Callable[[str], int]) -> int:
    """How deep the loops of a piece are nested, includes unfolded."""
    if isinstance(node, n.Include) and isinstance(node.template, n.Const):
        return include_depth(str(node.template.value))
    is_loop = isinstance(node, n.For)
    return is_loop + max((loop_depth(child, include_depth) for child in node.iter_child_nodes()), default=0)
