"""The claims of an answer: its sentences and list items, without headings, questions, refusals and pleasantries."""

from __future__ import annotations

import re
import warnings
from functools import lru_cache
from itertools import pairwise
from typing import Any

from ragpipe.judging.heuristic.tokenized_text import tokenize
from ragpipe.patterns.citation_marks import without_marks
from ragpipe.patterns.languages import is_english
from ragpipe.patterns.sentences import list_mark, sentences, without_letters

_SOURCE = r"(?:passages?|contexts?|documents?|sources?|texts?|excerpts?|articles?|information|materials?|chunks?)"
_GIVEN = r"(?:given|provided|available|above|retrieved|following|supplied)"
_STEP = re.compile(r"\s*(?:>\s*|(?:step|option|passage)\s+\d{1,3}\s*[:.)-]\s*)+", re.I)
_HEADING = re.compile(r"\s{0,3}#{1,6}\s")
_MARK = re.compile(r"\*\*|__|(?<!\w)[*_](?=\w)|(?<=\w)[*_](?!\w)|`")
_LEAD = re.compile(
    rf"(?:(?:so|therefore|thus|overall|in summary|in conclusion|hence|however|additionally|yes|no),?\s+)?"
    rf"(?:(?:based (?:solely |only )?on|according to|from|as (?:stated|mentioned|described) in|in)\s+(?:the |these |those |your )?"
    rf"(?:{_GIVEN}\s+)?{_SOURCE}(?:\s+{_GIVEN})?(?:\s*\(?\d+\)?)?(?:\s+and\s+\d+)?,\s*)",
    re.I,
)
_DENIES = r"(?:unable|not able|not possible|impossible|cannot|can't|can not|could not|couldn't|don't|do not)"
_TELLS = r"(?:answer|determine|provide|find|say|tell|confirm|help|assist|know|give|identify|have)"
_REFUSAL = re.compile(
    rf"(?:^|\b(?:i|we)(?: am|'m|’m| are)?|\bit(?: is|'s|’s))\s*{_DENIES}\s+(?:to\s+)?(?:\w+\s+)?{_TELLS}\b"
    rf"|{_DENIES}\s+(?:to\s+)?(?:\w+\s+)?(?:answer|be (?:answered|determined))\b"
    rf"|\b{_SOURCE}\b[^.]{{0,60}}?\b(?:do|does|did)(?:\s+not|n['’]t)\s+(?:\w+\s+){{0,2}}?"
    rf"(?:provide|mention|specify|contain|state|include|give|offer|address|discuss|say|explain|answer|indicate|have)\b"
    rf"|\b(?:there is|there are|i have|i found|{_SOURCE} (?:contains?|provides?|gives?))\s+(?:no|not enough|insufficient)\s+"
    rf"(?:\w+\s+){{0,2}}?(?:information|mention|answer)\b"
    rf"|\bwithout\s+(?:further|more|additional)\s+(?:\w+\s+){{0,2}}?(?:information|context|details?)\b"
    rf"|\bnone of the\b[^.]{{0,30}}\b{_SOURCE}\b"
    rf"|\bnot (?:\w+ )?(?:mentioned|specified|stated|provided|given|addressed|clear) (?:in|by|from) (?:the|any|these)\b[^.]{{0,20}}\b{_SOURCE}\b"
    rf"|\bi(?: am|'m|’m) (?:sorry|afraid)\b",
    re.I,
)
_PLEASANTRY = re.compile(
    r"\s*(?:(?:hi|hello|hey|greetings|good (?:morning|afternoon|evening|day)|welcome|hallo|guten (?:tag|morgen|abend)|bonjour|salut|hola"
    r"|buenos días|ciao|buongiorno|olá|bom dia|merhaba|привет|здравствуйте|مرحبا\w*|नमस्ते|cześć|dzień dobry|goedendag|您好|你好|こんにちは|안녕하세요)"
    r"(?: there| everyone|[,] \w+)?\s*[.!,。！،]?\s*\Z|i(?:'m| am|’m) (?:here|happy|glad) to (?:help|assist)\b|how (?:can|may) i (?:help|assist)\b"
    r"|(?:i )?hope (?:this|that) helps|let me know|feel free|please (?:let me know|feel free|consult|refer)|you're welcome"
    r"|happy to help|sure[,!.]|certainly[,!.]|of course[,!.]|great question|thank(?:s| you)(?:[,!.]| for)|here (?:is|are|'s)\b|in summary\W*\Z)",
    re.I,
)
_STOP = re.compile(r"(?<=[.!?])[\"'”’)\]*]{0,3}\s+|(?<=[。！？؟])")
_PLAIN_STOP = re.compile(r"(?<=\s[a-z]{4})[.!?]\s+(?=[A-Z])|(?<=[a-z]{5})[.!?]\s+(?=[A-Z])")
_DATE = re.compile(r"\d\. (?:Jan|Feb|Mär|Apr|Mai|Jun|Jul|Aug|Sep|Okt|Nov|Dez)")
_LONGEST_LINE = 4_000  # characters per call of the sentence splitter, whose rules are not linear on odd texts


