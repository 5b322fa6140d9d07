"""Who does not know, and who only uses the words: labelled sentences of both kinds."""

import pytest

from ragpipe.core.refusals import DontKnowPhrases, dont_know_phrase, load_phrases

PHRASES = load_phrases("dont_know.v1")

# graphrag-metrics.md, sections 9 and 11: the two lists
FIRST = ["i don't know", "i do not know", "unknown", "not sure", "cannot determine", "no information", "insufficient data",
         "unable to answer"]  # fmt: skip
SECOND = [*FIRST, "cannot answer", "don't have enough information", "not available", "no data"]

ADMITS = [
    "I don't know.",
    "I don’t know.",
    "i do not know",
    "Sorry, I don't know who wrote it.",
    "Unknown.",
    "The author is unknown.",
    "I am not sure.",
    "Based on the provided context, I cannot answer the question.",
    "I cannot determine the date from the documents.",
    "There is no information about this in the documents. They only deal with the years after 1900.",
    "Insufficient data.",
    "I'm unable to answer this question.",
    "I don't have enough information to say who built it. I don't know.",
    "The date is not available in the sources.",
    "That is not available in any of the documents.",
    "The figure is not available in the provided context.",
    "The figure is not available at this time.",
    "There is no data to answer this question.",
    "The cause is unknown to me.",
    "I cannot answer, since the sources end in 1990.",
    "No data.",
    "N/A",
    "n/a.",
    "None",
    "null",
    "No idea!",
]
ANSWERS = [
    "The Unknown Soldier",
    "The Unknown Soldier is buried under the arch.",
    "An unknown gunman fired at the car.",
    "I cannot overstate how good it is.",
    "I don't know of any better place than Paris.",
    "I'm not sure, but it is probably Paris.",
    "No data center was built.",
    "The company has no information desk.",
    "It is sold in France and in Spain; its author is unknown.",
    "The book tells how the data was found in 1911 by two clerks. Its author is unknown.",
    "None of the three ships came back.",
    "Null Island lies at 0, 0.",
    "It was a no-information zone, the guide says.",
    "Unavailable parts are replaced by new ones.",
    "It is not available in Germany, but it is sold in France, in Spain and in Italy.",
    "Paris.",
    "It was not available in Europe until 2019.",
    "It is not available in Europe.",
    "The feature is not available in the free plan.",
    "The drug is not available over the counter.",
    "There is no data to suggest that vaccines cause autism.",
    "There is no information that supports the claim.",
    "The cause was unknown until 1954.",
]


@pytest.mark.parametrize(("answer", "admits"), [*((a, True) for a in ADMITS), *((a, False) for a in ANSWERS)])
def test_who_does_not_know_and_who_answers(answer, admits):
    assert bool(dont_know_phrase(answer, PHRASES)) == admits


def test_the_phrases_are_the_union_of_the_two_lists_of_the_document():
    assert sorted(PHRASES.phrases) == sorted({*FIRST, *SECOND})
    assert all(dont_know_phrase(f"{phrase}.", PHRASES) == phrase for phrase in PHRASES.phrases)


def documents_rule(answer):
    """`is_dont_know_answer` of the document, word for word."""
    lower = answer.lower().strip()
    return any(p in lower for p in SECOND) or (len(lower) < 10 and any(w in lower for w in ("unknown", "n/a", "none", "null")))


@pytest.mark.parametrize("answer", [*ADMITS, *ANSWERS, "nonetheless", "Nonesuch!", "It is N/A here, as said above"])
def test_the_literal_rule_is_the_documents(answer):
    answer = answer.replace("’", "'")  # the document knows one apostrophe
    assert bool(dont_know_phrase(answer, PHRASES, literal=True)) == documents_rule(answer)


def test_what_goes_on_is_a_phrase_of_the_list():
    with pytest.raises(ValueError, match="not avalable is none of them"):
        DontKnowPhrases(phrases=["not available"], goes_on={"not avalable": ["here"]})
