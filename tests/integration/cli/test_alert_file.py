"""The alert file: what a run of bad answers appends, and that a run of good ones, or a second start, appends nothing."""

import json
from pathlib import Path
from typing import Any

import pytest

from ragpipe.cli.command_line import main
from ragpipe.testing.openai_server import serving
from tests.support.harness import arguments, write_cases

pytestmark = pytest.mark.slow  # several whole runs
ALERTS = Path("outputs/alerts.jsonl")


@pytest.fixture(autouse=True)
def _here(here: Path) -> None:
    """Every run stands in the empty folder."""


def write_log(path: Path, *, good: int, day: str = "", cases: int = 40) -> None:
    lines = []
    for number in range(cases):
        source = f"The {day} order {number} was sent to the northern warehouse in spring."
        answer = source if number < good else f"Elephants {number} paint bright violet ceilings at midnight."
        lines.append({"id": f"q{number}", "question": f"Where was the {day} order {number} sent?", "answer": answer, "contexts": [source]})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def monitor(*words: str) -> int:
    log = ["dataset=jsonl", "dataset.path=log.jsonl", "dataset.sample=null"]
    log += ["+mode=monitoring", "metrics=[faithfulness]"]
    others = [f"scoring.gates.{name}=null" for name in ("context_relevance", "answer_relevance", "citation", "source_policy")]
    return main([*log, *others, "report.formats=[markdown]", *words])


def alerts() -> list[dict[str, Any]]:
    return [json.loads(line) for line in ALERTS.read_text().splitlines()]


def test_a_bad_day_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    """40 of 40 answers are supported on Monday, 20 on Tuesday: the gate of .85 fails, the score fell by .5, and as many
    answers have a claim without support."""
    write_log(Path("log.jsonl"), good=40, day="Monday")
    assert monitor() == 0
    assert ALERTS.read_bytes() == b"", "all is well"
    write_log(Path("log.jsonl"), good=20, day="Tuesday")
    assert monitor() == 0
    assert "alerts: 3 new in outputs/alerts.jsonl" in capsys.readouterr().out
    gate, drop, rise = alerts()
    run = Path("outputs/monitoring/latest").resolve()
    for alert, score in ((gate, "faithfulness"), (drop, "faithfulness"), (rise, "unsupported_claim")):
        assert (alert["run_id"], alert["name"], alert["score"]) == (run.name, "monitoring", score)
        assert Path(alert["report"]).samefile(run / "report.md")
        assert [case["case"] for case in alert["worst"]] == ["q20/default/1", "q21/default/1", "q22/default/1"]
    assert (gate["alert"], gate["verdict"], gate["limit"], gate["n"]) == ("gate", "failed", {"min": 0.85}, 40)
    assert gate["value"] == pytest.approx(0.5)
    assert gate["interval"][1] < 0.85
    assert (drop["alert"], drop["samples"], drop["value"]) == ("drop", "independent", pytest.approx(-0.5))
    assert drop["interval"][1] < 0
    assert (rise["alert"], rise["samples"], rise["value"]) == ("rise", "independent", pytest.approx(0.5))
    assert rise["interval"][0] > 0
    assert rise["message"].startswith(f"rate of unsupported_claim changed by +0.500 against {drop['against']} (0 to 0.5, other questions")
    assert monitor() == 0
    assert len(alerts()) == 3, "a second start adds nothing"
    assert "alerts: 0 new, 3 known" in capsys.readouterr().out


def test_what_is_told_is_chosen() -> None:
    write_log(Path("log.jsonl"), good=34)  # .85 of 40: the interval holds the limit
    assert monitor() == 0
    assert alerts() == [], "too few cases to tell is no alert"
    assert monitor("report.alerts.kinds=[inconclusive]") == 0
    assert {alert["verdict"] for alert in alerts()} == {"inconclusive"}
    told = len(alerts())
    assert "faithfulness" in [alert["what"] for alert in alerts()]
    assert (monitor("report.alerts.file=null", "name=other"), len(alerts())) == (0, told)


def test_a_gate_that_could_not_be_measured_is_told() -> None:
    write_log(Path("log.jsonl"), good=40)
    assert monitor("metrics=[retrieval]", "+scoring.gates.ranks={score: mrr, min: 0.5}", "scoring.gates.faithfulness=null") == 3
    (alert,) = [alert for alert in alerts() if alert["what"] == "ranks"]
    assert (alert["what"], alert["verdict"], alert["value"], alert["interval"]) == ("ranks", "no_evidence", None, None)


@pytest.mark.thorough
def test_a_slow_decline_shows_against_a_fixed_run() -> None:
    """40, 36, 32 and 28 of 40: no day is worse than the one before, the last one is than the first."""
    found = []
    for day, good in enumerate((40, 36, 32, 28)):
        write_log(Path("log.jsonl"), good=good, day=f"day {day}")
        assert monitor("report.alerts.kinds=[drop]") == 0
        found.append(Path("outputs/monitoring/latest").resolve().name)
    assert alerts() == []
    assert monitor("report.alerts.kinds=[drop]", f"report.alerts.against={found[0]}") == 0
    for alert, change in zip(alerts(), (-12 / 40, 12 / 40), strict=True):  # the score, and the answers that are not supported
        assert (alert["run_id"], alert["against"], alert["value"]) == (found[3], found[0], pytest.approx(change))


def test_a_run_that_another_start_completes_is_told_of_when_it_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second call fails at first: exit 4 and no word. The second start asks for the rest, and then the gate speaks."""
    monkeypatch.setenv("RAGPIPE_TEST_KEY", "sk-test")
    gate = "+scoring.gates.faithful={score: faithfulness, min: 0.99, tier: quality}"
    file = f"report.alerts.file={ALERTS}"
    data = write_cases(tmp_path / "a.jsonl", 12)
    with serving(faults=["500:nth=2+4+6+8+10+12"]) as server:
        words = arguments(data, tmp_path / "out", server.url, "judge.retries=0", gate, file, metrics="faithfulness")
        assert main(words) == 4
    assert not ALERTS.exists()
    with serving() as server:
        assert main(arguments(data, tmp_path / "out", server.url, "judge.retries=0", gate, file, metrics="faithfulness")) == 0
    assert [alert["what"] for alert in alerts()] == ["faithful"]
