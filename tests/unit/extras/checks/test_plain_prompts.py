"""A prompt without its defences: values as they are, no word on tags, and a version and a hash of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from ragpipe.core.errors import PromptError
from ragpipe.core.resources import prompts_dir
from ragpipe.extras.checks.plain_prompts import plain_prompt
from ragpipe.prompting.library import PromptLibrary
from ragpipe.schema.sample import Chunk

SHIPPED = sorted(path for path in prompts_dir().glob("*/*.jinja") if path.parent.name != "shared")


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_shipped_template_has_a_plain_form(path: Path) -> None:
    step, version, _ = path.name.split(".")
    prompt = PromptLibrary([prompts_dir()]).load(path.parent.name, step, version)
    plain = plain_prompt(prompt)
    assert (plain.name, plain.version) == (prompt.name, f"{version}_plain")
    assert plain.sha256 != prompt.sha256
    assert (plain.roles, plain.optional, plain.variables) == (prompt.roles, prompt.optional, prompt.variables)


def test_values_are_printed_as_they_are() -> None:
    prompt = PromptLibrary([prompts_dir()]).load("groundedness", "grade", "v3")
    values = {"contexts": [Chunk(id="c", rank=1, text="The pier is long.")], "answer": "It is long."}
    fenced = "\n".join(message["content"] for message in prompt.render(**values))
    plain = "\n".join(message["content"] for message in plain_prompt(prompt).render(**values))
    assert "12 hexadecimal digits" in fenced
    assert "Contexts:\n[1]\nThe pier is long.\n" in plain
    assert "Answer:\nIt is long.\n" in plain
    assert "hexadecimal" not in plain
    assert "<" not in plain


def test_fences_is_true_or_false(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "step.v1.jinja").write_text(
        "---\nroles: {answer: text}\nfences: maybe\n---\n[[user]]\n{{ answer }}\n"
    )
    with pytest.raises(PromptError, match="fences: false"):
        PromptLibrary([tmp_path]).load("m", "step", "v1")
