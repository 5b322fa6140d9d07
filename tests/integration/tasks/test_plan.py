"""`task=plan` as the data doctor: what it prints of data in order, of a live system, of what cannot be measured, and its file."""

import json
from pathlib import Path

import pytest

from ragpipe.cli import main
from ragpipe.testing.openai_server import serving

CASE = {"question": "Who wrote it?", "answer": "Ada wrote it.", "contexts": ["Ada wrote it."]}


def write(folder: Path, *cases: dict[str, object]) -> list[str]:
    """The words for a data set of these cases."""
    lines = [json.dumps({"id": f"q{i}"} | CASE | case) for i, case in enumerate(cases)]
    (folder / "cases.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return ["dataset=jsonl", f"dataset.path={folder / 'cases.jsonl'}", f"output_dir={folder}"]


@pytest.mark.slow
def test_the_demonstration_is_short_and_warns_of_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    out = tmp_path / "plan.json"
    assert main(["+experiment=quickstart", "task=plan", f"output_dir={tmp_path}", f"plan.out={out}"]) == 0
    printed, warned = capfd.readouterr()
    assert warned == ""
    assert len(printed.splitlines()) <= 50
    plan = json.loads(out.read_text(encoding="utf-8"))
    assert (plan["samples"], sum(plan["cases"].values()), plan["calls"]["all"]) == (40, 101, 641)
    assert [finding["name"] for finding in plan["findings"] if finding["is_warning"]] == []
    assert plan["metrics"]["retrieval"]["cases"] == 89
    assert plan["metrics"]["recency_conflict"]["embedded_judge"] == "partly"
    assert plan["fields_of_outputs"]["citations"]["by_method"]["baseline"]["present"] == 21


@pytest.mark.slow
def test_what_cannot_be_measured_is_said_by_the_plan_and_when_a_run_starts(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    recorded = {"recorded": {"helpfulness": 0.5}}
    words = [*write(tmp_path, {"reference": "Ada."} | recorded, {}), "metrics=[faithfulness,correctness,citation]"]
    lines = (
        "warning: correctness: the embedded judge cannot answer it; needs judge=llm\n",
        "warning: citation: skipped in every case (2 no_citations_recorded); it needs answer, contexts, citations",
    )
    unscored = (
        "recorded.helpfulness (1 of 2 cases) is in no score: 'metrics=[faithfulness,correctness,citation,recorded]' and "
        "'metrics.recorded.take={helpfulness: {low: 0, high: 1}}'; check the scales, and add higher_is_better: false where a "
        "high value is a bad one\n"
    )
    assert main([*words, "task=plan"]) == 0
    out, planned = capfd.readouterr()
    assert unscored in out
    assert main([*words, "name=other"]) == 0
    out, started = capfd.readouterr()
    assert unscored in out
    for line in lines:
        assert planned.count(line) == 1
        assert started.count(line) == 1
    taken = ["metrics=[correctness,recorded]", "metrics.recorded.take={helpfulness: {low: 0, high: 1}}"]
    assert main([*words, *taken, "task=plan", "judge=llm", "judge.model=openai/gpt-4o-mini-2024-07-18"]) == 0
    out, planned = capfd.readouterr()
    assert lines[0] not in planned, "a language model can answer it"
    assert "in no score" not in out


@pytest.mark.slow
def test_the_scales_that_are_offered_fit_the_recorded_values(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """True and false, numbers of spans from 0 to 5, a value that no usual scale holds, and several verdicts at once."""
    values = [
        {"flagged": True, "nspans": 0, "margin": -3, "claims": [True, False]},
        {"flagged": False, "nspans": 5, "margin": 250, "claims": [True, True]},
    ]
    words = [*write(tmp_path, *({"recorded": recorded} for recorded in values)), "metrics=[faithfulness]"]
    assert main([*words, "task=plan"]) == 0
    out = capfd.readouterr().out
    take = (
        "metrics.recorded.take={flagged: {binary: true}, nspans: {low: 0, high: 5}, margin: {low: null, high: null}, "
        "claims: {low: 0, high: 1}}"
    )
    assert f"'{take}'; check the scales, and add higher_is_better: false where a high value is a bad one" in out
    assert main([*words, "metrics=[faithfulness,recorded]", take]) == 0, (
        "a run takes these words, and no value is off its scale"
    )
    metrics = json.loads(next(tmp_path.glob("*/*/final/metrics.json")).read_text(encoding="utf-8"))
    scores = metrics["overall"]["scores"]
    assert {name: scores[name]["mean"] for name in values[0]} == {
        "flagged": 0.5,
        "nspans": 2.5,
        "margin": 123.5,
        "claims": 0.75,
    }


@pytest.mark.slow
def test_a_live_system_is_counted_and_its_questions_are_profiled(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = write(tmp_path, {"answer": None, "contexts": None}, {"answer": None, "contexts": None, "id": "Q0"})
    live = ["system=http", "system.url=http://127.0.0.1:9/ask", "system.repeats=3", "metrics=[faithfulness]"]
    assert main([*words, *live, "task=plan"]) == 0
    printed, warned = capfd.readouterr()
    assert "2 samples; the http system is asked 3 times for each when the run starts: 6 questions to it" in printed
    assert "question all 13 characters" in " ".join(printed.split())
    assert "1 id differs from another in case or blanks only, first 'Q0' and 'q0'" in warned
    assert "faithfulness" not in warned


@pytest.mark.slow
def test_the_file_of_the_plan_needs_a_name(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["+experiment=quickstart", "task=plan", "plan.out=''"]) == 2
    assert "plan.out" in capfd.readouterr().err


@pytest.mark.slow
def test_what_methods_ask_alike_is_planned_once_and_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two models answer over the same retrieval: the plan is what the server gets, to the question."""
    monkeypatch.setenv("RAGPIPE_TEST_KEY", "sk-test")
    case = {"references": ["Ada wrote it."], "contexts": ["Ada wrote it.", "Bob did not."]}
    methods = [case | {"id": "q", "method": name, "answer": f"{name} wrote it."} for name in ("one", "two", "three")]
    words = write(tmp_path, *methods)
    with serving() as server:
        judge = [
            "judge=llm",
            "judge.model=openai/gpt-4o-mini-2024-07-18",
            f"judge.api_base={server.url}",
            "judge.api_key_env=RAGPIPE_TEST_KEY",
        ]
        asking = [*words, *judge, "metrics=[context_precision,groundedness]"]
        out = tmp_path / "plan.json"
        assert main([*asking, "task=plan", f"plan.out={out}"]) == 0
        assert server.log == []
        assert main(asking) == 0
        planned = json.loads(out.read_text(encoding="utf-8"))["calls"]["new"]
        assert (planned, len(server.log), len({row["body"] for row in server.log})) == (4, 4, 4)
