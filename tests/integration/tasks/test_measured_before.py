"""A run whose cases another run measured: the tables are taken over where nothing differs, and judged where anything does."""

import json
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ragpipe.cli import main
from ragpipe.judging.session import JudgeSession
from ragpipe.prompting.prompt import Prompt
from ragpipe.stages.measured_cases import ReplayedCases
from ragpipe.testing.openai_faults import ServerFault
from ragpipe.testing.openai_server import OpenAIServer, serving
from tests.support.harness import arguments, rows, write_cases

pytestmark = pytest.mark.slow  # whole runs, several per test

CASES = 6
LOWER = "scoring.thresholds.faithfulness=0.4"
TABLES = ("scores.parquet", "judge_inputs.parquet", "records.parquet")


class Here:
    """A folder with a data set, a server, and the runs that are made there."""

    def __init__(self, folder: Path, server: OpenAIServer):
        self.folder, self.server = folder, server
        self.data = write_cases(folder / "data.jsonl", CASES)

    @property
    def store(self) -> Path:
        return self.folder / "out" / ".store" / "calls.sqlite"

    def run(self, *words: str, code: int = 0) -> Path:
        assert main(arguments(self.data, self.folder / "out", self.server.url, *words)) == code
        return (self.folder / "out" / "torture" / "latest").resolve()

    def manifest(self, run: Path) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((run / "manifest.json").read_text())
        return found


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Here]:
    monkeypatch.chdir(tmp_path)
    with serving() as server:
        yield Here(tmp_path, server)


def tables(run: Path) -> dict[str, bytes]:
    return {name: (run / "iteration-1" / name).read_bytes() for name in TABLES}


@pytest.mark.thorough
def test_other_thresholds_take_over_what_a_judged_run_would_come_to(here: Here, capfd: pytest.CaptureFixture[str]) -> None:
    first = here.run()
    asked = len(here.server.log)
    capfd.readouterr()
    taken = here.run(LOWER)
    said = capfd.readouterr().out
    assert f"iteration 1: run {first.name} measured these cases" in said
    assert here.manifest(taken)["measured_in"] == {"1": first.name}
    lines = (taken / "iteration-1" / "journal.jsonl").read_text().splitlines()
    assert len(lines) == 1 + CASES
    before, figures = tables(taken), json.loads((taken / "iteration-1" / "metrics.json").read_text())
    shutil.rmtree(first)
    shutil.rmtree(taken)
    judged = here.run(LOWER)
    assert judged == taken
    assert "measured_in" not in here.manifest(judged)
    assert tables(judged) == before
    assert json.loads((judged / "iteration-1" / "metrics.json").read_text()) == figures
    assert len(here.server.log) == asked, "neither way asks anything"


def test_what_was_taken_over_can_be_verified_rescored_and_explained(here: Here) -> None:
    first = here.run()
    taken = here.run(LOWER)
    shutil.rmtree(first)
    here.store.unlink()
    asked = len(here.server.log)
    assert main(["task=verify", f"run={taken}"]) == 0
    assert main(["task=explain", f"run={taken}", "case=q00002"]) == 0
    assert main(["task=rescore", f"run={taken}", "scoring.thresholds.faithfulness=0.3"]) == 0
    assert len(here.server.log) == asked


def _change_reply(here: Here, first: Path) -> None:
    with closing(sqlite3.connect(here.store)) as db, db:
        db.execute("UPDATE calls SET text = text || ' ' WHERE rowid = 1")


def _forget_reply(here: Here, first: Path) -> None:
    with closing(sqlite3.connect(here.store)) as db, db:
        db.execute("DELETE FROM calls WHERE rowid = 2")


def _remove_store(here: Here, first: Path) -> None:
    shutil.rmtree(here.store.parent)


def _change_scores(here: Here, first: Path) -> None:
    path = first / "iteration-1" / "scores.parquet"
    path.write_bytes(path.read_bytes() + b" ")


def _remove_seal(here: Here, first: Path) -> None:
    (first / "seal.json").unlink()


def _other_code(here: Here, first: Path) -> None:
    path = first / "manifest.json"
    path.write_text(path.read_text().replace(here.manifest(first)["code"], "0" * 12))


def _break_manifest(here: Here, first: Path) -> None:
    (first / "manifest.json").write_text("{}")


