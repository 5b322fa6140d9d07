"""Quote matching: whether a quote occurs in a text, and at which characters. Typography does not count.

One normal form serves metrics that check quotes, reports that highlight them and literal checks: NFC, case folded, white
space collapsed (none beside Chinese and Japanese signs), one kind of quotation mark and of dash, one width of letters, digits,
kana and punctuation, and nothing that readers cannot see: soft hyphens, marks of direction, joiners, Arabic vowel signs, a
hyphen at the end of a line, `**`.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from operator import itemgetter

Span = tuple[int, int]
"""Start and end (exclusive) of a stretch of a text, in characters."""

INVISIBLE = "\u00ad\u200b\u200c\u200d\u200e\u200f\u061c\u2060\ufeff\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
"""Soft hyphen, spaces without width, joiners, marks of direction, byte order mark."""
_VOWEL_SIGNS = "".join(map(chr, (*range(0x64B, 0x653), 0x670, 0x640)))  # of Arabic, with the tatweel
_SINGLE_QUOTES = "\u2018\u2019\u201a\u201b\u2032\u2039\u203a\uff07"
_DOUBLE_QUOTES = "\u00ab\u00bb\u201c\u201d\u201e\u201f\u2033\u300c\u300d\u300e\u300f\u301d\u301e\u301f\uff02\uff62\uff63"
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2212"
_WITHOUT_INVISIBLE = str.maketrans(dict.fromkeys(INVISIBLE))
_TYPOGRAPHY = str.maketrans(
    dict.fromkeys(_SINGLE_QUOTES, "'")
    | dict.fromkeys(_DOUBLE_QUOTES, '"')
    | dict.fromkeys(_DASHES, "-")
    | dict.fromkeys(INVISIBLE + _VOWEL_SIGNS)
)
_TYPOGRAPHIC = re.compile(f"[{''.join(map(chr, _TYPOGRAPHY))}]+")  # `translate` alone looks every character up
_WIDE = re.compile("[\u3000\uff01-\uffee]+")
_CJK = "\u3001-\u303f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u3002"
_DROPPED = re.compile(  # what a page break or Markdown puts between signs that belong together
    rf"(?<=[{_CJK}])\s+|(?<!\s)\s+(?=[{_CJK}])|(?<=[^\W\d_])[-\u00ad\u2010]\r?\n[ \t]*(?=[^\W\d_])|\*\*"
)
_MAY_BE_DROPPED = re.compile(rf"[{_CJK}\u00ad\u2010*-](?:(?<=[{_CJK}])|(?<=\*)\*|\r?\n)")  # quick, and most texts have none
_ASCII_WORDS = re.compile(r"[!-~]+(?: [!-~]+)*(?![^\x00-\x7f])")  # the last character composes with nothing behind it
_ELISION = re.compile(r"\s*(?:\[\s*)?(?:\.{3,}|\u2026)(?:\s*\])?\s*")
_REMEMBERED_TEXTS = 512
_REMEMBERED_LENGTH = 10_000  # characters; a longer text is normalised anew each time


def without_invisible(text: str) -> str:
    """The text in NFC, without soft hyphens and zero-width spaces; case and typography stay."""
    return unicodedata.normalize("NFC", text).translate(_WITHOUT_INVISIBLE)


def normalise(text: str) -> str:
    """The text in its normal form: NFC, case folded, white space collapsed, one kind of quotation mark and dash.

    The last texts are remembered: all metrics of a case look for quotes in the same chunks and the same answer.
    """
    return _remembered_form(text) if len(text) <= _REMEMBERED_LENGTH else _normal_form(text)


def _normal_form(text: str) -> str:
    return " ".join(_fold(_without_dropped(text)).split())


def _without_dropped(text: str) -> str:
    return _DROPPED.sub("", text) if _MAY_BE_DROPPED.search(text) else text


_remembered_form = lru_cache(maxsize=_REMEMBERED_TEXTS)(_normal_form)


def occurs(quote: str, texts: Iterable[str]) -> bool:
    """True when one of the texts, already normalised, holds the quote.

    Quotation marks around the quote are left out. An elision (`...`) stands for any text between its pieces, which must
    occur in order in the *same* text. A quote without a letter or digit occurs nowhere.
    """
    pieces = quote_pieces(quote)
    return bool(pieces) and any(_match_in_order(pieces, text, 0) is not None for text in texts)


class MatchableText:
    """A text with its normal form and the way back from there to its own characters."""

    def __init__(self, text: str):
        self.text = text
        self.normal = normalise(text)

    def find(self, quote: str) -> list[Span]:
        """Where the quote stands in the text: a span for each of its pieces, in order, for every time that it occurs.

        Empty exactly when `occurs(quote, [self.normal])` is false. Matches do not overlap.
        """
        return self.find_pieces(quote_pieces(quote))

    def find_pieces(self, pieces: Sequence[str]) -> list[Span]:
        """As `find`, for a quote whose pieces are known (`quote_pieces`): one that is looked for in many texts."""
        spans: list[Span] = []
        start = 0
        while pieces and (matches := _match_in_order(pieces, self.normal, start)) is not None:
            spans += [self._original(match) for match in matches]
            start = matches[-1][1]
        return spans

    def _original(self, match: Span) -> Span:
        first, end = match
        return self._origin(first)[0], self._origin(end - 1)[1]

    def _origin(self, place: int) -> Span:
        """The characters of the text that the sign at `place` of the normal form was made from."""
        first, (start, end), one_by_one = self._parts[bisect_right(self._parts, place, key=itemgetter(0)) - 1]
        if one_by_one:
            start, end = start + place - first, start + place - first + 1
        return self._with_dropped(start), self._with_dropped(end - 1) + 1

    def _with_dropped(self, place: int) -> int:
        """Where a character of the text without what is dropped stands in the text."""
        at = bisect_right(self._drops, place, key=itemgetter(0)) - 1
        return place + (self._drops[at][1] if at >= 0 else 0)

    @cached_property
    def _drops(self) -> list[Span]:
        """Where something was dropped, in the text without it, and how many characters up to there."""
        drops, total = [], 0
        for match in _DROPPED.finditer(self.text) if _MAY_BE_DROPPED.search(self.text) else ():
            drops.append((match.start() - total, total + match.end() - match.start()))
            total = drops[-1][1]
        return drops

    @cached_property
    def _parts(self) -> list[tuple[int, Span, bool]]:
        """The normal form in parts: where each begins, its characters, and whether these became its signs one by one."""
        parts: list[tuple[int, Span, bool]] = []
        length, space = 0, None
        text = _without_dropped(self.text)
        for start, end in _stretches(text):
            stretch = text[start:end]
            one_by_one = stretch.isascii() and not stretch.isspace()
            for sign in (stretch,) if one_by_one else _fold(stretch):
                if sign.isspace():
                    space = (start, end) if space is None else (space[0], end)
                    continue
                if space is not None and parts:
                    parts.append((length, space, False))
                    length += 1
                parts.append((length, (start, end), one_by_one))
                length += len(sign)
                space = None
        return parts


def _fold(text: str) -> str:
    if text.isascii():  # there is nothing to compose and no typography
        return text.lower()
    narrow = _WIDE.sub(lambda match: unicodedata.normalize("NFKC", match[0]), text)
    return _TYPOGRAPHIC.sub(lambda match: match[0].translate(_TYPOGRAPHY), unicodedata.normalize("NFC", narrow)).casefold()


def quote_pieces(quote: str) -> list[str]:
    """The stretches of a normalised quote between its elisions, without the quotation marks around them."""
    normal = normalise(quote).strip("\"' ")
    parts = _ELISION.split(normal) if "..." in normal or "\u2026" in normal else [normal]
    pieces = (part.strip("\"' ") for part in parts)
    return [piece for piece in pieces if any(sign.isalnum() for sign in piece)]


def _match_in_order(pieces: Sequence[str], text: str, start: int) -> list[Span] | None:
    """Where the pieces follow each other in a normalised text from `start` on; None when one of them is missing."""
    matches = []
    for piece in pieces:
        place = text.find(piece, start)
        if place < 0:
            return None
        start = place + len(piece)
        matches.append((place, start))
    return matches


def _stretches(text: str) -> Iterator[Span]:
    """The text cut where NFC composes nothing: ASCII words with a space between them, and clusters."""
    done = 0
    for words in _ASCII_WORDS.finditer(text):
        yield from _clusters(text, done, words.start())
        yield words.span()
        done = words.end()
    yield from _clusters(text, done, len(text))


def _clusters(text: str, start: int, end: int) -> Iterator[Span]:
    """This part of a text, cut before everything but marks and Hangul vowels and finals."""
    for place in range(start + 1, end):
        sign = text[place]
        composes = "\u1160" <= sign <= "\u11ff" or sign in "\uff9e\uff9f"
        if sign < "\u0300" or not (composes or unicodedata.category(sign).startswith("M")):
            yield start, place
            start = place
    if start < end:
        yield start, end


UNSAFE = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
"""C0 and C1 controls, DEL, line and paragraph separators, marks that reorder text (CVE-2021-42574), lone surrogates."""
_UNSAFE = re.compile(UNSAFE)
_SPACE = re.compile(r"\s+")


def printable(text: str) -> str:
    """The text with every control character as an escape (`\\x1b`, `\\u202e`); newlines and tabs stay."""
    return text if text.isprintable() else _UNSAFE.sub(_escape, text)


def escape_unprintable(text: str) -> str:
    """The text with everything as an escape that `str.isprintable` refuses, newlines and invisible characters too."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def on_one_line(text: str, limit: int = 200) -> str:
    """The text on one line, at most `limit` characters long; ` ...` marks what was cut."""
    line = _SPACE.sub(" ", printable(text)).strip()
    return line if len(line) <= limit else line[: max(0, limit - 4)].rstrip() + " ..."


