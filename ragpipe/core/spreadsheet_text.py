"""Texts of data sets in cells of a spreadsheet, where they must not compute.

A text that a spreadsheet would take for a formula, one whose first character that shows is `=`, `+`, `-` or `@` or that
begins with a tab or a line break, gets an apostrophe before it (https://owasp.org/www-community/attacks/CSV_Injection). A text
that already has apostrophes before such a beginning gets one more: so `restore` gives back every text.
"""

from __future__ import annotations

import re

# blanks of every kind, marks without a width and control characters may stand before; the wide forms compute too
_FORMULA = re.compile("'*(?:[\t\r\n]|[\\s\x00-\x1f\x7f\u00ad\u200b-\u200f\u2060\ufeff]*[=+\\-@＝＋－＠])")


def escape(text: str) -> str:
    """The text as it is written to a cell: with an apostrophe before what a spreadsheet would compute."""
    return "'" + text if _FORMULA.match(text) else text


def restore(text: str) -> str:
    """The text that `escape` made this one of."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text, 1) else text
