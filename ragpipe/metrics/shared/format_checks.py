"""Rules for the form of an answer: JSON, length, language."""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from typing import Any

from ragpipe.core import strict_json
from ragpipe.core.patterns import Search, read_patterns
from ragpipe.core.text import sentences
from ragpipe.metrics.shared.output_schemas import validator

LANGUAGES = "languages.v1"
LEAST_WORDS = 12  # in fewer words, the function words that an answer happens to contain say little
LEAST_SHARE = 0.15  # of function words; running text of these languages holds 0.3 and more, a list of names far less
LEAD = 1.25  # times the share of the next language: related languages have words in common
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_ONE_BY_ONE = re.compile(
    r"[\u3005-\u3007\u3041-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]"
)
_FENCED = re.compile(r"\A\s*```(?:json)?[ \t]*\n(.*?)\n?```\s*\Z", re.S | re.I)


def sizes(text: str) -> dict[str, int]:
    """Words, characters, sentences.

    Words are the runs of signs between white space that hold a letter or digit. Chinese and Japanese write without spaces:
    there each Han character and each kana is a word, as in the word counts of office programs; Korean has spaces.
    """
    one_by_one = _ONE_BY_ONE.findall(text)
    words = sum(any(c.isalnum() for c in word) for word in _ONE_BY_ONE.sub(" ", text).split())
    return {
        "words": words + sum(c.isalnum() for c in one_by_one),
        "characters": len(text.strip()),
        "sentences": len(sentences(text)),
    }


@lru_cache(maxsize=4)
def function_words() -> dict[str, frozenset[str]]:
    """The function words by language code."""
    by_code = read_patterns(LANGUAGES)["function_words"]
    return {code: frozenset(words.split()) for code, words in by_code.items()}


def language_of(text: str) -> str | None:
    """The code of the language, `other` where most letters are of another script, None where the rules cannot say."""
    letters = [c for c in text if c.isalpha()]
    if len(letters) >= LEAST_WORDS and sum(ord(c) > 0x24F for c in letters) > len(letters) / 2:
        return "other"
    words = [word.casefold().replace("’", "'") for word in _WORD.findall(text)]
    if len(words) < LEAST_WORDS:
        return None
    counts = Counter({code: sum(word in known for word in words) for code, known in function_words().items()})
    (first, most), (_, next_) = counts.most_common(2)
    return first if most >= LEAST_SHARE * len(words) and most >= LEAD * next_ else None


def schema_fault(answer: str, schema: dict[str, Any], search: Search) -> str | None:
    """What keeps the answer from being JSON of this schema; None when it is.

    The answer, or the one fenced block that it consists of, is read strictly (no NaN, no repeated keys).
    """
    fenced = _FENCED.match(answer)
    try:
        value = strict_json.strict_loads(fenced[1] if fenced else answer)
    except strict_json.InvalidJson as error:
        return f"not JSON: {error}"
    try:
        fault = next(iter(sorted(validator(schema, search).iter_errors(value), key=lambda e: e.json_path)), None)
    except RecursionError:
        return "nested too deep to be checked"
    return None if fault is None else f"{fault.json_path}: {fault.message}"
