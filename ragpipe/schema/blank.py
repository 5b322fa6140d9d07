"""Texts without a character to see."""

from __future__ import annotations

import re
import unicodedata

_FILLERS = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\ufe00-\ufe0f\U000e0100-\U000e01ef]+")
"""What shows nothing and has the category of a letter, a mark or a sign: fillers, joiners, variation selectors, the empty
Braille cell."""
_UNSEEN = ("Zs", "Zl", "Zp", "Cc", "Cf")


def is_blank(text: str) -> bool:
    """Whether a text shows nothing: it is empty, or blanks, controls, marks without a width and fillers are all it has."""
    if text[:1].isascii() and text[:1].isalnum():  # so almost every text begins
        return False
    return all(unicodedata.category(sign) in _UNSEEN for sign in _FILLERS.sub("", text))
