"""Personal data by their form: texts made by hand, and what is found of it. In a case it becomes placeholders.

Numbers are of no one, or published examples.
"""

import itertools
from collections import Counter
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpipe.extras.test_sets.log_cases import without_meta, without_personal_data
from ragpipe.extras.test_sets.personal_data import Kind, find_personal_data

FOUND: list[tuple[str, list[tuple[str, str]]]] = [
    # e-mail
    ("Write to ann.miller@example.org, please.", [("EMAIL", "ann.miller@example.org")]),
    ("ann+news@mail.example.co.uk is mine", [("EMAIL", "ann+news@mail.example.co.uk")]),
    ("Meine Adresse: jürgen@müller-bäckerei.de.", [("EMAIL", "jürgen@müller-bäckerei.de")]),
    ("<o'neil@example.com>; BOB@EXAMPLE.COM", [("EMAIL", "o'neil@example.com"), ("EMAIL", "BOB@EXAMPLE.COM")]),
    ("mailto:x_y-z%1@sub.domain.museum?subject=hi", [("EMAIL", "x_y-z%1@sub.domain.museum")]),
    ("https://shop.example/login?email=ann@example.org&next=/", [("EMAIL", "ann@example.org")]),
    ("support@example.com did not answer", [("EMAIL", "support@example.com")]),
    # telephone, international form
    ("Call +49 30 901820.", [("PHONE", "+49 30 901820")]),
    ("+44 20 7946 0018 or +44 (0)20 7946 0018", [("PHONE", "+44 20 7946 0018"), ("PHONE", "+44 (0)20 7946 0018")]),
    ("my number is +1-202-555-0143", [("PHONE", "+1-202-555-0143")]),
    ("+12025550143", [("PHONE", "+12025550143")]),
    ("+33 1 99 00 12 34, +39 06 699 12345", [("PHONE", "+33 1 99 00 12 34"), ("PHONE", "+39 06 699 12345")]),
    ("+91 98765 43210", [("PHONE", "+91 98765 43210")]),
    ("+86 138 0013 8000 please", [("PHONE", "+86 138 0013 8000")]),
    ("+41 44 668 18 00", [("PHONE", "+41 44 668 18 00")]),
    ("+55 (11) 91234-5678", [("PHONE", "+55 (11) 91234-5678")]),
    ("+48.22.123.45.67", [("PHONE", "+48.22.123.45.67")]),
    ("0049 30 901820", [("PHONE", "0049 30 901820")]),
    ("00 44 20 7946 0018", [("PHONE", "00 44 20 7946 0018")]),
    # telephone, national forms
    ("(415) 555-2671 after five", [("PHONE", "(415) 555-2671")]),
    ("415-555-2671, 415.555.2671 and 415 555 2671",
     [("PHONE", "415-555-2671"), ("PHONE", "415.555.2671"), ("PHONE", "415 555 2671")]),
    ("1-800-555-0199", [("PHONE", "1-800-555-0199")]),
    ("Ich bin unter 0171 2345678 zu erreichen", [("PHONE", "0171 2345678")]),
    ("0171/2345678", [("PHONE", "0171/2345678")]),
    ("(0221) 4710 815", [("PHONE", "(0221) 4710 815")]),
    ("030-901820-17", [("PHONE", "030-901820-17")]),
    ("020 7946 0018", [("PHONE", "020 7946 0018")]),
    ("07700 900123 is my mobile", [("PHONE", "07700 900123")]),
    ("06 39 98 12 34", [("PHONE", "06 39 98 12 34")]),
    ("06.39.98.12.34 (France)", [("PHONE", "06.39.98.12.34")]),
    ("0699-123-4567", [("PHONE", "0699-123-4567")]),
    # telephone, because the text says so
    ("Tel.: 0301234567", [("PHONE", "0301234567")]),
    ("call me on 5550143", [("PHONE", "5550143")]),
    ("Phone: 555-0143", [("PHONE", "555-0143")]),
    ("Rufnummer 901820", [("PHONE", "901820")]),
    ("text me at 600 123 456", [("PHONE", "600 123 456")]),
    ("mi móvil es el 612 34 56 78", [("PHONE", "612 34 56 78")]),
    # IBAN (examples of the registry)
    ("IBAN DE89 3704 0044 0532 0130 00 please", [("IBAN", "DE89 3704 0044 0532 0130 00")]),
    ("gb29nwbk60161331926819", [("IBAN", "gb29nwbk60161331926819")]),
    ("FR14 2004 1010 0505 0001 3M02 606.", [("IBAN", "FR14 2004 1010 0505 0001 3M02 606")]),
    ("from NL91 ABNA 0417 1643 00 and back", [("IBAN", "NL91 ABNA 0417 1643 00")]),
    ("CH93-0076-2011-6238-5295-7", [("IBAN", "CH93-0076-2011-6238-5295-7")]),
    # payment cards (published test numbers)
    ("my card 4111 1111 1111 1111 was charged", [("CARD", "4111 1111 1111 1111")]),
    ("5555555555554444", [("CARD", "5555555555554444")]),
    ("378282246310005 (Amex), 3782 822463 10005", [("CARD", "378282246310005"), ("CARD", "3782 822463 10005")]),
    ("6011-1111-1111-1117", [("CARD", "6011-1111-1111-1117")]),
    # US social security numbers
    ("SSN 219-09-9999", [("SSN", "219-09-9999")]),
    ("My social is 078-05-1120.", [("SSN", "078-05-1120")]),
    # IP addresses (of the ranges for documentation)
    ("blocked 203.0.113.7 today", [("IP", "203.0.113.7")]),
    ("http://198.51.100.23:8080/x", [("IP", "198.51.100.23")]),
    ("from 2001:db8::8a2e:370:7334 it works", [("IP", "2001:db8::8a2e:370:7334")]),
    ("2001:0db8:85a3:0000:0000:8a2e:0370:7334", [("IP", "2001:0db8:85a3:0000:0000:8a2e:0370:7334")]),
    # several
    ("Ann, ann@example.org, +49 171 2345678, from 203.0.113.9",
     [("EMAIL", "ann@example.org"), ("PHONE", "+49 171 2345678"), ("IP", "203.0.113.9")]),
]  # fmt: skip

