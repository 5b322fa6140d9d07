"""A mistake in a template of the user's own is refused with its file and line, before a question is asked."""

from pathlib import Path

import pytest

from ragpipe.cli import main
from ragpipe.core.resources import prompts_dir
from ragpipe.testing.openai_server import serving
from tests.support.harness import arguments, write_cases

pytestmark = pytest.mark.slow  # whole runs, several per test

SHIPPED = (prompts_dir() / "faithfulness" / "combined.v2.jinja").read_text(encoding="utf-8")
TEMPLATE = Path("mine/faithfulness/combined.v3.jinja")
MISTAKES = {  # what is replaced, by what, words of the message, the text of the line that it must name
    "unknown role": ("answer: text", "answer: txt", "the role 'txt' of answer", "answer: txt"),
    "missing role": ("  question: question\n", "", "the variables ['question'] without a role", "{{ question }}"),
    "unknown block": ("[[user]]", "[[usr]]", "the block [[usr]]", "[[usr]]"),
    "misspelt variable": ("{{ answer }}", "{{ anwser }}", "the variables ['anwser'] without a role", "{{ anwser }}"),
    "a variable that no step gives": (
        "  answer: text\n", "  answer: text\n  reference: reference\n",
        "the variable reference, which the step does not give", "{{ reference }}",
    ),
    "a value that has no place": (
        "  question: question\n", "  query: question\n", "['question'], which the step gives", "roles:",
    ),
    "missing key of the reply": ('"verdict" (', "a verdict (", "keys of the reply without verdict", "Reply with a JSON object"),
    "lost answer type": ("answer_type: QuotedClaims\n", "", "the key verdict of another answer type", "Reply with"),
    "an older answer type": (
        "QuotedClaims", "CheckedClaims", "answer_type: QuotedClaims in the front matter", "Reply with",
    ),
    "unknown answer type": ("QuotedClaims", "QuotedClaim", "answer_type: QuotedClaim", "answer_type: QuotedClaim"),
    "answer type of another step": ("QuotedClaims", "QuotedVerdicts", "answer_type: QuotedVerdicts", "answer_type"),
    "unknown front matter": ("optional:", "options:", "front matter", None),
    "a call": ("{{ answer }}", "{{ answer.upper() }}", "a call", "{{ answer.upper() }}"),
}  # fmt: skip


def mistaken(name: str) -> str:
    """The shipped template with one mistake."""
    old, new, *_ = MISTAKES[name]
    assert old in SHIPPED
    text = SHIPPED.replace(old, new)
    if name == "a variable that no step gives":
        text = text.replace("{{ answer }}", "{{ answer }}\n{{ reference }}")
    if name == "a value that has no place":
        text = text.replace("{{ question }}", "{{ query }}")
    return text


def started(text: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """A run that asks by this template: its exit code, and the requests that reached the server."""
    monkeypatch.chdir(here)
    monkeypatch.setenv("RAGPIPE_TEST_KEY", "k")
    TEMPLATE.parent.mkdir(parents=True)
    TEMPLATE.write_text(text, encoding="utf-8")
    with serving() as server:
        words = [
            *arguments(write_cases(here / "cases.jsonl", 2), here / "outputs", server.url, metrics="faithfulness"),
            "metrics.faithfulness.steps=combined",
            "metrics.faithfulness.prompts.combined=v3",
            "prompt_dirs=[mine]",
        ]
        return main(words), server.tries


@pytest.mark.thorough(tried=4)
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_refused_with_its_line_before_anything_is_asked(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    text = mistaken(name)
    assert started(text, tmp_path, monkeypatch) == (2, 0)
    *_, said, at = MISTAKES[name]
    error = capfd.readouterr().err
    lines = [number for number, line in enumerate(text.splitlines(), 1) if at and at in line] or [2]
    assert any(f"{TEMPLATE}:{number}" in error for number in lines), error
    assert said in error


def test_a_correct_template_of_ones_own_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    correct = SHIPPED.replace("Task: list", "Task: carefully list")
    assert started(correct, tmp_path, monkeypatch) == (0, 2)
