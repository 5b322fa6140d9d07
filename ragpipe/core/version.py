"""The version of ragpipe, and the number of the format of everything that it writes.

There is one number for all of it, and nothing of another number is read, continued or changed: it is refused by name.
"""

from __future__ import annotations

from pathlib import Path

from ragpipe.core.errors import FormatMismatch, Problem

__version__ = "0.1.0"


FORMAT = 7
"""Raised when a file takes another form, or a key or column another meaning."""


def format_mismatch(title: str, where: Path | str, number_found: object, made_by: object, fix: str) -> FormatMismatch:
    """The error for what has another format number (None: none) and names the version of ragpipe that it was `made_by`, if
    any; `title` says what could not be done."""
    number = "no format number" if number_found is None else f"format {number_found}"
    maker = f"made by ragpipe {made_by}" if made_by else "it does not say which ragpipe made it"
    return FormatMismatch(
        title, [Problem(str(where), "format", f"{number}, {maker}", f"format {FORMAT}, that of ragpipe {__version__}", fix)]
    )
