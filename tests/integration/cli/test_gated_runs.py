"""Gates and alerts from the command line: exit code, gates.json, terminal, page, and the alert file."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ragpipe.cli.command_line import main
from ragpipe.comparison.history import HISTORY
from ragpipe.testing.openai_server import serving
from tests.integration.cli.test_iterations import rescored
from tests.support.harness import arguments, write_cases
from tests.support.place import output_of
from tests.support.rejudged import content

pytestmark = pytest.mark.slow
QUICK = ["+experiment=quickstart", "metrics=[retrieval]", "dataset.limit=20", "report.formats=[terminal,markdown]"]


@pytest.mark.thorough(tried=2)
@pytest.mark.parametrize(("gates", "code", "verdicts"), [
    ({"slice": "{score: mrr, where: {method: baseline}, min: 0.99, by: point}"}, 3, ["failed"]),
    ({"slice": "{score: mrr, where: {method: baseline}, min: 0.99, by: point, tier: quality}"}, 0, ["failed"]),
    ({"slice": "{score: mrr, where: {method: baseline}, min: 0.8}"}, 0, ["inconclusive"]),  # .70 of 19 cannot tell
    ({"mode": "{failure_mode: retrieval_miss, max: 0.5, where: {answerable: true}}", "all": "{score: mrr, min: 0.5}"}, 0, ["passed"] * 2),
])  # fmt: skip
def test_a_gate_decides_the_exit_code(here, capsys, gates: dict[str, str], code: int, verdicts: list[str]) -> None:
    assert main([*QUICK, *(f"+scoring.gates.{name}={gate}" for name, gate in gates.items())]) == code
    run = here / "outputs/quickstart/latest"
    document, page = json.loads((run / "gates.json").read_text()), (run / "report.md").read_text()
    shown = " ".join(capsys.readouterr().out.split())
    assert [gate["verdict"] for gate in document["gates"]] == verdicts
    assert document["passed"] is (code == 0)
    assert "## Gates" in page
    for gate in document["gates"]:
        assert re.search(rf" {gate['name']} .* {gate['verdict'].replace('_', ' ')} ", shown)
        assert gate["sentence"] in page


TIERS = [
    "scoring=tiers", "scoring.gates.policy_compliance=null", "scoring.gates.groundedness=null",
    "scoring.accept_uncalibrated=true", "report.formats=[]",
]  # fmt: skip


@pytest.mark.parametrize(("policy", "passed"), [("quote_only", True), ("no_use", False)])
def test_one_use_that_the_source_does_not_allow_fails_its_case_under_the_documents_tiers(here, policy, passed) -> None:
    """The answer is right, and supported by what was retrieved: by its mean alone the case passes. Its only source may not
    be used; the answer quotes it word for word, so that no judge is needed to see it."""
    text = "The auditors found no path by which a single signer can release the funds."
    case = {
        "id": "ql-2", "question": "What did the auditors find?", "answer": f'"{text}"', "relevant_docs": ["d"],
        "contexts": [{"id": "d-1", "doc_id": "d", "text": text, "policy": policy}],
    }  # fmt: skip
    Path("data.jsonl").write_text(json.dumps(case) + "\n")
    words = ["dataset=jsonl", "dataset.path=data.jsonl", "judge=rules", "name=used", *TIERS]
    code = main([*words, "metrics=[source_policy,faithfulness]"])
    folder = (here / "outputs/used/latest").resolve()
    (row,) = pq.read_table(folder / "iteration-1/records.parquet").to_pylist()
    gate = gate_of(folder, "source_policy")
    assert (row["source_policy"], row["overall_passed"]) == (float(passed), passed)
    assert row["overall_score"] >= 0.66, "(.10 x source_policy + .20 x faithfulness) / .30"
    assert (gate["verdict"], code) == (("passed", 0) if passed else ("failed", 3))


def test_gates_that_no_uncalibrated_judge_can_pass_are_said_before_the_run(here, capsys) -> None:
    gates = [
        "+scoring.gates.grounded={score: faithfulness, min: 0.5}", "+scoring.gates.rank={score: mrr, min: 0.1}",
        "+scoring.gates.soft={score: faithfulness, min: 0.5, tier: quality}",
    ]  # fmt: skip
    words = [*QUICK, "metrics=[retrieval,faithfulness]", "dataset.limit=2", "task=plan", *gates]
    warned = output_of(words, 0, capsys).err.replace("\n", " ")
    assert "warning: scoring.gates.grounded: a critical gate that rests on a judge" in warned
    warned = output_of([*words, "scoring.accept_uncalibrated=true"], 0, capsys).err.replace("\n", " ")
    assert "not calibrated against" not in warned


def test_what_a_gate_can_tell_is_said_before_and_after_the_run(here, capsys) -> None:
    """Before the first run by the questions alone, then by the spread that the run measured; nothing of a gate by point."""
    gates = [
        "+scoring.gates.slice={score: mrr, where: {method: baseline}, min: 0.8}",
        "+scoring.gates.none={failure_mode: retrieval_miss, max: 0}",
    ]
    before = " ".join(output_of([*QUICK, *gates, "task=plan"], 0, capsys).out.split())
    # 20 questions, one case of the method each: .8 - 1.96 sqrt(.16 / 20), then Wilson's lower bound at .84; 20 / 23.84 = .84
    assert (
        'gate slice: with 20 cases "at least 0.8" fails 8 of 10 runs of a system at 0.53 or below and passes 8 of 10 at 0.99 '
        "or above (by no earlier run: with scores between 0 and 1 it tells more)"
    ) in before
    assert "gate none" not in before
    assert main([*QUICK, *gates]) in (0, 3)
    run = (here / "outputs/quickstart/latest").resolve()
    assert "with 19 cases this gate cannot tell 0.70 from 0.8: that takes about" in " ".join(capsys.readouterr().out.split())
    assert f"(by the spread in run {run.name})" in " ".join(output_of([*QUICK, *gates, "task=plan"], 0, capsys).out.split())


DROP = "{score: mrr, against: %s, max_drop: 0.05}"
OUT = "outputs/ranks"
START = ["dataset=jsonl", "dataset.path=data.jsonl", "judge=rules", "name=ranks", "metrics=[retrieval]"]


def write_ranks(path: Path, *, late: int, cases: int = 40) -> None:
    """Questions with three passages; in the first `late` of them the relevant one comes last, else first."""
    with open(path, "w") as file:
        for n in range(cases):
            names = ["right", "x", "y"] if n >= late else ["x", "y", "right"]
            chunks = [{"id": f"{name}{n}", "text": f"Passage {name} of {n}."} for name in names]
            case = {"id": f"q{n}", "question": f"What is {n}?", "answer": f"It is {n}.", "chunks": chunks}
            file.write(json.dumps(case | {"relevant_chunks": [f"right{n}"]}) + "\n")


def evaluate(late: int, *words: str) -> tuple[int, Path]:
    write_ranks(Path("data.jsonl"), late=late)
    return main([*START, "report.formats=[markdown,junit,terminal]", *words]), Path(f"{OUT}/latest").resolve()


def gate_of(run: Path, name: str = "drop") -> dict[str, Any]:
    gates = json.loads((run / "gates.json").read_text())["gates"]
    return next(gate for gate in gates if gate["name"] == name)


@pytest.fixture
def baseline(here: Path) -> Path:
    code, run = evaluate(late=4)
    assert code == 0
    return run


def test_a_drop_blocks_and_the_folder_alone_says_so(baseline: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """mrr falls from 1 - 4 * 2/3 / 40 to 1 - 24 * 2/3 / 40: by 1/3, in 20 of 40 questions."""
    code, run = evaluate(24, f"+scoring.gates.drop={DROP % 'latest'}")
    gate = gate_of(run)
    assert (code, gate["verdict"], gate["against"]) == (3, "failed", baseline.name)
    assert gate["value"] == pytest.approx(-1 / 3)
    assert gate["paired"]["base"] == pytest.approx(1 - 4 * (2 / 3) / 40)
    assert "BLOCKED: 1 of 1 gate failed: drop change -0.3333" in " ".join(capsys.readouterr().out.split())
    assert main([*START, f"+scoring.gates.drop={DROP % 'latest'}"]) == 3, "the same start again"
    assert Path(f"{OUT}/latest").resolve() == run, "`latest` is not the run itself"
    shutil.rmtree(baseline)
    assert main(["task=verify", f"run={run}"]) == 0
    code, again = rescored(run, "scoring.gates.drop.max_drop=0.4")
    assert (code, gate_of(again)["verdict"]) == (0, "inconclusive")
    assert main(["task=verify", f"run={again}"]) == 0
    manifest, seal = (json.loads((again / name).read_text()) for name in ("manifest.json", "seal.json"))
    assert manifest["scoring_files"]["baseline.parquet"] == seal["files"]["baseline.parquet"]


def test_a_changed_copy_is_found(baseline: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, run = evaluate(24, f"+scoring.gates.drop={DROP % 'latest'}")
    copy = run / "baseline.parquet"
    table = pq.read_table(copy)
    values = [0.0] * len(table)
    changed = table.set_column(table.schema.get_field_index("value"), "value", [values])
    copy.unlink()
    pq.write_table(changed.replace_schema_metadata(table.schema.metadata), copy)
    assert main(["task=verify", f"run={run}"]) != 0
    assert "baseline.parquet" in capsys.readouterr().out
    assert main(["task=rescore", f"run={run}", "scoring.gates.drop.max_drop=0.4"]) == 2


def test_latest_before_the_first_run_says_how_to_start(here, capsys) -> None:
    """The first start is refused with what to add to it; with that it runs, and the second start has its baseline."""
    gate = f"+scoring.gates.drop={DROP % 'latest'}"
    assert evaluate(4, gate)[0] == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "no earlier run of the name ranks that is scored" in said
    assert "fix: start it once without this gate (scoring.gates.drop=null), or scoring.gates.drop.without_cases=" in said
    assert not Path(OUT).exists()
    code, first = evaluate(4, gate, "scoring.gates.drop=null")
    assert (code, json.loads((first / "gates.json").read_text())["gates"]) == (0, [])
    _, second = evaluate(24, gate)
    assert gate_of(second)["against"] == first.name


def test_the_plan_knows_the_baseline_and_refuses_what_the_run_refuses(baseline: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_ranks(Path("data.jsonl"), late=4, cases=60)
    assert main([*START, "task=plan", f"+scoring.gates.drop={DROP % 'latest'}"]) == 0
    assert "gate drop: with 40 cases" in capsys.readouterr().out.replace("\n", " "), "20 of 60 are not in the baseline"
    assert main([*START, "task=plan", f"+scoring.gates.drop={DROP % 'nowhere'}"]) == 2
    assert "names in outputs: ranks" in capsys.readouterr().err
    wrong = "+scoring.gates.drop={score: faithfulness, against: latest}"
    assert "no score faithfulness" in output_of([*START, "metrics=[retrieval,faithfulness]", "task=plan", wrong], 2, capsys).err


def test_the_first_run_passes_over_a_gate_that_may_be_not_applicable(here) -> None:
    """One command from the first run on; started again, or scored again, the first run stays what it was."""
    gate = "+scoring.gates.drop={score: mrr, against: latest, max_drop: 0.05, without_cases: not_applicable}"
    code, first = evaluate(4, gate)
    assert (code, gate_of(first)["verdict"], gate_of(first)["against"]) == (0, "not_applicable", "no_earlier_run")
    assert evaluate(4, gate) == (0, first), "the same start again"
    assert main(["task=verify", f"run={first}"]) == 0
    code, second = evaluate(24, gate)
    assert (code, gate_of(second)["verdict"], gate_of(second)["against"]) == (3, "failed", first.name)
    code, again = rescored(first, "scoring.gates.drop.max_drop=0.4")
    assert (code, gate_of(again)["verdict"]) == (0, "not_applicable")


def test_a_run_that_was_stopped_is_no_baseline(baseline: Path) -> None:
    """`latest` points to a run that never got to its scores: the gate takes the previous one, and that run can still be finished."""
    gate = f"+scoring.gates.drop={DROP % 'latest'}"
    _, stopped = evaluate(8, gate)
    (stopped / "final" / "metrics.json").unlink()
    (stopped / "gates.json").unlink()
    code, run = evaluate(24, gate)
    assert (code, gate_of(run)["against"]) == (3, baseline.name)
    shutil.rmtree(run)
    (Path(OUT) / "latest").unlink()
    (Path(OUT) / "latest").symlink_to(stopped.name)
    code, finished = evaluate(8, gate)
    assert (finished, gate_of(finished)["against"]) == (stopped, baseline.name)


NIGHTLY = [*START, "name=nightly", "metrics=[retrieval,faithfulness]", "metrics.retrieval.k=[1]", "report.formats=[]"]


@pytest.fixture
def runs(here: Path, capsys) -> Path:
    """Ten of twelve found first, then two, then two with another threshold of the judge."""
    for late, words in ((2, []), (10, []), (10, ["judge.threshold=0.4"])):
        write_ranks(Path("data.jsonl"), late=late, cases=12)
        assert main([*NIGHTLY, *words]) == 0
    capsys.readouterr()
    return here / "outputs" / "nightly"


def test_each_score_is_compared_with_the_run_before_that_measured_it_so(runs: Path, capsys) -> None:
    shown = output_of(["task=history", "name=nightly"], 0, capsys).out
    table = pq.read_table(runs / "history" / "history.parquet")
    assert table.schema.names == HISTORY.names
    rows = table.to_pylist()
    hits = [row for row in rows if row["score"] == "hit@1"]
    first, second, third = hits
    assert [row["mean"] for row in hits] == pytest.approx([10 / 12, 2 / 12, 2 / 12])
    assert (second["before_run"], second["first_run"]) == (first["run_id"], first["run_id"])
    assert second["before_difference"] == pytest.approx(-8 / 12)
    assert (second["before_state"], second["before_n"]) == ("worse", 12)
    assert (third["before_run"], third["before_difference"]) == (second["run_id"], 0.0), "no judge decides this score"
    assert third["first_difference"] == pytest.approx(-8 / 12)
    faithfulness = [row for row in rows if row["score"] == "faithfulness"]
    assert [row["series"] == faithfulness[0]["series"] for row in faithfulness] == [True, True, False]
    assert faithfulness[2]["before_run"] is None, "another judge: not the same measurement"
    assert third["run_id"] in shown
    first_files = content(runs / "history")
    assert {"history.csv", "history.md", "history.parquet", "history.prom"} <= first_files.keys()
    assert main(["task=history", "name=nightly"]) == 0
    assert content(runs / "history") == first_files, "nothing is written again"


ALERTS = Path("outputs/alerts.jsonl")


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


def test_a_bad_day_is_told_once(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_what_is_told_is_chosen(here: Path) -> None:
    write_log(Path("log.jsonl"), good=34)  # .85 of 40: the interval holds the limit
    assert monitor() == 0
    assert alerts() == [], "too few cases to tell is no alert"
    assert monitor("report.alerts.kinds=[inconclusive]") == 0
    assert {alert["verdict"] for alert in alerts()} == {"inconclusive"}
    told = len(alerts())
    assert "faithfulness" in [alert["what"] for alert in alerts()]
    assert (monitor("report.alerts.file=null", "name=other"), len(alerts())) == (0, told)


def test_a_gate_that_could_not_be_measured_is_told(here: Path) -> None:
    write_log(Path("log.jsonl"), good=40)
    assert monitor("metrics=[retrieval]", "+scoring.gates.ranks={score: mrr, min: 0.5}", "scoring.gates.faithfulness=null") == 3
    (alert,) = [alert for alert in alerts() if alert["what"] == "ranks"]
    assert (alert["what"], alert["verdict"], alert["value"], alert["interval"]) == ("ranks", "no_evidence", None, None)


@pytest.mark.thorough
def test_a_slow_decline_shows_against_a_fixed_run(here: Path) -> None:
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


def test_a_run_that_another_start_completes_is_told_of_when_it_is_complete(here: Path) -> None:
    """Every second call fails at first: exit 4 and no word. The second start asks for the rest, and then the gate speaks."""
    gate = "+scoring.gates.faithful={score: faithfulness, min: 0.99, tier: quality}"
    words = ["judge.retries=0", gate, f"report.alerts.file={ALERTS}"]
    data = write_cases(here / "a.jsonl", 12)
    with serving(faults=["500:nth=2+4+6+8+10+12"]) as server:
        assert main(arguments(data, here / "out", server.url, *words, metrics="faithfulness")) == 4
    assert not ALERTS.exists()
    with serving() as server:
        assert main(arguments(data, here / "out", server.url, *words, metrics="faithfulness")) == 0
    assert [alert["what"] for alert in alerts()] == ["faithful"]