def shorten(text: str, limit: int) -> str:
    """The text as it is, or its first `limit` characters and `...`."""
    return text if len(text) <= limit else text[:limit] + "..."


def _escape(character: re.Match[str]) -> str:
    number = ord(character[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"


# blanks of every kind, marks without a width and control characters may stand before; the wide forms compute too
_FORMULA = re.compile("'*(?:[\t\r\n]|[\\s\x00-\x1f\x7f\u00ad\u200b-\u200f\u2060\ufeff]*[=+\\-@＝＋－＠])")


def escape(text: str) -> str:
    """The text as it is written to a cell: with an apostrophe before what a spreadsheet would compute."""
    return "'" + text if _FORMULA.match(text) else text


_MARKUP = re.compile(r"[\\`*_{}\[\]<>#+!|~&]|://")


def code_span(text: str, limit: int = 200) -> str:
    """A Markdown code span: inside it nothing is a link, an image, HTML or emphasis.

    The fence is longer than any run of backticks in the text.
    """
    line = on_one_line(text, limit)
    if not line:
        return ""
    fence = "`" * (_longest_ticks(line) + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def escape_markdown(text: str, limit: int = 600) -> str:
    """Plain words on one line of Markdown, where none of their characters is markup."""
    return _MARKUP.sub(r"\\\g<0>", on_one_line(text, limit))


def code_block(text: str, limit: int = 2000) -> str:
    """A fenced Markdown block that the text cannot close."""
    block = printable(text.replace("\r\n", "\n").replace("\r", "\n"))
    if len(block) > limit:
        block = block[:limit].rstrip() + f"\n... ({len(block) - limit} more characters)"
    fence = "`" * max(3, _longest_ticks(block) + 1)
    return f"{fence}text\n{block}\n{fence}"


def markdown_table(heads: Sequence[str], lines: Sequence[Sequence[str]], *, left: Collection[int] = (0,)) -> list[str]:
    """A Markdown table; columns in `left` are aligned left, the others right.

    A bar in a cell becomes a broken one: renderers disagree on how `\\|` is read, and where the cell ends there, the
    rest of the text would leave its code span.
    """
    rule = ["---" if place in left else "---:" for place in range(len(heads))]
    cells = [[text.replace("|", "¦") for text in line] for line in (heads, *lines)]
    return ["| " + " | ".join(line) + " |" for line in (cells[0], rule, *cells[1:])]


def _longest_ticks(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


WORD = re.compile(r"[^\W_]+(?:['/][^\W_]+)*")
_NUMBER = r"(?:\d{1,3}|[^\W\d_]|[ivx]{2,4})"
_MARK = (  # `-`, `1.`, `(2)`, `a)`, `**1.**`, `1、`, `①`, `1️⃣`, `一、`, `（一）`, `・`, `1-`, `1.º`
    rf"(?:[-*+•‣◦·∙▪▫–—→➢✓✔][ \t]+|[●○◎■□◆◇★☆▶►・ㆍ][ \t]*|\d{{1,2}}(?:\ufe0f?\u20e3|\.?[ºª][ \t]|[-/][ \t])[ \t]*|\(?{_NUMBER}\)[ \t]+|\d{{1,3}}\.(?:[ \t]+|(?=[^\W\d_]))|(\*\*|__)\(?\d{{1,3}}[.)]\1[ \t]*|\*\*(?=\d{{1,3}}[.)]\s)\d{{1,3}}[.)]\s"
    rf"|\(?\d{{1,3}}\)(?=[^\W\d_])|[（(]?(?:\d{{1,3}}|[一二三四五六七八九十]{{1,3}})(?:[、．）]|\)(?=\S))[ \t]*|[①-⓿❶-➓㈠-㈩][ \t.、)]*)"
)
_BULLET = re.compile(r"\s*(?:[-*+•‣◦·>#]+\s+|\(?\d{1,3}[.)]\s+)+|\s*" + _MARK, re.I)
_LETTERED = re.compile(r"^([ \t]*)([^\W\d_]|[ivx]{2,4})[.．-](?=[ \t]+\S)", re.I | re.M)
_COUNTING = (
    "abcdefghijklmnopqrstuvwxyz", ("i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x"), "абвгдежз", "أبجدهوزح", "ابجدهوزح",
    "가나다라마바사아자차카타파하", "कखगघङचछज", "甲乙丙丁戊己庚辛壬癸",
)  # fmt: skip
_ITEM = re.compile(rf"^([ \t]*){_MARK.replace(chr(92) + '1', chr(92) + '2')}(?=\S)", re.MULTILINE)
_INLINE = re.compile(r"(?:(?<=\s)|(?<=\A)|(?<=[:：;；,，、。]))[(（]?(\d{1,2}|[a-h])[)）][ \t]*(?=\S)|([①-⓿])")
_TABLE_RULE = re.compile(r"\s*\|?(?:\s*:?-{2,}:?\s*\|)+\s*(?::?-{2,}:?)?\s*\Z")
_HTML_ITEM = re.compile(r"<li\b[^<>]{0,200}>(.{0,4000}?)(?=</li>|<li\b|</[uo]l>|\Z)", re.I | re.S)
_LIST_MARKUP = re.compile(r"\*\*|__|`")
_STOP = re.compile(
    r"(?<=[.!?։؟۔])(?:[\"'”’“)»\]」]|\s»|\[[^\[\]\n]{1,12}\]){0,3}\s+(?=[^\s\da-z])"
    r"|(?<=[。！？｡])[」』”’）)】]{0,2}+(?!と)|(?<=[।॥])\s*"
)
_ABBREVIATION = re.compile(
    r"(?:\b[A-ZА-Я]|\b(?:[Dd]r|[Dd]ott|Mr|Mrs|Ms|Prof|St|No|vs|Inc|Ltd|Co|approx|e\.g|i\.e|cf|Fig|Jan|Feb|Aug|Sept|Oct|Nov|Dec"
    r"|bzw|z\. ?B|d\. ?h|u\. ?a|Abs|Art|Nr|Str|ca|evtl|ggf|inkl|Hr|Fr|Mio|Mrd|vgl|sog|Sr|Sra|Dra|Ud|Uds|pág|núm|Mme|Mlle|art|env|dhr|mevr|blz|nr|tzn|np|ul|пр|г|ул|рис|стр|тыс|млн|млрд|им))\.\Z"
)
_LETTER = re.compile(r"(?<![^\W\d_])[^\W\d_]\.")
_GERMAN_ORDINAL = re.compile(r"(?<!\d)\d{1,2}\.\Z")
_AFTER_ORDINAL = re.compile(
    r"(?:Jan(?:uar)?|Jän\w*|Feb\w*|März?|Mrz|April?|Mai|Juni?|Juli?|Aug\w*|Sep\w*|Okt\w*|Nov\w*|Dez\w*|Jahrhundert\w*|Auflage|Stock|Etage|Klasse|Kapitel|Lebensjahr\w*"
    r"|Internationale\w*|Geburtstag\w*|Platz|Mal|Semester|Quartal\w*|Woche)\b"
)


def sentences(text: str) -> list[str]:
    """The sentences and list items in order, without list marks and emphasis. Pieces without a letter or digit are left out.

    A stop after an abbreviation, an initial or a German ordinal (`Dr. Who`, `U.S. Government`, `29. Juli`) ends no sentence.
    """
    pieces: list[str] = []
    for line in without_letters(text).split("\n"):
        body = _LIST_MARKUP.sub("", line[list_mark(line) :])
        start = 0
        for stop in _STOP.finditer(body):
            before = body[max(start, stop.start() - 12) : stop.start()].rstrip()
            ordinal = _GERMAN_ORDINAL.search(before) and _AFTER_ORDINAL.match(body, stop.end())
            spaced = _LETTER.search(before) and _LETTER.match(body, stop.end())  # z. B.
            if not ordinal and not spaced and not _ABBREVIATION.search(before):
                pieces.append(body[start : stop.end()].strip())
                start = stop.end()
        pieces.append(body[start:].strip())
    return [piece for piece in pieces if any(c.isalnum() for c in piece)]


def list_items(text: str) -> list[str]:
    """The list items of the outermost level in order: only the line of each, without its mark.

    Where no line begins with a mark: the items of an HTML list, the rows of a table below its head, or the items `1) a 2) b` of
    a line whose marks count up from 1 (or a).
    """
    text = without_letters(text)
    marks = list(_ITEM.finditer(text))
    outermost = min((_width(mark[1]) for mark in marks), default=0)
    lines = [text[mark.end() :].partition("\n")[0].strip() for mark in marks if _width(mark[1]) == outermost]
    if len(lines) == 1 and (inline := _inline_items(text)):
        lines = inline
    lines = lines or _html_items(text) or _table_rows(text) or _inline_items(text)
    return [_LIST_MARKUP.sub("", line).removeprefix("[ ] ").removeprefix("[x] ") for line in lines]


def _html_items(text: str) -> list[str]:
    return [" ".join(re.sub(r"<[^<>]{0,200}>", "", item[1]).split()) for item in _HTML_ITEM.finditer(text)]


def _table_rows(text: str) -> list[str]:
    lines = text.split("\n")
    rule = next((place for place, line in enumerate(lines) if "|" in line and _TABLE_RULE.match(line)), None)
    below = lines[rule + 1 :] if rule else []
    return [" ".join(line.replace("|", " ").split()) for line in below if "|" in line and any(map(str.isalnum, line))]


def _inline_items(text: str) -> list[str]:
    """The items of a list in one line; empty where its marks do not count up by one."""
    marks = list(_INLINE.finditer(text))
    numbers = [ord(m[2]) - 0x245F if m[2] else int(m[1]) if m[1].isdecimal() else ord(m[1]) - 96 for m in marks]
    if len(marks) < 2 or numbers != list(range(1, len(marks) + 1)):
        return []
    edges = [*(mark.start() for mark in marks[1:]), len(text)]
    return [text[mark.end() : end].strip(" ,;，；、") for mark, end in zip(marks, edges, strict=True)]


def without_letters(text: str) -> str:
    """The text with hyphens for `a.`, `b.`, for `i.`, `ii.` and the like at the heads of its lines, where they count up: one alone
    may be an initial."""
    marks = [mark[2].casefold() for mark in _LETTERED.finditer(text)]
    if len(marks) < 2 or not any(marks == list(order[: len(marks)]) for order in _COUNTING):
        return text
    return _LETTERED.sub(lambda mark: f"{mark[1]}-{' ' * len(mark[2])}", text)


def list_mark(line: str) -> int:
    """The length of the list marks that a line begins with."""
    mark = _BULLET.match(line)
    return mark.end() if mark else 0


def words_of(text: str) -> str:
    """The words of a short text in normal form: equal for two whole answers that say the same."""
    return " ".join(WORD.findall(text.replace("\u2019", "'").casefold()))


def _width(indent: str) -> int:
    return len(indent.expandtabs(4))
