"""Personal data in texts: e-mail addresses, telephone numbers, IBANs, payment cards, US social security numbers, IP addresses.

Found by their form, and by their check digits where they have some. Not found: names, postal addresses, dates of birth, user
names, other identity numbers, and addresses that are written out (`ann at mail dot com`).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

Kind = Literal["EMAIL", "IBAN", "CARD", "SSN", "PHONE", "IP"]


class PersonalData(NamedTuple):
    """A place in a text. `identity` is the same for two spellings of the same address or number."""

    start: int
    end: int
    kind: Kind
    identity: str


_EMAIL = re.compile(
    r"(?<![\w.+%'-])[\w+%'-][\w.+%'-]{0,63}@(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,5}(?!(?:png|jpe?g|gif|svg|webp|js|py)\b)[^\W\d_]{2,24}(?![\w@])",
    re.I,
)
_IBAN = re.compile(r"(?<![A-Za-z0-9])([A-Za-z]{2}\d{2})(?=[ -]?[A-Za-z0-9])")
_IBANS = (
    "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DK18 DO28 EE20 EG29 ES24 "
    "FI18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 LB28 LI21 "
    "LT20 LU20 LV21 MC27 MD24 ME22 MK19 MT31 MU30 NL18 NO15 PK24 PL28 PS29 PT25 QA29 RO24 RS22 SA24 SE24 SI19 "
    "SK24 SM27 TN24 TR26 UA29 VG24 XK20"
)
_IBAN_LENGTHS = {entry[:2]: int(entry[2:]) for entry in _IBANS.split()}
"""Lengths of IBANs by country (SWIFT IBAN registry)."""
_CARD = re.compile(r"(?<![\w.,+-])[2-6]\d{3}[ -]?(?:\d{4}[ -]?\d{4}[ -]?\d{2,4}|\d{6}[ -]?\d{4,5})(?![\w-])(?!\.\d)")
_ISSUED = re.compile(
    r"(?:4\d{3}|5[1-5]\d\d|222[1-9]|22[3-9]\d|2[3-6]\d\d|27[01]\d|2720|35\d\d|6011|64[4-9]\d|6[25]\d\d)\d{12}|3[47]\d{13}|"
    r"3(?:0[0-5]|[68]\d)\d{11}"
)
"""First digits and lengths of the numbers that card companies give out; those of more than 16 digits look like any other id."""
_SSN = re.compile(r"(?<![\w+-])(?!000|666|9\d\d)\d{3}([- ])(?!00)\d{2}\1(?!0000)\d{4}(?![\w-])")
_IP4 = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w-])(?!\.\d)")
_IP6 = re.compile(r"(?<![\w:.])(?=[0-9a-f:]*\d)(?:[0-9a-f]{0,4}:){3,7}[0-9a-f]{0,4}(?![\w:])", re.I)
_VERSION_BEFORE = re.compile(
    r"(?:\b(?:version|release|build|revision|firmware|section|chapter|clause|driver)\W{0,3}|\bv\.? ?)$", re.I
)

_PHONE_WORD = (
    r"\b(?:tel(?:ephone|efon\w*|éfono)?|phone|call|ring|dial|mobile|mobil|cell|handy|fax|whatsapp|telegram|sms|text|rufnummer|"
    r"téléphone|appele[rz]|portable|telefono|móvil|llam\w+|chiama\w*|reach|contact)\b"
)
_LINK = r"(?:\W{0,4}\b(?:me|us|him|her|them|back|at|on|under|by|is|was|the|my|our|his|number|numbers|no|nr|nummer|numéro|número|phone|cell|mobile|unter|ist|est|es|è|au|al|el|alla|auf|or)\b\.?){0,5}[^\w(+]{0,4}"
_PHONES = (
    re.compile(r"(?<![\w.+-])\+ ?\(?[1-9](?:[ ./-]{0,3}\(?\d\)?){6,14}(?![\w-])(?!\.\d)"),
    re.compile(r"(?<![\w.+-])00[ -]?[1-9]\d{0,2}[ /-](?:\(?\d{1,5}\)?[ /-]?){2,5}(?![\w-])(?!\.\d)"),
    re.compile(r"(?<![\w.+/-])(?:\+?1[ .-])?(?:\([2-9]\d{2}\) ?|[2-9]\d{2}[ .-])[2-9]\d{2}[ .-]\d{4}(?![\w-])(?!\.\d)"),
    re.compile(r"(?<![\w.+/-])(?:\(0[1-9]\d{0,4}\) ?|0[1-9]\d{0,4}[ /-] ?)\d{2,9}(?:[ -]\d{1,6}){0,4}(?![\w-])(?!\.\d)"),
    re.compile(r"(?<![\w.+/-])0[1-9](?:([ .-])\d{2})(?:\1\d{2}){3}(?![\w-])(?!\.\d)"),
)
_SAID_PHONE = re.compile(rf"{_PHONE_WORD}{_LINK}(?P<number>\+?\(?\d(?:[ ./-]{{0,3}}\(?\d\)?){{5,14}})(?![\w-])(?!\.\d)", re.I)
_OTHER_NUMBER = re.compile(
    r"(?:\b(?:order|invoice|ticket|case|ref(?:erence)?|serial|part|article|item|customer|booking|tracking|parcel|shipment|contract|"
    r"policy|batch|model|isbn|issn|ean|doi|patent|rfc|bestell\w*|auftrag\w*|rechnung\w*|kunden\w*|artikel\w*|commande|facture|pedido|factura)"
    r"(?: ?(?:number|no|nr|id|code|nummer|numéro|número))?\b\W{0,4}|[#§$€£]\s?)$",
    re.I,
)
_DATE = re.compile(r"(?:\d{1,2}[ ./-]\d{1,2}[ ./-](?:19|20)\d{2}|(?:19|20)\d{2}[ ./-]\d{1,2}[ ./-]\d{1,2})(?!\d)")
_NON_DIGITS = re.compile(r"\D")
_BEFORE = 40  # characters before a number that may say what it is


def find_personal_data(text: str) -> list[PersonalData]:
    """The places in a text, in order and without overlaps; where two kinds overlap, the first of `Kind` is taken."""
    found_places: list[PersonalData] = []
    for place in (place for find in _FINDERS for place in find(text)):
        if all(place.end <= other.start or place.start >= other.end for other in found_places):
            found_places.append(place)
    return sorted(found_places)


def _emails(text: str) -> Iterator[PersonalData]:
    for match in _EMAIL.finditer(text) if "@" in text else ():
        if not (match[0].lower().startswith("git@") and text[match.end() : match.end() + 1] == ":"):  # a repository
            yield PersonalData(match.start(), match.end(), "EMAIL", match[0].casefold())


def _ibans(text: str) -> Iterator[PersonalData]:
    for match in _IBAN.finditer(text):
        length = _IBAN_LENGTHS.get(match[1][:2].upper())
        end = match.start() if length is None else _end_of(text, match.start(), length)
        if length is None or end is None or text[end : end + 1].isalnum():
            continue
        account = re.sub("[ -]", "", text[match.start() : end]).upper()
        if int("".join(str(int(sign, 36)) for sign in account[4:] + account[:4])) % 97 == 1:  # ISO 13616
            yield PersonalData(match.start(), end, "IBAN", account)


def _end_of(text: str, start: int, length: int) -> int | None:
    """The end of `length` letters and digits, with single blanks or hyphens between them; None where there are not so many."""
    seen = 0
    for place in range(start, len(text)):
        if text[place].isascii() and text[place].isalnum():
            seen += 1
            if seen == length:
                return place + 1
        elif text[place] not in " -" or text[place - 1] in " -":
            return None
    return None


def _cards(text: str) -> Iterator[PersonalData]:
    for match in _CARD.finditer(text):
        digits = _NON_DIGITS.sub("", match[0])
        if _ISSUED.fullmatch(digits) and _passes_luhn(digits):
            yield PersonalData(match.start(), match.end(), "CARD", digits)


def _passes_luhn(digits: str) -> bool:
    """The check digit of payment cards (ISO/IEC 7812-1)."""
    doubled = (int(digit) * (2 if place % 2 else 1) for place, digit in enumerate(reversed(digits)))
    return sum(number - 9 if number > 9 else number for number in doubled) % 10 == 0


def _ssns(text: str) -> Iterator[PersonalData]:
    for match in _SSN.finditer(text):
        if not _OTHER_NUMBER.search(text, max(0, match.start() - _BEFORE), match.start()):
            yield PersonalData(match.start(), match.end(), "SSN", _NON_DIGITS.sub("", match[0]))


def _phones(text: str) -> Iterator[PersonalData]:
    for pattern in (*_PHONES, _SAID_PHONE):
        for match in pattern.finditer(text):
            start, end = match.span("number") if pattern is _SAID_PHONE else match.span()
            number = text[start:end].rstrip(" ./-(")
            if number.count("(") > number.count(")") and number.startswith("("):
                start, number = start + 1, number[1:]
            digits = _NON_DIGITS.sub("", number)
            least = 6 if pattern is _SAID_PHONE else 8 if number.startswith(("+", "00")) else 9
            if not least <= len(digits) <= 17 or _DATE.match(number):
                continue
            if not number.startswith("+") and _OTHER_NUMBER.search(text, max(0, start - _BEFORE), start):
                continue
            yield PersonalData(start, start + len(number), "PHONE", digits)


def _addresses(text: str) -> Iterator[PersonalData]:
    for pattern in (_IP4, _IP6) if "." in text or ":" in text else ():
        for match in pattern.finditer(text):
            if _VERSION_BEFORE.search(text, max(0, match.start() - _BEFORE), match.start()):
                continue
            try:
                address = ipaddress.ip_address(match[0])
            except ValueError:
                continue
            if not _is_of_no_one(address):
                yield PersonalData(match.start(), match.end(), "IP", str(address))


_NETWORKS = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "255.0.0.0/8", "fc00::/7")
_NETWORKS_INSIDE = tuple(map(ipaddress.ip_network, _NETWORKS))


def _is_of_no_one(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether an address names no line of anybody: it is only valid inside of a machine or a house, or for a group."""
    is_local = address.is_loopback or address.is_unspecified or address.is_multicast or address.is_link_local
    return is_local or any(address in network for network in _NETWORKS_INSIDE)


_FINDERS = (_emails, _ibans, _cards, _ssns, _phones, _addresses)  # in the order of `Kind`
