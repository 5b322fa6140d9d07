"""Whether a template that lists the keys of its reply lists those that its step reads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ragpipe.prompting.prompt import Prompt
from ragpipe.prompting.template_files import line_of, template_error, without_comments


def check_reply_keys(
    prompt: Prompt, schema: Mapping[str, Any], others: Mapping[str, Mapping[str, Any]] | None = None
) -> None:
    """Raises PromptError, with the line, for a template that asks for another reply than its step reads.

    It names, in quotes, some of the keys that every reply must have, but not all; or it names a key that only another
    answer type of the step has. A judge follows the words rather than the schema beside them, so each question would be
    paid for twice, with its repair. A template that names no key leaves the form to the schema, which is always sent.

    Args:
        prompt: the template.
        schema: that of the answer it asks for (`answer_schema`).
        others: the schemas of the step's other answer types, by name.
    """
    others = others or {}
    text = _instructions(prompt)
    required = list(dict.fromkeys(_required(schema)))
    missing = [key for key in required if not _names(text, key)]
    last_line = line_of(prompt.text, r"\S[^\n]*\s*\Z")
    if missing and len(missing) < len(required):
        expected = f"the keys {', '.join(required)}, each in double quotes"
        raise template_error(prompt.path, last_line, f"keys of the reply without {', '.join(missing)}", expected)
    values = {value for one in (schema, *others.values()) for value in _enumerated(one)}
    for name, other in others.items():
        foreign = [key for key in dict.fromkeys(_required(other)) if key not in required and key not in values]
        if named := [key for key in foreign if _names(text, key)]:
            expected = f"answer_type: {name} in the front matter, or no such key"
            raise template_error(prompt.path, last_line, f"the key {named[0]} of another answer type", expected)


def _instructions(prompt: Prompt) -> str:
    """What the template and its includes say, without front matter and comments."""
    own = without_comments(prompt.text).partition("\n---\n")[2]
    return "\n".join((own, *map(without_comments, prompt.includes.values())))


def _names(text: str, key: str) -> bool:
    return re.search(rf"[\"'`]{re.escape(key)}[\"'`]", text) is not None


def _required(node: Any) -> Iterator[str]:
    """The keys that a schema requires, those of its parts included."""
    if isinstance(node, Mapping):
        yield from node.get("required", ())
        for name, value in node.items():
            if name != "required":
                yield from _required(value)
    elif isinstance(node, list):
        for item in node:
            yield from _required(item)


def _enumerated(node: Any) -> Iterator[str]:
    """The values among which a schema lets a judge choose."""
    if isinstance(node, Mapping):
        yield from node.get("enum", ())
    parts: Sequence[Any] = list(node.values()) if isinstance(node, Mapping) else node if isinstance(node, list) else ()
    for part in parts:
        yield from _enumerated(part)
