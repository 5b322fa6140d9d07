"""A page as one HTML file: it loads nothing, sends nothing, and runs no script or style but its own.

A Content-Security-Policy names the page's style and script by their hashes. Nothing may be loaded from anywhere, and no
script may turn text into markup (`require-trusted-types-for`). A page whose data is too much for one file may load scripts from
where it is itself (`script-src 'self'`), and only one named policy of its script may say which: those of its side files.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from ragpipe.core.safe_text import printable
from ragpipe.pages.data_blocks import DataBlock
from ragpipe.pages.side_files import POLICY, SideFolder, divided_blocks

if TYPE_CHECKING:
    from jinja2 import Environment

_ASSETS = Path(__file__).resolve().parent / "assets"
PIECES = ("dom", "folds", "blocks", "address", "keys", "list", "filters", "share", "list_page", "word_diff", "changes")
"""The pieces of the core script, in the order in which they go into a page."""
_POLICY = (
    "default-src 'none'; style-src '{style}'; script-src '{script}'{loaded}; base-uri 'none'; form-action 'none'; "
    "require-trusted-types-for 'script'; trusted-types {types}"
)
_BEGINNING = Markup(
    """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
{body}
"""
)
_END = Markup(
    """
<script>{script}</script>
</body>
</html>
"""
)
_BLOCK = '<script type="text/plain" id="block-{name}">{text}</script>'


@dataclass(frozen=True)
class Page:
    """What a page is made of: its title, its body as markup, style and script as texts of ours, and its data blocks."""

    title: str
    body: Markup
    style: str
    script: str
    blocks: Iterable[DataBlock] = ()
    connects: bool = False
    """Whether its script may ask the server that it came from."""


def page_html(page: Page, side: SideFolder | None = None) -> str:
    """The whole file. Arguments and errors as of `page_pieces`."""
    return "".join(page_pieces(page, side))


def page_pieces(page: Page, side: SideFolder | None = None) -> Iterator[str]:
    """The file in pieces: with its data blocks it can have tens of megabytes. Control characters in its body are shown as escapes.

    With `side`, blocks beyond its limit are saved there (`side_files.divided_blocks`). Raises ValueError for a style or a script
    that would end its own element, before the first piece.
    """
    for kind, text in (("style", page.style), ("script", page.script)):
        if f"</{kind}" in text.lower():
            raise ValueError(f"the {kind} of the page {page.title!r} contains its own end tag")
    inside = list(page.blocks) if side is None else divided_blocks(page.blocks, side)
    is_divided = any(block.name == "files" for block in inside)
    policy = _POLICY.format(
        style=content_hash(page.style),
        script=content_hash(page.script),
        loaded=" 'self'" if is_divided else "",
        types=POLICY if is_divided else "'none'",
    )
    if page.connects:
        policy += "; connect-src 'self'"
    yield str(
        _BEGINNING.format(
            policy=Markup(policy),  # its quotes are its own
            title=printable(page.title),
            style=Markup(page.style),
            body=Markup(printable(page.body)),
        )
    )
    for number, block in enumerate(inside):
        yield "\n" * (number > 0) + _BLOCK.format(name=block.name, text=block.text)
    yield str(_END.format(script=Markup(page.script)))


def content_hash(text: str) -> str:
    """The name by which a Content-Security-Policy knows an inline style or script (https://www.w3.org/TR/CSP3/#framework-directive-source-list)."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode()


def core_style() -> str:
    """The style that all pages share: colours for light, dark and print, text, tables, buttons, list, charts."""
    return _asset("core.css")


def core_script(pieces: Sequence[str]) -> str:
    """The pieces of the core script with these names, in the order of `PIECES`. Raises ValueError for an unknown one."""
    if unknown := [name for name in pieces if name not in PIECES]:
        raise ValueError(f"no piece {unknown[0]!r} in the core script; there are: {', '.join(PIECES)}")
    return "\n".join(['"use strict";', *(_asset(f"{name}.js") for name in PIECES if name in pieces)])


def asset_texts() -> dict[str, str]:
    """The files of the core, by name: what a page is made with beside its own files."""
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(_ASSETS.iterdir()) if path.is_file()}


def page_environment(templates: Path) -> Environment:
    """Jinja for the bodies of pages: every value is escaped, and its control characters are shown."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(templates),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _printable(value: Any) -> Any:
    """Texts with control characters shown; what is markup already stays as it is."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")
