"""What a citation mark is, for all who read answers: `[1]`, `【1】`, `(Source 2)`, `word²`, `[1](url)`, `[c1]`, `[^1]`.

A mark is found by its form alone; what it names is decided by who knows the chunks. The number of a mark is never a number of
the text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache

from ragpipe.core.text import list_mark, sentences

_WIDEST_RANGE = 50  # numbers that one `[1-9]` may stand for
_WORD = (
    r"(?:sources?|docs?|documents?|refs?|references?|passages?|contexts?|chunks?|citations?|cite|excerpts?|snippets?|ids?|index|web(?:page|site)?|link|url|footnote|fn"
    r"|articles?|texts?|results?|quellen?|dokumente?|fuentes?|documentos?|fontes?|fonti|documenti|bron(?:nen)?|źródł[oa]"
    r"|kaynak|belge|источник|документ|(?:ال)?مصدر|(?:ال)?مستند|स्रोत|दस्तावेज़|来源|來源|文档|文檔|文件|资料|出典|文書|資料|출처|문서)"
)
_LABEL = rf"(?:{_WORD}[\s:：=.#_-]{{0,3}}|[#№@]\s?|[sdprc]\s?(?=\d))"
_ITEM = rf"{_LABEL}?\d{{1,4}}"
_RANGE = r"[-–—~〜⁻]|\.{2,3}|\b(?:to|bis|до|至|到)\b"
_JOIN = (
    rf"\s{{0,3}}(?:(?:{_RANGE})\s{{0,3}}|"
    + r"[,;、，；،]\s{0,3}(?:(?:and|or|und|et|y|e)\s{1,3})?|[+&]\s{0,3}|(?:and|or|und|et|y|e|en|oraz|i|ve|и|и|و|और|和|と|및)\s{1,3})"
)
_LIST = rf"{_ITEM}(?:{_JOIN}{_ITEM}){{0,30}}"
_PAGE = r"(?:,\s?(?:pp?|pages?|S|Seite|стр)\.?\s?\d[\d–-]{0,9})?"
_SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹"
_CIRCLED = "①②③④⑤⑥⑦⑧⑨❶❷❸❹❺❻❼❽❾"
_FROM_SUPERSCRIPT = str.maketrans(_SUPERSCRIPTS + _CIRCLED, "0123456789" + "123456789" * 2)
_UNITS = "".join(f"(?<!{unit})" for unit in ("feet", "inch", "mile", "miles", "meter", "metre", "Meter", "mètre", "metro"))
_MARK = "|".join(
    (
        rf"(?P<emphasis>\*{{1,3}})?\\?(?:[\[［〔〖⟦]|(?<![\w^_\\}}]){{){{1,2}}\s{{0,3}}\^?\s{{0,3}}(?P<square>{_LIST}|[{_CIRCLED}]){_PAGE}\s{{0,3}}(?:[.^]|†[^\[\]\n]{{0,60}})?"
        r"\\?[\]］〕〗⟧}]{1,2}(?:\([^()\s]{0,500}\))?(?(emphasis)(?P=emphasis))",
        r"[【\[](?P<search>\d{1,4}):(?P<place>\d{1,4})(?:†[^【】\[\]\n]{0,60})?[】\]]",
        rf"\\cite[pt]?\{{(?P<latex>{_LIST})\}}|(?<!\w)<{{1,2}}\|?(?P<angle>(?:{_LABEL})?\d{{1,3}})\|?>{{1,2}}",
        rf"[(（]\s?(?:see|cf\.?|siehe|vgl\.?|voir|vedi|zie)\s{{1,3}}\[?(?P<seen>{_LIST})\]?\s?[)）]",
        rf"【\s{{0,3}}(?P<lenticular>{_LIST})\s{{0,3}}(?:†[^【】\n]{{0,60}})?】",
        rf"[(（]\s{{0,3}}(?:(?:see|from|cf\.?|per|according to|siehe|vgl\.?|voir|ver|vedi|zie)\s{{1,3}})?"
        rf"(?P<round>{_LABEL}\d{{1,4}}(?:{_JOIN}{_ITEM}){{0,30}})\s{{0,3}}[)）]",
        rf"<(?P<tag>cite|citation|ref|source|sup|doc)\b[^<>\n]{{0,60}}>\s{{0,3}}\[?(?P<tagged>{_LIST})\]?\s{{0,3}}</(?P=tag)>",
        r"<(?:cit\w{0,6}|ref|source|doc|footnote)[\s:=][^<>\n\d]{0,40}(?P<attribute>\d{1,4})[\"']?\s{0,3}/?>",
        # a superscript behind a word or a stop: "20 m²" and "10^6" cite nothing
        rf"(?:(?<=[^\W\d_]{{3}}){_UNITS}|(?<=[^\W\d_]{{3}}\s)|(?<=[.,;:!?)\"”。、！？»])|(?<=[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]))"
        rf"(?P<above>⁽?[{_SUPERSCRIPTS}]{{1,4}}(?:[,˒–⁻-]?\s?[{_SUPERSCRIPTS}]{{1,4}}){{0,30}}⁾?|\^\d{{1,2}}(?!\d))",
        rf"(?<=[\w.,;:!?)\"”。、！？」』])\s?[(（]?(?P<circled>[{_CIRCLED}]{{1,9}})[)）]?(?=\s{{0,3}}(?:[.,;!?。，；！？\n]|\Z))",
        # These look like marks, and say nothing that a chunk could be found by.
        r"(?P<unknown>\[\d{1,3}[a-z]\]|\[-?@[^\[\]\n]{1,60}\]|\[Data:[^\[\]\n]{1,200}\]|\ue200?cite(?:\ue202?turn\d+[a-z]+\d+){1,9}\ue201?|†\d{1,2}\b|\[\s?\^?\w{0,12}\s?\d+(?:\s?[,;–-]\s?\d+)*\s?\]|\((?:see\s+|from\s+)?(?:step)\.?\s*\d+\)|【[^【】\n]{1,60}】"
        r"|\(\s*(?:sources?|see|refs?|references?|cf|quelle|fuente|fonte)\b[^()\n]{0,60}\)|\[\s*(?:sources?|see|refs?|doc)[^\[\]\n]{0,60}\])",
        r"(?P<inline>\b(?:passages?|sources?|documents?|contexts?|chunks?)\s{1,3}#?\d{1,4}"
        r"(?:(?:\s?,\s?|\s?,?\s?and\s+)\d{1,4}){0,30}\b)",
    )
)
_ROUND = re.compile(
    r"(?:(?<=[^\W\d_])\s?|(?<=\d[)）]))[(（](?P<bare>\d{1,2}(?:\s?[,;–-]\s?\d{1,2}){0,9})[)）](?=\s{0,3}(?:[.,;:!?。，！？।\n]|[(（]\d|\Z))"
)
_ROUND_BEHIND = re.compile(r"(?<=[.!?。！？।])\s?[(（](?P<bare>\d{1,2}(?:\s?[,;–-]\s?\d{1,2}){0,9})[)）](?=\s|\Z)")
_BRACKETED = re.compile(r"[\[【(（]([^\[\]【】()（）\n]{1,80})[\]】)）]")
_PART = re.compile(rf"(\d+)\s{{0,3}}(?:{_RANGE})\s{{0,3}}(?:{_LABEL})?(\d+)|(\d+)", re.I)
_NAMED = re.compile(r"\([^()\n]{0,60}\b(?:1[5-9]|20)\d\d[a-z]?\)|\[[^\[\]\n]{1,60}\]\(|https?://|\baccording to\b", re.I)
_UNREAD = re.compile(  # citations by author and year, a label or an address: they name no chunk
    r"\((?:[^\W\d_][^()\n]{0,60}\bet al\.?|[A-Z][^()\n]{1,60}),? (?<=, )(?:1[5-9]|20)\d\d[a-z]?\)"
    r"|\[[A-Z][^\[\]\n]{1,60}\b(?:1[5-9]|20)\d\d[a-z]?\]|\[[^\[\]\n]{1,60}\]\(|https?://|<(?:cite|citation|ref)\b"
)
_DEFINED = re.compile(r"^\s{0,3}\[\^?\w{1,12}\]:[^\n]*$|^\W{0,6}(?:sources|references|citations|quellen|fuentes|fontes|fonti|bronnen"
                      r"|источники|المصادر|参考文献|来源|出典)\W{0,6}\n(?:\s*(?:[-*•]\s*)?[\[【(]?\^?\d{1,4}[\]】).:][^\n]*(?:\n|\Z))+", re.I | re.M)  # fmt: skip
_HOLDER = "\ue000"  # stands for a mark while a text is cut into sentences
_BEHIND_STOP = re.compile(rf"([.!?。！？।]+[\"'”’)»」]*)((?:[^\S\n]*{_HOLDER})+)")


@cache
def _marks() -> re.Pattern[str]:  # 25 ms, which no start should pay that reads no answer
    return re.compile(_MARK, re.I)


@dataclass(frozen=True, slots=True)
class Mark:
    """A citation mark and where it is in the text.

    `numbers` are those that it shows, `ids` the chunk ids; both are empty where the form says nothing that a chunk could be
    found by. `inline`: its words belong to the sentence ("Source 1 says").
    """

    start: int
    end: int
    numbers: tuple[int, ...] = ()
    ids: tuple[str, ...] = ()
    inline: bool = False


def find_marks(text: str, ids: Collection[str] = ()) -> list[Mark]:
    """The marks of a text in order. `ids` are chunk ids, which are marks in brackets: `[c1]`, `(c1)`, `[c1, c2]`.

    `(1)` counts where it stands behind a word at the end of a clause and the text has no mark in another form. The list of
    sources at the end of a text is no mark.
    """
    defined = [match.span() for match in _DEFINED.finditer(text)]
    marks = {match.start(): _mark(match) for match in _marks().finditer(text)}
    if not marks:
        round_ = [*_ROUND.finditer(text)]
        behind = [] if round_ else [*_ROUND_BEHIND.finditer(text)]
        marks = {
            match.start(): _mark(match)
            for match in round_ or (behind if behind and behind[-1].end() == len(text.rstrip()) else ())
        }
    for match in _BRACKETED.finditer(text) if ids else ():
        parts = [part.strip() for part in re.split(r"[,;]", match[1])]
        if all(part in ids and not part.isdecimal() for part in parts):
            marks[match.start()] = Mark(*match.span(), ids=tuple(parts))
    found = [marks[start] for start in sorted(marks)]
    return [mark for mark in found if not any(start <= mark.start < end for start, end in defined)]


def without_marks(text: str) -> str:
    """The text without its marks, whose numbers are no facts."""
    for mark in reversed(find_marks(text)):
        text = f"{text[: mark.start]} {text[mark.end :]}"
    return text


def has_mark(text: str) -> bool:
    """Whether the text has a citation mark of any form."""
    return bool(find_marks(text))


def cites_otherwise(text: str) -> bool:
    """Whether the text cites in a form that is no mark: by author and year, a labelled link or an address."""
    return bool(_UNREAD.search(text))


def names_source(text: str) -> bool:
    """Whether the text names a source in words, by a year in brackets or by a link."""
    return bool(_NAMED.search(text))


def mark_numbers(text: str) -> list[int]:
    """The numbers of a mark that stands alone, with or without its brackets: `[1, 3]`, `2-4`, `Source 1`. Empty for others."""
    for written in (text, f"[{text}]"):
        match = _marks().fullmatch(written)
        if match and (numbers := _mark(match).numbers):
            return list(numbers)
    return [int(sign.translate(_FROM_SUPERSCRIPT)) for sign in [text] if text and not text.strip(_SUPERSCRIPTS)]


def marked_sentences(text: str, marks: list[Mark]) -> Iterator[tuple[str, list[Mark]]]:
    """The sentences of a text without these marks, each with its own, which may stand before or behind it."""
    waiting = list(marks)
    for sentence in (piece for line in _held(text, marks).split("\n") for piece in sentences(line)):
        own = [waiting.pop(0) for _ in range(sentence.count(_HOLDER))]
        yield re.sub(rf"(?:(?<!\s)\s+)?{_HOLDER}", "", sentence).strip(), own


def marks_before_stops(text: str) -> str:
    """The text with the marks behind a stop moved before it, so that they stay with their sentence."""
    marks = find_marks(text)
    written = iter([text[mark.start : mark.end] for mark in marks])
    return re.sub(_HOLDER, lambda _: next(written), _held(text, marks)) if marks else text


def _held(text: str, marks: list[Mark]) -> str:
    """The text with a holder for each mark, in the sentence that it belongs to."""
    text = text.replace(_HOLDER, " ")
    for mark in reversed(marks):
        kept = text[mark.start : mark.end] if mark.inline else ""
        text = f"{text[: mark.start]}{kept}{_HOLDER}{text[mark.end :]}"
    lines: list[str] = []
    for line in text.split("\n"):
        alone = _HOLDER in line and not line.replace(_HOLDER, "").strip()
        if alone and lines:  # marks alone on a line belong to the line before
            last = max((at for at, before in enumerate(lines) if before.strip()), default=0)
            lines[last:] = [f"{lines[last]} {line.strip()}"]
        else:
            lines.append(line)
    for at, line in enumerate(lines):
        body = line[list_mark(line) :].strip()
        leads = body.startswith(_HOLDER) and not body.rstrip(" .!?。").endswith(_HOLDER)
        lines[at] = line if leads else _BEHIND_STOP.sub(r"\2\1", line)
    return "\n".join(lines)


def _mark(match: re.Match[str]) -> Mark:
    groups = match.groupdict()
    if groups.get("search"):
        # of `1:0` tools mean the second, counted from 0, or the first: where both agree, it is clear
        first, second = int(groups["search"]), int(groups["place"]) + 1
        return Mark(*match.span(), numbers=(first,) if first == second else ())
    written = next((groups[name] for name in _NUMBERED if groups.get(name)), "")
    is_sign = groups.get("above") or groups.get("circled")
    if is_sign and len(written) > 1 and written.translate(_FROM_SUPERSCRIPT) in "123456789":
        written = ",".join(written)  # ¹² are two marks: hardly any answer has twelve sources
    numbers = dict.fromkeys(_numbers(written.translate(_FROM_SUPERSCRIPT)))
    return Mark(*match.span(), numbers=tuple(numbers), inline=bool(groups.get("inline")))


_NUMBERED = (
    "square", "latex", "angle", "seen", "circled", "lenticular", "round", "tagged", "attribute", "above", "inline",
    "bare",
)  # fmt: skip


def _numbers(text: str) -> Iterator[int]:
    for part in _PART.finditer(text):
        if part[3]:
            yield int(part[3])
        else:
            first, last = int(part[1]), int(part[2])
            yield from range(first, min(last, first + _WIDEST_RANGE) + 1)
