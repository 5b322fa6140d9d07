"""`task=selftest`: mutants of a finished run in a run of their own, what was caught, and nothing asked twice."""

import json
import re
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ragpipe.cli.command_line import main
from ragpipe.testing.openai_server import serving
from tests.support.finished_runs import FinishedRuns
from tests.support.pages import DOCS
from tests.support.place import output_of
from tests.support.rejudged import CASES, KEY, content

pytestmark = pytest.mark.slow  # several whole runs
WORDS = ["selftest.n=3", "selftest.only=[change_number,shuffle_chunks,add_claim]"]
QUESTIONS_PER_ANSWER = 2  # of faithfulness: extract, then verify


@pytest.fixture
def run(travelled_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setenv(KEY, "sk-sentinel-4242")
    return Path(shutil.copytree(travelled_run, tmp_path / "runs" / "run"))


@pytest.fixture
def quickstart(finished_runs: FinishedRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    finished_runs.of("+experiment=quickstart", "report.formats=[]").copy_outputs(tmp_path)
    monkeypatch.chdir(tmp_path)
    return (tmp_path / "outputs" / "quickstart" / "latest").resolve()


def sibling(run: Path) -> Path:
    (folder,) = [path for path in run.parent.iterdir() if path.is_dir() and not path.is_symlink() and path != run]
    return folder


def test_mutants_are_a_run_of_their_own(quickstart: Path, capsys) -> None:
    before = content(quickstart)
    words = ["task=selftest", f"run={quickstart}", "selftest.n=3", "selftest.only=[change_number,shuffle_chunks]"]
    assert "mutants that a score must notice" in output_of([*words, "metrics=[faithfulness,retrieval]"], 0, capsys).out
    assert content(quickstart) == before
    made = sibling(quickstart)
    document = json.loads((made / "selftest.json").read_text())
    assert (document["check"], document["source_run"]) == ("selftest", quickstart.name)
    assert {row["name"]: row["n"] for row in document["changes"] if row["n"]} == {"change_number": 3, "shuffle_chunks": 3}
    rows = {(row["change"], row["score"]): row for row in document["results"]}
    numbers = rows["change_number", "faithfulness"]
    assert numbers["n"] + numbers["at_end"] + numbers["no_value"] == 3
    assert numbers["found"] >= 1
    assert rows["change_number", "recall@5"]["state"] == "stays"
    assert rows["shuffle_chunks", "faithfulness"]["state"] == "stays"
    methods = {row["method"].partition("~")[2] for row in pq.read_table(made / "outputs.parquet").to_pylist()}
    assert methods == {"", "change_number", "shuffle_chunks"}
    first = content(made)
    assert main([*words, "metrics=[faithfulness,retrieval]"]) == 0
    assert content(made) == first, "a second start changes nothing"
    assert main(["task=verify", f"run={made}"]) == 0


def test_replies_of_the_run_are_used_and_nothing_is_asked_twice(run: Path, capsys) -> None:
    judge = ["judge=llm", "judge.model=openai/test-model-2026-01-01", "judge.endpoint=test", f"judge.api_key_env={KEY}"]
    with serving() as server:
        words = ["task=selftest", f"run={run}", *judge, f"judge.api_base={server.url}", *WORDS]
        assert "judge.max_calls" in output_of([*words, "judge.max_calls=1"], 2, capsys).err
        assert [path for path in run.parent.iterdir() if path.is_dir()] == [run], "nothing is left behind"
        assert server.tries == 0
        words.append("metrics=[faithfulness]")
        assert main(words) == 0
        asked = server.tries
        assert main(words) == 0
        assert server.tries == asked, "a second start asks nothing"
    rows = pq.read_table(sibling(run) / "outputs.parquet").to_pylist()
    mutants = sum("~" in row["method"] for row in rows)
    assert 0 < asked <= QUESTIONS_PER_ANSWER * mutants, "the originals' replies are those of the run"
    assert len(rows) <= mutants + CASES
    assert "plan: " in capsys.readouterr().out


@pytest.mark.thorough
def test_the_table_of_the_docs_is_what_the_demonstration_set_gives(quickstart: Path) -> None:
    assert main(["task=selftest", f"run={quickstart}"]) == 0
    page, docs = (sibling(quickstart) / "selftest.md").read_text(), (DOCS / "extras" / "checks.md").read_text()
    rows = re.findall(r"^\| `\w+` \| `faithfulness` \| .* \|$", docs, re.M)
    assert len(rows) == 6
    assert [row for row in rows if row not in page] == []


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize(("word", "message"), [
    ("selftest.only=[change_everything]", "no such mutation: change_everything"),
    ("selftest.only=[change_name,change_name]", "name each mutation once"),
    ("+selftest.expect.change_everything={worse:[a]}", "no such mutation: change_everything"),
    ("selftest.n=0", "greater than or equal to 1"),
    ("scoring.weights.faithfulness=1", "a change of what is frozen in the run"),
    ("transport=live", "a judge that you name"),
])  # fmt: skip
def test_wrong_settings_are_refused_by_name(run: Path, capsys, word: str, message: str) -> None:
    assert message in output_of(["task=selftest", f"run={run}", "transport=stored", word], 2, capsys).err
