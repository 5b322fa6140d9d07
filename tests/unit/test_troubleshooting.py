"""docs/troubleshooting.md and the messages on pages of extras: each still stands in the code, and no first line of an error is missing."""

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from tests.support.pages import DOCS
from tests.support.source_trees import FILES, source_nodes

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test

PAGE = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
OF_EXTRAS = [path.read_text(encoding="utf-8").partition("\n## Messages\n")[2] for path in DOCS.glob("extras/*.md")]
QUOTED = re.findall(r"^\| `([^`]+)` \|", "\n".join([PAGE, *OF_EXTRAS]), re.M)
TITLED = {"ConfigError", "DataError", "PromptError", "Faults"}
ANYTHING = "\0"


def text_of(node: ast.AST) -> str | None:
    """A literal text, with a mark for what is filled in; None for any other expression."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_piece, node.values))
    return None


def _piece(part: ast.AST) -> str:
    """A piece of an f-string. The page quotes messages of the judge, whose `section` they name."""
    if isinstance(part, ast.FormattedValue):
        return "judge" if getattr(part.value, "attr", getattr(part.value, "id", "")) == "section" else ANYTHING
    return str(part.value)  # type: ignore[attr-defined]


@cache
def messages() -> list[str]:
    """Every text of the code, without line breaks and indents."""
    found = (text_of(node) for path in FILES for node in source_nodes(path))
    return [" ".join(text.split()) for text in found if text and " " in text]


@cache
def all_messages() -> str:
    """All of them as one text, so that one search is enough. The letter between two keeps a match from spanning both."""
    return "\nx\n".join(messages())


def titles() -> Iterator[str]:
    """The first lines of the errors that list problems."""
    for path in FILES:
        for node in source_nodes(path):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in TITLED and node.args:
                title = text_of(node.args[0])
                if title is not None and title.strip(ANYTHING):
                    yield title


def fits(quoted: str, message: str) -> bool:
    """Whether a quoted message is this one, or a part of it: `...` stands for what the code fills in."""
    pieces = [re.escape(piece.strip()) for piece in quoted.split("...") if piece.strip(" .")]
    return re.search(rf"\s*[^a-z]*{ANYTHING}?[^a-z]*\s*".join(pieces), message) is not None


def test_a_message_that_the_code_does_not_have_is_found_out() -> None:
    assert not fits("the call store ... is on holiday", all_messages())
    assert not fits("a run ... whole", "a run\nx\nis whole\nx\nthe whole")
    assert not fits("a run ... whole", "a run is whole")
    assert fits("a run ... whole", f"a run {ANYTHING} whole")


def test_a_quoted_message_stands_in_the_code() -> None:
    assert [quoted for quoted in QUOTED if not fits(quoted, all_messages())] == []


def test_every_first_line_of_an_error_has_a_row() -> None:
    missing = sorted({title for title in titles() if not any(fits(quoted, " ".join(title.split())) for quoted in QUOTED)})
    assert not missing, "add a row to docs/troubleshooting.md, or to the page of its extra: " + "; ".join(missing)


def test_a_message_has_one_row() -> None:
    assert len(QUOTED) == len(set(QUOTED)) > 60
