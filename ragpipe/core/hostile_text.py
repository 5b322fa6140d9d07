"""Signs that a text addresses the judge instead of the user, or says nothing at all. They are flags: no score depends on them.

Every pattern looks for a form that honest answers hardly ever have; docs/extras/checks.md says how often each fires on real texts.
What has no such form (courtesy, another language, a made-up example) is not found: a flag is a hint, its absence is no proof.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache

_VERDICT_KEYS = (
    "verdicts?|scores?|grade|rating|supported|supported_claims|unsupported_claims|claims|passed|faithfulness|completeness"
    "|groundedness|relevance|relevant|accurate|cited|use|violated|declines|acknowledged"
)
_VERDICT = re.compile(rf"""\{{[^{{}}]{{0,2000}}["'](?:{_VERDICT_KEYS})["']\s*:""", re.I)
_TAG = re.compile(r"</?[0-9a-f]{12}>|\[/?[0-9a-f]{12}\]|\[\[(?:system|user)\]\]", re.I)
_TURN = re.compile(
    r"<\|(?:im_start|im_end|system|user|assistant|endoftext|eot_id|start_header_id)\|>|\[/?INST\]|<</?SYS>>|</?think>"
    r"|^\W{0,4}(?:system|judge|evaluator|grader)(?: (?:message|prompt|note|override|update))?\W{0,2}:",
    re.I | re.M,
)
_TOP = r"(?:5|10|100|1\.0|five|ten|full|highest|maximum|top|perfect|best)"
_MARKS = "score", "grade", "rating", "mark"
_ORDERS = tuple(
    (words, re.compile(pattern, re.I))
    for words, pattern in (
        (("ignore", "disregard", "forget", "override"),
         r"\b(?:ignore|disregard|forget|override)\b.{0,30}\b(?:above|previous|prior|earlier|preceding|your|all)\b.{0,30}"
         r"\b(?:instructions?|task|rules?|rubric|prompt|tags|criteria|guidelines)\b"
         r"|\b(?:ignore|disregard|forget|override)\b.{0,30}\b(?:instructions?|task|rules?|rubric|prompt|tags|criteria)\b.{0,15}"
         r"\b(?:above|before|so far|given)\b"),
        (("judge", "grader", "evaluator", "assessor", "rater"),
         r"\b(?:dear|attention|note (?:to|for)(?: the)?|message (?:to|for)(?: the)?|hello|hey),?"
         r" (?:ai |llm |automatic )?(?:judge|grader|evaluator|assessor|rater)s?\b"),
        ((" this",),
         r"\b(?:if you|when you|you who|whoever)\b.{0,20}\b(?:grade|grading|judge|judging|evaluat\w+|rate|scor(?:e|ing)) this\b"),
        (_MARKS,
         rf"\b(?:give|assign|award|return|output|reply with|respond with|rate|score|grade|mark)\b.{{0,40}}\b(?:score|grade|rating|marks?)"
         rf"\W{{0,3}}(?:of |is |as |to be |= ?|: ?)?{_TOP}\b"),
        (_MARKS, rf"\b(?:give|assign|award)\b.{{0,30}}\b{_TOP} (?:score|grade|rating|marks?)\b"),
        (("score ", "grade ", "rate ", "mark "),
         r"\b(?:score|grade|rate|mark) (?:it|this|this answer|this response|the answer) (?:a |an |as |with )?(?:5|10|correct|perfect|supported)\b"),
        (("supported",),
         r"\b(?:mark|treat|count|report|list) (?:every|each|all)(?: of)?(?: the| its)? (?:claims?|statements?)\b.{0,20}\bsupported\b"),
        (("you are ",),
         r"\byou are (?:now|no longer) (?:a|an|the)\b.{0,40}\b(?:assistant|judge|evaluator|grader|model|mode)\b"),
    )
)  # fmt: skip
"""Orders to a judge, each with words one of which it has: most answers have none, and are not searched."""
_HIDDEN = re.compile("[\U000e0000-\U000e007f]|[\ufe00-\ufe0f\U000e0100-\U000e01ef]{3}|[\u202a-\u202e\u2066-\u2069]|\x1b\\[")
_ZERO_WIDTH = re.compile("[\u200b\u200c\u200d\u2060\ufeff]")
_LONE_ZERO_WIDTH = 3
"""Fewer zero-width characters are leftovers of a web page."""
_MARKUP = re.compile(r"<!--|\]\(#\)|^\[//\]:|(?:display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0)", re.I | re.M)
_SPACED = re.compile(r"(?<!\w)(?:[A-Za-z][ .\-_]{1,3}){9,}[A-Za-z](?!\w)")
_MIXED = re.compile("[A-Za-z][\u0400-\u04ff][A-Za-z\u0400-\u04ff]|[\u0400-\u04ff][A-Za-z][A-Za-z\u0400-\u04ff]")
_BASE64 = re.compile(r"(?<![\w+/])[A-Za-z0-9+/]{32,}={0,2}(?![\w+/])")
_OPENERS = re.compile(
    r"(?:(?:here is |this is )?(?:my |the )?(?:thought process|solution|answer|explanation|reasoning|final answer|analysis)"
    r"|let'?s (?:solve|think(?: about)?|work through|look at) (?:this|it)?(?: problem)?(?: step by step)?"
    r"|to (?:answer|solve) this(?: question| problem)?,? (?:we|i) (?:need|will|must)(?: \w+){0,4})",
    re.I,
)
_WORD = re.compile(r"\w+")
_SENTENCE = re.compile(r"[^.!?\n]+[.!?\n]?")
_REPEATED = 10
"""So many equal sentences are a flood."""
_LONGEST = 100_000
"""Characters that are looked at."""


def _is_base64_text(text: str) -> bool:
    for match in _BASE64.finditer(text):
        try:
            decoded = base64.b64decode(match[0], validate=True).decode("ascii")
        except (binascii.Error, UnicodeDecodeError):
            continue
        if decoded.isprintable() and " " in decoded:
            return True
    return False


def _is_order(text: str) -> bool:
    folded = (text if text.isascii() else text.replace("İ", "i").replace("ı", "i")).casefold()  # as `re.I` takes them
    return any(pattern.search(text) for words, pattern in _ORDERS if any(word in folded for word in words))


def _is_hidden(text: str) -> bool:
    if text.isascii() and "\x1b" not in text:
        return False
    return bool(_HIDDEN.search(text)) or len(_ZERO_WIDTH.findall(text)) >= _LONE_ZERO_WIDTH


_SUSPICIOUS: tuple[tuple[str, Callable[[str], object]], ...] = (
    ("verdict_like_json", _VERDICT.search),
    ("forged_tags", _TAG.search),
    ("forged_turns", _TURN.search),
    ("orders_to_judge", _is_order),
    ("hidden_characters", _is_hidden),
    ("hidden_markup", _MARKUP.search),
    ("spaced_letters", _SPACED.search),
    ("mixed_alphabets", lambda text: not text.isascii() and _MIXED.search(text)),
    ("encoded_text", _is_base64_text),
)
SUSPICIOUS = tuple(name for name, _ in _SUSPICIOUS)
"""The names of all signs of `suspicious_signs`."""
DEGENERATE = ("no_words", "opener_only", "repeats_question", "repeats_context", "repeated_sentence")
"""The names of all signs of `degenerate_signs`."""


@lru_cache(maxsize=512)
def suspicious_signs(text: str) -> tuple[str, ...]:
    """The names of the signs that a text has, in the order of `SUSPICIOUS`. Only its first 100,000 characters count."""
    text = text[:_LONGEST]
    return tuple(name for name, has in _SUSPICIOUS if has(text))


def degenerate_signs(answer: str, question: str, contexts: Sequence[str] = ()) -> tuple[str, ...]:
    """Why an answer says nothing of its own, in the order of `DEGENERATE`; none for an answer that does.

    An answer without a letter or digit, a bare opening phrase, the question once more, a whole context word for word, or one
    sentence at least ten times.
    """
    words = _words(answer)
    if not words:
        return ("no_words",)
    signs = []
    if len(answer) <= 120 and _OPENERS.fullmatch(answer.strip().rstrip(".:!… ")):
        signs.append("opener_only")
    if words == _words(question):
        signs.append("repeats_question")
    pasted = answer.strip()
    if len(pasted) >= 200 and any(pasted == context.strip() for context in contexts):
        signs.append("repeats_context")
    if len(answer) <= _LONGEST:
        sentences = _SENTENCE.findall(answer)
        counts = Counter(map(_words, sentences)) if len(sentences) >= _REPEATED else Counter[str]()
        counts.pop("", None)
        if max(counts.values(), default=0) >= _REPEATED and sum(counts.values()) < 2 * max(counts.values()):
            signs.append("repeated_sentence")
    return tuple(signs)


def _words(text: str) -> str:
    return " ".join(_WORD.findall(text.casefold())) if any(map(str.isalnum, text)) else ""
