"""Path expressions: JMESPath, compiled once, checked when the configuration is read.

Beside the functions of JMESPath they have these. Each gives null for null.

| function | value |
|---|---|
| `parse(value)` | of a text the JSON, Python or numpy value in it, null for a blank one; any other value as it is |
| `json_or_text(value)` | of a text that is a JSON object or list that value; any other value as it is |
| `split(text, separator)` | the pieces between the separators |
| `number(value)` | a number, also of a text; a blank text and `nan` are null |
| `verdict(value)` | a recorded verdict: number, true or false, null, `{unreadable: text}`; of a list or an object each value |
| `without(object, names)` | the object without these names |
| `prefixed(object, prefix)`, `suffixed(object, suffix)` | the values whose names begin or end so, by the rest of the name |
| `collect(list, &key, &value)` | an object of the elements' values by key; a list of values where a key comes several times |
| `to_string(value)` | the text, or the JSON of any other value |
| `digest(text)` | the first 12 hex digits of the text's sha256 |
| `pairs(list, list)` | `[a, b]` for each place of two lists of the same length; `[a, null]` where the second is null |
| `entries(object)` | its `{key, value}` in a list |
| `numbered(list)` | `{index, value}` of its elements, from 1 |
| `rows(object)` | an object of lists of the same length as a list of objects |
| `minus(a, b)` | a difference of two numbers |
| `time_ms(text)` | an ISO 8601 time in milliseconds since 1970; without a zone it is UTC |

Lists and objects as Python, numpy and LangChain print them are read as what they were, or refused where that is not certain: numpy puts no comma between elements, and Python joins texts that stand side by side: `['a' 'b']` is two texts of an array to the
one and `['ab']` to the other. Only `pprint`, which breaks a long text, prints such a list from Python, and then each piece but the
last ends in a blank.
"""

from __future__ import annotations

import ast
import math
import re
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

import jmespath
from jmespath import exceptions, functions

from ragpipe.core import strict_json
from ragpipe.core.digest import sha256
from ragpipe.core.sample import UNREADABLE, is_unreadable

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")


class BadExpression(ValueError):
    """The expression cannot be compiled, or not applied to a record. `fix` is what to write instead, where that is known."""

    def __init__(self, text: str, fix: str = ""):
        super().__init__(text)
        self.fix = fix


F = TypeVar("F", bound=Callable[..., Any])


def _takes(first: str = "", *others: str) -> Callable[[F], F]:
    """A function of JMESPath by the types of its arguments (`string|number`, none: any), which gives null where the first is null."""
    types = [first and f"{first}|null", *others]

    def decorated(function: F) -> F:
        def called(own: ExpressionFunctions, value: Any, *rest: Any) -> Any:
            return None if value is None else function(own, value, *rest)

        signature = functions.signature(*({"types": kinds.split("|") if kinds else []} for kinds in types))
        return cast(F, signature(called))

    return decorated


