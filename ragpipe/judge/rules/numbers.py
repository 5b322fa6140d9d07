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
from typing import NamedTuple

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


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


# The last two lines are words of answers about passages ("the passage states ..."), which no passage needs to contain.
STOP_WORDS = _set(
    """a about above after again against all also although am an and any are as at be because been before being below
    between both but by can could did do does doing down during each either else etc even ever every few for from
    further get had has have having he her here hers him his how however i if in into is it its itself just let like
    many may me might more most much must my of off often on once only or other our out over own per rather same
    she should since so some such than that the their them then there therefore these they this those through thus to
    too under until up upon us use used using very via was we well were what when where whether which while who whom
    whose why will with within would yes you your st nd rd th s t re ve ll d m
    according additionally answer based given following include includes including mention mentioned mentions passage
    passages provided source sources state stated states example overall specifically"""
)
NEGATIONS = _set(
    """not no never none nobody nothing neither nor cannot without unable isn't aren't wasn't weren't don't doesn't
    didn't can't couldn't won't wouldn't shouldn't hasn't haven't hadn't mustn't"""
)
# Read in texts that are not English: some are English words of another meaning.
OTHER_NEGATIONS = _set(
    """nicht kein keine keinen keinem keiner keines nie niemals ohne weder nichts pas jamais aucun aucune sans ningún ninguna ninguno
    sin nunca jamás tampoco non nessun nessuna nessuno senza mai né não nenhum nenhuma sem niet geen nooit zonder żaden żadna bez
    nigdy nie değil yok hiçbir не нет без никогда нельзя لا لم لن ليس ليست غير بدون नहीं न मत बिना"""
)
NEGATED_SIGNS = "不没沒無无未非"
EXCEPT = _set(
    "except excluding excluded außer ausgenommen ausschließlich sauf hormis excepto salvo exceto eccetto tranne behalve uitgezonderd"
)
INCLUDING = _set(
    "including included einschließlich inklusive inbegriffen compris incluant incluido incluidos inclusive incluso inclusi inclusief"
)

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

