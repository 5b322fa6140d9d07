"""Edits of what an answer states: a number, date or name that the chunks support becomes another, a claim is negated or added, or
all of it becomes a refusal."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from ragpipe.core.text import sentences
from ragpipe.extras.checks.edits import NAME, Edit, Subject, content_words, free_matches, has_phrase, numbers_in, share_of_words
from ragpipe.judge.rules.numbers import MONTH_NUMBER, MONTHS, NEGATIONS, STOP_WORDS, normalize_digits

_NUMBER = re.compile(
    r"(?<![\w.,:/#–-])"  # no part of a word, a version, a time, a date, a range or an identifier
    r"(?P<digits>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:[.,]\d+)?)"
    r"(?=\s?%|[\s)!?;,.:…]|$)"
    r"(?![.,:]\d)"
)
_LABEL = re.compile(
    r"(?:(?<=\w\s)[A-Z]\w*|\b(?i:id|no|number|step|chapter|section|page|version|line|table|figure|passages?|contexts?|documents?"
    r"|sources?|chunks?|part|room|form|level|option|item|point|question|rule|type|grade|phase|class|stage|tier|group)|[§#№])\.?\s*\Z"
)
"""What stands before a number that names something: `Room 102`, `passage 2`."""
_FACTORS = ("2", "1.5", "3", "0.5", "4", "2.5", "5", "7", "0.25", "9")
_LONGEST = 15  # digits: a longer number is an identifier
_MONTH = "|".join(name.capitalize() for name in MONTHS if name)
_DATE = re.compile(
    r"(?<![\w.,:/-])(?:"
    r"(?P<iso>\d{4}-\d{2}-\d{2})"
    rf"|(?P<dated>(?:\d{{1,2}}(?:st|nd|rd|th)?\s+)?(?:{_MONTH})(?:\s+\d{{1,2}}(?:st|nd|rd|th)?)?,?\s+\d{{4}})"
    rf"|(?P<day>(?:{_MONTH})\s+\d{{1,2}}|\d{{1,2}}\s+(?:{_MONTH}))"
    r"|(?<=\bin )(?P<year>\d{4})|(?<=\bsince )(?P<year2>\d{4})|(?<=\bof )(?P<year3>\d{4})|(?<=\()(?P<year4>\d{4}(?=[),;–-]))"
    r")(?![\w/-])(?!\.\d)"
)
_YEAR = re.compile(r"(?<!\d)(?:1[5-9]|20)\d{2}(?!\d)")
_SHIFTS = (1, -1, 2, -2, 3, -3, 4, -4, 5, -5, 7, -7, 11, -11)
_WEEKDAYS = frozenset(["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"])
REFUSAL = "I cannot answer this question from the documents that I have."
_SUPPORTED = 0.6
"""Share of a sentence's content words in the chunks from which its negation is taken to contradict them."""
_FOREIGN = 0.34
"""Share of a sentence's content words in the chunks up to which it is taken to have no support there."""
_ENGLISH = frozenset(re.findall(r"\w+", "the of and to in is was were that for with by on as from are has have it its an be"))
_ENGLISH_SHARE = 0.15  # of the words of an answer are common English ones: a rule for English grammar applies only then
_PARTICIPLE = r"(?:\w+ed|\w+en|been|made|built|held|left|paid|sent|set|put|led|met|won|lost|become|begun|done|gone)"
_VERB = re.compile(
    rf"\b(?P<verb>is|are|was|were|will|must|does|do|did|(?:has|have|had)(?=\s+{_PARTICIPLE}\b))\b(?P<not>\s+not\b)?"
)
_CONDITION = re.compile(
    r"\b(?:here|there|some|assuming|suppose|how|why|if|unless|until|when|whenever|whether|while|once|where|before|after)\b",
    re.IGNORECASE,
)
_REFERS_BACK = re.compile(r"(?:How|What|Why|When|Where|Who|Which|If|It|He|She|They|This|That|These|Those|His|Her|Its|Their)\b")
_SENTENCE = re.compile(r"[^\n.!?]+(?:[.!?](?!\s|$)[^\n.!?]*)*[.!?]*")


def _one_of(subject: Subject, rng: random.Random, candidates: list[tuple[tuple[int, int], str, bool]]) -> Edit | None:
    """One of the spans of the answer gets its new text; the third value says whether a reference has the old one."""
    if not candidates:
        return None
    span, text, in_reference = rng.choice(candidates)
    return subject.edited(span, text, in_reference=in_reference)


def change_number(subject: Subject, rng: random.Random) -> Edit | None:
    """One number of the answer that the chunks have becomes another by half or more, which the case does not know.

    Years and days of a month are dates, not numbers. Digits, grouping, decimals and unit stay as they are written; a percentage up
    to 100 stays one.
    """
    answer, candidates = subject.answer, []
    for match in free_matches(_NUMBER, answer):
        digits, span = match["digits"], match.span("digits")
        if not _is_quantity(match, answer) or normalize_digits(digits) not in subject.source_numbers:
            continue
        is_share = re.match(r"\s?(?:%|percent\b|per cent\b)", answer[match.end() :]) is not None
        if (other := next(_other_numbers(digits, subject, is_share), None)) is not None:
            candidates.append((span, other, normalize_digits(digits) in numbers_in(subject.references)))
    return _one_of(subject, rng, candidates)