def _edit_case(here: Here, first: Path) -> None:
    here.data.write_text(here.data.read_text().replace("Case 3 says 9 things.", "Case 3 says ten things."))


_MORE: list[tuple[Callable[[Here, Path], None] | None, tuple[str, ...], str, bool]] = [
    (_forget_reply, (), "faithfulness, chunk_faithfulness", True),
    (_remove_store, (), "", True),
    (_remove_seal, (), "", False),
    (_other_code, (), "", False),
    (_break_manifest, (), "", False),
    (None, ("dataset.limit=4",), "faithfulness, chunk_faithfulness", False),
    (None, ("retry_errors=true",), "", False),
    (None, ("keep_messages=false",), "", False),
    (None, ("judge.temperature=0.5",), "", True),
    (None, ("metrics.faithfulness.without_claims=zero",), "chunk_faithfulness", False),
    (None, ("metrics=[chunk_faithfulness,retrieval,faithfulness]",), "chunk_faithfulness, faithfulness", False),
    (None, ("iterations=2",), "faithfulness, chunk_faithfulness", True),
]


@pytest.mark.thorough(tried=2)
@pytest.mark.parametrize(
    ("change", "words", "holding", "asked_again"),
    [
        (_change_reply, (), "faithfulness, chunk_faithfulness", True),
        (_change_scores, (), "", False),
        (_edit_case, (), "faithfulness, chunk_faithfulness", True),
        (None, ("metrics.faithfulness.batch=1",), "chunk_faithfulness", True),
        *(pytest.param(*row, marks=pytest.mark.slow) for row in _MORE),
    ],
)
def test_what_differs_is_judged_and_the_rest_is_taken_over(here, capfd, change, words, holding, asked_again) -> None:
    first = here.run()
    asked = len(here.server.log)
    if change is not None:
        change(here, first)
    capfd.readouterr()
    second = here.run(LOWER, *words)
    said = capfd.readouterr().out
    assert second != first
    whole = "iterations=2" in words
    assert ("measured_in" in here.manifest(second)) == whole
    if not whole:
        assert [*re.findall(r"measured with (.+) is taken over where", said)] == [holding][: bool(holding)]
    assert (len(here.server.log) > asked) == asked_again
    bodies = [line["body"] for line in here.server.log]
    # what is no longer stored is asked a second time, and so is everything for another iteration
    again = asked if whole or change is _remove_store else change in (_change_reply, _forget_reply)
    assert len(bodies) - len(set(bodies)) == again
    before = tables(second)
    shutil.rmtree(first)
    shutil.rmtree(second)
    asked = len(here.server.log)
    assert tables(here.run(LOWER, *words)) == before, "the same rows as without another run"
    assert len(here.server.log) == asked


def test_a_plan_that_is_refused_leaves_nothing_behind(here: Here) -> None:
    first = here.run()
    judged = {path.name for path in first.parent.iterdir()}
    asked = len(here.server.log)
    words = arguments(here.data, here.folder / "out", here.server.url, LOWER, "iterations=2", "judge.max_calls=3")
    assert main([word for word in words if word != "judge.max_calls=100000"]) == 2
    assert {path.name for path in first.parent.iterdir()} == judged
    assert len(here.server.log) == asked


