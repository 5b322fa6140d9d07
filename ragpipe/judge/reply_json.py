"""Strict JSON, and the JSON object in a reply.

Limits on size, depth and digits are checked before any work that grows with them. json-repair is the last resort.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ragpipe.core.strict_json import InvalidJson, decoder
from ragpipe.judge.answer_type import ASCII_DIGITS

MAX_CHARACTERS = 500_000
MAX_REPAIRED = 100_000  # json-repair is slow on long garbage
MAX_DEPTH = 64
MAX_DIGITS = 100
MAX_GROUPS = 200  # bracketed parts of one reply that are examined


class Unparsable(ValueError):
    """The reply has no valid answer. The message says what is wrong, for the user and for the repair turn."""


class _Forbidden(Unparsable):
    """Well-formed JSON with a value that no answer may have; json-repair is not tried."""


def _int(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise _Forbidden(f"a number with {len(text):,} digits is not read")
    return int(text)


_DECODER = decoder(strict=False, parse_int=_int)  # models put raw line breaks into strings


def reply_loads(text: str) -> Any:
    """Read JSON: no NaN, infinities, duplicate keys, huge numbers or deep nesting.

    Raises Unparsable for those and json.JSONDecodeError for what is not JSON.
    """
    if text.count("[") + text.count("{") > MAX_DEPTH and _depth(text) > MAX_DEPTH:
        raise _Forbidden(f"the JSON is nested deeper than {MAX_DEPTH} levels")
    try:
        return _DECODER.decode(text)
    except InvalidJson as error:
        raise _Forbidden(str(error)) from None


def object_end(text: str, start: int) -> int | None:
    """Where the JSON object that begins at `start` ends; None when no complete object begins there."""
    try:
        return _DECODER.raw_decode(text, start)[1]
    except (ValueError, RecursionError):
        return None


def objects_in(text: str) -> Iterator[dict[str, Any]]:
    """The well-formed JSON objects in a text, nested ones included. Braces after the first `MAX_GROUPS` are not tried."""
    start = text.find("{")
    for _ in range(MAX_GROUPS):
        if start < 0:
            return
        end = object_end(text, start)
        if end is not None:
            with suppress(Unparsable):
                yield from _objects(reply_loads(text[start:end]))
        start = text.find("{", end or start + 1)


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _objects(item)


def _depth(text: str) -> int:
    deepest = depth = 0
    for _, step in _brackets(text):
        depth = max(0, depth + step)
        deepest = max(deepest, depth)
    return deepest


_OPENING = re.compile(r"[\[{]")
_STRING = r'"(?:[^"\\]|\\.)*"'
_TOKEN = re.compile(rf"{_STRING}?|[\[\]{{}}]", re.S)


def _brackets(text: str, start: int = 0) -> Iterator[tuple[int, int]]:
    """Positions of brackets outside strings, with +1 for an opening and -1 for a closing one."""
    for token in _TOKEN.finditer(text, start):
        if token[0] in "[{":
            yield token.start(), 1
        elif token[0] in "]}":
            yield token.start(), -1


@dataclass(frozen=True, slots=True)
class ReplyObject:
    """The JSON object of a reply: its value, its text, the prose around it, and flags (`json_repaired`)."""

    value: dict[str, Any]
    text: str
    prose: str = ""
    flags: tuple[str, ...] = ()


def find_object(text: str, list_key: str | None = None) -> ReplyObject | None:
    """The only JSON object of a reply; None when it has none. Raises Unparsable when it has two different ones.

    A list alone is the object whose only key is `list_key`.
    """
    try:
        value = reply_loads(text)
        if isinstance(value, dict):
            return ReplyObject(value, text)
        if isinstance(value, list) and list_key:
            return ReplyObject({list_key: value}, text, "", ("json_repaired",))
    except json.JSONDecodeError:
        if read := _in_plain_marks(text):
            return read
    except RecursionError:
        raise Unparsable("the JSON is nested too deeply") from None
    groups, rest = _groups(text)
    objects, values, malformed = _sort_groups(groups)
    if len(values) + len(malformed) + (rest is not None and bool(values)) > 1:
        raise Unparsable("the reply holds more than one JSON object, and they differ: give exactly one")
    if values:
        prose = _without(text, objects)
        if isinstance(values[0], dict):
            return ReplyObject(values[0], objects[0], prose)
        if not list_key:
            raise Unparsable("expected a JSON object, found a list")
        return ReplyObject({list_key: values[0]}, objects[0], prose, ("json_repaired",))
    damaged = malformed[0] if malformed else rest
    if damaged is None:
        return None
    repaired = ReplyObject(_repaired(damaged), damaged, _without(text, [damaged]), ("json_repaired",))
    if not malformed and _is_cut(damaged):
        raise Unparsable(f"the JSON in the reply is cut off, perhaps in the middle of a value: {damaged[-40:]!r}")
    _check_lists(damaged, repaired.value)
    return repaired


_PIECE = re.compile(r'\\.?|["\uff02]|[^\\"\uff02]+', re.S)
_AHEAD = re.compile(r"\s*(.?)", re.S)
_ENDS = ",]}:"
_WIDE_ENDS = ",]}:\uff0c\uff3d\uff5d\uff1a"
_MARKS = ASCII_DIGITS | str.maketrans("\uff5b\uff5d\uff3b\uff3d\uff1a\uff0c\uff02", '{}[]:,"')
_PAIRED = re.compile(r"""(?<=[\u05d0-\u05ea])"(?=[\u05d0-\u05ea])|\u201e[^"\u201c-\u201e]*["\u201c\u201d]|"[^"\w]*\w[^"]*\"""")
"""Quotation marks of a text: inside a Hebrew abbreviation, or around words. Around a blank they end a text and open the next."""


def _in_plain_marks(text: str) -> ReplyObject | None:
    """The object of a reply whose marks and digits are full-width or Arabic, or whose texts hold quotation marks that are not
    escaped; None where it has no such reading, or may have two."""
    places = [place for mark in "{\uff5b" if (place := text.find(mark)) >= 0]
    whole = text[min(places, default=0) : max(text.rfind("}"), text.rfind("\uff5d")) + 1]
    is_wide = whole.startswith("\uff5b") or not re.search(r'"\s*:', whole)  # a wide comma may be text in other replies
    plain = _plain(whole, _WIDE_ENDS if is_wide else _ENDS)
    with suppress(ValueError, RecursionError):
        value = reply_loads(plain) if plain != whole else None
        if isinstance(value, dict) and _is_paired(value):
            return ReplyObject(value, whole, _without(text, [whole]), ("json_repaired",))
    return None


def _plain(text: str, ends: str) -> str:
    """The text with its marks in ASCII outside of strings, and a quotation mark escaped that nothing of `ends` follows."""
    pieces, opened = [], ""
    for match in _PIECE.finditer(text):
        piece = match[0]
        if not opened:
            opened, piece = piece if piece in '"\uff02' else "", piece.translate(_MARKS)
        elif piece == opened and _AHEAD.match(text, match.end())[1] in ends:  # type: ignore[index]  # it matches anything
            opened, piece = "", '"'
        elif piece == '"':
            piece = '\\"'
        pieces.append(piece)
    return "".join(pieces)


def _is_paired(value: Any) -> bool:
    """Whether no text has an odd quotation mark, or begins with a comma: then `", "` may be the end of a text, or a part of one."""
    if isinstance(value, str):
        return not re.search(r'["\u201e]|\A\s*[,\uff0c]', _PAIRED.sub("", value))
    items = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ()
    return all(map(_is_paired, items))


def _sort_groups(groups: list[str]) -> tuple[list[str], list[Any], list[str]]:
    """The groups that contain an object, their different values, and the groups that look like a malformed object."""
    objects: list[str] = []
    values: list[Any] = []
    malformed: list[str] = []
    for group in groups:
        try:
            value = reply_loads(group)
        except json.JSONDecodeError:
            if group.startswith("{") and ":" in group:
                malformed.append(group)
            continue
        if isinstance(value, dict) or any(isinstance(item, dict) for item in value):
            objects.append(group)
            values += [] if value in values else [value]
    return objects, values, malformed


def _without(text: str, parts: list[str]) -> str:
    for part in dict.fromkeys(parts):
        text = text.replace(part, "\n")
    return text


_BARE_END = re.compile(r"""["']\s*:\s*[\w.+-]*\Z""")
"""A key, and the beginning of a bare value at most; also where a quote of the other kind in a text hides from the tokens that it ended."""


def _is_cut(text: str) -> bool:
    open_brackets, last = "", ""
    for token in _TOKEN.finditer(text):
        last = token[0]
        if last in "[{":
            open_brackets += last
        elif last in "]}":  # closing an object also closes an unclosed list in it
            open_brackets = open_brackets[: max(0, open_brackets.rfind("[" if last == "]" else "{"))]
    if "[" in open_brackets or _BARE_END.search(text):
        return True
    if last.startswith('"') and not re.fullmatch(_STRING, last, re.S):
        return len(last.split()) < 2
    return re.fullmatch(r"[\w.+:-]", text[-1:]) is not None


def _groups(text: str) -> tuple[list[str], str | None]:
    """The outermost bracketed parts of a text, and what follows a brace that is never closed."""
    groups: list[str] = []
    start = 0
    for _ in range(MAX_GROUPS):
        opening = _OPENING.search(text, start)
        if opening is None:
            return groups, None
        depth, end = 0, -1
        for place, step in _brackets(text, opening.start()):
            depth += step
            if depth <= 0:
                end = place + 1
                break
        if end < 0:
            if opening[0] == "{":
                rest = text[opening.start() :].rstrip(" \t\r\n`")  # a code fence may end after it
                return groups, rest if ":" in rest else None
            start = opening.end()
            continue
        groups.append(text[opening.start() : end])
        start = end
    raise Unparsable(f"the reply holds more than {MAX_GROUPS} bracketed parts")


_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")  # json-repair reads an escaped character as its halves
_DIGITS = re.compile(r"\d+")
_ESCAPE = re.compile(r"\\u[0-9a-fA-F]{4}")
_QUOTED = re.compile(rf"{_STRING}|'(?:[^'\\]|\\.)*'", re.S)
_LITERAL = re.compile(r"\b(?:true|false|null|none)\b", re.I)
_PLAIN = r"(?:[+-]?(?:\d++(?:\.\d*+)?+|\.\d++)|true|false|null|none)"
_QUALIFIED = re.compile(
    rf"""
      [<>~\u2248\u2264\u2265\u00b1|!] | \bor\b                  # about 4, at most 4, true or false
    | :\s*[^\s\w"'{{\[:+.-]{{1,9}}\s*{_PLAIN}            # something before a number or a literal
    | [:\[,]\s*{_PLAIN}(?!\s*(?:[,}}\];"']|//|\#|/\*|\Z))   # or after it
    """,
    re.X | re.I,
)


def _repaired(text: str) -> Any:
    """The value of a malformed object. Raises Unparsable when it cannot be repaired without losing something."""
    if len(text) > MAX_REPAIRED or _depth(text) > MAX_DEPTH:
        raise Unparsable(f"the JSON in the reply is malformed: {text[:80]!r}")
    import json_repair

    try:
        value = reply_loads(_PAIR.sub(_joined, json_repair.repair_json(text, ensure_ascii=False)))
    except Unparsable:
        raise
    except Exception as error:  # whatever json-repair fails on, the reply is to blame
        raise Unparsable(f"the JSON in the reply is malformed: {text[:80]!r}") from error
    if not isinstance(value, dict) or not value:
        raise Unparsable(f"the JSON in the reply is malformed: {text[:80]!r}")
    _check_nothing_lost(text, value)
    return value


def _joined(halves: re.Match[str]) -> str:
    return halves[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def _check_nothing_lost(text: str, value: Any) -> None:
    """Raises Unparsable where json-repair dropped the first of two equal keys, or words around a number or literal."""
    for name, count in _count_keys(value).items():
        if re.fullmatch(r"\w+", name) and len(re.findall(rf"\b{name}[\"']?\s*:", text)) > count:
            raise Unparsable(f"the JSON in the reply is malformed, and its key `{name}` appears twice")
    written = Counter(_DIGITS.findall(_ESCAPE.sub("", text)))
    kept = json.dumps(value, ensure_ascii=False)
    lost = written - Counter(_DIGITS.findall(kept))
    if lost:
        raise Unparsable(f"the JSON in the reply is malformed around the number {next(iter(lost))}")
    bare = _QUOTED.sub(lambda match: f'"{"_" * (len(match[0]) - 2)}"', text)
    qualified = _QUALIFIED.search(bare)
    if qualified or len(_LITERAL.findall(bare)) > len(_LITERAL.findall(kept)):
        near = text[max(0, qualified.start() - 15) :] if qualified else text
        raise Unparsable(f"the JSON in the reply is malformed, and does not say one plain value: {near[:60]!r}")


def _count_keys(value: Any) -> Counter[str]:
    keys: Counter[str] = Counter()
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        keys += _count_keys(item)
    return keys + Counter(value.keys()) if isinstance(value, dict) else keys


_LIST_TOKEN = re.compile(
    rf"""(?P<text>{_STRING}|'(?:[^'\\]|\\.)*'|\u201c[^\u201d]*\u201d)|(?P<mark>[\[\]{{}},])|(?P<bare>[^\s\[\]{{}},"'\u201c\u201d]+|.)""",
    re.S,
)
_BARE_ITEM = re.compile(_PLAIN, re.I)


def _check_lists(text: str, value: Any) -> None:
    """Raises Unparsable for a malformed object with a list whose items are not divided by single commas."""
    if "[" not in text:
        return
    opened, expects_item, items = "", False, 0
    for token in _LIST_TOKEN.finditer(text):
        mark, in_list = token["mark"], opened.endswith("[")
        if token[0].isspace() or (not in_list and mark not in ("[", "{", "}")):
            continue
        if in_list and mark == ",":
            fits, expects_item = not expects_item, True
        elif in_list and mark == "]":
            fits, expects_item, opened = True, False, opened[:-1]
        elif mark == "}":  # it ends an item, or an object that a quote inside a text has opened
            fits, expects_item, opened = not in_list, False, opened[:-1]
        else:
            fits, expects_item, items = expects_item or not in_list, False, items + in_list
            fits = fits and (mark is not None or token["text"] is not None or _BARE_ITEM.fullmatch(token[0]) is not None)
            if mark:
                opened, expects_item = opened + mark, mark == "["
        if not fits:
            raise Unparsable(f"the JSON in the reply is malformed in a list: {text[max(0, token.start() - 30) :][:60]!r}")
    if "[" in opened:
        raise Unparsable(f"the JSON in the reply is cut off in a list: {text[-40:]!r}")
    if items != _count_items(value):
        raise Unparsable(f"the JSON in the reply is malformed: its lists have {items} items, and a repair finds others")


def _count_items(value: Any) -> int:
    if isinstance(value, list):
        return len(value) + sum(map(_count_items, value))
    return sum(map(_count_items, value.values())) if isinstance(value, dict) else 0