@lru_cache(maxsize=256)
def extract_claims(text: str) -> tuple[str, ...]:
    """The claims of an answer, in order. Empty when it asserts nothing (a refusal, a question, punctuation)."""
    return tuple(cleaned for sentence in split_sentences(text) if (cleaned := _claim(sentence)))


def placed_claims(text: str) -> list[tuple[str, int, int]]:
    """The claims as `extract_claims` gives them, each with the characters of the sentence that it is from."""
    placed = []
    at = 0
    for sentence in split_sentences(text):
        start = text.find(sentence, at)
        start = (
            start if start >= 0 else at
        )  # pysbd can change odd punctuation: the claim is then placed where it is looked for
        at = min(start + len(sentence), len(text))
        if cleaned := _claim(sentence):
            placed.append((cleaned, start, at))
    return placed


def split_sentences(text: str) -> list[str]:
    """Sentences and list items, without list marks and headings. Each is a literal part of the text."""
    found: list[str] = []
    lines = without_letters(text).split("\n")
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if "|" in line and "-" in below and not below.strip("|-: \t"):
            continue  # the head of a table
        if _HEADING.match(line) or not any(c.isalnum() for c in line):
            continue
        body = line
        while mark := list_mark(body) or ((step := _STEP.match(body)) and step.end()):
            body = body[mark:]
        for start in range(0, len(body), _LONGEST_LINE):
            found.extend(s for s in _split(body[start : start + _LONGEST_LINE]) if s)
    return found


def _split(line: str) -> list[str]:
    """The sentences of a line. Where every stop is plain (`... word. Next`) a plain split gives what pysbd gives, in a
    hundredth of the time."""
    line = line.strip()
    if not is_english(line) or "।" in line or _DATE.search(line):
        return sentences(line)
    stops = len(_STOP.findall(line))
    if not stops:
        return [line]
    if len(_PLAIN_STOP.findall(line)) == stops:
        return [line[start:end].strip() for start, end in _plain_spans(line)]
    try:
        pieces = _segmenter()(language="en", clean=False).segment(line)
    except Exception:  # its regular expressions are built from the text and can fail on odd punctuation
        pieces = _STOP.split(line)
    return [piece.strip() for piece in pieces]


@lru_cache(maxsize=1)
def _segmenter() -> Any:
    with warnings.catch_warnings():  # Python 3.12 warns about its source when compiling it
        warnings.simplefilter("ignore")
        import pysbd
    return pysbd.Segmenter


def _plain_spans(line: str) -> list[tuple[int, int]]:
    edges = [0, *(stop.end() for stop in _PLAIN_STOP.finditer(line)), len(line)]
    return list(pairwise(edges))


def _claim(sentence: str) -> str:
    """The sentence as a claim, without markup and without `Based on the passages,`; '' when it asserts nothing."""
    text = _MARK.sub("", sentence).strip()
    if "|" in text:
        text = " ".join(text.replace("|", " ").split())
    text = _LEAD.sub("", text, count=1).strip() if _LEAD.match(text) else text
    if _asks_or_leads(text) or _PLEASANTRY.match(text) or is_refusal(text):
        return ""
    return text if tokenize(without_marks(text)).content else ""


def states_without_words(text: str) -> bool:
    """Whether a text that gives no claim may state something all the same: "No.", "Yes, it is.", "B". What it states is in the
    question, and strings cannot tell it. False for refusals, questions, pleasantries and texts without a word."""
    sentences = [sentence for sentence in split_sentences(text) if any(c.isalnum() for c in without_marks(sentence))]
    if any(is_refusal(sentence) for sentence in sentences):
        return False
    return any(not (_asks_or_leads(sentence) or _PLEASANTRY.match(sentence)) for sentence in sentences)


def _asks_or_leads(text: str) -> bool:
    return text.strip().endswith((":", "?", "：", "？", "؟"))


def is_refusal(sentence: str) -> bool:
    """Whether a sentence says that it cannot answer or that the sources do not say. No source could support that."""
    return bool(_REFUSAL.search(sentence.strip()))
