"""Ways to hide a text from people that a language model may still read."""

from __future__ import annotations

import base64
import codecs
from collections.abc import Callable, Mapping

_LOOKALIKES = str.maketrans("aceopxyiABCEHKMOPTX", "асеорхуіАВСЕНКМОРТХ")
_LEET = str.maketrans("aeiostAEIOST", "431057431057")
_FLOOD, _SHOTS = 200, 40


def _each_after(text: str, place: Callable[[int], int]) -> str:
    return "".join(chr(place(ord(letter))) for letter in text if letter.isascii())


ENCODINGS: Mapping[str, Callable[[str], str]] = {
    "zero_width": lambda text: "\u200b".join(text),
    "tag_characters": lambda text: _each_after(text, lambda code: 0xE0000 + code),
    "variation_selectors": lambda text: _each_after(text, lambda code: 0xE0100 + code),
    "bidi": lambda text: f"\u202e{text[::-1]}\u202c",
    "homoglyphs": lambda text: text.translate(_LOOKALIKES),
    "leetspeak": lambda text: text.translate(_LEET),
    "spaced": lambda text: " ".join(text),
    "base64": lambda text: base64.b64encode(text.encode()).decode("ascii"),
    "rot13": lambda text: codecs.encode(text, "rot13"),
    "flood": lambda text: " ".join([text] * _FLOOD),
    "many_shot": lambda text: "\n".join([text] * _SHOTS),
}
"""By the name that an attack gives as `encode`."""
