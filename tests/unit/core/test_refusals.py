"""Refusals, who does not know, and answers that look like either. No sentence is from a data set."""

import pytest
import rules as benchmark
from hypothesis import given
from hypothesis import strategies as st

from ragpipe.core import patterns
from ragpipe.core.errors import JudgeError
from ragpipe.core.patterns import pattern_files, read_patterns
from ragpipe.core.policies import find_violations, load_policy
from ragpipe.core.refusals import DontKnowPhrases, RefusalPatterns, dont_know_phrase, load_phrases, load_refusals, read_refusal
from ragpipe.core.text import sentences
from ragpipe.metrics.shared.format_checks import language_of, sizes
from tests.support.growth import assert_linear
from tests.support.pages import DOCS

SHIPPED = RefusalPatterns.model_validate(read_patterns("refusals.v2"))
PHRASES = load_phrases("dont_know.v1")
READERS = [
    lambda answer: read_refusal(answer, SHIPPED),
    lambda answer: dont_know_phrase(answer, PHRASES),
    lambda answer: list(find_violations(answer, [load_policy("financial_advice.v1"), load_policy("personal_data.v1")])),
    sentences,
    sizes,
    language_of,
]

REFUSALS = [
    "I am unable to answer this question.",
    "I'm sorry, but I can't help with that.",
    "I cannot provide financial advice. Please consult a licensed advisor.",
    "Unable to answer based on the given passages.",
    "I don't have enough information to answer.",
    "I don’t know.",
    "The documents do not mention the late fee.",
    "There is no information about the opening hours in the provided context.",
    "This question cannot be answered from the documents.",
    "Based on the provided context, it is not possible to determine who signed the lease.",
    "The passages discuss how the lake was formed. They do not say how deep it is. Therefore I cannot answer.",
    "Unfortunately, none of the sources describe the boiler's warranty. Let me know if you have another question!",
    '"I cannot answer that."',
    "As an AI language model, I cannot predict stock prices.",
    "I must respectfully decline.",
    "**I'm afraid I can't say.**\n\nThe article only covers the 2019 model.",
    "If you lose your badge on a weekend, the handbook does not say whom to call.",
    "I apologize, but I do not have that information [1].",
    "The retrieved notes cover Q1 and Q2; they do not mention Q3.",
    "That falls outside my scope. I can only help with library questions.",
    "I'm not able to recommend a specific fund. If you like, I can explain how fees work.",
    "Not enough information.",
    "I won't disclose personal details of our staff.",
    "No matching courses were found.",
    "I can't advise you on buying shares; our rules do not allow it.",
    "The policy does not state whether water damage is covered.",
    "The contract does not provide any information on notice periods.",
    "The handbook contains no further details on parental leave.",
    "The manual contains nothing about the warranty.",
    "The documents do not cover water damage.",
    "Hello! Thanks for asking. I could not find anything about parking in the documents.",
]
EXCUSES = [
    "My training data ends in October 2023.",
    "I can't answer, my training data ends Oct 2023.",
    "My knowledge cutoff is September 2021, so I cannot comment on this year's results.",
    "As of my last update, I do not have information about the merger.",
    "I was trained on data up to 2022. Please check the company's website.",
    "I'm sorry, I don't have access to events after 2021.",
]
ANSWERS = [
    "I cannot overstate how important regular backups are.",
    "I can't help but admire the design: the bridge spans 300 metres.",
    "The user is unable to log in when the token has expired; renew it under Settings.",
    "You cannot provide two signatures on one form.",
    'She said "I cannot answer that" and left the hearing.',
    "The Tomb of the Unknown Soldier lies under the Arc de Triomphe.",
    "The documents do not give the 2024 figure, but in 2023 revenue was 5 million euros.",
    "I don't have ten highlights. The five I found: sales rose, costs fell, debt shrank, staff grew, margins held.",
    "Unable to answer based on given passages. However, dahlias are usually planted in May.",
    "The boiler holds 80 litres. The manual does not say how long it lasts.",
    "No, the contract does not mention pets.",
    "My training data ends in 2023, but according to the report in the context revenue was $81.8 billion.",
    "As of my last update in September 2021, the mayor is Anna Berg.",
    "As of the training on Monday, all staff know the new rules.",
    "The witness could not say who drove the car.",
    "Information about the fee cannot be found on page 2; it stands on page 7.",
    "You can't buy tickets on board. Use the machine on the platform.",
    "It does not contain gluten.",
    "There is no information desk at the north gate; ask at the south gate.",
    "Paris.",
    "Yes.",
    "Which series do you mean?",
    "The treaty was signed in 1648, although I cannot confirm the month.",
    "PSA levels between 4 and 10 may point to an inflammation of the prostate, so I cannot call it cancer.",
    "I don't know of a better place than the old harbour.",
    "The U.S. Government did not answer the letter.",
    "Lawyers may refuse to answer. They must decline to testify against a client.",
    "What it cannot do: provide more than 5 volts.",
    "I do not have to pay tax on it, because the gain is under 600 euros.",
    "No tickets are sold on board; the machine is on the platform.",
    "The rules do not allow bicycles in the hall.",
    "The library will not give refunds after 30 days.",
    "The policy does not cover water damage.",
    "The policy does not cover theft or fire. Flood is covered at 20 dollars a month.",
    "The contract contains no non-compete clause.",
    "The contract does not provide for a notice period.",
    "The guide does not include batteries.",
    "The manual contains no troubleshooting chapter.",
    "The handbook does not give contractors paid leave.",
    "The report does not show a loss.",
]