NOTHING = [
    "Where is my order 4500123987?", "Order number 0815-4711-0042 has not come", "Invoice 2023-0456-7890 is wrong",
    "Ticket #0012345678", "Ref. 0201 4455 667", "Bestellnummer 030 1234567", "Tracking 1Z999AA10123456784",
    "Article 0171 2345678 is out of stock", "Since version 10.0.19045 it fails", "v1.2.3.4 and version 8.8.8.8", "Python 3.11.7 or 3.12.1",
    "driver 31.0.15.3623", "Section 4.2.1.3 says so", "On 2023-01-15 at 14:30", "05.01.2023 14:30 Uhr", "05-01-2023 14-15",
    "between 01/02/2023 and 03/04/2024", "2023-10-05 08:15:30.123456", "2024 2025 2026 2027", "from 1990 to 2010",
    "doi:10.1038/s41586-020-2649-2", "https://doi.org/10.1000/182", "10.1145/3292500.3330701", "ISBN 978-3-16-148410-0",
    "ISBN 0-306-40615-2", "ISSN 0317-8471", "RFC 5322", "arXiv:2005.11401v4", "4111 1111 1111 1112 is no card",
    "GB29 NWBK 6016 1331 9268 18 is no IBAN", "DE21 is a postal area", "GB29 flight to Rome at 16:13", "000-12-3456", "666-12-3456",
    "It costs 1,234,567.89 euros", "1 000 000 000 000 people", "$4,500.00 and 12 345 678 kr", "€ 0171 234567", "3.14159265358979",
    "6.02214076e23", "coordinates 52.520008, 13.404954", "-33.8688 151.2093", "127.0.0.1 and 0.0.0.0", "192.168.1.1 is my router",
    "10.0.0.5, 172.16.4.9, 255.255.255.0", "fe80::1 and ::1", "999.1.2.3", "256.256.256.256", "std::vector<int>::size", "12:30:45", "a::b::c",
    "MAC 00:1a:2b:3c:4d:5e", "git@github.com:org/repo.git", "npm install left-pad@1.3.0", "@types/node@20", "logo@2x.png", "follow @ann_miller",
    "a @ b", "5 @ 3.50", "name@localhost", "pages 120-135 and 200-215", "score 3-2, 0-0", "12-34-56", "01 02 2023",
    "the years 01 and 02", "room 0171", "8x8x8 = 512", "#1234567890", "3 x 10^8 m/s", "sizes 36-38-40-42", "batch 2024 11 05 0042",
    "550e8400-e29b-41d4-a716-446655440000", "sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", "1700000000",
    "C++20, ISO/IEC 14882:2020", "+15 percent, +3.5 and +100", "2 + 2 = 4", "E=mc2", "call of duty 4", "ring size 54", "text of 200 words",
]  # fmt: skip
"""Texts without personal data that look like it."""

MISSED = [
    "I am Ann Miller", "Ann lives at 12 Quarry Road, Fennick", "born on 3 May 1980", "write to ann at mail dot com", "user ann_miller",
    "my number: six one two three four five", "passport C01X00T47",
]  # fmt: skip
"""Personal data without a form of their own: they are not found, and the docs say so."""


def found_in(text):
    return [(place.kind, text[place.start : place.end]) for place in find_personal_data(text)]


@pytest.mark.parametrize(("text", "places"), FOUND)
def test_what_is_found(text, places):
    assert found_in(text) == places


