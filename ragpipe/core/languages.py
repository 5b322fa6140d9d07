"""The language of a text, and how answers in other languages than English decline: by script, function words and phrases.

The rules of this package are made for English. A text in another language is read by phrases of its own; where they leave a
doubt there is no verdict.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

from pydantic import Field, ValidationInfo, model_validator

from ragpipe.core.patterns import Search, compile_timed, read_patterns
from ragpipe.core.settings import Settings
from ragpipe.core.text import WORD, sentences

NOT_COVERED = "language_not_covered"
LANGUAGES = "languages.v2"
_LONGEST = 500  # characters of a sentence that declines
_LEAST_OTHER = 2  # function words of another language that tell it, where English has fewer
_SCRIPTS = {  # by the first word of a letter's Unicode name
    "CYRILLIC": "ru", "ARABIC": "ar", "DEVANAGARI": "hi", "HIRAGANA": "ja", "KATAKANA": "ja", "HANGUL": "ko", "CJK": "zh",
}  # fmt: skip
_OTHER_LETTERS = re.compile("[іїєґўђјљњћџѓќѕәғқңөұүһپچژگٹڈڑںھہے\u06cc\u06a9]", re.I)
"""Letters that Russian and Arabic do not have: of Ukrainian, Serbian, Kazakh, Persian, Urdu."""
_ADDRESS = re.compile(r"(?:https?://|www\.)\S+|(?<!\S)[^\s@]+@\S*\.\S+")  # each word is read once, however long
Reading = Literal["english", "declines", "answers", "unknown"]


class Declining(Settings):
    """How answers in one language decline. Expressions ignore case and read one sentence."""

    declines: list[str] = Field(
        default_factory=list, description="Regular expressions of a sentence that declines to answer. Default: none."
    )
    asides: list[str] = Field(
        default_factory=list,
        description="Regular expressions of a sentence that is neither refusal nor content. Default: none.",
    )
    denies: str = Field(
        default="",
        description="Regular expression of what every refusal has. An answer without it does not decline. Default: unknown.",
    )

    @model_validator(mode="after")
    def _check_patterns(self, info: ValidationInfo) -> Declining:
        """Those of a shipped file are compiled by the tests of this package; a start compiles what it searches for."""
        for pattern in (*self.declines, *self.asides, self.denies) if info.context != {"shipped": True} else ():
            compile_timed(pattern)
        return self


def language_of(text: str) -> str | None:
    """The code of the language: `en`, one of `languages.v2`, the commonest of a script; `other` where it is none of them. None
    where a short text does not tell.

    The script comes first, then the function words. Cyrillic counts as Russian, Devanagari as Hindi, Arabic script as Arabic.
    """
    text = _ADDRESS.sub(" ", text[:20_000])
    letters = [sign for sign in text[:4_000] if sign.isalpha()]
    foreign = [] if text.isascii() else [sign for sign in letters if ord(sign) > 0x24F and not 0x1E00 <= ord(sign) <= 0x1EFF]
    if len(foreign) > len(letters) / 3:
        scripts = Counter(unicodedata.name(sign, "").partition(" ")[0] for sign in foreign)
        if scripts["HIRAGANA"] + scripts["KATAKANA"]:
            return "ja"
        return "other" if _OTHER_LETTERS.search(text) else _SCRIPTS.get(scripts.most_common(1)[0][0], "other")
    words = [word.replace("’", "'") for word in WORD.findall(text) if not word.isupper()]
    distinct = {word.casefold() for word in words}
    counts = Counter(dict.fromkeys(_weights(), 0))
    for word in distinct:
        for code, weight in _languages_of().get(word, ()):
            counts[code] += weight
    english = counts.pop("en")
    code, most = counts.most_common(1)[0]
    if english > most or english == most >= _LEAST_OTHER:
        return "en"
    own = sum(_weights()[code].get(word, 0) for word in distinct - _weights()["en"].keys())
    if most > english and own >= _LEAST_OTHER:
        return code
    foreign_words = [word for word in words if word.islower() and not word.isascii()]
    return "other" if foreign_words and most >= english and not (english and len(words) > 3) else None


def is_english(text: str) -> bool:
    """Whether rules made for English may read the text: nothing tells that it is in another language."""
    return language_of(text) in ("en", None)


@lru_cache(maxsize=1)
def _weights() -> dict[str, dict[str, int]]:
    """The words of each language: 1 for a function word, enough alone for one that no English text has."""
    file = read_patterns(LANGUAGES)
    telling: Mapping[str, str] = file["telling_words"]
    return {
        code: dict.fromkeys(words.split(), 1) | dict.fromkeys(telling.get(code, "").split(), _LEAST_OTHER)
        for code, words in file["function_words"].items()
    }


@lru_cache(maxsize=1)
def _languages_of() -> dict[str, list[tuple[str, int]]]:
    languages: dict[str, list[tuple[str, int]]] = {}
    for code, known in _weights().items():
        for word, weight in known.items():
            languages.setdefault(word, []).append((code, weight))
    return languages


def read_declining(answer: str, languages: Mapping[str, Declining], search: Search | None = None) -> Reading:
    """How an answer reads by the phrases of its language.

    `english`: the English rules may read it. `declines`: every sentence declines in one language, or is an aside (a short text
    may be in any language of its script). `answers`: it has no sign of a refusal in its language. `unknown`: no rule here covers it.
    """
    code = language_of(answer)
    if code == "en" or not languages:
        return "english" if code in ("en", None) else "unknown"
    search = search or Search()
    text = _NO_WORD.sub(" ", answer.replace("’", "'"))
    pieces = [sentence.casefold() for sentence in sentences(text)]
    latin = [one for one in languages if one not in _SCRIPTS.values()]
    candidates = latin if code is None or code not in _SCRIPTS.values() else [code] if code in languages else []
    if any(_declines(pieces, languages[one], search) for one in candidates):
        return "declines"
    if code is None:
        return "unknown" if any(_denies(text, languages[one].denies, search) for one in latin) else "english"
    known = code in languages and languages[code].denies
    return "answers" if known and not _denies(text, languages[code].denies, search) else "unknown"


_NO_WORD = re.compile(r"[\dA-Za-z_À-ɏ]{100,}")
"""What is too long for a word: a pattern of endings would take a square of its length."""


def _declines(pieces: list[str], language: Declining, search: Search) -> bool:
    kinds = set()
    if any(len(piece) > _LONGEST for piece in pieces):
        return False
    for piece in pieces:
        if any(search(pattern, piece, "languages.declines") for pattern in language.declines):
            kinds.add("declines")
        elif not any(search(pattern, piece, "languages.asides") for pattern in language.asides):
            return False
    return "declines" in kinds


def _denies(text: str, pattern: str, search: Search) -> bool:
    """Whether a word denies that is no English word of the same letters."""
    match = search(pattern, text, "languages.denies") if pattern else None
    while match and match[0].casefold() in _ENGLISH:
        text = text[match.end() :]
        match = search(pattern, text, "languages.denies")
    return bool(match)


_ENGLISH_WORDS = "no non sin ni sorry excuses nada bez fora falta pardon nic ani ze mai ne rien pas sem em diem"
_ENGLISH = frozenset(_ENGLISH_WORDS.split())