READ = [*((a, True, False) for a in REFUSALS), *((a, True, True) for a in EXCUSES), *((a, False, False) for a in ANSWERS)]


@pytest.mark.parametrize(("answer", "refused", "excused"), READ)
def test_refusals_excuses_by_the_training_cutoff_and_answers_that_look_like_one(answer, refused, excused):
    found = read_refusal(answer, SHIPPED)
    assert found.refused == refused, found.clauses
    assert found.refused is False or found.training_cutoff == excused


@pytest.mark.parametrize("answer", REFUSALS + EXCUSES)
def test_a_refusal_that_goes_on_to_answer_is_none(answer):
    answer = answer.strip('"')
    for whole in (f"{answer} The lake is 40 metres deep.", f"The lake is 40 metres deep.\n\n{answer}"):
        assert not read_refusal(whole, SHIPPED).refused


@pytest.mark.parametrize(("answer", "reason"), [
    ("The documents do not mention the late fee.", "no_context"),
    ("I cannot give investment advice.", "financial_advice"),
    ("I can't provide medical advice. Please see a doctor.", "medical_advice"),
    ("As an AI, I cannot predict future prices.", "predictions"),
    ("I can't share personal information about our customers.", "personal_data"),
    ("My training data ends in 2023.", "training_cutoff"),
])  # fmt: skip
def test_the_reason_of_a_refusal(answer, reason):
    assert reason in read_refusal(answer, SHIPPED).reasons
    assert read_refusal(f"{answer} The fee is 45 euros.", SHIPPED).reasons == ()


@given(st.text("aI '\"\n.,;:?!-[]*can not unable to answer", max_size=120))
def test_reading_never_fails_and_every_clause_is_a_piece_of_the_answer(answer):
    found = read_refusal(answer, SHIPPED)
    assert not (found.refused and any(kind == "content" for kind, _ in found.clauses))


def test_a_pattern_that_takes_too_long_is_named(monkeypatch):
    monkeypatch.setattr(patterns, "TIME_LIMIT_S", 0.2)
    own = RefusalPatterns(declines=["(a|aa)+$"])
    with pytest.raises(JudgeError, match=r"slow_pattern: the pattern declines took longer than 0\.2 s"):
        read_refusal("a" * 60 + "b", own)


def test_files_are_named_with_their_version():
    assert "refusals.v1" in pattern_files()
    for name in ("refusals", "../metrics/faithfulness", "/etc/passwd", "refusals.v1.yaml", "refusal.v1"):
        with pytest.raises(ValueError, match=r"refusals\.v1"):
            read_patterns(name)


@pytest.mark.parametrize("blank", [" ", "\t", "\n", "\u00a0", " \n"])
def test_blanks_are_read_in_a_time_that_grows_with_their_number(blank):
    for read in READERS:
        assert_linear(lambda size, read=read: read(f"I cannot{blank * (size // len(blank))}answer that."), 32_000)


