"""Gates from the command line: exit code, gates.json, terminal and page, on the demonstration set and on failing replies."""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ragpipe.cli import main
from ragpipe.comparing.history_rows import HISTORY
from ragpipe.testing.openai_server import serving
from tests.support.harness import arguments, write_cases
from tests.support.rejudged import content

pytestmark = pytest.mark.slow


QUICK = ["+experiment=quickstart", "metrics=[retrieval]", "dataset.limit=20", "report.formats=[terminal,markdown]", "report.detail=full"]


def gates_of(run: Path) -> dict[str, Any]:
    return json.loads((run.resolve() / "gates.json").read_text())


@pytest.mark.thorough(tried=2)
@pytest.mark.parametrize(("gates", "code", "verdicts"), [
    ({"slice": "{score: mrr, where: {method: baseline}, min: 0.99, by: point}"}, 3, ["failed"]),
    ({"slice": "{score: mrr, where: {method: baseline}, min: 0.99, by: point, tier: quality}"}, 0, ["failed"]),
    ({"slice": "{score: mrr, where: {method: baseline}, min: 0.8}"}, 0, ["inconclusive"]),  # .70 of 19 cannot tell
    ({"mode": "{failure_mode: retrieval_miss, max_rate: 0, where: {method: baseline}}"}, 3, ["failed"]),
    ({"mode": "{failure_mode: retrieval_miss, max_rate: 0.5, where: {answerable: true}}", "all": "{score: mrr, min: 0.5}"}, 0, ["passed"] * 2),
])  # fmt: skip
def test_a_gate_decides_the_exit_code(tmp_path, monkeypatch, capsys, gates: dict[str, str], code: int, verdicts: list[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*QUICK, *(f"+scoring.gates.{name}={gate}" for name, gate in gates.items())]) == code
    run = tmp_path / "outputs/quickstart/latest"
    document, page = gates_of(run), (run / "report.md").read_text()
    said = capsys.readouterr()
    assert [gate["verdict"] for gate in document["gates"]] == verdicts
    assert document["passed"] is (code == 0)
    assert "## Gates" in page
    for gate in document["gates"]:
        assert gate["name"] in said.out
        assert (gate["sentence"] in said.err.replace("\n", " ")) is (gate["outcome"] in ("blocked", "warned"))
        assert gate["sentence"] in page


TIERS = [
    "scoring=tiers", "scoring.gates.policy_compliance=null", "scoring.gates.groundedness=null",
    "scoring.accept_uncalibrated=true", "report.formats=[]",
]  # fmt: skip


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize(("dataset", "policy", "passed"), [("quoted", "quote_only", True), ("paraphrased", "no_use", False)])
def test_one_use_that_the_source_does_not_allow_fails_its_case_under_the_documents_tiers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dataset: str, policy: str, passed: bool
) -> None:
    """The answer is right, and supported by what was retrieved: by its mean alone the case passes. Its only source may not
    be used; the answer quotes it word for word, so that no judge is needed to see it."""
    text = "The auditors found no path by which a single signer can release the funds."
    case = {
        "id": "ql-2", "question": "What did the auditors find?", "answer": f'"{text}"', "relevant_docs": ["d"],
        "contexts": [{"id": "d-1", "doc_id": "d", "text": text, "policy": policy}],
    }  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("data.jsonl").write_text(json.dumps(case) + "\n")
    words = ["dataset=jsonl", "dataset.path=data.jsonl", "judge=evidence", f"name={dataset}", *TIERS]
    code = main([*words, "metrics=[source_policy,faithfulness]"])
    folder = (tmp_path / f"outputs/{dataset}/latest").resolve()
    (row,) = pq.read_table(folder / "iteration-1/records.parquet").to_pylist()
    gate = next(gate for gate in gates_of(folder)["gates"] if gate["name"] == "source_policy")
    assert (row["source_policy"], row["overall_passed"]) == (float(passed), passed)
    assert row["overall_score"] >= 0.66, "(.10 x source_policy + .20 x faithfulness) / .30"
    assert (gate["verdict"], code) == (("passed", 0) if passed else ("failed", 3))


