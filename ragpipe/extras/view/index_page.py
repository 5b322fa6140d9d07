"""The page over all runs, and the page that stands for a comparison while it is made, or in place of one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from ragpipe.extras.view.compared_pages import ComparedPage
from ragpipe.pages.data_blocks import json_block
from ragpipe.pages.page_file import Page, core_script, core_style, page_environment, page_html

_TEMPLATES = Path(__file__).resolve().parent / "templates"
_PIECES = ("dom", "blocks", "address", "keys", "filters", "share")
_WITHOUT_SCRIPT = 200
"""Runs that stand on the page without its script."""
_WAITING = "waiting.js"


def index_page(document: Mapping[str, Any], *, is_live: bool) -> Page:
    """What the page is made of.

    Args:
        document: its content (`index_document`).
        is_live: whether a server stands behind it: runs that go on and comparisons by clicking need one.
    """
    template = page_environment(_TEMPLATES).get_template("view.html.jinja")
    body = template.render(document=document, is_live=is_live, rows=document["rows"][:_WITHOUT_SCRIPT])
    script = core_script(_PIECES) + "".join(_file(name) for name in ("run_rows.js", "live.js", "view.js"))
    blocks = [json_block("index", {**document, "isLive": is_live})]
    return Page(f"runs of {document['folder']} · ragpipe", Markup(body), _style(), script, blocks, connects=is_live)


def message_page(page: ComparedPage, *, is_ended: bool) -> str:
    """While a comparison is made, a page that waits for it; where two runs cannot be compared, a page that says why.

    `is_ended` is what the caller saw: a comparison that ends meanwhile still gets the page that waits, which then finds it.
    """
    body = (
        page_environment(_TEMPLATES)
        .get_template("compared.html.jinja")
        .render(page=page, is_ended=is_ended, base=page.base, candidate=page.candidate)
    )
    title = "two runs that cannot be compared" if is_ended else "comparing two runs"
    script = "" if is_ended else core_script(("dom",)) + _file(_WAITING)
    return page_html(Page(f"{title} · ragpipe", Markup(body), _style(), script, connects=True))


def _style() -> str:
    return core_style() + _file("view.css")


def _file(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")