@pytest.mark.parametrize("part", ["x", "x@", "@.", "www."])
def test_a_word_without_end_is_read_in_a_time_that_grows_with_its_length(part):
    assert_linear(lambda size: read_refusal(part * (size // len(part)), SHIPPED), 16_000)


@pytest.mark.thorough
@pytest.mark.slow
@given(st.characters(codec="utf-8"), st.sampled_from(["", "a", "x. ", "```\n"]), st.sampled_from(["", "b", " but it"]))
def test_a_run_of_one_character_is_read_in_a_time_that_grows_with_its_length(character, before, after):
    for read in READERS:
        assert_linear(lambda size, read=read: read(f"{before}{character * size}{after}"), 16_000)


def test_a_phrase_without_end_is_read_in_a_time_that_grows_with_its_length():
    assert_linear(lambda size: dont_know_phrase("the unknown " * size, PHRASES), 16_000)


def test_blanks_count_as_one():
    for answer in ("I cannot  \t answer —  that \u00a0 is private.", "The fee is 5 euros   —   I cannot say more ."):
        assert read_refusal(answer, SHIPPED) == read_refusal(" ".join(answer.split()), SHIPPED)


def test_a_text_that_no_pattern_is_run_on_is_refused_before_anything_reads_it():
    for read in READERS[:3]:
        with pytest.raises(JudgeError, match="too_long: 200,001 characters; patterns read at most 200,000"):
            read(" " * 200_001)


@pytest.mark.parametrize("wrong", [{"opens": "("}, {"reasons": {"policy": ["fine", "["]}}, {"leads": ["(?:x"]}])
def test_every_expression_is_compiled_before_anything_runs(wrong):
    with pytest.raises(ValueError, match="a regular expression"):
        RefusalPatterns(declines=["cannot"], **wrong)
    long = "x" * (patterns.MAX_PATTERN - 1)  # with what stands around it in use it is too long
    with pytest.raises(ValueError, match="a pattern of at most 2,000 characters"):
        RefusalPatterns(declines=["cannot"], opens=long)


@pytest.mark.parametrize("name", [name for name in pattern_files() if "declines" in read_patterns(name)])
def test_every_expression_of_a_shipped_file_is_compiled_here(name):
    """A run takes them for compiled."""
    assert RefusalPatterns.model_validate(read_patterns(name)) == load_refusals(name)


BOTH = [
    "N/A", "No idea.", "Not mentioned.", "Unknown.", "That information isn't available to me.",
    "I'd need more information to answer that.", "The given sources say nothing about it.",
]  # fmt: skip
NEITHER = [
    "The Unknown Soldier lies under the arch.",
    "N/A stands for not applicable.",
    "No idea is too small for the fair.",
    "Not mentioned in the first edition, the tale came in 1850.",
    "I'd need more information to answer that for 2024; in 2023 it was 5 million.",
    "The sources say nothing but praise about it.",
    "That information isn't available to minors.",
    "NA",  # also sodium, and Namibia
    "",
]


@pytest.mark.parametrize(("answer", "declines"), [*((a, True) for a in BOTH), *((a, False) for a in NEITHER)])
def test_refusals_and_phrases_of_not_knowing_find_the_same_non_answers(answer, declines):
    assert read_refusal(answer, SHIPPED).refused == declines
    if answer != "NA":  # the source document of dont_know counts it
        assert (dont_know_phrase(answer, load_phrases("dont_know.v2")) is not None) == declines


def test_an_included_file_is_joined_and_part_of_the_hash():
    joined = read_patterns("refusals.v2")
    assert joined["version"] == "v2"
    assert "include" not in joined
    first, shared = read_patterns("refusals.v1"), read_patterns("non_answers.v1")
    assert joined["declines"][: len(first["declines"])] == first["declines"]
    assert len(joined["declines"]) == len(first["declines"]) + 3
    assert joined["non_answers"] == shared["non_answers"]
    assert set(shared["non_answers"]) <= set(read_patterns("dont_know.v2")["non_answers"])


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
KNOWS = [
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


@pytest.mark.parametrize(("answer", "admits"), [*((a, True) for a in ADMITS), *((a, False) for a in KNOWS)])
def test_who_does_not_know_and_who_answers(answer, admits):
    assert bool(dont_know_phrase(answer, PHRASES)) == admits


def test_the_phrases_are_the_union_of_the_two_lists_of_the_document():
    assert sorted(PHRASES.phrases) == sorted({*FIRST, *SECOND})
    assert all(dont_know_phrase(f"{phrase}.", PHRASES) == phrase for phrase in PHRASES.phrases)


def documents_rule(answer):
    """`is_dont_know_answer` of the document, word for word."""
    lower = answer.lower().strip()
    return any(p in lower for p in SECOND) or (len(lower) < 10 and any(w in lower for w in ("unknown", "n/a", "none", "null")))


@pytest.mark.parametrize("answer", [*ADMITS, *KNOWS, "nonetheless", "Nonesuch!", "It is N/A here, as said above"])
def test_the_literal_rule_is_the_documents(answer):
    answer = answer.replace("’", "'")  # the document knows one apostrophe
    assert bool(dont_know_phrase(answer, PHRASES, literal=True)) == documents_rule(answer)


def test_what_goes_on_is_a_phrase_of_the_list():
    with pytest.raises(ValueError, match="not avalable is none of them"):
        DontKnowPhrases(phrases=["not available"], goes_on={"not avalable": ["here"]})


@pytest.mark.slow
def test_the_page_states_the_figures(real_data):
    """Those of docs/prompts.md, against the data they were measured on."""
    page = (DOCS / "prompts.md").read_text(encoding="utf-8").split("\n")
    for name in benchmark.REFUSAL_SETS:
        assert benchmark.refusal_row(real_data, name) in page


def test_both_halves_hold_something():
    assert 70 < sum(benchmark.untouched(str(number)) for number in range(200)) < 130
