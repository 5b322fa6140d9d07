"""A claim of the answer is negated, a claim without support is added, or all of it becomes a refusal."""

from __future__ import annotations

import random
import re

from ragpipe.extras.checks.case_text import (
    CaseText,
    content_words,
    free_matches,
    has_phrase,
    is_english,
    numbers_in,
    share_of_words,
)
from ragpipe.extras.checks.mutant import NAME, Donors, Edit, edited_answer, replaced_output
from ragpipe.judging.heuristic.lexicon import NEGATIONS
from ragpipe.patterns.sentences import sentences
from ragpipe.schema.sample import Case, Citation

REFUSAL = "I cannot answer this question from the documents that I have."
SUPPORTED = 0.6
"""Share of a sentence's content words in the chunks from which its negation is taken to contradict them."""
FOREIGN = 0.34
"""Share of a sentence's content words in the chunks up to which it is taken to have no support there."""
_PARTICIPLE = r"(?:\w+ed|\w+en|been|made|built|held|left|paid|sent|set|put|led|met|won|lost|become|begun|done|gone)"
_VERB = re.compile(
    rf"\b(?P<verb>is|are|was|were|will|must|does|do|did|(?:has|have|had)(?=\s+{_PARTICIPLE}\b))\b(?P<not>\s+not\b)?",
)
_CONDITION = re.compile(
    r"\b(?:here|there|some|assuming|suppose|how|why|if|unless|until|when|whenever|whether|while|once|where|before|after)\b",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"[^\n.!?]+(?:[.!?](?!\s|$)[^\n.!?]*)*[.!?]*")


def negate_claim(case: Case, text: CaseText, donors: Donors, rng: random.Random) -> Edit | None:
    """The case with one sentence of its answer negated: `was` becomes `was not`, `is not` becomes `is`.

    English only. The sentence has most of its content words in the chunks, so that its negation contradicts them; it asks
    nothing and has no other negation. `can`, `may` and `should` are left alone: what may be may also not be.
    """
    if not is_english(text.answer):
        return None
    candidates = []
    for sentence in _SENTENCE.finditer(text.answer):
        verb = _first_verb(text.answer, sentence.span())
        words = {word.casefold() for word in re.findall(r"[\w']+", sentence[0])}
        is_negated = bool(words & NEGATIONS) and not (verb and verb["not"])
        is_supported = share_of_words(sentence[0], text.context_words) >= SUPPORTED
        if verb and is_supported and not is_negated and not sentence[0].rstrip().endswith(("?", ":")):
            candidates.append((sentence, verb))
    if not candidates:
        return None
    sentence, verb = rng.choice(candidates)
    negated = verb["verb"] if verb["not"] else f"{verb['verb']} not"
    return edited_answer(case, verb.span(), negated, in_reference=_is_in_reference(sentence[0], text))


def _first_verb(answer: str, span: tuple[int, int]) -> re.Match[str] | None:
    """The first verb of a sentence that `not` may follow; None where it stands in a condition, a purpose, an aside
    (`it is worth noting`) or after `here`: nothing is claimed then."""
    verb = next((match for match in free_matches(_VERB, answer) if span[0] <= match.start() < span[1]), None)
    if verb is None:
        return None
    lead, rest = answer[span[0] : verb.start()], answer[verb.end() :]
    is_purpose = re.match(r"\s*To\s[^,]*\Z", lead)
    is_aside = re.search(r"\b[Ii]t\s\Z", lead) and re.match(
        r"\s(?:also\s)?(?:worth|important|recommended|advisable)\b", rest
    )
    is_second = re.search(r"\b(?:could|may|might|would|should|must|will|can)\s\Z", lead)  # `could have led`
    return None if _CONDITION.search(lead) or is_purpose or is_aside or is_second else verb


def _is_in_reference(sentence: str, text: CaseText) -> bool:
    return share_of_words(sentence, content_words(text.references)) >= SUPPORTED


def add_claim(case: Case, text: CaseText, donors: Donors, rng: random.Random) -> Edit | None:
    """The case with a sentence of another question's chunks at the end of its answer: nothing in its own chunks supports it.

    The sentence has a number or a name that the case does not know, and few of its words are in the chunks. None where no such
    sentence is to be had.
    """
    for chunk in donors.chunks(case, rng):
        for sentence in sentences(chunk.text):
            if _is_claim(sentence) and _is_foreign(sentence, text):
                end = len(text.answer.rstrip())
                glue = "" if text.answer[end - 1 : end] in tuple(".!?]") else "."
                return edited_answer(case, (end, len(text.answer)), f"{glue} {sentence}")
    return None


def _is_claim(sentence: str) -> bool:
    """Whether a sentence is a whole English statement that makes sense by itself: no title, no list, no pronoun first."""
    has_verb = re.search(r"\b(?:is|are|was|were|has|have|had|will|can|may|must|does|did|[a-z]+ed)\b", sentence)
    is_whole = sentence[-1:] == "." and sentence[:1].isupper() and not set(sentence) & set(':;?[]“”"') and has_verb
    refers_back = re.match(
        r"(?:How|What|Why|When|Where|Who|Which|If|It|He|She|They|This|That|These|Those|His|Her|Its|Their)\b", sentence
    )
    return bool(is_whole) and refers_back is None and 6 <= len(sentence.split()) <= 40


def _is_foreign(sentence: str, text: CaseText) -> bool:
    names = [match[0] for match in NAME.finditer(sentence) if match.start()]
    is_new = bool(numbers_in(sentence) - text.known_numbers) or any(not has_phrase(text.known, name) for name in names)
    return is_new and share_of_words(sentence, text.context_words) <= FOREIGN


def refuse(case: Case, text: CaseText, donors: Donors, rng: random.Random) -> Edit | None:
    """The case with a refusal in place of its answer, without citations. Only where an answer is due."""
    sample = case.sample
    if sample.answerable is False or (sample.expected and sample.expected.behavior == "reject"):
        return None
    edit = edited_answer(case, (0, len(text.answer)), REFUSAL, in_reference=True)
    citations: list[Citation] | None = None if case.output.citations is None else []
    abstained = None if case.output.abstained is None else True
    return replaced_output(edit, citations=citations, abstained=abstained)
