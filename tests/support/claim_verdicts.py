"""Scripted verdicts on claims, in the forms that version 1 and version 2 of the templates ask for."""

from typing import Any


def in_both_forms(supported: Any) -> dict[str, Any]:
    """The keys of a verdict: `supported` of version 1, `verdict` of version 2. Of a value that is no bool only the first.

    Each answer type ignores the other's key.
    """
    if not isinstance(supported, bool):
        return {"supported": supported}
    return {"supported": supported, "verdict": "supported" if supported else "not_supported"}
