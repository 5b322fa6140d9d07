"""Which questions are the same."""

import pytest

from ragpipe.extras.test_sets.log_scan import normalised_text


@pytest.mark.parametrize(("text", "normalised"), [
    ("  How   are\tyou?\n", "how are you"),
    ("HOW ARE YOU", "how are you"),
    ("«Wo ist die Straße?»", "wo ist die strasse"),
    ("\uff37\uff28\uff39\uff1f", "why"),  # full-width letters
    ("cafe\u0301", "caf\u00e9"),
    ("\u00bfQu\u00e9 pasa?!", "qu\u00e9 pasa"),
    ("What is C++?", "what is c++"),
    ("is 3.5 > 2?", "is 3.5 > 2"),
    ("a\u00a0b", "a b"),
    ("???", "???"),
])  # fmt: skip
def test_a_text_is_normalised(text, normalised):
    assert normalised_text(text) == normalised
