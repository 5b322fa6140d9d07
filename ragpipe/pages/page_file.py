"""A page as one HTML file: it loads nothing, sends nothing, and runs no script or style but its own.

A Content-Security-Policy names the page's style and script by their hashes. Nothing may be loaded from anywhere, and no
script may turn text into markup (`require-trusted-types-for`).
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from ragpipe.core.safe_text import printable
from ragpipe.pages.data_blocks import DataBlock

if TYPE_CHECKING:
    from jinja2 import Environment

_ASSETS = Path(__file__).resolve().parent / "assets"
PIECES = ("dom", "blocks", "address", "keys", "list", "filters", "share", "word_diff")
"""The pieces of the core script, in the order in which they go into a page."""
_POLICY = (
    "default-src 'none'; style-src '{style}'; script-src '{script}'; base-uri 'none'; form-action 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_PAGE = Markup(
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
{blocks}
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


def page_html(page: Page) -> str:
    """The file; control characters in its body are shown as escapes. Raises ValueError for a style or a script that would end its own element."""
    for kind, text in (("style", page.style), ("script", page.script)):
        if f"</{kind}" in text.lower():
            raise ValueError(f"the {kind} of the page {page.title!r} contains its own end tag")
    policy = _POLICY.format(style=content_hash(page.style), script=content_hash(page.script))
    blocks = Markup("\n").join(Markup(_BLOCK.format(name=block.name, text=block.text)) for block in page.blocks)
    html = _PAGE.format(
        policy=Markup(policy),  # its quotes are its own
        title=printable(page.title),
        style=Markup(page.style),
        body=Markup(printable(page.body)),
        blocks=blocks,
        script=Markup(page.script),
    )
    return str(html)


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
