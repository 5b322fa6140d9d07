"""Lists and objects as Python, numpy and LangChain print them, read as what they were, or refused where that is not certain.

numpy puts no comma between elements, and Python joins texts that stand side by side: `['a' 'b']` is two texts of an array to the
one and `['ab']` to the other. Only `pprint`, which breaks a long text, prints such a list from Python, and then each piece but the
last ends in a blank.
"""

from __future__ import annotations

import ast
import math
import re
import warnings
from typing import Any

from ragpipe.core import strict_json

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
    r"\s*(?:\[\s*(?:['\"{\[(\]]|np\.|(?:array|list|Document)\(|(?:None|nan|True|False|\.\.\.|[-\d.]+)[\s,])|\{|\(['\"]|(?:np\.|numpy\.)?array\(|Document\()"
)
_ARRAYS = frozenset({"array", "list", "tuple"})
_SCALARS = re.compile(r"(str|float|int|uint|bool)_?\d*")
_RECORDS = frozenset({"Document"})


class NotPrinted(ValueError):
    """The text is no value that Python or numpy prints, or several could have been printed so. `fix` is what to do."""

    def __init__(self, text: str, fix: str = CURE):
        super().__init__(text)
        self.fix = fix


def parsed(text: str) -> Any:
    """The JSON value in a text, or the printed one. Raises NotPrinted."""
    try:
        return strict_json.strict_loads(text)
    except strict_json.InvalidJson as error:
        if not looks_printed(text):
            raise NotPrinted(str(error)) from None
        return printed_value(text)


def looks_printed(text: str) -> bool:
    """Whether a text has the beginning and the end of a list, an object, an array or a Series as they are printed."""
    return (_PRINTED.match(text) is not None and text.rstrip()[-1] in ")]}") or is_series(text)


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
        if isinstance(error, NotPrinted):
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
            level.last = "value" if is_value and not _is_name(sign, text, token.end()) else sign
            level.commas = level.commas or sign == ","
            level.pieces += [sign] if kind == "text" else []
        end = token.end()
    for place in sorted(places, reverse=True):
        text = f"{text[:place]},{text[place:]}"
    return text


def _is_name(word: str, text: str, end: int) -> bool:
    """Whether a word names what is called: `array(`."""
    return (text[end : end + 1] == "(" and word.isidentifier()) or ("." in word and text[end : end + 1] == "(")


def _certain(level: _Level, text: str) -> list[int]:
    """The places for commas in a list that has none. Raises NotPrinted for a list with some, and for one whose texts `pprint` may
    have broken."""
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