@pytest.mark.parametrize("text", [*NOTHING, *MISSED])
def test_what_is_not_found(text):
    assert found_in(text) == []


@pytest.mark.slow
def test_telephone_numbers_of_every_country():
    """The example numbers of Google's libphonenumber: the international form is found as it is, a national one where the text says so."""
    library = pytest.importorskip("phonenumbers")
    kinds = (library.PhoneNumberType.FIXED_LINE, library.PhoneNumberType.MOBILE)
    numbers = [library.example_number_for_type(region, kind) for region in sorted(library.SUPPORTED_REGIONS) for kind in kinds]
    numbers = [number for number in numbers if number is not None]
    international = [library.format_number(number, library.PhoneNumberFormat.INTERNATIONAL) for number in numbers]
    national = [library.format_number(number, library.PhoneNumberFormat.NATIONAL) for number in numbers]
    assert len(numbers) > 450
    assert _share(international, "Is it {}?") > 0.98
    assert _share(national, "Please call me on {}, thanks.") > 0.9


def _share(numbers, text):
    return sum(found_in(text.format(number)) == [("PHONE", number)] for number in numbers) / len(numbers)


def test_two_spellings_have_one_identity():
    places = find_personal_data("Ann@Example.org ann@example.ORG +49 30 901820, +4930901820")
    assert [place.identity for place in places] == ["ann@example.org"] * 2 + ["4930901820"] * 2


@pytest.mark.slow
@given(st.text(max_size=80))
def test_places_are_in_order_and_do_not_overlap(text):
    places = find_personal_data(text)
    assert all(before.end <= after.start for before, after in itertools.pairwise(places))
    assert all(0 <= place.start < place.end <= len(text) and place.kind in get_args(Kind) for place in places)


@pytest.mark.slow
def test_a_long_text_takes_no_longer_per_character():
    """No pattern may backtrack without bound: these took a naive one minutes."""
    for piece in ("0 ", "1-", "a.", "a@", "00 4", ":1", "call me ", "(0", "+1 ", "DE89 "):
        find_personal_data(piece * 20_000)


CASE: dict[str, Any] = {
    "id": "q1",
    "question": "I am ann@example.org, or call +49 171 2345678. Who is bob@example.org?",
    "history": [{"role": "user", "text": "Write to ANN@example.org"}],
    "references": ["Bob: bob@example.org"],
    "tags": ["mail to carl@example.org"],
    "relevant_docs": ["ann@example.org.md"],
    "meta": {"user": {"mail": "ann@example.org", "n": 3}, "session": "from 203.0.113.7", "list": [1, "x"]},
    "outputs": [
        {
            "method": "dan@example.org",
            "answer": "Dial +491712345678, ann@example.org.",
            "chunks": [{"id": "ann@example.org", "rank": 1, "text": "tel. +49 171 2345678", "doc_id": "ann@example.org"}],
            "recorded": {"grade": {"ann@example.org": 3}},
        }
    ],
}


def test_one_value_is_one_placeholder_in_the_whole_case():
    stripped, counts = without_personal_data(CASE)
    assert stripped == {
        "id": "q1",
        "question": "I am <EMAIL>, or call <PHONE>. Who is <EMAIL_2>?",
        "history": [{"role": "user", "text": "Write to <EMAIL>"}],
        "references": ["Bob: <EMAIL_2>"],
        "tags": ["mail to <EMAIL_3>"],
        "relevant_docs": ["ann@example.org.md"],
        "meta": {"user": {"mail": "<EMAIL>", "n": 3}, "session": "from <IP>", "list": [1, "x"]},
        "outputs": [
            {
                "method": "dan@example.org",
                "answer": "Dial <PHONE>, <EMAIL>.",
                "chunks": [{"id": "ann@example.org", "rank": 1, "text": "tel. <PHONE>", "doc_id": "ann@example.org"}],
                "recorded": {"grade": {"ann@example.org": 3}},
            }
        ],
    }
    assert counts == Counter(EMAIL=7, PHONE=3, IP=1)
    assert list(stripped) == list(CASE)


def test_a_case_without_any_is_as_it_was_and_an_id_that_is_personal_becomes_a_hash():
    case = {"id": "a", "question": "Who?", "meta": {"n": 1.5, "is": True, "no": None}}
    assert without_personal_data(case) == (case, Counter())
    stripped, counts = without_personal_data({"id": "ann@example.org", "question": "Who?"})
    assert stripped["id"] == "hcf458102cc0e"  # of sha256 over ["Who?",[],[]]
    assert counts == {"ID": 1}


def test_names_of_meta_are_dropped():
    case, dropped = without_meta(CASE, ["session", "user.mail", "nowhere", "user.x", "list.y"])
    assert case["meta"] == {"user": {"n": 3}, "list": [1, "x"]}
    assert dropped == ["session", "user.mail"]
    assert without_meta({"id": "a"}, ["x"]) == ({"id": "a"}, [])
