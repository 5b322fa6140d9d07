"""`report.html`: a report as one file to look at. It loads nothing and sends nothing.

Every value passes through autoescape. A Content-Security-Policy lets only the page's own style and script act, named by
their hashes, and no address be loaded at all. The page holds no time and nothing that this machine paid: equal runs give
equal bytes.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragpipe.core.safe_text import printable
from ragpipe.reports.case_views import CaseView
from ragpipe.reports.model import (
    CaseBrowser,
    CaseName,
    ItemList,
    Note,
    Report,
    RowHead,
    ScoreCell,
    Strong,
    Table,
    pieces_of,
    plain_text,
    texts_of,
)

if TYPE_CHECKING:
    from jinja2 import Environment

_TEMPLATES = Path(__file__).resolve().parent / "templates"


def render_html(report: Report) -> str:
    """The page."""
    style, script = _file("report.css"), _file("report.js")
    page = (
        _environment()
        .get_template("report.html.jinja")
        .render(
            report=report.for_medium("html"),
            style=style,
            script=script,
            style_hash=_content_hash(style),
            script_hash=_content_hash(script),
        )
    )
    return page + "\n"


def _content_hash(text: str) -> str:
    """The name by which a Content-Security-Policy knows an inline style or script (https://www.w3.org/TR/CSP3/#framework-directive-source-list)."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode()


def template_texts() -> dict[str, str]:
    """The files that the page is made with, by name: its template, style and script."""
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(_TEMPLATES.iterdir()) if path.is_file()}


def _file(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["json"] = lambda value: json.dumps(value, ensure_ascii=False)
    environment.filters["distinct"] = lambda values: list(dict.fromkeys(values))
    environment.filters["scores_json"] = _scores_json
    environment.filters["pieces"] = pieces_of
    environment.filters["plain"] = plain_text
    environment.filters["texts"] = texts_of
    kinds = {
        "table": Table,
        "note": Note,
        "case_browser": CaseBrowser,
        "case_name": CaseName,
        "items": ItemList,
        "score_cell": ScoreCell,
        "row_head": RowHead,
        "strong": Strong,
    }
    for name, kind in kinds.items():
        environment.tests[name] = lambda value, kind=kind: isinstance(value, kind)
    return environment


def _printable(value: Any) -> Any:
    """Texts with control characters shown; what is markup already (macros, style, script) stays as it is."""
    return printable(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _scores_json(case: CaseView) -> str:
    """What filters and order need of a case: its scores as 0..1 and their verdicts."""
    scores = [["overall_score", {"score": case.overall, "verdict": _verdict("ok", case.passed)}]]
    scores += [
        [score.name, {"score": score.score, "verdict": _verdict(score.status, score.passed)}] for score in case.scores
    ]
    return json.dumps(scores, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _verdict(status: str | None, passed: bool | None) -> str:
    if status in ("error", "skipped"):
        return status
    return "none" if passed is None else "pass" if passed else "fail"