_UNITS = {
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
UNITS = {form: unit for unit, forms in _UNITS.items() for form in forms.split()}


_SPACES = " \u00a0\u2009\u202f"
_GROUPED_NOTATION = re.compile(
    rf"(?<![\d.,])(?:\d{{1,3}}(?:[{_SPACES}]\d{{3}})+|\d{{1,3}}(?:['’.,٬]\d{{3}})+|\d{{1,2}}(?:,\d{{2}})*,\d{{3}}|\d{{1,4}}(?:,\d{{4}})+)(?:[.,٫]\d{{1,3}})?(?![\d])"
)
_SCALES = {
    3: "k thousand tausend tsd mille mil mila duizend tysiąc tysiące tysięcy bin тыс тысяч тысячи тысяча ألف آلاف हज़ार हजार 千 천",
    4: "万 萬 만",
    5: "lakh lakhs lac lacs लाख",
    6: "million millions mio millionen millón millones milione milioni milhão milhões miljoen milion miliony milionów milyon mln млн "
    "миллион миллиона миллионов مليون ملايين mn m 百万",
    7: "crore crores करोड़ करोड",
    8: "亿 億 억",
    9: "billion billions mrd milliarde milliarden milliard milliards miliardo miliardi bilhão bilhões miljard miliard milyar bn млрд "
    "миллиард миллиарда миллиардов مليار",
}
_POWER = {word: power for power, words in _SCALES.items() for word in words.split()}
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
_MONTHS = (
    "january januar jänner janvier enero gennaio janeiro januari stycznia ocak января январь يناير जनवरी jan",
    "february februar février febrero febbraio fevereiro februari lutego şubat февраля февраль فبراير फरवरी feb",
    "march märz mars marzo março maart marca mart марта март مارس मार्च mar mrz",
    "april avril abril aprile kwietnia nisan апреля апрель أبريل अप्रैल apr",
    "may mai mayo maggio maio mei maja mayıs мая май مايو मई",
    "june juni juin junio giugno junho czerwca haziran июня июнь يونيو जून jun",
    "july juli juillet julio luglio julho lipca temmuz июля июль يوليو जुलाई jul",
    "august août agosto augustus sierpnia ağustos августа август أغسطس अगस्त aug",
    "september septembre septiembre settembre setembro września eylül сентября сентябрь سبتمبر सितंबर sep sept",
    "october oktober octobre octubre ottobre outubro października ekim октября октябрь أكتوبر अक्टूबर oct okt",
    "november novembre noviembre novembro listopada kasım ноября ноябрь نوفمبر नवंबर nov",
    "december dezember décembre diciembre dicembre dezembro grudnia aralık декабря декабрь ديسمبر दिसंबर dec dez",
)
_MONTH = {name: place for place, names in enumerate(_MONTHS, 1) for name in names.split()}
_MONTH_NAMES = "|".join(sorted(_MONTH, key=len, reverse=True))
_DATE = re.compile(
    rf"(?<![\d.])(?P<day>\d{{1,2}})(?:\.|st|nd|rd|th|er|º|°)?(?:\s+(?:de|of))?\s+(?P<month>{_MONTH_NAMES})\b\.?(?:,?\s+(?:de\s+|del\s+)?(?P<year>\d{{4}}))?"
    rf"|\b(?P<month2>{_MONTH_NAMES})\.?\s+(?P<day2>\d{{1,2}})(?:st|nd|rd|th)?(?!\d)(?:,?\s+(?P<year2>\d{{4}}))?"
    r"|(?P<iso>(?<![\d-])\d{4}-\d{2}-\d{2}(?!\d))|(?<![\d.])(?P<numeric>\d{1,2}[./]\d{1,2}[./](?:\d{4}|(?!\d)))"
    r"|(?:(?P<year3>\d{4})[年년]\s?)?(?P<month3>\d{1,2})[月월]\s?(?P<day3>\d{1,2})[日号號일]",
    re.I,
)  # fmt: skip
_WORDS = {  # small numbers, from one on
    "de": "ein|eins|eine|einen zwei drei vier fünf sechs sieben acht neun zehn elf zwölf",
    "fr": "un|une deux trois quatre cinq six sept huit neuf dix onze douze",
    "es": "uno|una dos tres cuatro cinco seis siete ocho nueve diez once doce",
    "it": "uno|una due tre quattro cinque sei sette otto nove dieci undici dodici",
    "pt": "um|uma dois|duas três quatro cinco seis sete oito nove dez onze doze",
    "nl": "een|één twee drie vier vijf zes zeven acht negen tien elf twaalf",
    "pl": "jeden|jedna dwa|dwie trzy cztery pięć sześć siedem osiem dziewięć dziesięć jedenaście dwanaście",
    "tr": "bir iki üç dört beş altı yedi sekiz dokuz on",
    "ru": "один|одна два|две три четыре пять шесть семь восемь девять десять одиннадцать двенадцать",
    "ar": "واحد|واحدة اثنان|اثنين|سنتان ثلاثة|ثلاث أربعة|أربع خمسة|خمس ستة|ست سبعة|سبع ثمانية|ثماني تسعة|تسع عشرة|عشر",
    "hi": "एक दो तीन चार पाँच|पांच छह|छः सात आठ नौ दस",
    "ko": "한|하나 두|둘 세|셋 네|넷 다섯 여섯 일곱 여덟 아홉 열",
}
_LARGER = {  # 13 to 19, then 20, 30 ... 100
    "de": "dreizehn vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn zwanzig dreißig|dreissig vierzig fünfzig sechzig siebzig achtzig neunzig hundert|einhundert",
    "fr": "treize quatorze quinze seize dix-sept dix-huit dix-neuf vingt trente quarante cinquante soixante soixante-dix|septante quatre-vingts|quatre-vingt quatre-vingt-dix|nonante cent",
    "es": "trece catorce quince dieciséis diecisiete dieciocho diecinueve veinte treinta cuarenta cincuenta sesenta setenta ochenta noventa cien|ciento",
    "it": "tredici quattordici quindici sedici diciassette diciotto diciannove venti trenta quaranta cinquanta sessanta settanta ottanta novanta cento",
    "pt": "treze catorze|quatorze quinze dezesseis|dezasseis dezessete|dezassete dezoito dezenove|dezanove vinte trinta quarenta cinquenta sessenta setenta oitenta noventa cem|cento",
    "nl": "dertien veertien vijftien zestien zeventien achttien negentien twintig dertig veertig vijftig zestig zeventig tachtig negentig honderd",
    "pl": "trzynaście czternaście piętnaście szesnaście siedemnaście osiemnaście dziewiętnaście dwadzieścia trzydzieści czterdzieści pięćdziesiąt sześćdziesiąt "
    "siedemdziesiąt osiemdziesiąt dziewięćdziesiąt sto",
    "tr": "on-üç on-dört on-beş on-altı on-yedi on-sekiz on-dokuz yirmi otuz kırk elli altmış yetmiş seksen doksan yüz",
    "ru": "тринадцать четырнадцать пятнадцать шестнадцать семнадцать восемнадцать девятнадцать двадцать тридцать сорок пятьдесят шестьдесят семьдесят восемьдесят девяносто сто",
    "ar": "ثلاثة-عشر أربعة-عشر خمسة-عشر ستة-عشر سبعة-عشر ثمانية-عشر تسعة-عشر عشرون|عشرين ثلاثون|ثلاثين أربعون|أربعين خمسون|خمسين ستون|ستين سبعون|سبعين ثمانون|ثمانين تسعون|تسعين مئة|مائة",
    "hi": "तेरह चौदह पंद्रह सोलह सत्रह अठारह उन्नीस बीस तीस चालीस पचास साठ सत्तर अस्सी नब्बे सौ",
}
_SMALL = {name: str(place) for words in _WORDS.values() for place, names in enumerate(words.split(), 1) for name in names.split("|")}  # fmt: skip
_SMALL |= {name: str(value) for words in _LARGER.values() for value, names in zip((*range(13, 20), *range(20, 101, 10)), words.split(), strict=True) for name in names.split("|")}  # fmt: skip
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
_MEASURES = {  # what is the same in a smaller unit
    "g": {"mg": "0.001", "g": "1", "gram": "1", "grams": "1", "kg": "1000", "kilogram": "1000", "kilograms": "1000"},
    "m": {"mm": "0.001", "cm": "0.01", "m": "1", "metres": "1", "meters": "1", "km": "1000", "kilometres": "1000", "kilometers": "1000"},
    "l": {"ml": "0.001", "cl": "0.01", "l": "1", "liters": "1", "litres": "1"},
    "s": {"seconds": "1", "min": "60", "minutes": "60", "h": "3600", "hour": "3600", "hours": "3600", "days": "86400", "week": "604800", "weeks": "604800"},
}  # fmt: skip
_MEASURE = {unit: (base, Decimal(factor)) for base, units in _MEASURES.items() for unit, factor in units.items()}
_MEASURED = re.compile(
    rf"(?<!\d)(?<!\d[.,])(\d{{1,30}}(?:[.,]\d{{1,12}}){{0,8}})[ \u00a0-]?({'|'.join(sorted(_MEASURE, key=len, reverse=True))})\b"
)
_SHARES = {
    "0.5": "half hälfte moitié mitad metà metade helft połowa połowę yarısı половина половину نصف आधा आधे 一半 半分 절반",
    "0.75": "three-quarters dreiviertel trois-quarts",
    "12": "dozen dutzend douzaine docena dozzina dúzia dozijn tuzin düzine дюжина",
}
_SHARE = {word: value for value, words in _SHARES.items() for word in words.split()}
_SHARE_WORD = re.compile(rf"(?<!\w)three quarters|(?<![a-z])(?:{'|'.join(_SHARE)})", re.I)
_HALF_PAST = re.compile(
    rf"\b(?:half past|halb|half) ({'|'.join([*SMALL, *_WORDS['de'].replace('|', ' ').split(), *_WORDS['nl'].replace('|', ' ').split()])}|\d{{1,2}})\b",
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
