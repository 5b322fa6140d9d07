"""`python -m tests.support.new_metric NAME [--computed]`: the files of a new metric, and everything that lists it.

Writes the class, the prompt template (for a metric that asks a judge), the YAML and a table of tests, none of them over
an existing file. Then updates `prompts/versions.lock`, the lists in `ragpipe/metrics/*/__init__.py`, the generated pages
of docs/ and the JSON Schemas of conf/schema. Run it again whenever you have changed a docstring or a YAML of the metric.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.support import metric_index, prompt_lock

COMMAND = "python -m tests.support.new_metric"
ROOT = Path(__file__).resolve().parents[2]
_GENERATORS = (("docs/generate.py",), ("-m", "ragpipe", "task=schema", "dir=conf/schema"))
"""Commands that write what is made from the code: pages of docs/, JSON Schemas for editors."""

_JUDGED_CLASS = '''"""TODO: the question that this metric answers, in one sentence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from ragpipe.judging.any_judge import Judge
from ragpipe.metrics.base import Need, PlannedCall
from ragpipe.metrics.shared.injection_flags import answer_flags, one_line
from ragpipe.metrics.shared.judge_metric import JudgeMetric
from ragpipe.prompting.prompt import Prompt
from ragpipe.schema.judge_answers.grade_answers import Grade15
from ragpipe.schema.sample import Case
from ragpipe.schema.score import Score, ScoreSpec, whole_grades


class {class_name}(JudgeMetric):
    """1 to 5, halves and tenths allowed. TODO: what 1 and 5 mean, what plays no part, and which cases are skipped.

    One call. Needs an answer.
    """

    needs: ClassVar[frozenset[Need]] = frozenset({{"answer"}})

    grade: Prompt

    def scores(self) -> tuple[ScoreSpec, ...]:
        return (ScoreSpec(self.name, 1, 5, grades=whole_grades(1, 5)),)

    def values(self, case: Case) -> dict[str, Any]:
        """The values of the prompt."""
        return self.prompt_values(self.grade, case, question=case.question, answer=case.answer)

    def planned_calls(self, case: Case) -> Iterable[PlannedCall]:
        yield PlannedCall(self.grade, Grade15, self.values(case))

    async def measure(self, case: Case, judge: Judge) -> Score:
        reply = await judge(self.grade, Grade15, **self.values(case))
        details = {{"feedback": reply.reason, "flags": answer_flags(case.answer)}}
        return Score(reply.score, reason=one_line(reply.reason) or None, details=details)