def _is_quantity(match: re.Match[str], answer: str) -> bool:
    """Whether the number counts or measures: no year, day of a month, identifier, part of a name (`Room 102`) or an address."""
    digits = match["digits"]
    if len(digits) > _LONGEST or (digits.startswith("0") and digits.isdigit()):
        return False
    if digits.isdigit() and len(digits) == 4 and 1500 <= int(digits) < 2100:
        return False
    lead = answer[max(0, match.start() - 40) : match.start()]
    before = re.search(r"([^\W\d_]+)\.?\s*\Z", lead)
    after = re.match(r",?\s*([^\W\d_]+)", answer[match.end() :])
    if (before and _is_month(before[1])) or (after and _is_month(after[1])):
        return False
    names_more = re.match(r"\s\d|\s?(?:B\.?C|A\.?D|C\.?E)\b", answer[match.end() :])  # `720 9th Street`, `316 BC`
    return _LABEL.search(lead) is None and names_more is None


def _other_numbers(digits: str, subject: Subject, is_share: bool) -> Iterator[str]:
    """Other numbers in the same form that the case does not know, the first one preferred."""
    grouped = re.fullmatch(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?", digits) is not None
    comma = not grouped and "," in digits
    plain = digits.replace(",", "" if grouped else ".")
    unit, value = Decimal(1).scaleb(-len(plain.partition(".")[2])), Decimal(plain)
    for factor in _FACTORS:
        number = (value * Decimal(factor) + (Decimal(factor) if not value else 0)).quantize(unit)
        if not number or number == value or (is_share and value <= 100 < number):
            continue
        written = f"{number:,f}" if grouped else f"{number:f}"
        written = written.replace(".", ",") if comma else written
        if normalize_digits(written) not in subject.known_numbers:
            yield written


def change_date(subject: Subject, rng: random.Random) -> Edit | None:
    """One date of the answer that the chunks have, at least by its year, changes: its year by up to 11, or its day where it has no
    year. ISO dates, dates with an English month, and years after `in`, `since`, `of` or a bracket. The case knows neither the new year
    nor the new day."""
    candidates = []
    for match in free_matches(_DATE, subject.answer):
        written, year = match[0], _YEAR.search(match[0])
        is_known = has_phrase(subject.sources, written) or (year is not None and year[0] in subject.sources)
        if is_known and (other := next(_other_dates(written, subject), None)):
            candidates.append((match.span(), other, has_phrase(subject.references, written)))
    return _one_of(subject, rng, candidates)


def _other_dates(written: str, subject: Subject) -> Iterator[str]:
    """Other dates in the same form, the first one preferred."""
    if year := _YEAR.search(written):
        for shift in _SHIFTS:
            other = str(int(year[0]) + shift)
            if other not in subject.known:
                yield written[: year.start()] + other + written[year.end() :]
        return
    if (day := re.search(r"\d{1,2}", written)) is None or not re.search(_MONTH, written):
        return
    for shift in range(9, 28):
        other = str((int(day[0]) + shift) % 28 + 1)
        if not re.search(rf"(?<!\d)0?{other}(?!\d)", subject.known):
            yield written[: day.start()] + other + written[day.end() :]


def change_name(subject: Subject, rng: random.Random) -> Edit | None:
    """One name of the answer that the chunks have becomes one of as many words from another question's chunks, which the case does not
    know.

    A name is a run of capitalised words; a single word that begins a sentence, or that the chunks also write small, is none. Names that
    the question does not use come first: they are what it asks for.
    """
    answer, donors = subject.answer, subject.donors
    spans = {span: answer[slice(*span)] for span in _names(answer)}
    names = [span for span, name in spans.items() if has_phrase(subject.sources, name) and donors.is_name(name)]
    rng.shuffle(names)
    for span in sorted(names, key=lambda span: has_phrase(subject.case.question, spans[span])):
        fitting = (other for other in map(_core, donors.names) if _fits(spans[span], other))
        if others := [other for other in fitting if not has_phrase(subject.known, other)]:
            in_reference = has_phrase(subject.references, spans[span])
            return subject.edited(span, rng.choice(others), in_reference=in_reference)
    return None


def _names(answer: str) -> Iterator[tuple[int, int]]:
    """Start and end of the names of an answer."""
    for match in free_matches(NAME, answer):
        name = _core(match[0])
        start = match.start() + match[0].find(name) if name else match.start()
        last = answer[:start].rstrip()[-1:]
        begins_sentence = not last.isalnum() and last not in (",", ";", "(")
        follows_initial = re.search(r"\b[A-Z]\.\s\Z", answer[max(0, start - 4) : start]) is not None
        if name and _is_name(name) and (" " in name or not begins_sentence) and not follows_initial:
            yield start, start + len(name)


def _core(name: str) -> str:
    """A name without an article or another stop word at its beginning (`The Arbitrum Foundation`)."""
    words = name.split()
    while words and words[0].casefold() in STOP_WORDS:
        words.pop(0)
    return name[name.find(words[0]) :] if words else ""


def _is_name(name: str) -> bool:
    return len(name) > 2 and not any(_is_month(word) or word in _WEEKDAYS for word in name.casefold().split())


def _is_month(word: str) -> bool:
    return word.casefold().rstrip(".") in MONTH_NUMBER


def _fits(name: str, other: str) -> bool:
    """Whether one name can stand for the other: as many words, and an acronym for an acronym."""
    same_length = len(name.split()) == len(other.split())
    return bool(other) and same_length and name.isupper() == other.isupper() and _is_name(other)


def negate_claim(subject: Subject, rng: random.Random) -> Edit | None:
    """One sentence of the answer is negated: `was` becomes `was not`, `is not` becomes `is`.

    English only. The sentence has most of its content words in the chunks, so that its negation contradicts them; it asks
    nothing and has no other negation. `can`, `may` and `should` are left alone: what may be may also not be.
    """
    words = re.findall(r"[^\W\d_]+", subject.answer.casefold())
    common = [word for word in words if word in _ENGLISH]
    if len(set(common)) < 2 or len(common) < _ENGLISH_SHARE * len(words):
        return None
    candidates, reference_words = [], content_words(subject.references)
    for sentence in _SENTENCE.finditer(subject.answer):
        verb = _first_verb(subject.answer, sentence.span())
        said = {word.casefold() for word in re.findall(r"[\w']+", sentence[0])}
        is_supported = share_of_words(sentence[0], subject.source_words) >= _SUPPORTED
        if verb is None or not is_supported or sentence[0].rstrip().endswith(("?", ":")):
            continue
        if verb["not"] or not said & NEGATIONS:
            text = verb["verb"] if verb["not"] else f"{verb['verb']} not"
            candidates.append((verb.span(), text, share_of_words(sentence[0], reference_words) >= _SUPPORTED))
    return _one_of(subject, rng, candidates)


def _first_verb(answer: str, span: tuple[int, int]) -> re.Match[str] | None:
    """The first verb of a sentence that `not` may follow; None in a condition, a purpose or an aside: nothing is claimed."""
    verb = next((match for match in free_matches(_VERB, answer) if span[0] <= match.start() < span[1]), None)
    if verb is None:
        return None
    lead, rest = answer[span[0] : verb.start()], answer[verb.end() :]
    is_purpose = re.match(r"\s*To\s[^,]*\Z", lead)
    is_aside = re.search(r"\b[Ii]t\s\Z", lead) and re.match(r"\s(?:also\s)?(?:worth|important|recommended|advisable)\b", rest)
    is_second = re.search(r"\b(?:could|may|might|would|should|must|will|can)\s\Z", lead)  # `could have led`
    return None if _CONDITION.search(lead) or is_purpose or is_aside or is_second else verb


def add_claim(subject: Subject, rng: random.Random) -> Edit | None:
    """A sentence of another question's chunks comes at the end of the answer: it has a number or a name that the case does not know, and
    few of its words are in the chunks."""
    answer = subject.answer
    for chunk in subject.donors.chunks(subject.case, rng):
        for sentence in sentences(chunk.text):
            if _is_claim(sentence) and _is_foreign(sentence, subject):
                end = len(answer.rstrip())
                glue = "" if answer[end - 1 : end] in tuple(".!?]") else "."
                return subject.edited((end, len(answer)), f"{glue} {sentence}")
    return None


def _is_claim(sentence: str) -> bool:
    """Whether a sentence is a whole English statement that makes sense by itself: no title, no list, no pronoun first."""
    has_verb = re.search(r"\b(?:is|are|was|were|has|have|had|will|can|may|must|does|did|[a-z]+ed)\b", sentence)
    is_whole = sentence[-1:] == "." and sentence[:1].isupper() and not set(sentence) & set(':;?[]“”"') and has_verb
    return bool(is_whole) and _REFERS_BACK.match(sentence) is None and 6 <= len(sentence.split()) <= 40


def _is_foreign(sentence: str, subject: Subject) -> bool:
    names = [match[0] for match in NAME.finditer(sentence) if match.start()]
    has_new_name = any(not has_phrase(subject.known, name) for name in names)
    is_new = bool(numbers_in(sentence) - subject.known_numbers) or has_new_name
    return is_new and share_of_words(sentence, subject.source_words) <= _FOREIGN


def refuse(subject: Subject, rng: random.Random) -> Edit | None:
    """A refusal takes the place of the answer, without citations. Only where an answer is due."""
    sample, output = subject.case.sample, subject.case.output
    if sample.answerable is False or (sample.expected and sample.expected.behavior == "reject"):
        return None
    abstained = None if output.abstained is None else True
    fields: dict[str, Any] = {"citations": None if output.citations is None else [], "abstained": abstained}
    return subject.edited((0, len(subject.answer)), REFUSAL, in_reference=True, **fields)
