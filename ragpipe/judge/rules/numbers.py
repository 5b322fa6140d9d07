"""The numbers of a text in a normal form: `1,000`, `1000` and `one thousand` are equal, `5 min` is `5 minutes`.

A month beside a number counts as the number of the month, so that `March 15, 2024` agrees with `2024-03-15`.

Numbers in the notations of other languages and trades: what one may mean, so that equal ones are never called different.

Each notation is a stretch of the text with the values that it may have. Times, versions and dates are *strict*: their digits
say nothing alone. German `1.200` may be 1200 or 1.2.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from ragpipe.core.yaml_files import FastLoader

_PIECE = re.compile(r"(?P<number>\d+(?:[.,]\d+)*)|(?P<word>[^\W\d_]+)|(?P<sign>[%$€£°])")
_GROUPED = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?\Z")
_IDENTIFIER = re.compile(r"0\d{3,}\Z")  # a postcode, a telephone number: its zero counts
_LONGEST = 40  # digits; a longer number is an identifier and is compared as written


class Number(NamedTuple):
    """A number and where it is in the text.

    `value` is a plain decimal without trailing zeros; versions and identifiers are kept as written. `month`: it is the
    name of a month, and `value` the month's number. `word`: it is written in words.
    """

    value: str
    unit: str | None
    start: int
    end: int
    month: bool = False
    word: bool = False


def normalize_digits(digits: str) -> str:
    """The normal form of a number in digits: `1,000.50` is `1000.5`, `3,5` is `3.5`, `1.2.3` stays."""
    if len(digits) > _LONGEST or _IDENTIFIER.match(digits):
        return digits
    if _GROUPED.match(digits):
        digits = digits.replace(",", "")
    elif digits.count(",") == 1 and "." not in digits:
        digits = digits.replace(",", ".")
    if digits.count(".") > 1 or "," in digits:
        return digits
    return _plain(Decimal(digits))


def _plain(value: Decimal) -> str:
    text = format(value, "f")
    return (text.rstrip("0").rstrip(".") if "." in text else text) or "0"


_Piece = tuple[str | None, str, int, int]
"""A part of the text: `number`, `word` or `sign`, its lower-case text, start and end."""


def find_numbers(text: str) -> tuple[Number, ...]:
    """All numbers of a text in order, in digits or English words."""
    pieces = [(m.lastgroup, m[0].lower(), m.start(), m.end()) for m in _PIECE.finditer(text)]
    numbers: list[Number] = []
    at = 0
    while at < len(pieces):
        kind, word, start, end = pieces[at]
        value, used = _value(pieces, at, text)
        if value is None:
            if (
                kind == "word"
                and word in MONTH_NUMBER
                and any(0 <= beside < len(pieces) and pieces[beside][0] == "number" for beside in (at - 1, at + 1))
            ):
                numbers.append(Number(str(MONTH_NUMBER[word]), None, start, end, month=True))
            at += 1
            continue
        unit, unit_pieces = _unit(pieces, at, at + used, text)
        numbers.append(Number(value, unit, start, pieces[at + used - 1][3], word=kind == "word"))
        at += used + unit_pieces
    return tuple(numbers)


def _value(pieces: list[_Piece], at: int, text: str) -> tuple[str | None, int]:
    """The number that begins at a piece, and how many pieces it takes; None where none begins there."""
    kind, word, start, _ = pieces[at]
    if kind == "number":
        if text[start - 1 : start] == "^" and text[start - 2 : start - 1].isalpha():
            return None, 0  # the power of a letter: r^2
        return _scaled(normalize_digits(word), 1, pieces, at, text)
    if kind == "word" and word in TENS:
        value, used = _tens(pieces, at, text)
        return _scaled(str(value), used, pieces, at, text)
    if kind == "word" and word in SMALL:
        return _scaled(str(SMALL[word]), 1, pieces, at, text)
    return None, 0


def _tens(pieces: list[_Piece], at: int, text: str) -> tuple[int, int]:
    """`twenty`, or `twenty-one` with the piece after it; and how many pieces that takes."""
    _, word, _, end = pieces[at]
    if at + 1 < len(pieces):
        _, next_word, next_start, _ = pieces[at + 1]
        if 0 < SMALL.get(next_word, 0) < 10 and text[end:next_start] in ("-", " "):
            return TENS[word] + SMALL[next_word], 2
    return TENS[word], 1


def _scaled(value: str, used: int, pieces: list[_Piece], at: int, text: str) -> tuple[str, int]:
    """The value multiplied by the scales that follow it (`thousand`, `k`), and how many pieces that takes."""
    while at + used < len(pieces) and value.replace(".", "", 1).isdecimal() and len(value) < _LONGEST:
        _, scale_word, scale_start, _ = pieces[at + used]
        between = text[pieces[at + used - 1][3] : scale_start]
        scale = SCALE.get(scale_word) if between in (" ", "-", "\u00a0", "\n") else None
        if between == "" and pieces[at][0] == "number":
            scale = SHORT_SCALE.get(scale_word)
        if scale is None:
            break
        value, used = _plain(Decimal(value) * scale), used + 1
    return value, used


def _unit(pieces: list[_Piece], first: int, after: int, text: str) -> tuple[str | None, int]:
    """The unit of a number (after it, or a currency sign before it), and how many pieces after the number it takes."""
    if first and pieces[first - 1][1] in "$€£" and pieces[first - 1][3] == pieces[first][2]:
        return UNITS[pieces[first - 1][1]], 0
    points = [piece[1] for piece in pieces[after : after + 2]]
    if len(points) == 2 and points[0] in ("percentage", "percent") and points[1] in ("point", "points"):
        return "percentage points", 2
    if after < len(pieces) and pieces[after][1] in UNITS:
        between = text[pieces[after - 1][3] : pieces[after][2]]
        if between in ("", " ", "-", "\u00a0"):
            return UNITS[pieces[after][1]], 1
    return None, 0


_WORDS: dict[str, Any] = yaml.load(Path(__file__).with_name("words.yaml").read_text(encoding="utf-8"), Loader=FastLoader)
STOP_WORDS, NEGATIONS, OTHER_NEGATIONS, EXCEPT, INCLUDING = (
    frozenset(_WORDS[name].split()) for name in ("stop_words", "negations", "other_negations", "except", "including")
)
NEGATED_SIGNS = "不没沒無无未非"

MONTHS = (
    "", *["january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november", "december"],
)  # fmt: skip
MONTH_NUMBER = {name[:3]: place for place, name in enumerate(MONTHS) if name} | {"sept": 9}
MONTH_NUMBER |= {name: place for place, name in enumerate(MONTHS) if name}


def _numbered(words: str, first: int = 0, step: int = 1) -> dict[str, int]:
    return {word: first + step * place for place, word in enumerate(words.split())}


SMALL = _numbered(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
TENS = _numbered("twenty thirty forty fifty sixty seventy eighty ninety", 20, 10)
SCALE = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
SHORT_SCALE = {"k": 10**3, "m": 10**6, "mn": 10**6, "bn": 10**9, "b": 10**9}

UNITS = {
    "minute": "minute minutes min mins",
    "hour": "hour hours hr hrs h",
    "second": "second seconds sec secs",
    "day": "day days",
    "week": "week weeks wk wks",
    "month": "month months",
    "year": "year years yr yrs",
    "%": "% percent pct prozent",
    "percentage points": "prozentpunkte prozentpunkt prozentpunkten pp procentpunten",
    "$": "$ dollar dollars usd",
    "€": "€ euro euros eur",
    "£": "£ gbp",
    "kg": "kg kilogram kilograms kilo kilos",
    "g": "g gram grams",
    "mg": "mg milligram milligrams",
    "lb": "lb lbs pound pounds",
    "oz": "oz ounce ounces",
    "mile": "mile miles mi",
    "km": "km kilometer kilometers kilometre kilometres",
    "cm": "cm centimeter centimeters centimetre centimetres",
    "foot": "foot feet ft",
    "inch": "inch inches",
    "°": "° degree degrees",
    "cup": "cup cups",
    "ml": "ml milliliter milliliters",
    "liter": "l liter liters litre litres",
    "teaspoon": "tsp teaspoon teaspoons",
    "tablespoon": "tbsp tablespoon tablespoons",
}
UNITS = {form: unit for unit, forms in _WORDS["units"].items() for form in forms.split()}


_SPACES = " \u00a0\u2009\u202f"
_GROUPED_NOTATION = re.compile(
    rf"(?<![\d.,])(?:\d{{1,3}}(?:[{_SPACES}]\d{{3}})+|\d{{1,3}}(?:['’.,٬]\d{{3}})+|\d{{1,2}}(?:,\d{{2}})*,\d{{3}}|\d{{1,4}}(?:,\d{{4}})+)(?:[.,٫]\d{{1,3}})?(?![\d])"
)
_POWER = {word: power for power, words in _WORDS["scales"].items() for word in words.split()}
_SCALED = re.compile(
    rf"(?<!\d)(\d{{1,30}}(?:[.,'’{_SPACES}]\d{{1,3}}){{0,8}}(?:[.,]\d{{4,12}})?)[ \u00a0-]?({'|'.join(sorted(map(re.escape, _POWER), key=len, reverse=True))})(?![a-zA-Zà-ÿ])",
    re.I,
)
_EXPONENT = re.compile(
    r"(?:(?<!\d)(\d{1,30}(?:[.,]\d{1,30})?)\s?[x×·*]\s?)?10(?:\^\{?([-−]?\d{1,3})\}?|([⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]{1,3}))|(?<!\d)(\d{1,30}(?:[.,]\d{1,30})?)e([+-]?\d{1,3})\b",
    re.I,
)
_SUPERSCRIPTS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
_FRACTION = re.compile(
    r"(?:(?<!\d)(\d{1,30})\s?)?([¼½¾⅐-⅞])|(?:(?<![\d/.-])(\d{1,2}) )?(?<![\d/.-])([1-9])/([2-9]|1[0-6])(?![\d/.-])"
)
_TIME = re.compile(
    r"(?<![\d:.])(\d{1,2})(?:[:.h時时시](?:\s?(\d{2}))[分분]?)?\s?((?:a\.?m|p\.?m)\b\.?|uhr\b|o'clock)|(?<![\d:.])([01]?\d|2[0-4])[:h時时](\d{2})[分]?(?![\d:])"
    r"|\b(?:в|kl\.?|klo|ore|alle|às|om|godz\.|saat|um|las) (\d{1,2})\.(\d{2})(?!\.?\d)",
    re.I,
)
_VERSION = re.compile(r"\b(?:version|release|ver|v|python|java|node|rev)\.?\s?(\d{1,4}(?:\.\d{1,4})+)", re.I)
_PHONE = re.compile(r"(?<![\w.])(?:\+|00)\d{1,3}[\d ()/.-]{5,20}\d(?!\w)")
_HAN_NUMBER = re.compile(r"[零〇一二两兩三四五六七八九十百千万萬亿億壱弐参]+")
_HAN = dict(zip("零〇一二两兩三四五六七八九", (0, 0, 1, 2, 2, 2, 3, 4, 5, 6, 7, 8, 9), strict=True))
_HAN |= dict(zip("壱弐参", (1, 2, 3), strict=True))
_ROMAN_SIGNS = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}
_HAN_UNITS = {"十": 10, "百": 100, "千": 1000}
_HAN_BIG = {"万": 10**4, "萬": 10**4, "亿": 10**8, "億": 10**8}
_MONTH = {name: place for place, names in enumerate(_WORDS["months"], 1) for name in names.split()}
_MONTH_NAMES = "|".join(sorted(_MONTH, key=len, reverse=True))
_DATE = re.compile(
    rf"(?<![\d.])(?P<day>\d{{1,2}})(?:\.|st|nd|rd|th|er|º|°)?(?:\s+(?:de|of))?\s+(?P<month>{_MONTH_NAMES})\b\.?(?:,?\s+(?:de\s+|del\s+)?(?P<year>\d{{4}}))?"
    rf"|\b(?P<month2>{_MONTH_NAMES})\.?\s+(?P<day2>\d{{1,2}})(?:st|nd|rd|th)?(?!\d)(?:,?\s+(?P<year2>\d{{4}}))?"
    r"|(?P<iso>(?<![\d-])\d{4}-\d{2}-\d{2}(?!\d))|(?<![\d.])(?P<numeric>\d{1,2}[./]\d{1,2}[./](?:\d{4}|(?!\d)))"
    r"|(?:(?P<year3>\d{4})[年년]\s?)?(?P<month3>\d{1,2})[月월]\s?(?P<day3>\d{1,2})[日号號일]",
    re.I,
)  # fmt: skip
_SMALL = {name: str(place) for words in _WORDS["small"].values() for place, names in enumerate(words.split(), 1) for name in names.split("|")}  # fmt: skip
_SMALL |= {name: str(value) for words in _WORDS["larger"].values() for value, names in zip((*range(13, 20), *range(20, 101, 10)), words.split(), strict=True) for name in names.split("|")}  # fmt: skip
_TENS = "|".join(sorted((name for name, value in _SMALL.items() if int(value) >= 20), key=len, reverse=True))
_UNIT = "|".join(sorted((name for name, value in _SMALL.items() if int(value) < 20), key=len, reverse=True))
_WORD = re.compile(r"quatre-vingt-dix|quatre-vingts?|soixante-dix|dix-(?:sept|huit|neuf)|[^\W\d_]+(?:[\u0900-\u097f]+)?", re.I)
_TWO_WORDS = re.compile(
    rf"(?<!\w)(?:({_TENS})(?:[ -]|[ -](?:y|e|et|i)[ -])?({_UNIT})|({_UNIT})(?:und|en|ën| و)({_TENS}))(?!\w)", re.I
)
_HANGUL = str.maketrans("일이삼사오육칠팔구십백천만억", "一二三四五六七八九十百千万億")
_MIXED = re.compile(r"(?<![\d.,])(?:\d[\d.,]{0,30}[亿億억万萬만千천]\s?){2,}")
_BARE_POINT = re.compile(r"(?<![\d.,])[.,]\d+")
_PERCENT = re.compile(r"(?<!\d)(\d{1,30}(?:[.,]\d{1,30})?)[ \u00a0\u202f]?[%％٪]")
_ROMAN = re.compile(r"\b(?=[IVX]{2}|M{1,3}[CDXLIV]{2})M{0,3}(?:CM|CD|D?C{0,3})(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})\b")
_MEASURE = {unit: (base, Decimal(factor)) for base, units in _WORDS["measures"].items() for unit, factor in units.items()}
_MEASURED = re.compile(
    rf"(?<!\d)(?<!\d[.,])(\d{{1,30}}(?:[.,]\d{{1,12}}){{0,8}})[ \u00a0-]?({'|'.join(sorted(_MEASURE, key=len, reverse=True))})\b"
)
_SHARE = {word: value for value, words in _WORDS["shares"].items() for word in words.split()}
_SHARE_WORD = re.compile(rf"(?<!\w)three quarters|(?<![a-z])(?:{'|'.join(_SHARE)})", re.I)
_HALF_PAST = re.compile(
    rf"\b(?:half past|halb|half) ({'|'.join([*SMALL, *_WORDS['small']['de'].replace('|', ' ').split(), *_WORDS['small']['nl'].replace('|', ' ').split()])}|\d{{1,2}})\b",
    re.I,
)
_ENGLISH = re.compile(
    rf"\b(?=(?:{'|'.join([*SMALL, *TENS])})\b)(?:(?:{'|'.join([*SMALL, *TENS, *SCALE])})\b(?:[\s-]+(?:and\s+)?(?=\w))?)+", re.I
)


class Notation(NamedTuple):
    """A stretch of a text and the values that its number may have. `strict`: only this whole is meant, not its digits."""

    start: int
    end: int
    values: frozenset[str]
    strict: bool = False


@lru_cache(maxsize=4096)
def notations(text: str, *, english: bool = False) -> tuple[Notation, ...]:
    """The numbers of a text that are written in more than plain digits. In English `6,000` is never 6."""
    return tuple(_notations(text, english))


def _notations(text: str, english: bool) -> Iterator[Notation]:
    for match in _DATE.finditer(text):
        if values := _dates(match):
            yield Notation(*match.span(), values, True)
    for match in _TIME.finditer(text):
        if values := _times(match):
            yield Notation(*match.span(), values, True)
    for match in _VERSION.finditer(text):
        yield Notation(match.start(1), match.end(1), frozenset({f"v{match[1]}", match[1]}), True)
    for match in _GROUPED_NOTATION.finditer(text):
        groups = english and re.fullmatch(r"[\d,]+", match[0])
        yield Notation(*match.span(), frozenset({match[0].replace(",", "")}) if groups else _decimals(match[0]))
    for match in _SCALED.finditer(text):
        yield Notation(*match.span(), _times_power(_decimals(match[1]), _POWER[match[2].lower()]))
    for match in _EXPONENT.finditer(text):
        factor, power = match[1] or match[4] or "1", match[2] or match[3] or match[5]
        exponent = int(power.translate(_SUPERSCRIPTS).replace("−", "-"))
        yield Notation(*match.span(), _times_power(_decimals(factor), exponent))
    for match in _FRACTION.finditer(text):
        part = unicodedata.numeric(match[2]) if match[2] else int(match[4]) / int(match[5])
        amount = _plain(Decimal(str(round(int(match[1] or match[3] or 0) + part, 6))))
        scale = re.compile(r"[ \u00a0-]?([^\W\d_]+)").match(text, match.end())
        thousands = _POWER.get(scale[1].lower(), 0) if scale else 0
        yield Notation(*match.span(), _times_power(frozenset({amount}), thousands))
    for match in _PHONE.finditer(text):
        digits = re.sub(r"\D", "", match[0])
        yield Notation(*match.span(), frozenset({digits, digits.removeprefix("00")}))
    for match in _HAN_NUMBER.finditer(text):
        if (number := _han(match[0])) is not None:
            yield Notation(*match.span(), frozenset({str(number)}))
    for match in _HAN_NUMBER.finditer(text.translate(_HANGUL)) if re.search("[십백천만]", text) else ():
        if (number := _han(match[0])) is not None:
            yield Notation(*match.span(), frozenset({str(number)}))
    for match in _MIXED.finditer(text):
        parts = re.findall(r"([\d.,]+)([^\d\s])", match[0])
        sizes = [max(map(Decimal, _times_power(_decimals(digits), _POWER[sign]))) for digits, sign in parts]
        yield Notation(*match.span(), frozenset({_plain(sum(sizes, Decimal(0)))}))
    for match in _BARE_POINT.finditer(text):
        yield Notation(*match.span(), frozenset({_plain(Decimal(f"0.{match[0][1:]}"))}))
    for match in _PERCENT.finditer(text):
        yield Notation(*match.span(), _times_power(_decimals(match[1]), -2))
    for match in _MEASURED.finditer(text):
        base, factor = _MEASURE[match[2]]
        yield Notation(*match.span(), frozenset(base + _plain(Decimal(v) * factor) for v in _decimals(match[1])))
    for match in _ROMAN.finditer(text):
        if signs := [_ROMAN_SIGNS[sign] for sign in match[0]]:  # of "VX" nothing is read
            value = sum(-here if here < after else here for here, after in pairwise([*signs, 0]))
            yield Notation(*match.span(), frozenset({str(value)}))
    for match in _SHARE_WORD.finditer(text):
        yield Notation(*match.span(), frozenset({_SHARE.get(match[0].lower(), "0.75")}))
    for match in _HALF_PAST.finditer(text):
        word = match[1].lower()
        hour = int(word) if word.isdecimal() else SMALL.get(word) or int(_SMALL[word])
        hour -= not match[0].lower().startswith("half past")
        yield Notation(*match.span(), frozenset({f"t{hour}:30", f"t{hour + 12}:30"}))
    for match in _TWO_WORDS.finditer(text):
        first, second = (_SMALL[(match[group] or match[group + 2]).lower()] for group in (1, 2))
        yield Notation(*match.span(), frozenset({str(int(first) + int(second))}))
    for match in _WORD.finditer(text):
        if (small := _SMALL.get(match[0].lower())) is not None:
            yield Notation(*match.span(), frozenset({small}))
    for match in _ENGLISH.finditer(text):
        yield Notation(*match.span(), frozenset({str(_english(match[0]))}))


def _decimals(digits: str) -> frozenset[str]:
    """What digits with separators may mean: the last one may be the decimal sign, or all may separate groups."""
    digits = digits.replace("٬", ",").replace("٫", ".")
    together = re.sub(r"\D", "", digits)
    found = {_plain(Decimal(together))} if re.search(r"\D\d{2,4}(?:\D|\Z)", digits) or together == digits else set()
    head, sign, tail = digits.rpartition("," if digits.rfind(",") > digits.rfind(".") else ".")
    if sign and head.count(sign) == 0:
        head, tail = (re.sub(r"[^0-9٠-٩०-९０-９]", "", part) for part in (head, tail))
        found.add(_plain(Decimal(f"{head or 0}.{tail}")))
    return frozenset(found)


def _times_power(values: frozenset[str], power: int) -> frozenset[str]:
    try:
        return frozenset(_plain(Decimal(value).scaleb(power)) for value in values)
    except InvalidOperation:
        return values


def _times(match: re.Match[str]) -> frozenset[str]:
    hour, minute, half = (
        int(match[1] or match[4] or match[6]),
        match[2] or match[5] or match[7] or "00",
        (match[3] or "").lower(),
    )
    if hour > 24 or int(minute) > 59:
        return frozenset()
    if half.startswith(("a", "p")):
        hour = hour % 12 + 12 * half.startswith("p")
        return frozenset({f"t{hour}:{minute}"})
    return frozenset({f"t{hour}:{minute}", *([f"t{hour + 12}:{minute}"] if hour < 12 and half == "o'clock" else [])})


def _dates(match: re.Match[str]) -> frozenset[str]:
    """`d3-15` and, with a year, `d2024-3-15`; two readings where day and month may change places."""
    part = match.groupdict()
    if part["iso"]:
        year, month, day = part["iso"].split("-")
        readings = [(year, int(month), int(day))]
    elif part["numeric"]:
        first, second, year = re.split(r"[./]", part["numeric"])
        readings = [(year, int(second), int(first)), (year, int(first), int(second))]
    else:
        month = part["month"] or part["month2"]
        year = part["year"] or part["year2"] or part["year3"] or ""
        place = _MONTH[month.lower()] if month else int(part["month3"])
        readings = [(year, place, int(part["day"] or part["day2"] or part["day3"]))]
    dates = {(year, month, day) for year, month, day in readings if 1 <= month <= 12 and 1 <= day <= 31}
    return frozenset(f"d{int(year) if year else ''}-{month}-{day}" for year, month, day in dates)


def _han(text: str) -> int | None:
    """The value of a Chinese numeral; None for one sign alone, which is often a word, and for no numeral."""
    if len(text) < 2:
        return None
    if all(sign in _HAN for sign in text):
        return int("".join(str(_HAN[sign]) for sign in text))
    total = section = digit = 0
    for sign in text:
        if sign in _HAN:
            digit = _HAN[sign]
        elif sign in _HAN_UNITS:
            section, digit = section + (digit or 1) * _HAN_UNITS[sign], 0
        else:
            total, section, digit = (total + section + digit or 1) * _HAN_BIG[sign], 0, 0
    return total + section + digit


def _english(text: str) -> int:
    total = part = 0
    for word in re.split(r"[\s-]+", text.lower()):
        if word in SMALL or word in TENS:
            part += SMALL.get(word, TENS.get(word, 0))
        elif word == "hundred":
            part = (part or 1) * 100
        elif word in SCALE:
            total, part = total + (part or 1) * SCALE[word], 0
    return total + part