class ExpressionFunctions(functions.Functions):  # type: ignore[misc]
    """JMESPath's own functions and those of the table above."""

    _func_json_or_text = _takes()(lambda _, value: json_or_text(value))
    _func_number = _takes("string|number")(lambda _, value: finite_number(value))
    _func_verdict = _takes()(lambda _, value: verdict(value))
    _func_time_ms = _takes("string")(lambda _, text: time_ms(text) if text.strip() else None)
    _func_digest = _takes("string")(lambda _, text: sha256(text)[:12])
    _func_minus = _takes("number", "number|null")(lambda _, left, right: None if right is None else left - right)
    _func_entries = _takes("object")(lambda _, value: [{"key": name, "value": item} for name, item in value.items()])
    _func_numbered = _takes("array")(lambda _, items: [{"index": n, "value": item} for n, item in enumerate(items, 1)])

    @_takes()
    def _func_to_string(self, value: Any) -> str:
        """JMESPath's own makes the text `null` of null: an id that is missing would be one."""
        return str(super()._func_to_string(value))

    @_takes()
    def _func_parse(self, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return parsed(value) if value.strip() else None

    @_takes("string", "string")
    def _func_split(self, text: str, separator: str) -> list[str]:
        return text.split(separator) if separator else list(text)

    @_takes("object", "array-string")
    def _func_without(self, value: dict[str, Any], names: list[str]) -> dict[str, Any]:
        return {name: item for name, item in value.items() if name not in names}

    @_takes("object", "string")
    def _func_prefixed(self, value: dict[str, Any], prefix: str) -> dict[str, Any]:
        return {name.removeprefix(prefix): item for name, item in value.items() if name.startswith(prefix)}

    @_takes("object", "string")
    def _func_suffixed(self, value: dict[str, Any], suffix: str) -> dict[str, Any]:
        return {name.removesuffix(suffix): item for name, item in value.items() if name.endswith(suffix)}

    @_takes("array", "expref", "expref")
    def _func_collect(self, items: list[Any], key: Any, value: Any) -> dict[str, Any]:
        values: dict[str, list[Any]] = {}
        for item in items:
            name = key.visit(key.expression, item)
            if not isinstance(name, str):
                raise BadExpression(f"collect: a key must be a text, found {name!r:.60}")
            values.setdefault(name, []).append(value.visit(value.expression, item))
        return {name: several[0] if len(several) == 1 else several for name, several in values.items()}

    @_takes("array", "array|null")
    def _func_pairs(self, left: list[Any], right: list[Any] | None) -> list[list[Any]]:
        if right is not None and len(left) != len(right):
            raise BadExpression(f"pairs: lists of {len(left)} and {len(right)} elements")
        return [list(pair) for pair in zip(left, right or [None] * len(left), strict=True)]

    @_takes("object")
    def _func_rows(self, value: dict[str, Any]) -> list[dict[str, Any]]:
        lengths = {len(column) if isinstance(column, list) else -1 for column in value.values()}
        if -1 in lengths or len(lengths) > 1:
            raise BadExpression("rows: it takes an object of lists of the same length")
        return [dict(zip(value, row, strict=True)) for row in zip(*value.values(), strict=True)]


def finite_number(value: Any) -> float | int | None:
    """A number, also of a text. Null, a blank text and `nan` are None. Raises BadExpression for anything else."""
    number = _number_of(value.strip()) if isinstance(value, str) else value
    if number is None or (isinstance(number, int | float) and not isinstance(number, bool)):
        return number
    raise BadExpression(f"number: {value!r:.60} is no number")


def verdict(value: Any) -> Any:
    """A recorded verdict: a number, true or false (also of a text); None for a blank text and `nan`; any other text is
    `{"unreadable": text}`. Of a list or an object each value. An unreadable verdict stays what it is."""
    if isinstance(value, list):
        return [verdict(item) for item in value]
    if isinstance(value, dict):
        return value if is_unreadable(value) else {name: verdict(item) for name, item in value.items()}
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    parsed = _number_of(text)
    return {UNREADABLE: parsed} if isinstance(parsed, str) else parsed


def time_ms(text: str) -> float:
    """An ISO 8601 time in milliseconds since 1970, to the microsecond; without a zone it is UTC. Raises BadExpression."""
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise BadExpression(f"time_ms: {' '.join(str(error).split())[:100]}") from None
    whole = time if time.tzinfo else time.replace(tzinfo=UTC)
    return round(whole.timestamp() * 1_000_000) / 1000


def json_or_text(value: Any) -> Any:
    """Of a text that is a JSON object or list that value; any other value as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return strict_json.strict_loads(value)
        except strict_json.InvalidJson:
            return value
    return value


def _number_of(text: str) -> float | int | str | None:
    """None for a blank text and `nan`, the text itself where it is no finite number."""
    if not text or text.lower() == "nan":
        return None
    if not _NUMBER.fullmatch(text) or len(text) > 300:
        return text
    if text.lstrip("+-").isdigit():
        return int(text)
    value = float(text)
    return value if math.isfinite(value) else text


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_PROJECTIONS = {"projection", "value_projection", "filter_projection", "flatten"}
_FIRST_CHILD = {"subexpression", "index_expression", "pipe", *_PROJECTIONS}
_NO_NAMES = {"literal", "identity", "index", "slice", "expref"}
WHOLE = "@"
"""Among the names that an expression looks up: the whole record."""
_SYNTAX = re.compile(r"""["'`\[\]{}()|&=<>!@,]|^\s*$""")
"""Signs by which a text is meant as an expression, not as the name of a column."""

_OPTIONS = jmespath.Options(custom_functions=ExpressionFunctions())


class Expression:
    """A compiled path expression: call it with a record to get the value, None where the path leads nowhere.

    `roots` are the names it looks up at the top of the record, `@` among them where it takes the whole. `plain` is the function of a path of names only (`a.b.c`), which fits
    every record and never raises; None for any other expression.
    Raises BadExpression when compiled (with the position) and when a function gets a value of a wrong type.
    """

    def __init__(self, text: str):
        self.text = text
        try:
            self._parsed = jmespath.compile(text)
        except exceptions.JMESPathError as error:
            raise BadExpression(_syntax(text, error), _quoted_name(text)) from None
        _check_functions(text, self._parsed.parsed)
        self.roots = frozenset(_roots(self._parsed.parsed))
        self.plain: Callable[[Any], Any] | None = _plain_path(text) if _PLAIN.fullmatch(text) else None
        self._find = self.plain or self._search

    def __call__(self, record: Any) -> Any:
        return self._find(record)

    def _search(self, record: Any) -> Any:
        try:
            return self._parsed.search(record, options=_OPTIONS)
        except exceptions.JMESPathError as error:
            raise BadExpression(" ".join(str(error).split())) from None
        except BadExpression:
            raise
        except (TypeError, ValueError, ArithmeticError, AttributeError, LookupError, RecursionError) as error:
            # jmespath compares and slices without a check: `id > `3`` of a text, `x[0:5:0]`
            raise BadExpression(f"it cannot be applied here: {error}") from None


def _plain_path(text: str) -> Callable[[Any], Any]:
    """`a.b.c` without the interpreter: six times as fast, and most expressions are of this kind."""
    names = text.split(".")
    if len(names) == 1:
        return lambda record: record.get(text) if isinstance(record, dict) else None

    def find(record: Any) -> Any:
        for name in names:
            if not isinstance(record, dict):
                return None
            record = record.get(name)
        return record

    return find


def _syntax(text: str, error: exceptions.JMESPathError) -> str:
    position = getattr(error, "lex_position", None)
    if isinstance(error, exceptions.EmptyExpressionError):
        return "the path expression is empty"
    if isinstance(error, exceptions.IncompleteExpressionError) or position is None or position >= len(text):
        return f"path expression {text!r}: it ends too early"
    return f"path expression {text!r}: {text[position]!r} does not fit at position {position + 1}"


def _quoted_name(text: str) -> str:
    """How a name with blanks or signs in it is written, where the text can be one; else empty."""
    if _SYNTAX.search(text):
        return ""
    return f"a name with blanks or signs in it stands in double quotes; in YAML with single quotes around: '\"{text}\"'"


def _check_functions(text: str, node: dict[str, Any]) -> None:
    known = ExpressionFunctions.FUNCTION_TABLE
    if node["type"] == "function_expression" and node["value"] not in known:
        raise BadExpression(f"path expression {text!r}: no function {node['value']!r}; there are {', '.join(sorted(known))}")
    for child in node["children"]:
        if isinstance(child, dict):
            _check_functions(text, child)


def _roots(node: dict[str, Any]) -> set[str]:
    kind = node["type"]
    if kind == "field":
        return {str(node["value"])}
    if kind == "current":
        return {WHOLE}
    if kind in _NO_NAMES:
        return set()
    children = [child for child in node["children"] if isinstance(child, dict)]
    return set().union(*(_roots(child) for child in (children[:1] if kind in _FIRST_CHILD else children)))


MAX_LITERAL = 16 << 20
"""Characters of the longest text that is read as a Python literal."""
MAX_OUTSIDE_TEXTS = 200_000
"""Characters of a Python literal that stand outside of its texts: each number takes about a kilobyte while it is read."""
CURE = "write the column as JSON before it is saved: df[c] = df[c].map(lambda x: json.dumps(list(x)))"
"""What makes a cell readable that Python or numpy printed."""
_TEXTS = re.compile(r"'[^'\\]*(?:\\.[^'\\]*)*'|\"[^\"\\]*(?:\\.[^\"\\]*)*\"", re.DOTALL)
_TOKEN = re.compile(
    rf"(?P<text>(?:\b[bBrRuUfF]{{1,2}})?(?:{_TEXTS.pattern}))|(?P<sign>[\[\](){{}},:])|(?P<word>[^\s\[\](){{}},:'\"]+)|(?P<rest>['\"])",
    re.DOTALL,
)
_ENDS = {"[": "]", "(": ")", "{": "}"}
_SERIES = re.compile(r"\s*\S+ {2,}\S.*\n(?:Name: .*, )?(?:Length: \d+, )?dtype: \w+\s*", re.DOTALL)
_PRINTED = re.compile(
    r"\s*(?:\[\s*(?:['\"{\[(\]]|np\.|(?:array|list|Document)\(|(?:None|nan|True|False|\.\.\.|[-\d.]+)[\s,])|\(['\"]|(?:np\.|numpy\.)?array\(|Document\()"
)
_ARRAYS = frozenset({"array", "list", "tuple"})
_SCALARS = re.compile(r"(str|float|int|uint|bool)_?\d*")
_RECORDS = frozenset({"Document"})


class NotPrinted(BadExpression):
    """The text is no value that Python or numpy prints, or several could have been printed so."""

    def __init__(self, text: str):
        super().__init__(text, CURE)


def parsed(text: str) -> Any:
    """The JSON value in a text, or the printed one. Raises NotPrinted."""
    try:
        return strict_json.strict_loads(text)
    except strict_json.InvalidJson:
        return printed_value(text)


def looks_printed(text: str) -> bool:
    """Whether a text has the beginning and the end of a list, an array or a Series as they are printed."""
    return (_PRINTED.match(text) is not None and text.rstrip()[-1] in ")]") or is_series(text)


def is_series(text: str) -> bool:
    """Whether a text is a pandas Series as it is printed, which cuts its texts."""
    return "dtype:" in text[-200:] and _SERIES.fullmatch(text) is not None


def printed_value(text: str) -> Any:
    """The value of a printed list or object as plain JSON: a tuple and an array are lists, a document of LangChain is an object, a
    number as a key is a text, `nan` is null.

    Nothing is called or looked up. Raises NotPrinted for anything but lists, tuples, dicts, texts, finite numbers, True, False and
    None, for an array that was printed in part (`...`), for texts side by side that may be one, for half a surrogate pair, and for a
    text of more than `MAX_LITERAL` characters or more than `MAX_OUTSIDE_TEXTS` outside of its texts.
    """
    if len(text) > MAX_LITERAL or (len(text) > MAX_OUTSIDE_TEXTS and len(_TEXTS.sub("", text)) > MAX_OUTSIDE_TEXTS):
        limits = f"more than {MAX_LITERAL}, or more than {MAX_OUTSIDE_TEXTS} outside of texts"
        raise NotPrinted(f"{len(text)} characters, {limits}")
    if is_series(text):
        raise NotPrinted("a pandas Series as it is printed, which cuts long texts")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an invalid escape such as \d in a text
            tree = ast.parse(_with_commas(text.strip()), mode="eval")
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        if isinstance(error, BadExpression):
            raise
        reason = " ".join(str(error).split())[:60] or type(error).__name__
        raise NotPrinted(f"neither JSON nor a Python literal: {text.strip()[:40]!r} ({reason})") from None
    value = _plain(tree.body, 0)
    try:
        strict_json.check_json(value, r"\ud")
    except strict_json.InvalidJson as error:
        raise NotPrinted(str(error)) from None
    return value


class _Level:
    """What stands between one pair of brackets: whether with commas, and the places of elements side by side."""

    def __init__(self, sign: str):
        self.sign, self.commas, self.side_by_side = sign, False, list[int]()
        self.pieces: list[str] = []
        self.last = ""  # what stood last: a value, a word or a sign


def _with_commas(text: str) -> str:
    """The text with commas between the elements of the arrays in it. Raises NotPrinted where it is not certain what was printed."""
    levels, places, end = [_Level("")], list[int](), -1
    for token in _TOKEN.finditer(text):
        level, kind, sign = levels[-1], token.lastgroup, token[0]
        if kind == "word" and sign == "...":
            raise NotPrinted("`...`: elements were left out when it was printed")
        is_value = kind == "text" or sign in _ENDS or (kind == "word" and not sign.endswith("="))
        if is_value and level.last == "value" and (sign != "(" or kind == "text"):
            if kind == "text" and (level.sign != "[" or token.start() == end):
                raise NotPrinted(f"two values side by side: {text[max(0, token.start() - 20) : token.start() + 20]!r}")
            level.side_by_side += [token.start()] if level.sign == "[" else []
        if sign in _ENDS:
            levels.append(_Level(sign))
        elif sign in _ENDS.values() and kind == "sign":
            closed = levels.pop() if len(levels) > 1 else level
            places += _certain(closed, text)
            levels[-1].last = "value"
        else:
            is_called = text[token.end() : token.end() + 1] == "(" and (sign.isidentifier() or "." in sign)  # `array(`
            level.last = "value" if is_value and not is_called else sign
            level.commas = level.commas or sign == ","
            level.pieces += [sign] if kind == "text" else []
        end = token.end()
    for place in sorted(places, reverse=True):
        text = f"{text[:place]},{text[place:]}"
    return text


def _certain(level: _Level, text: str) -> list[int]:
    """The places for commas in a list that has none. Raises NotPrinted where texts may be one that `pprint` broke."""
    if not level.side_by_side:
        return []
    pieces = [piece.strip("bBrRuUfF")[1:-1] for piece in level.pieces]
    is_broken = len(pieces) > len(level.side_by_side) and all(re.search(r"(\s|\\n)$", piece) for piece in pieces[:-1])
    if level.commas or is_broken:
        place = level.side_by_side[0]
        raise NotPrinted(f"texts side by side that may be one or several: {text[max(0, place - 20) : place + 20]!r}")
    return level.side_by_side


def _plain(node: ast.expr, depth: int) -> Any:
    if depth > strict_json.MAX_DEPTH:
        raise NotPrinted(f"nested deeper than {strict_json.MAX_DEPTH} levels")
    if isinstance(node, ast.List | ast.Tuple):
        return [_plain(item, depth + 1) for item in node.elts]
    if isinstance(node, ast.Dict) and None not in node.keys:
        return {_key(key): _plain(value, depth + 1) for key, value in zip(node.keys, node.values, strict=True)}
    if isinstance(node, ast.Call):
        return _called(node, depth)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        number = _plain(node.operand, depth)
        if isinstance(number, int | float) and not isinstance(number, bool):
            return -number if isinstance(node.op, ast.USub) else number
    name = ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else ""
    if name in ("nan", "np.nan", "numpy.nan"):
        return None
    if name in ("np.True_", "np.False_"):
        return name == "np.True_"
    value = node.value if isinstance(node, ast.Constant) else node
    if value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    what = type(value).__name__.lower() if isinstance(node, ast.Constant | ast.Set) else name or ast.unparse(node)[:40]
    order = " (its order is not that of the ranks)" if isinstance(node, ast.Set) else ""
    raise NotPrinted(f"{what} has no JSON form{order}")


def _key(node: ast.expr | None) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str | int | float):
        return str(node.value)
    raise NotPrinted(f"{type(node).__name__} as a key has no JSON form")


def _called(node: ast.Call, depth: int) -> Any:
    """The value behind `array([...])`, `np.str_('...')`, `Document(page_content='...')`."""
    name = ast.unparse(node.func).removeprefix("np.").removeprefix("numpy.")
    words = {word.arg for word in node.keywords}
    if len(node.args) == 1 and words <= {"dtype", "shape"} and (name in _ARRAYS or _SCALARS.fullmatch(name)):
        return _plain(node.args[0], depth + 1)
    if name in _RECORDS and not node.args and None not in words:
        return {str(word.arg): _plain(word.value, depth + 1) for word in node.keywords}
    raise NotPrinted(f"{name}(...) has no JSON form")
