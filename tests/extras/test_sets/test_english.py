"""Filled templates read well: articles, plurals, enumerations."""

import pytest

from ragpipe.extras.test_sets.english import fill, is_plural, read_period, slot_names, uncapitalised, with_article


@pytest.mark.parametrize(("phrase", "article"), [
    ("apple", "an"), ("pear", "a"), ("hour", "an"), ("hotel", "a"), ("unit", "a"), ("user", "a"), ("European", "a"), ("one-way trip", "a"),
    ("unintended loss", "an"), ("SLA", "an"), ("VAT rate", "a"), ("URL", "a"), ("8-hour shift", "an"), ("80 mm pipe", "an"),
    ("11 EUR fee", "an"), ("12 EUR fee", "a"), ("honest answer", "an"),
])  # fmt: skip
def test_an_article_goes_by_the_sound(phrase, article):
    assert with_article(phrase) == f"{article} {phrase}"


@pytest.mark.parametrize(("phrase", "plural"), [
    ("opening hours", True), ("status", False), ("address", False), ("basis", False), ("notice period", False), ("terms of payment", True),
    ("period of notice", False), ("name and address", True), ("prices (net)", True), ("gas", False), ("series", False),
])  # fmt: skip
def test_plural_nouns_are_told_from_others(phrase, plural):
    assert is_plural(phrase) is plural


@pytest.mark.parametrize(("text", "small"), [
    ("Notice period", "notice period"), ("VAT rate", "VAT rate"), ("SLAs", "SLAs"), ("IPv6 address", "IPv6 address"), ("A part", "a part"),
    ("", ""),
])  # fmt: skip
def test_abbreviations_keep_their_capitals(text, small):
    assert uncapitalised(text) == small


def test_slots_are_filled():
    slots = {"key": "unit price", "subject": "the Kestrel sensor", "thing": "hour"}
    assert fill("what is the {key} of {subject}?", slots) == "What is the unit price of the Kestrel sensor?"
    assert fill("{Key}: {a thing}", slots) == "Unit price: an hour"
    assert slot_names("{Key} of {a thing}, {key}") == ["key", "thing"]
    with pytest.raises(KeyError):
        fill("{value}", slots)


@pytest.mark.parametrize(("text", "later"), [
    ("Q4 2025", "Q1 2026"), ("2025-Q4", None), ("2025 Q4", "2026 Q1"), ("H2 2025", "H1 2026"), ("December 2025", "January 2026"),
    ("2025-12", "2026-01"), ("2025", "2026"), ("Q5 2025", None), ("2025-13", None), ("25", None), ("in 2025", None),
])  # fmt: skip
def test_the_next_period_is_written_as_the_document_writes_it(text, later):
    period = read_period(text)
    if text == "2025-Q4":  # another sign between the parts: read, and written with a blank
        assert str(period.later(1)) == "2026 Q1"
    else:
        assert (str(period.later(1)) if period else None) == later
        assert period is None or str(period) == text
