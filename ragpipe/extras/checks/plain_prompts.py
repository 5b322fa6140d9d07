"""Prompts without their defences, to see what the defences are worth: values without fences, and no word on them."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from ragpipe.prompting.library import PromptLibrary
from ragpipe.prompting.prompt import Prompt

_SUFFIX = "_plain"
"""What the version of a plain prompt ends in."""
_PREAMBLE = "shared/preamble."
_PLAIN_PREAMBLE = """You are an impartial evaluator of a question answering system.
Reply only in the form asked for, with nothing before or after it.
"""


def plain_prompt(prompt: Prompt) -> Prompt:
    """The same prompt as version `<version>_plain`: `fences: false`, and a preamble without a word on tags or requests.

    Its text and its hash differ, so its questions have keys of their own. Only an audit asks with it.
    """
    name, version = f"{prompt.name}.{prompt.version}.jinja", f"{prompt.version}{_SUFFIX}"
    with TemporaryDirectory() as root:
        for path, text in prompt.sources.items():
            if path == name:
                text = text.replace("---\n", "---\nfences: false\n", 1)
            elif path.startswith(_PREAMBLE):
                text = _PLAIN_PREAMBLE
            target = Path(root, path if path != name else f"{prompt.name}.{version}.jinja")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        folder, step = prompt.name.rsplit("/", 1)
        return PromptLibrary([Path(root)]).load(folder, step, version)