def test_every_measurement_that_holds_is_taken_and_nothing_of_it_is_rendered(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    first = here.run()
    asked = len(here.server.log)
    _edit_case(here, first)
    rendered = []
    question = JudgeSession.question

    def counted(session: JudgeSession, *words: Any, **more: Any) -> Any:
        rendered.append(words)
        return question(session, *words, **more)

    monkeypatch.setattr(JudgeSession, "question", counted)
    second = here.run(LOWER)
    of_the_case = [row for row in rows(second / "iteration-1" / "judge_inputs.parquet") if row["sample_id"] == "q00003"]
    new = len(here.server.log) - asked
    assert 0 < new <= len(of_the_case)
    # the plan asks each metric's first question of the edited case; the run asks all of them, and of no other case
    assert len(rendered) <= 2 * len(of_the_case)


FAITHFUL = "metrics=[faithfulness]"
FAULTS = ["400", "length", "refusal", "not_json"]  # bad_request, cut_short, refused, unparsable


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_permanent_failure_is_taken_over_until_retry_errors_asks_again(here: Here, fault: str) -> None:
    """`not_json` is for every question: the text of a repair names no case."""
    here.server.faults = [ServerFault.read(fault if fault == "not_json" else f"{fault}:match=case 3 say")]
    first = here.run(FAITHFUL, code=4)
    asked = len(here.server.log)
    here.server.faults = []
    second = here.run(FAITHFUL, LOWER, code=4)
    assert len(here.server.log) == asked, "only the scoring differs"
    assert here.manifest(second)["measured_in"] == {"1": first.name}
    assert main(["task=verify", f"run={second}"]) == 0
    cost = json.loads((second / "iteration-1" / "cost.json").read_text())
    assert cost["spent"]["replies"] == 0
    third = here.run(FAITHFUL, LOWER, "retry_errors=true")
    assert (third, len(here.server.log) > asked) == (second, True)
    assert {row["status"] for row in rows(third / "iteration-1" / "scores.parquet")} == {"ok"}
    assert main(["task=verify", f"run={third}"]) == 0


@pytest.mark.thorough
def test_a_permanent_failure_is_taken_over_where_another_case_changed(here: Here) -> None:
    here.server.faults = [ServerFault.read("length:match=case 5 say")]
    first = here.run(code=4)
    asked = len(here.server.log)
    here.server.faults = []
    _edit_case(here, first)
    second = here.run(LOWER, code=4)
    of_the_case = [row for row in rows(second / "iteration-1" / "judge_inputs.parquet") if row["sample_id"] == "q00003"]
    assert 0 < len(here.server.log) - asked <= len(of_the_case), "of the edited case alone"
    failed = {row["sample_id"] for row in rows(second / "iteration-1" / "scores.parquet") if row["status"] == "error"}
    assert failed == {"q00005"}
    assert main(["task=verify", f"run={second}"]) == 0


def test_a_failure_that_is_no_longer_stored_is_asked_again(here: Here) -> None:
    """Who prunes failures, or had them asked again by another run, wants the new answer."""
    here.server.faults = [ServerFault.read("length:match=case 5 say")]
    here.run(code=4)
    asked = len(here.server.log)
    here.server.faults = []
    pruned = ["task=store", "action=prune", "failures=true", "dry_run=false", f"output_dir={here.folder / 'out'}"]
    assert main(pruned) == 0
    second = here.run(LOWER)
    assert "measured_in" not in here.manifest(second)
    assert 0 < len(here.server.log) - asked <= 4, "of the case that failed alone"


def test_the_newest_run_that_measured_the_same_counts_whatever_lies_between(here: Here) -> None:
    first = here.run()
    here.run("judge.temperature=0.5")
    taken = here.run(LOWER)
    assert here.manifest(taken)["measured_in"] == {"1": first.name}


def test_a_rejudge_with_other_weights_takes_over_too(here: Here) -> None:
    first = here.run()
    asked = len(here.server.log)
    judge = [word for word in arguments(here.data, here.folder / "out", here.server.url) if word.startswith("judge")]
    assert main(["task=rejudge", f"run={first}", *judge, "scoring.weights.faithfulness=0.4"]) == 0
    (taken,) = (path.parent for path in first.parent.glob("*/manifest.json") if path.parent.resolve() != first)
    assert here.manifest(taken)["measured_in"] == {"1": first.name}
    assert len(here.server.log) == asked


def test_the_plan_measures_for_the_run(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over stored replies the plan renders every question; the run takes its measurements instead of rendering again."""
    shutil.rmtree(here.run())
    rendered = []
    render = Prompt.render

    def counted(prompt: Prompt, **values: Any) -> Any:
        rendered.append(prompt.name)
        return render(prompt, **values)

    monkeypatch.setattr(Prompt, "render", counted)
    kept = here.run()
    questions = len(rows(kept / "iteration-1" / "judge_inputs.parquet"))
    with_kept, before = len(rendered), tables(kept)
    shutil.rmtree(kept)
    rendered.clear()
    monkeypatch.setattr(ReplayedCases, "add", lambda *_: None)
    again = here.run()
    assert questions > CASES
    assert len(rendered) - with_kept == questions
    assert tables(again) == before
