"""Links into a page: its state as the fragment of its address, `#v=1&slice=category:policy&case=dao-01/rerank/1`.

A state is named, never numbered by row, so that a link holds when the page is made again. `assets/address.js` writes and reads
the same form.
"""

from __future__ import annotations

from urllib.parse import quote

from ragpipe.core.safe_text import printable

VERSION = "1"
_SAFE = "!~*'()/:"  # as encodeURIComponent leaves them, and `/` and `:`, which a fragment may hold


def page_address(**state: str | None) -> str:
    """The fragment of a state: its parts in their order, those that are None or empty left out."""
    parts = {"v": VERSION, **{key: value for key, value in state.items() if value}}
    return "#" + "&".join(
        f"{quote(key, safe=_SAFE)}={quote(printable(value), safe=_SAFE)}" for key, value in parts.items()
    )


def case_name(sample_id: str, method: str | None, repeat: int) -> str:
    """A case as addresses name it: `dao-01/rerank/1`; a row of all methods is `dao-01/1`."""
    return "/".join([sample_id, *([] if method is None else [method]), str(repeat)])
