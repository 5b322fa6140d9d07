"""Gates against a baseline from the command line: the exit code, the copy in the run folder, scoring again without a call."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ragpipe.cli import main
from ragpipe.testing.openai_server import serving
from tests.support.harness import arguments, write_cases

pytestmark = pytest.mark.slow  # whole runs, several per test

DROP = "{score: mrr, against: %s, max_drop: 0.05}"
OUT = "outputs/ranks"


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
    given = ["dataset=jsonl", "dataset.path=data.jsonl", "judge=evidence", "name=ranks", "metrics=[retrieval]"]
    code = main([*given, "report.formats=[markdown,junit,terminal]", "report.detail=full", *words])
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

    assert main([*start(), f"+scoring.gates.drop={DROP % 'latest'}"]) == 3, "the same start again"
    assert Path(f"{OUT}/latest").resolve() == run, "`latest` is not the run itself"

    shutil.rmtree(baseline)
    assert main(["task=verify", f"run={run}"]) == 0
    code, again = rescored(run, "scoring.gates.drop.max_drop=0.4")
    assert (code, gate_of(again)["verdict"]) == (0, "inconclusive")
    assert main(["task=verify", f"run={again}"]) == 0
    manifest, seal = (json.loads((again / name).read_text()) for name in ("manifest.json", "seal.json"))
    assert manifest["scoring_files"]["baseline.parquet"] == seal["files"]["baseline.parquet"]


def start() -> list[str]:
    return ["dataset=jsonl", "dataset.path=data.jsonl", "judge=evidence", "name=ranks", "metrics=[retrieval]"]


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


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("named", ["id", "name", "folder"])
def test_a_gate_is_added_later_and_names_its_baseline_as_one_likes(baseline: Path, named: str) -> None:
    _, run = evaluate(late=24)
    word = {"id": baseline.name, "name": f"ranks/{baseline.name}", "folder": str(baseline)}[named]
    code, made = rescored(run, f"+scoring.gates.drop={DROP % word}")
    assert (code, gate_of(made)["verdict"], gate_of(made)["against"]) == (3, "failed", baseline.name)


def test_what_is_no_baseline_is_refused_before_anything_is_made(
    baseline: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = set(baseline.parent.iterdir())
    refused = {"latest": "the run itself", "0123456789ab": "no run 0123456789ab", "nowhere": "names in outputs: ranks"}
    for word, message in refused.items():
        assert main(["task=rescore", f"run={baseline}", f"+scoring.gates.drop={DROP % word}"]) == 2
        assert message in capsys.readouterr().err
    assert set(baseline.parent.iterdir()) == before


def test_latest_before_the_first_run_says_how_to_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first start is refused with what to add to it; with that it runs, and the second start has its baseline."""
    monkeypatch.chdir(tmp_path)
    gate = f"+scoring.gates.drop={DROP % 'latest'}"
    assert evaluate(4, gate)[0] == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "no earlier run of the name ranks that is scored" in said
    assert (
        "fix: start it once without this gate (scoring.gates.drop=null), or scoring.gates.drop.without_cases=" in said
    )
    assert not Path(OUT).exists()
    code, first = evaluate(4, gate, "scoring.gates.drop=null")
    assert (code, json.loads((first / "gates.json").read_text())["gates"]) == (0, [])
    _, second = evaluate(24, gate)
    assert gate_of(second)["against"] == first.name


def test_scoring_again_with_a_baseline_asks_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAGPIPE_TEST_KEY", "sk-sentinel-4242")
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


def test_the_plan_knows_the_baseline_and_refuses_what_the_run_refuses(
    baseline: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_ranks(Path("data.jsonl"), late=4, cases=60)
    assert main([*start(), "task=plan", f"+scoring.gates.drop={DROP % 'latest'}"]) == 0
    assert "gate drop: with 40 cases" in capsys.readouterr().out.replace("\n", " "), "20 of 60 are not in the baseline"
    unknown = {"0123456789ab": "no run 0123456789ab", "nowhere": "names in outputs: ranks"}
    for word, message in unknown.items():
        assert main([*start(), "task=plan", f"+scoring.gates.drop={DROP % word}"]) == 2
        assert message in capsys.readouterr().err
    wrong = "+scoring.gates.drop={score: faithfulness, against: latest}"
    assert main([*start(), "metrics=[retrieval,faithfulness]", "task=plan", wrong]) == 2
    assert "no score faithfulness" in capsys.readouterr().err


@pytest.mark.thorough
def test_a_run_without_the_questions_that_fell_is_blocked_as_a_comparison_refuses_it(
    baseline: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """20 of 40 questions fell by 2/3. Without them nothing changed in the other 20, so that the drop could be seen nowhere."""
    write_ranks(Path("data.jsonl"), late=24)
    lines = Path("data.jsonl").read_text().splitlines(keepends=True)
    Path("data.jsonl").write_text("".join(lines[:4] + lines[24:]))
    gate = "+scoring.gates.drop={score: mrr, against: %s, max_drop: 0.3%s}"
    assert main([*start(), "task=plan", gate % (baseline.name, "")]) == 0
    said = capsys.readouterr().out.replace("\n", " ")
    assert f"gate drop: it will have no evidence, for 20 of 40 cases of run {baseline.name} are not in this run" in said
    assert main([*start(), "report.formats=[markdown]", gate % (baseline.name, "")]) == 3
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
def test_the_first_run_passes_over_a_gate_that_may_be_not_applicable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One command from the first run on; started again, or scored again, the first run stays what it was."""
    monkeypatch.chdir(tmp_path)
    gate = "+scoring.gates.drop={score: mrr, against: latest, max_drop: 0.05, without_cases: not_applicable}"
    write_ranks(Path("data.jsonl"), late=4)
    assert main(["task=plan", *start(), gate]) == 0
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
