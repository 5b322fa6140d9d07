"""The plan of many cases: blocks at even distances stand for all, and finished cases are all looked at."""

import json
import re
from pathlib import Path

import pytest

from ragpipe.cli.command_line import main
from ragpipe.runs import plan_summary
from ragpipe.testing.openai_server import serving

CASES = 4_500  # four blocks of 1,000 and one of 500
WORDS = [
    "dataset=jsonl", "dataset.path=cases.jsonl", "metrics=[correctness]", "judge=llm", "judge.model=openai/test-2026-01-01",
    "judge.endpoint=test", "judge.api_key_env=RAGPIPE_TEST_KEY", "judge.retries=0", "name=many", "report.formats=[]", "runner=local",
]  # fmt: skip


@pytest.fixture(autouse=True)
def _place(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_summary, "MOST_CASES", 1_000)
    with open("cases.jsonl", "w") as file:
        for number in range(CASES):
            record = {"id": f"q{number}", "question": f"What is {number}?", "answer": f"It is {number}.", "contexts": ["None."]}
            reference = {} if number % 2 else {"reference": f"{number}."}
            file.write(json.dumps({**record, **reference}) + "\n")


def figures(text: str) -> dict[str, int]:
    line = re.search(r"plan: .*", " ".join(text.split()))
    assert line is not None, text
    names = {
        "cases": r"([\d,]+) cases, about", "new": r"about ([\d,]+) new", "stored": r"\(([\d,]+) replies are", "of": r"from ([\d,]+) cases",
    }  # fmt: skip
    counts = {name: re.search(pattern, line[0]) for name, pattern in names.items()}
    return {name: int(match[1].replace(",", "")) for name, match in counts.items() if match}


@pytest.mark.thorough
@pytest.mark.slow
def test_a_plan_of_many_cases_is_estimated_and_what_is_stored_is_counted(capfd: pytest.CaptureFixture[str]) -> None:
    with serving(faults=["401:after=700"]) as server:
        assert main([*WORDS, f"judge.api_base={server.url}"]) not in (0, 3, 4)
        answered = sum(line["status"] == 200 for line in server.log)
    # every second case has a reference, in each block: 4,500 / 2
    assert figures("".join(capfd.readouterr())) == {"cases": CASES, "new": CASES // 2, "of": 1_000}
    with serving() as server:
        assert main([*WORDS, f"judge.api_base={server.url}"]) == 0
        asked = len(server.log)
    assert asked == CASES // 2 - answered
    counts = figures("".join(capfd.readouterr()))
    assert (counts["cases"], counts["of"]) == (CASES, 1_000)
    assert (counts["stored"], counts["new"]) == (answered, asked)


@pytest.mark.slow
def test_task_plan_estimates_calls_and_profiles_all_cases(capfd: pytest.CaptureFixture[str]) -> None:
    with open("cases.jsonl", "a") as file:
        file.write(json.dumps({"id": "last", "question": "?", "answer": "It is."}) + "\n")
    assert main(["task=plan", *WORDS[:-1]]) == 0
    text = "".join(capfd.readouterr())
    assert figures(text) == {"cases": CASES + 1, "new": CASES // 2, "of": 1_000}
    assert "4,501 samples, 4,501 cases" in text
