"""Whether a template that lists the keys of its reply lists all that its step reads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ragpipe.prompting.prompt import Prompt
from ragpipe.prompting.template_files import line_of, template_error


def check_reply_keys(prompt: Prompt, schema: Mapping[str, Any]) -> None:
    """Raises PromptError for a template that names, in quotes, some of the keys that every reply must have, but not all.

    A judge follows the words rather than the schema beside them, so each question would be paid for twice, with its repair.
    A template that names no key leaves the form to the schema, which is always sent. `schema` is that of the answer
    (`answer_schema`).
    """
    text = "\n".join(prompt.sources.values())
    required = list(dict.fromkeys(_required(schema)))
    missing = [key for key in required if not re.search(rf"[\"'`]{re.escape(key)}[\"'`]", text)]
    if missing and len(missing) < len(required):
        last_line = line_of(prompt.text, r"\S[^\n]*\s*\Z")
        expected = f"the keys {', '.join(required)}, each in double quotes"
        raise template_error(prompt.path, last_line, f"keys of the reply without {', '.join(missing)}", expected)


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
