"""`task=selftest`: mutants of a finished run in a run of their own, what was caught, and nothing asked twice."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ragpipe.cli import main
from ragpipe.extras.checks.selftest_figures import MUTANTS
from ragpipe.testing.openai_server import serving
from tests.support.pages import DOCS
from tests.support.rejudged import CASES, KEY, content

pytestmark = pytest.mark.slow  # several whole runs

WORDS = ["selftest.n=3", "selftest.mutations=[change_number,shuffle_chunks,add_claim]"]
QUESTIONS_PER_ANSWER = 2  # of faithfulness: extract, then verify


@pytest.fixture
def run(travelled_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setenv(KEY, "sk-sentinel-4242")
    return Path(shutil.copytree(travelled_run, tmp_path / "runs" / "run"))


def sibling(run: Path) -> Path:
    """The one folder beside the run."""
    (folder,) = [path for path in run.parent.iterdir() if path.is_dir() and not path.is_symlink() and path != run]
    return folder


@pytest.fixture
def quickstart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> Path:
    monkeypatch.chdir(tmp_path)
    words = ["+experiment=quickstart", "dataset.limit=12", "metrics=[faithfulness,retrieval]", "report.formats=[]"]
    gate = ["scoring.gates.strict={score:faithfulness,min:0.999,tier:critical}", "scoring.accept_uncalibrated=true"]
    assert main([*words, *gate]) == 3
    capsys.readouterr()
    return (tmp_path / "outputs" / "quickstart" / "latest").resolve()


def test_mutants_are_a_run_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["+experiment=quickstart", "dataset.limit=8", "metrics=[faithfulness]", "report.formats=[]"]
    assert main(words) == 0
    run = (tmp_path / "outputs" / "quickstart" / "latest").resolve()
    assert (
        main(["task=selftest", f"run={run}", "selftest.n=2", "selftest.mutations=[change_number,shuffle_chunks]"]) == 0
    )
    document = json.loads((sibling(run) / "selftest.json").read_text())
    assert document["source_run"] == run.name
    assert {row["name"]: row["mutants"] for row in document["mutations"] if row["mutants"]} == {
        "change_number": 2, "shuffle_chunks": 2,
    }  # fmt: skip
    rows = {row["mutation"]: row for row in document["scores"]}
    assert rows["change_number"]["as_expected"] >= 1
    assert rows["shuffle_chunks"]["state"] == "stays"
    assert "mutants that a score must notice" in capsys.readouterr().out


@pytest.mark.thorough
def test_the_embedded_judge_notices_a_changed_number(quickstart: Path, capsys) -> None:
    before = content(quickstart)
    words = ["task=selftest", f"run={quickstart}", "selftest.n=5"]
    assert main(words) == 0, "gates are about the system, not about mutants"
    shown = capsys.readouterr().out
    assert content(quickstart) == before
    made = sibling(quickstart)
    document = json.loads((made / "selftest.json").read_text())
    rows = {(row["mutation"], row["score"]): row for row in document["scores"]}
    numbers = rows["change_number", "faithfulness"]
    assert numbers["n"] + numbers["at_end"] + numbers["no_value"] <= 5
    assert numbers["as_expected"] >= 1
    assert rows["drop_gold_chunks", "recall@5"]["share"] == 1.0
    assert rows["shuffle_chunks", "faithfulness"]["state"] == "stays"
    assert ("change_number", "retrieval_score") in rows
    assert f"{document['caught_by_any'][0]['as_expected']} of " in shown
    assert "change_number" in (made / "selftest.md").read_text()
    table = pq.read_table(made / "mutants.parquet")
    assert table.schema.names == MUTANTS.names
    outputs = pq.read_table(made / "outputs.parquet").to_pylist()
    methods = {(row["sample_id"], row["method"]) for row in outputs}
    assert {(row["sample_id"], row["mutant_method"]) for row in table.to_pylist()} < methods
    first = content(made)
    assert main(words) == 0
    assert content(made) == first, "a second start changes nothing"
    assert main(["task=verify", f"run={made}"]) == 0


def test_replies_of_the_run_are_used_and_nothing_is_asked_twice(run: Path, capsys) -> None:
    judge = ["judge=llm", "judge.model=openai/test-model-2026-01-01", "judge.endpoint=test", f"judge.api_key_env={KEY}"]
    with serving() as server:
        words = [
            "task=selftest",
            f"run={run}",
            *judge,
            f"judge.api_base={server.url}",
            "metrics=[faithfulness]",
            *WORDS,
        ]
        assert main(words) == 0
        asked = server.tries
        assert main(words) == 0
        assert server.tries == asked, "a second start asks nothing"
    made = sibling(run)
    mutants = pq.read_table(made / "mutants.parquet").num_rows
    outputs = pq.read_table(made / "outputs.parquet").num_rows
    assert 0 < asked <= QUESTIONS_PER_ANSWER * mutants, "the originals' replies are those of the run"
    assert outputs <= mutants + CASES
    assert "plan: " in capsys.readouterr().out


@pytest.mark.thorough
def test_the_table_of_the_docs_is_what_the_demonstration_set_gives(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["+experiment=quickstart", "report.formats=[]"]) == 0
    run = (tmp_path / "outputs" / "quickstart" / "latest").resolve()
    assert main(["task=selftest", f"run={run}"]) == 0
    page = (sibling(run) / "selftest.md").read_text()
    rows = re.findall(r"^\| \w+ \| (?:faithfulness|groundedness) \| .* \|$", (DOCS / "selftest.md").read_text(), re.M)
    assert len(rows) == 12
    assert [row for row in rows if row not in page] == []


def test_a_plan_over_the_budget_is_refused_before_a_call(run: Path, capsys) -> None:
    judge = ["judge=llm", "judge.model=openai/test-model-2026-01-01", "judge.endpoint=test", f"judge.api_key_env={KEY}"]
    with serving() as server:
        words = ["task=selftest", f"run={run}", *judge, f"judge.api_base={server.url}", "judge.max_calls=1", *WORDS]
        assert main(words) == 2
        assert server.tries == 0
    assert "judge.max_calls" in capsys.readouterr().err
    assert [path for path in run.parent.iterdir() if path.is_dir()] == [run], "nothing is left behind"


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize(("word", "message"), [
    ("selftest.mutations=[change_everything]", "no such mutation: change_everything"),
    ("selftest.mutations=[change_name,change_name]", "name each mutation once"),
    ("+selftest.expect.change_everything={worse:[a]}", "no such mutation: change_everything"),
    ("selftest.n=0", "greater than or equal to 1"),
    ("scoring.weights.faithfulness=1", "a change of what is frozen in the run"),
])  # fmt: skip
def test_wrong_settings_are_refused_by_name(run: Path, capsys, word: str, message: str) -> None:
    assert main(["task=selftest", f"run={run}", "transport=stored", word]) == 2
    assert message in capsys.readouterr().err


def test_a_judge_that_only_the_folder_names_is_not_asked(run: Path, capsys) -> None:
    assert main(["task=selftest", f"run={run}"]) == 2
    assert "a judge that you name" in capsys.readouterr().err
