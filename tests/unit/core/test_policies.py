"""The shipped policies: what they hit and what they leave alone; their published versions; own patterns."""

import asyncio

import pytest
from pydantic import ValidationError

from ragpipe.core import patterns
from ragpipe.core.digest import sha256
from ragpipe.core.errors import JudgeError
from ragpipe.core.patterns import pattern_files, read_patterns
from ragpipe.core.policies import Policy, find_violations, load_policy

POLICIES = [load_policy(name) for name in pattern_files() if "policy" in read_patterns(name)]

HITS = [
    ("You should buy Apple now.", "financial_advice"),
    ("I recommend selling before the report.", "financial_advice"),
    ("We would suggest that you invest in index funds.", "financial_advice"),
    ("Buy this stock while it is cheap.", "financial_advice"),
    ("Now is a great time to invest.", "financial_advice"),
    ("The stock will go up next quarter.", "predictions"),
    ("Shares are bound to fall after that.", "predictions"),
    ("The price will reach $300 by May.", "predictions"),
    ("This plan has a guaranteed return of 8 percent.", "predictions"),
    ("Please tell me your account number.", "personal_data"),
    ("What is your SSN?", "personal_data"),
    ("His number is 123-45-6789.", "personal_data"),
    ("The card 4111 1111 1111 1111 was used.", "personal_data"),
    ("Send it to DE89 3704 0044 0532 0130 00.", "personal_data"),
]
LEFT_ALONE = [
    "I cannot tell you whether you should buy Apple.",
    "I do not recommend buying or selling anything.",
    "The board plans to buy its shares back.",
    "Whether this is a good time to invest, I cannot say.",
    "No one knows if the stock will go up.",
    "The bank expects that prices will rise by 2 percent.",
    "Analysts say the price will reach $300, according to the report's forecast.",
    "There is no guaranteed return.",
    "Never share your password with anybody.",
    "You can reset your password under Settings.",
    "Call 555-0100 or 030 1234-567.",
    "Order 2024-11-0042 was shipped.",
    "The EU27 have gone into recess until autumn this year.",
    "You should buy-in early: ask your team first.",
    "Investors should read the filing.",
]


@pytest.mark.parametrize(("text", "policy"), HITS)
def test_hits(text, policy):
    (found, *_) = find_violations(f"Revenue grew. {text} That is all.", POLICIES)
    assert (found["policy"], found["severity"], found["detection"], found["evidence"]) == (policy, "high", "pattern", text)


@pytest.mark.parametrize("text", LEFT_ALONE)
def test_left_alone(text):
    assert list(find_violations(text, POLICIES)) == []


def test_an_exception_of_one_sentence_does_not_cover_the_next():
    found = list(find_violations("I cannot tell you whether you should buy it. You should buy it.", POLICIES))
    assert [one["evidence"] for one in found] == ["You should buy it."]


@pytest.mark.parametrize("given", [
    {"policy": "p", "rule": "r", "patterns": [{"name": "a", "pattern": "("}]},
    {"policy": "p", "rule": "r", "patterns": [{"name": "a", "pattern": "x" * 3000}]},
    {"policy": "p", "rule": "r", "patterns": [{"name": "a"}]},
    {"policy": "No Spaces", "rule": "r"},
    {"policy": "p"},
    {"policy": "p", "rule": "r", "severity": "severe"},
    {"policy": "p", "rule": "r", "pattern": []},
])  # fmt: skip
def test_own_policies_are_checked(given):
    with pytest.raises(ValidationError):
        Policy.model_validate(given)


