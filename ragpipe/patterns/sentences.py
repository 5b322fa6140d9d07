"""Sentences, list items and words of a text, by rules that a reader can check: line ends, list marks, full stops."""

from __future__ import annotations

import re

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
_MARKUP = re.compile(r"\*\*|__|`")
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
        body = _MARKUP.sub("", line[list_mark(line) :])
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
    return [_MARKUP.sub("", line).removeprefix("[ ] ").removeprefix("[x] ") for line in lines]


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
