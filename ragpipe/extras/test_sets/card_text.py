"""The card of a frozen set as Markdown: what is in it, how it was made, and the words that evaluate it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragpipe.core.digest import canonical_json
from ragpipe.core.safe_text import code_span, escape_markdown, markdown_table

_OPENING = ("cases", "outputs", "made", "seed", "sha256")
"""Keys of a card that stand in its first lines; the others are sections, in the order of the card."""
_CELL = 300


def card_markdown(name: str, card: Mapping[str, Any]) -> str:
    """The page. `name` is the folder's name; texts of the card are data, never markup."""
    lines = [f"# {escape_markdown(name)}", ""]
    if made := card.get("made"):
        lines += [escape_markdown(str(made), 2000), ""]
    lines += [f"- **cases:** {card['cases']:,}"]
    if outputs := card.get("outputs"):
        shares = ", ".join(f"{code_span(method)} {count:,}" for method, count in outputs.items())
        lines.append(f"- **outputs:** {shares}")
    else:
        lines.append("- **outputs:** none (questions for a live system)")
    if card.get("seed") is not None:
        lines.append(f"- **seed:** {card['seed']}")
    lines += [f"- **sha256 of cases.jsonl:** {code_span(card['sha256'])}", ""]
    lines += [
        "```bash",
        f"python -m ragpipe dataset=jsonl dataset.path=FOLDER/cases.jsonl dataset.sha256={card['sha256']}",
    ]
    lines += ["```", ""]
    for key, value in card.items():
        if key not in _OPENING and value not in (None, [], {}):
            lines += [f"## {escape_markdown(key.replace('_', ' ').capitalize())}", "", *_section(value), ""]
    return "\n".join(lines).rstrip() + "\n"


def _section(value: Any) -> list[str]:
    """A value of the card: a list of objects and a mapping as tables, other lists as bullets."""
    if isinstance(value, Mapping):
        if all(isinstance(item, Mapping) for item in value.values()):
            triples = [
                (_cell(key), _cell(inner), _cell(item)) for key, pairs in value.items() for inner, item in pairs.items()
            ]
            return markdown_table(("", "", ""), triples, left=(0, 1))
        return markdown_table(("", ""), [(_cell(key), _cell(item)) for key, item in value.items()], left=(0, 1))
    if isinstance(value, Sequence) and not isinstance(value, str):
        if value and all(isinstance(item, Mapping) for item in value):
            heads = list(dict.fromkeys(key for item in value for key in item))
            rows = [[_cell(item.get(head)) for head in heads] for item in value]
            return markdown_table([escape_markdown(head) for head in heads], rows, left=range(len(heads)))
        return [f"- {_cell(item)}" for item in value]
    return [_cell(value)]


def _cell(value: Any) -> str:
    """A value on one line: what is no plain words (a file, a hash, a name with signs) as code."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if not isinstance(value, str):
        return code_span(canonical_json(value), _CELL)
    return escape_markdown(value, _CELL) if " " in value or value.isalpha() else code_span(value, _CELL)