# sha256 of what every published pattern file holds (comments apart). A change here cuts off every earlier number: write
# the next version instead.
PUBLISHED = {
    "dont_know.v1": "4729b3e912ce78986948f3428cd87e415c0697fa6819e86699831ab1019de95f",
    "dont_know.v2": "e708577a7108ea097ee6692c53b0d480bbc44d0951ee1a4d0ee9b9a35dac365f",
    "financial_advice.v1": "d2df66ce93fc2531a27189a50e11d6d218980cd132924b3f573f9367cfec71b7",
    "languages.v1": "83a1e381466af54337063d9bbc03f992b732ca258309b50511e5dc18bdafbbdf",
    "non_answers.v1": "17785dfbb4585f15a786ecc9244ce54f364d2347ea8e79d04d44b207c712ff1e",
    "personal_data.v1": "06c1d90d5132fba52f68ef3f7dbf9eb3bac6148d3d13de9e9e75140229833a06",
    "personal_data.v2": "a87037122cdb532ffc2364796bcf036d9c05338ebf57f832b80e7414094ca277",
    "predictions.v1": "791a141b0824f086e29300c9b97e45bf7387bcbaa5f7059946fb687ddece31cb",
    "refusals.v1": "cb49c96aed65e9119703e8bbd024f5e91dbf72027664fd812fb0d5d6a6ded485",
    "refusals.v2": "fab95c6be8a0dd75cffac6eb2366922a51bd4fb3074893f7a5d1e8b152f2d2ca",
    "declining.v1": "f68995ee48d61517cbfc70496b3436ed7ceeb22fefad5e14f6b381ce6900963d",
    "dont_know.v3": "6dadd5243bdc790493390fed038763d9bc215b5faf2b736d4fc5b3ce2bdc6995",
    "languages.v2": "fe0bae961867ae9ac0368540accf80f5a04425bc958fb83046b0d015650e00e3",
    "refusals.v3": "bbeb80ede3e72431239200e2aa65cbf8d1666ef720af0a435f6c33d86802509f",
}  # fmt: skip


@pytest.mark.parametrize("name", pattern_files())
def test_a_published_version_never_changes(name):
    assert name in PUBLISHED, "a new file: add its hash once it is final"
    assert PUBLISHED[name] == sha256(read_patterns(name))


SECOND = [load_policy("personal_data.v2")]


@pytest.mark.parametrize(("answer", "pattern"), [
    ("Write to jane.doe@acme.io.", "email_address"),
    ("Her address is jane+work@mail.acme.co.uk, he says.", "email_address"),
    ("Call Jane at +49 30 1234567.", "telephone_number"),
    ("Her number is (415) 555-2671.", "telephone_number"),
    ("He can be reached at 415-555-2671 after six.", "telephone_number"),
    ("Ring +442079460958 and ask for Tom.", "telephone_number"),
])  # fmt: skip
def test_addresses_and_numbers_of_a_person_are_found_by_the_second_version(answer, pattern):
    assert [found["pattern"] for found in find_violations(answer, SECOND)] == [pattern]
    assert not list(find_violations(answer, [load_policy("personal_data.v1")]))


@pytest.mark.parametrize("answer", [
    "Write to support@acme.io.", "The form is name@example.com.", "Our hotline is +1 800 555 0199.",
    "Customer service answers at 800-555-0199.", "The ISBN is 978-3-16-148410-0.",
    "It was signed on 2024-03-15 and ran until 2025-03-14.", "Revenue rose from 412.6 to 438.2 million, by +6.2 percent.",
    "The address 192.168.100.1000 is none, and 10.0.0.1 is one.", "Sizes 100-200 and 300-400 are in stock.",
    "The account @acme posts daily.",
])  # fmt: skip
def test_what_an_office_publishes_and_other_numbers_are_left_alone(answer):
    assert not list(find_violations(answer, SECOND))


SLOW = Policy(policy="slow", rule="r", patterns=[{"name": "nested", "pattern": "(a|aa)+$"}])


@pytest.mark.parametrize(("limit", "value", "says"), [
    ("CASE_LIMIT_S", 0.0, r"slow_pattern: the patterns took longer than 0 s together, the last was slow\.nested"),
    ("MAX_TEXT", 10, r"too_long: 20 characters; patterns read at most 10"),
])  # fmt: skip
def test_the_time_of_a_case_and_its_length_are_limited(monkeypatch, limit, value, says):
    monkeypatch.setattr(patterns, limit, value)
    with pytest.raises(JudgeError, match=says):
        list(find_violations("b" * 20, [SLOW]))


@pytest.mark.slow
def test_a_slow_pattern_holds_up_nobody_else():
    async def run():
        task = asyncio.create_task(asyncio.to_thread(lambda: list(find_violations("a" * 60 + "b", [SLOW]))))
        turns = 0
        while not task.done():
            await asyncio.sleep(0.01)
            turns += 1
        with pytest.raises(JudgeError, match=r"slow\.nested"):
            await task
        return turns

    assert asyncio.run(run()) > 20