'''
_COMPUTED_CLASS = '''"""TODO: the question that this metric answers, in one sentence. Computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ragpipe.metrics.base import Computed, Need
from ragpipe.schema.sample import Case
from ragpipe.schema.score import Score, ScoreSpec


class {class_name}(Computed):
    """0 to 1: the share of the answer's words that are different words. TODO: your definition, and which cases are skipped.

    Needs an answer.
    """

    needs: ClassVar[frozenset[Need]] = frozenset({{"answer"}})

    def scores(self) -> tuple[ScoreSpec, ...]:
        return (ScoreSpec(self.name),)

    def compute(self, cases: Sequence[Case]) -> Sequence[Score]:
        return [_score(case) for case in cases]


def _score(case: Case) -> Score:
    words = case.answer.casefold().split()
    return Score(len(set(words)) / len(words), details={{"words": len(words)}})
'''
_TEMPLATE = """{{# TODO: what this step asks, in one sentence. #}}
---
roles:
  question: question
  answer: text
optional:
  history: []
  examples: []
  reasoning: false
---
[[system]]
{{% include "shared/preamble.v2.jinja" %}}
[[user]]
{{% include "shared/earlier_turns.v1.jinja" %}}
Question:
{{{{ question }}}}

Answer:
{{{{ answer }}}}

{{% include "shared/worked_examples.v1.jinja" %}}
Task: grade the answer from 1 to 5. TODO: by what, and what the single grades mean.
{{% if reasoning %}}
Go through the answer step by step before you grade, and give the steps in "reason".
{{% endif %}}
Reply with a JSON object with the keys "reason" (one to three sentences) and "score" (a number from 1 to 5), in this order.
"""
_JUDGED_YAML = """# yaml-language-server: $schema=../schema/metrics/{name}.json
# {title}: TODO, in one sentence. 1 to 5. Judge, one call.
# Use: metrics=[{name}]; without scoring.thresholds.{name} a case neither passes nor fails.
{name}:
  class: {class_name}
  # Template versions: prompts/{name}/grade.<version>.jinja.
  prompts: {{grade: v1}}
  # Show earlier turns of the conversation where a case has any (false: never).
  history: true
  # Ask for the reasons step by step: longer replies, higher cost.
  reasoning: false
  # Worked examples for the judge, by step, shown as material: {{grade: ["..."]}}.
  examples: {{}}
"""
_COMPUTED_YAML = """# yaml-language-server: $schema=../schema/metrics/{name}.json
# {title}: TODO, in one sentence. 0 to 1. Computed.
# Use: metrics=[{name}]; without scoring.thresholds.{name} a case neither passes nor fails.
{name}:
  class: {class_name}
"""
_JUDGED_TEST = '''"""{name} by a table: case, replies of the judge, value, calls."""

from __future__ import annotations

from typing import Any

import pytest

from ragpipe.metrics.base import run_skip_reason
from ragpipe.testing.scripted import ScriptedJudge, make_case, score_of, shipped_metric

TABLE: list[tuple[str, dict[str, Any], list[Any], float | str, int]] = [
    ("the judge's grade", {{}}, [{{"reason": "clear", "score": 4}}], 4.0, 1),
    ("a tenth", {{}}, [{{"score": 3.7}}], 3.7, 1),
    ("off the scale", {{}}, [{{"score": 6}}], "error", 1),
    ("prose", {{}}, ["5 of 5"], "error", 1),
    ("no answer", {{"answer": ""}}, [], "skipped", 0),
    ("an answer without a word", {{"answer": "..."}}, [], "skipped", 0),
]


@pytest.mark.parametrize(("case", "replies", "value", "calls"), [pytest.param(*row[1:], id=row[0]) for row in TABLE])
def test_table(case: dict[str, Any], replies: list[Any], value: float | str, calls: int) -> None:
    judge = ScriptedJudge(replies)
    score = score_of(shipped_metric("{name}"), make_case(**case), judge)["{name}"]
    assert (score.status if score.value is None else score.value) == value
    assert len(judge.asked) == calls


def test_parts_of_the_output_that_must_be_recorded() -> None:
    metric = shipped_metric("{name}")
    assert run_skip_reason(metric, make_case(), embedder=True) is None
    assert run_skip_reason(metric, make_case(answer=None), embedder=True) == "not_recorded: answer"
    assert run_skip_reason(metric, make_case(chunks=None), embedder=True) is None
'''
_COMPUTED_TEST = '''"""{name} by a table: case, value."""

from __future__ import annotations

from typing import Any

import pytest

from ragpipe.metrics.base import run_skip_reason
from ragpipe.testing.scripted import make_case, score_of, shipped_metric

TABLE: list[tuple[str, dict[str, Any], float | str]] = [
    ("different words", {{"answer": "Paris is the capital"}}, 1.0),
    ("repeated words", {{"answer": "no no no no"}}, 0.25),
    ("no answer", {{"answer": ""}}, "skipped"),
]


@pytest.mark.parametrize(("case", "value"), [pytest.param(*row[1:], id=row[0]) for row in TABLE])
def test_table(case: dict[str, Any], value: float | str) -> None:
    score = score_of(shipped_metric("{name}"), make_case(**case))["{name}"]
    assert (score.status if score.value is None else score.value) == value


def test_parts_of_the_output_that_must_be_recorded() -> None:
    metric = shipped_metric("{name}")
    assert run_skip_reason(metric, make_case(), embedder=True) is None
    assert run_skip_reason(metric, make_case(answer=None), embedder=True) == "not_recorded: answer"
    assert run_skip_reason(metric, make_case(chunks=None), embedder=True) is None
'''


def class_name_of(name: str) -> str:
    """The class of a metric file: `answer_brevity` gives `AnswerBrevityMetric`."""
    return "".join(part.capitalize() for part in name.split("_")) + "Metric"


def files_of(name: str, *, computed: bool) -> dict[Path, str]:
    """The files of a new metric, by path below the repository."""
    room = "computed" if computed else "judged"
    texts = {
        Path("ragpipe", "metrics", room, f"{name}.py"): _COMPUTED_CLASS if computed else _JUDGED_CLASS,
        Path("conf", "metrics", f"{name}.yaml"): _COMPUTED_YAML if computed else _JUDGED_YAML,
        Path("tests", "unit", "metrics", f"test_{name}.py"): _COMPUTED_TEST if computed else _JUDGED_TEST,
    }
    if not computed:
        texts[Path("prompts", name, "grade.v1.jinja")] = _TEMPLATE
    values = {"name": name, "title": name.replace("_", " ").capitalize(), "class_name": class_name_of(name)}
    return {path: text.format(**values) for path, text in texts.items()}


def _is_computed(name: str) -> bool:
    return (ROOT / "ragpipe" / "metrics" / "computed" / f"{name}.py").exists()


def _open_todos(paths: Iterable[Path]) -> list[str]:
    """The lines that are still to be filled in, as `path:line`."""
    return [
        f"{path}:{number}"
        for path in paths
        for number, line in enumerate((ROOT / path).read_text(encoding="utf-8").splitlines(), start=1)
        if "TODO" in line
    ]


def main(arguments: list[str]) -> int:
    """Returns 1 when a published prompt was changed, 2 for a name that no metric can have."""
    parser = argparse.ArgumentParser(prog=COMMAND, description="Add a metric to the repository.")
    parser.add_argument("name", help="name of the metric: lower case letters, digits and _")
    parser.add_argument("--computed", action="store_true", help="a metric that asks no judge")
    options = parser.parse_args(arguments)
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", options.name):
        parser.error(f"{options.name!r} is no name of a metric: lower case words joined by _, such as answer_brevity")
    files = files_of(options.name, computed=options.computed or _is_computed(options.name))
    for path, text in files.items():
        if not (ROOT / path).exists():
            (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / path).write_text(text, encoding="utf-8")
            print(f"wrote {path}")
    metric_index.update()
    refused = prompt_lock.update()
    print("\n".join(refused) or f"updated {prompt_lock.LOCK} and the lists of metrics")
    codes = [subprocess.run([sys.executable, *command], cwd=ROOT, check=False).returncode for command in _GENERATORS]
    todos = _open_todos(files)
    if todos:
        print(f"next: replace each TODO ({', '.join(todos)}), then run this command again")
    else:
        print(f"next: python -m pytest tests/unit/metrics -k {options.name}, then `just fast`")
    return int(bool(refused) or any(codes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
