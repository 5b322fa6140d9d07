"""Numbers, names and claims as they are read from a text. Expected values are what a person reads."""

import pytest

from ragpipe.judge.rules.claims import extract_claims
from ragpipe.judge.rules.numbers import find_numbers
from ragpipe.judge.rules.tokenized_text import stem, tokenize


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1,000", ["1000"]), ("1000", ["1000"]), ("one thousand", ["1000"]), ("1,234,567.80", ["1234567.8"]),
        ("4.0 and 10", ["4", "10"]), ("3,5 litres", ["3.5"]), ("1,2,3", ["1,2,3"]), ("version 1.2.3", ["1.2.3"]), ("007", ["7"]),
        ("twenty-five people", ["25"]), ("twenty five people", ["25"]), ("fifty, two of them", ["50", "2"]), ("two hundred", ["200"]),
        ("50 million", ["50000000"]), ("$2.5bn", ["2500000000"]), ("10-12 minutes", ["10", "12"]), ("21st century", ["21"]),
        ("March 15, 2024", ["3", "15", "2024"]), ("2024-03-15", ["2024", "3", "15"]), ("he may go", []), ("9" * 60, ["9" * 60]),
        ("٣ أيام", ["3"]), ("", []),
    ],
)  # fmt: skip
def test_numbers_have_one_form(text, values):
    assert [n.value for n in find_numbers(text)] == values


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("5 minutes", "minute"), ("5-min", "minute"), ("5%", "%"), ("5 percent", "%"), ("$5", "$"), ("5 dollars", "$"),
        ("5 apples", None), ("5. Minutes later", None),
    ],
)  # fmt: skip
def test_units(text, unit):
    assert find_numbers(text)[0].unit == unit


@pytest.mark.parametrize("words", [("passing", "passed", "passes"), ("author", "authored"), ("stopped", "stop", "stops"),
                                   ("study", "studies", "studied"), ("Einstein's".lower(), "einstein")])  # fmt: skip
def test_one_stem(words):
    assert len({stem(w) for w in words}) == 1


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("The bridge was built by Joseph Strauss.", ("joseph", "strauss")),
        ("Marie Curie was born in Warsaw.", ("marie", "curie", "warsaw")), ("Bridges are built by people.", ()),
        ("NASA builds rockets.", ("nasa",)), ("Genetics: Oily skin can be inherited.", ()), ("It ended. Nobody knew why it did.", ()),
        ("THE END OF THE WORLD IS NEAR", ()), ("How To Cook A Perfect Egg", ()),
    ],
)  # fmt: skip
def test_names_are_capitals_that_the_place_does_not_explain(text, names):
    assert set(tokenize(text).names) == {stem(n) for n in names}


@pytest.mark.parametrize(("answer", "claims"), [
    ("Unable to answer based on given passages.", ()),
    ("The passages do not mention the price.", ()),
    ("There is no information about the price in the context.", ()),
    ("", ()),
    ("?! ... ---", ()),
    ("Here are the steps:", ()),
    ("I hope this helps! Let me know if you need more.", ()),
    ("Paris", ("Paris",)),
    ("Wolves cannot be found in Ireland.", ("Wolves cannot be found in Ireland.",)),
    ("Scientists were unable to determine the cause.", ("Scientists were unable to determine the cause.",)),
    ("Thanks to its climate, tea grows there.", ("Thanks to its climate, tea grows there.",)),
    ("There is no scientific evidence for it.", ("There is no scientific evidence for it.",)),
    ("Based on the provided passages, tea is hot.", ("tea is hot.",)),
    ("1. **Preheat** the grill.\n2) Serve it hot.", ("Preheat the grill.", "Serve it hot.")),
    ("* Wash the rice\n- Boil the water", ("Wash the rice", "Boil the water")),
    ("Step 1: Oil the grate.", ("Oil the grate.",)),
    ("| Part | Cost |\n|---|---|\n| Wheel | 20 dollars |", ("Wheel 20 dollars",)),
    ("Dr. Smith paid $3.50 on Jan. 5. He left.", ("Dr. Smith paid $3.50 on Jan. 5.", "He left.")),
    ("Tea is hot. Unable to answer based on given passages.", ("Tea is hot.",)),
])  # fmt: skip
def test_claims(answer, claims):
    assert extract_claims(answer) == claims