def test_without_a_restricted_chunk_there_is_nothing_to_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three free sources, and one case that the system failed on: nothing says that it had a restricted one."""
    monkeypatch.chdir(tmp_path)
    case = {"question": "What is it?", "answer": "It is one.", "contexts": [{"id": "d-1", "text": "It is one."}]}
    failed = {"question": "And this?", "answer": "", "error": "ConnectionError: the index is down"}
    lines = [{"id": f"q{i}", **case} for i in range(3)] + [{"id": "q3", **failed}]
    Path("data.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = ["dataset=jsonl", "dataset.path=data.jsonl", "judge=evidence", "name=free", "metrics=[source_policy]"]
    assert main([*words, *TIERS]) == 0
    gate = next(one for one in gates_of(tmp_path / "outputs/free/latest")["gates"] if one["name"] == "source_policy")
    assert (gate["verdict"], gate["outcome"]) == ("not_applicable", "reported")
    assert "no_restricted_chunks" in gate["sentence"]


LLM = ["judge=llm", "judge.model=openai/gpt-4o-mini-2024-07-18"]


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize(
    "words",
    [pytest.param([], id="run"), pytest.param(["task=plan"], id="plan"), pytest.param(["task=plan", *LLM], id="plan of a language model")],
)
def test_gates_that_no_uncalibrated_judge_can_pass_are_said_before_the_run(tmp_path, monkeypatch, capsys, words: list[str]) -> None:
    """A language model is no more calibrated than the embedded judge."""
    monkeypatch.chdir(tmp_path)
    gates = [
        "+scoring.gates.grounded={score: faithfulness, min: 0.5}", "+scoring.gates.rank={score: mrr, min: 0.1}",
        "+scoring.gates.soft={score: faithfulness, min: 0.5, tier: quality}",
    ]  # fmt: skip
    words = [*QUICK, "metrics=[retrieval,faithfulness]", "dataset.limit=2", *words, *gates]
    main(words)
    assert "warning: scoring.gates.grounded: a critical gate that rests on a judge" in capsys.readouterr().err.replace("\n", " ")
    main([*words, "scoring.accept_uncalibrated=true"])
    assert "not calibrated against" not in capsys.readouterr().err.replace("\n", " ")


def test_ninety_percent_coverage_blocks_as_not_enough_evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = write_cases(tmp_path / "data.jsonl", 20)
    good = {"match": "What does case", "reply": json.dumps({"reason": "so it is", "score": 5})}
    bad = [{"match": rf"What does case {case} say", "reply": "no idea"} for case in (3, 7)]
    gate = "+scoring.gates.right={score: correctness, min: 0.5}"
    accepted = "scoring.accept_uncalibrated=true"
    repaired = {"match": ".", "reply": "still none"}
    with serving(script=[*bad, good, repaired]) as server:
        words = arguments(data, tmp_path / "out", server.url, metrics="correctness")
        assert main([*words, gate]) == 3
        (found,) = gates_of(tmp_path / "out/torture/latest")["gates"]
        assert (found["value"], found["coverage"], found["verdict"]) == (1.0, 0.9, "not_enough_evidence")
        asked = len(server.log)
        loose = "+scoring.gates.right={score: correctness, min: 0.5, coverage_floor: 0.9}"
        assert main([*words, loose]) == 3, "a language model that nobody compared with people passes no critical gate"
        assert gates_of(tmp_path / "out/torture/latest")["gates"][0]["verdict"] == "uncalibrated"
        assert main([*words, loose, accepted]) == 4
        assert len(server.log) == asked, "a gate asks nothing"
    (found,) = gates_of(tmp_path / "out/torture/latest")["gates"]
    assert found["verdict"] == "passed"


def test_what_a_gate_can_tell_is_said_before_and_after_the_run(tmp_path, monkeypatch, capsys) -> None:
    """Before the first run by the questions alone, then by the spread that the run measured; nothing of a gate by point."""
    monkeypatch.chdir(tmp_path)
    gates = [
        "+scoring.gates.slice={score: mrr, where: {method: baseline}, min: 0.8}",
        "+scoring.gates.none={failure_mode: retrieval_miss, max_rate: 0}",
    ]
    assert main([*QUICK, *gates, "task=plan"]) == 0
    before = " ".join(capsys.readouterr().out.split())
    # 20 questions, one case of the method each: .8 - 1.96 sqrt(.16 / 20), then Wilson's lower bound at .84; 20 / 23.84 = .84
    assert (
        'gate slice: with 20 cases "at least 0.8" fails 8 of 10 runs of a system at 0.53 or below and passes 8 of 10 at 0.99 '
        "or above (by no earlier run: with scores between 0 and 1 it tells more)"
    ) in before
    assert "gate none" not in before
    assert main([*QUICK, *gates]) in (0, 3)
    run = (tmp_path / "outputs/quickstart/latest").resolve()
    assert "with 19 cases this gate cannot tell 0.70 from 0.8: that takes about" in capsys.readouterr().out
    assert 'with 19 cases "at least 0.8" fails 8 of 10 runs of a system at' in (run / "report.md").read_text()
    assert main([*QUICK, *gates, "task=plan"]) == 0
    assert f"(by the spread in run {run.name})" in " ".join(capsys.readouterr().out.split())


DROP = "{score: mrr, against: %s, max_drop: 0.05}"
OUT = "outputs/ranks"
START = ["dataset=jsonl", "dataset.path=data.jsonl", "judge=evidence", "name=ranks", "metrics=[retrieval]"]


def write_ranks(path: Path, *, late: int, cases: int = 40) -> None:
    """Questions with three passages; in the first `late` of them the relevant one comes last, else first."""
    lines = []
    for number in range(cases):
        ids = ["right", "x", "y"] if number >= late else ["x", "y", "right"]
        chunks = [{"id": f"{name}{number}", "text": f"Passage {name} of {number}."} for name in ids]
        lines.append(
            {"id": f"q{number}", "question": f"What is {number}?", "answer": f"It is {number}.", "chunks": chunks,
             "relevant_chunks": [f"right{number}"]}
        )  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def evaluate(late: int, *words: str) -> tuple[int, Path]:
    """The exit code and the folder of a run of a version that ranks so many late."""
    write_ranks(Path("data.jsonl"), late=late)
    code = main([*START, "report.formats=[markdown,junit,terminal]", "report.detail=full", *words])
    return code, Path(f"{OUT}/latest").resolve()


def gate_of(run: Path, name: str = "drop") -> dict[str, Any]:
    gates = json.loads((run / "gates.json").read_text())["gates"]
    return next(gate for gate in gates if gate["name"] == name)


def rescored(run: Path, *words: str) -> tuple[int, Path]:
    """The exit code and the folder that scoring a run again made."""
    before = set(run.parent.iterdir())
    code = main(["task=rescore", f"run={run}", *words])
    (made,) = set(run.parent.iterdir()) - before
    return code, made


@pytest.fixture
def baseline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
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
    assert gate["sentence"] in capsys.readouterr().err.replace("\n", " ")
    assert gate["sentence"] in (run / "report.md").read_text()
    assert "fell by 0.3333" in (run / "report.junit.xml").read_text()
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


def test_a_gate_is_added_later_and_names_its_baseline(baseline: Path) -> None:
    _, run = evaluate(late=24)
    code, made = rescored(run, f"+scoring.gates.drop={DROP % f'ranks/{baseline.name}'}")
    assert (code, gate_of(made)["verdict"], gate_of(made)["against"]) == (3, "failed", baseline.name)


def test_what_is_no_baseline_is_refused_before_anything_is_made(baseline: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = set(baseline.parent.iterdir())
    refused = {"latest": "the run itself", "0123456789ab": "no run 0123456789ab", "nowhere": "names in outputs: ranks"}
    for word, message in refused.items():
        assert main(["task=rescore", f"run={baseline}", f"+scoring.gates.drop={DROP % word}"]) == 2
        assert message in capsys.readouterr().err
    assert set(baseline.parent.iterdir()) == before


def test_latest_before_the_first_run_says_how_to_start(tmp_path, monkeypatch, capsys) -> None:
    """The first start is refused with what to add to it; with that it runs, and the second start has its baseline."""
    monkeypatch.chdir(tmp_path)
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


def test_scoring_again_with_a_baseline_asks_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with serving() as server:
        words = arguments(write_cases(tmp_path / "a.jsonl", 8), tmp_path / "out", server.url)
        assert main(words) == 0
        first = (tmp_path / "out/torture/latest").resolve()
        assert main([*words, "dataset.limit=7"]) == 0
        second, asked = (tmp_path / "out/torture/latest").resolve(), server.arrivals
        gate = f"{{score: faithfulness, against: {first.name}, tier: quality, accept: [data]}}"
        code, made = rescored(second, f"+scoring.gates.drop={gate}")
        assert server.arrivals == asked
    assert code == 0
    assert gate_of(made)["value"] == 0
    assert json.loads((made / "iteration-1" / "cost.json").read_text())["spent"]["calls"] == 0


def test_the_plan_knows_the_baseline_and_refuses_what_the_run_refuses(baseline: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_ranks(Path("data.jsonl"), late=4, cases=60)
    assert main([*START, "task=plan", f"+scoring.gates.drop={DROP % 'latest'}"]) == 0
    assert "gate drop: with 40 cases" in capsys.readouterr().out.replace("\n", " "), "20 of 60 are not in the baseline"
    unknown = {"0123456789ab": "no run 0123456789ab", "nowhere": "names in outputs: ranks"}
    for word, message in unknown.items():
        assert main([*START, "task=plan", f"+scoring.gates.drop={DROP % word}"]) == 2
        assert message in capsys.readouterr().err
    wrong = "+scoring.gates.drop={score: faithfulness, against: latest}"
    assert main([*START, "metrics=[retrieval,faithfulness]", "task=plan", wrong]) == 2
    assert "no score faithfulness" in capsys.readouterr().err


@pytest.mark.thorough
def test_a_run_without_the_questions_that_fell_is_blocked_as_a_comparison_refuses_it(baseline: Path, capsys) -> None:
    """20 of 40 questions fell by 2/3. Without them nothing changed in the other 20, so that the drop could be seen nowhere."""
    write_ranks(Path("data.jsonl"), late=24)
    lines = Path("data.jsonl").read_text().splitlines(keepends=True)
    Path("data.jsonl").write_text("".join(lines[:4] + lines[24:]))
    gate = "+scoring.gates.drop={score: mrr, against: %s, max_drop: 0.3%s}"
    assert main([*START, "task=plan", gate % (baseline.name, "")]) == 0
    said = capsys.readouterr().out.replace("\n", " ")
    assert f"gate drop: it will have no evidence, for 20 of 40 cases of run {baseline.name} are not in this run" in said
    assert main([*START, "report.formats=[markdown]", gate % (baseline.name, "")]) == 3
    run = Path(f"{OUT}/latest").resolve()
    found = gate_of(run)
    assert (found["verdict"], found["outcome"], found["paired"]["only_base"]) == ("no_evidence", "blocked", 20)
    assert "cases: 20 of 40 in the baseline only, first q4 -> left out" in (run / "report.md").read_text()
    assert "accept: [data] allows it" in found["sentence"]
    assert main(["task=compare", f"base={baseline}", f"candidate={run}"]) == 2
    shutil.rmtree(baseline)
    capsys.readouterr()
    code, accepted = rescored(run, "scoring.gates.drop.accept=[data]", "report.formats=[markdown,terminal]")
    assert f"over 20 cases against {baseline.name}, 20 more there only" in " ".join(capsys.readouterr().out.split())
    found = gate_of(accepted)
    assert (code, found["verdict"], found["value"], found["n_ok"]) == (0, "passed", 0, 20)
    assert "20 cases on both, 20 in the baseline only" in found["sentence"]
    for folder in (run, accepted):
        assert main(["task=verify", f"run={folder}"]) == 0


def test_a_gate_before_its_first_look_and_at_its_second(baseline: Path) -> None:
    """20 of 40 questions fell by 2/3: far beyond every bound, but 40 of 161 planned cases are less than a quarter."""
    planned = "+scoring.gates.drop={score: mrr, against: %s, planned: %s}"
    code, run = evaluate(24, planned % (baseline.name, 161))
    gate = gate_of(run)
    assert (code, gate["verdict"]) == (0, "inconclusive")
    assert "40 cases are less than a quarter of the 161 planned: nothing is decided yet" in gate["sentence"]
    code, run = evaluate(24, planned % (baseline.name, 80))
    gate = gate_of(run)
    assert (code, gate["verdict"], gate["planned"], gate["paired"]["look"]["share"]) == (3, "failed", 80, 0.5)


@pytest.mark.thorough
def test_the_first_run_passes_over_a_gate_that_may_be_not_applicable(tmp_path, monkeypatch, capsys) -> None:
    """One command from the first run on; started again, or scored again, the first run stays what it was."""
    monkeypatch.chdir(tmp_path)
    gate = "+scoring.gates.drop={score: mrr, against: latest, max_drop: 0.05, without_cases: not_applicable}"
    write_ranks(Path("data.jsonl"), late=4)
    assert main(["task=plan", *START, gate]) == 0
    assert "gate drop: not applicable, there is no earlier run of this name" in capsys.readouterr().out
    code, first = evaluate(4, gate)
    assert (code, gate_of(first)["verdict"], gate_of(first)["against"]) == (0, "not_applicable", "no_earlier_run")
    assert "there was no earlier run of this name" in (first / "report.md").read_text()
    assert evaluate(4, gate) == (0, first), "the same start again"
    assert main(["task=verify", f"run={first}"]) == 0
    code, second = evaluate(24, gate)
    assert (code, gate_of(second)["verdict"], gate_of(second)["against"]) == (3, "failed", first.name)
    code, again = rescored(first, "scoring.gates.drop.max_drop=0.4")
    assert (code, gate_of(again)["verdict"]) == (0, "not_applicable")


def test_a_run_that_was_stopped_is_no_baseline(baseline: Path) -> None:
    """`latest` points to a run that never got to its scores: the gate takes the run before it, and that run can still be finished."""
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


WORDS = ["dataset=jsonl", "dataset.path=data.jsonl", "name=nightly", "metrics=[retrieval,faithfulness]", "report.formats=[]"]
METRICS = ["metrics.retrieval.k=[1]", "judge=evidence"]


def write_data(found: int, cases: int = 12) -> None:
    """Questions of which the first `found` have their gold chunk among those retrieved."""
    records = [
        {"id": f"q{i}", "question": f"What does case {i} say?", "answer": f"Case {i} says {i} things.", "relevant_chunks": ["gold"],
         "chunks": [{"id": "gold" if i < found else "other", "text": f"Case {i} says {i} things."}]}
        for i in range(cases)
    ]  # fmt: skip
    Path("data.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> Path:
    """Ten of twelve found, then two, then two with another threshold of the judge."""
    monkeypatch.chdir(tmp_path)
    for found, words in ((10, []), (2, []), (2, ["judge.window=2"])):
        write_data(found)
        assert main([*WORDS, *METRICS, *words]) == 0
    capsys.readouterr()
    return tmp_path / "outputs" / "nightly"


def history(folder: Path) -> list[dict]:
    return pq.read_table(folder / "history" / "history.parquet").to_pylist()


def test_each_score_is_compared_with_the_run_before_that_measured_it_so(runs: Path, capsys) -> None:
    before = {name: entry for name, entry in content(runs).items() if not name.startswith("history/")}
    assert main(["task=history", "name=nightly"]) == 0
    shown = capsys.readouterr().out
    assert {name: entry for name, entry in content(runs).items() if not name.startswith("history/")} == before
    table = pq.read_table(runs / "history" / "history.parquet")
    assert table.schema.names == HISTORY.names
    rows = table.to_pylist()
    hits = [row for row in rows if row["score"] == "hit@1"]
    first, second, third = hits
    assert (first["before_run"], first["before_state"], first["first_run"]) == (None, None, None)
    assert [row["mean"] for row in hits] == pytest.approx([10 / 12, 2 / 12, 2 / 12])
    assert (second["before_run"], second["first_run"]) == (first["run_id"], first["run_id"])
    assert second["before_difference"] == pytest.approx(-8 / 12)
    assert (second["before_state"], second["before_n"]) == ("worse", 12)
    assert second["first_difference"] == second["before_difference"]
    assert (third["before_run"], third["before_difference"]) == (second["run_id"], 0.0), "no judge decides this score"
    assert third["first_difference"] == pytest.approx(-8 / 12)
    faithfulness = [row for row in rows if row["score"] == "faithfulness"]
    assert [row["series"] == faithfulness[0]["series"] for row in faithfulness] == [True, True, False]
    assert faithfulness[2]["before_run"] is None, "another judge: not the same measurement"
    assert [row["noise_floor"] for row in faithfulness] == [None] * 3
    assert third["run_id"] in shown
    first_files = content(runs / "history")
    assert main(["task=history", "name=nightly"]) == 0
    assert content(runs / "history") == first_files, "nothing is written again"


def test_the_files_of_a_history(runs: Path, capsys) -> None:
    assert main(["task=history", "history.runs=2"]) == 0, "every name below output_dir"
    assert main(["task=history", "name=nightly", "history.runs=2"]) == 0
    assert sorted(path.name for path in (runs / "history").iterdir() if not path.name.startswith(".")) == [
        "history.csv", "history.md", "history.parquet", "history.prom",
    ]  # fmt: skip
    with (runs / "history" / "history.csv").open(encoding="utf-8-sig", newline="") as file:
        written = list(csv.DictReader(file))
    assert [row["score"] for row in written] == [row["score"] for row in history(runs)]
    assert len({row["run_id"] for row in history(runs)}) == 2
    newest = history(runs)[-1]["run_id"]
    text = (runs / "history" / "history.prom").read_text()
    assert f'run_id="{newest}"' in text
    assert text.count("ragpipe_run_info{") == 2
    assert "# History of `nightly`" in (runs / "history" / "history.md").read_text()


@pytest.mark.thorough
def test_self_tests_and_derived_runs_stay_out(runs: Path, capsys) -> None:
    newest = sorted(path for path in runs.iterdir() if path.is_dir() and not path.is_symlink())[0]
    assert main(["task=selftest", f"run={newest}", "selftest.n=2"]) == 0
    assert main(["task=rescore", f"run={newest}", "scoring.thresholds.faithfulness=0.91"]) == 0
    assert main(["task=history", "name=nightly"]) == 0
    assert len({row["run_id"] for row in history(runs)}) == 3
    assert main(["task=history", "name=nightly", "history.derived=true"]) == 0
    rows = history(runs)
    assert len({row["run_id"] for row in rows}) == 4
    assert {row["source_run"] for row in rows} == {None, newest.name}


def test_a_name_without_runs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["task=history", "name=nothing"]) == 2
    assert "there are no runs" in capsys.readouterr().err
    assert main(["task=history", "history.runs=0"]) == 2
    assert "history.runs" in capsys.readouterr().err
