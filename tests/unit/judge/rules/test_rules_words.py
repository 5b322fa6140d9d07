"""Numbers, names and claims as they are read from a text. Expected values are what a person reads."""

import pytest

from ragpipe.judge.rules.claims import extract_claims


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
