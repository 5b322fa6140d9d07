"""A run whose cases another run measured: the tables are taken over where nothing differs, and judged where anything does."""

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ragpipe.cli.command_line import main
from ragpipe.testing.openai_faults import ServerFault
from ragpipe.testing.openai_server import serving
from tests.support.harness import arguments, rows, write_cases
from tests.support.place import Place

pytestmark = pytest.mark.slow  # whole runs, several per test

CASES = 6
LOWER = "scoring.thresholds.faithfulness=0.4"
TABLES = ("scores.parquet", "judge_inputs.parquet", "records.parquet")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Place]:
    monkeypatch.chdir(tmp_path)
    data = write_cases(tmp_path / "data.jsonl", CASES)
    with serving() as server:
        yield Place(server, arguments(data, tmp_path / "out", server.url), tmp_path, capsys)


def made(place: Place, *words: str, code: int = 0) -> Path:
    """The folder of the run of these words."""
    place.run(*words, expected=code)
    return place.folder


def manifest(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "manifest.json").read_text())
    return found


def tables(run: Path) -> dict[str, bytes]:
    return {name: (run / "iteration-1" / name).read_bytes() for name in TABLES}


@pytest.mark.thorough
def test_other_thresholds_take_over_what_a_judged_run_would_come_to(place: Place) -> None:
    first = made(place)
    asked = len(place.server.log)
    taken = made(place, LOWER)
    assert f"iteration 1: run {first.name} measured these cases" in place.said
    assert manifest(taken)["measured_in"] == {"1": first.name}
    lines = (taken / "iteration-1" / "journal.jsonl").read_text().splitlines()
    assert len(lines) == 1 + CASES
    before, figures = tables(taken), json.loads((taken / "iteration-1" / "metrics.json").read_text())
    shutil.rmtree(first)
    shutil.rmtree(taken)
    judged = made(place, LOWER)
    assert judged == taken
    assert "measured_in" not in manifest(judged)
    assert tables(judged) == before
    assert json.loads((judged / "iteration-1" / "metrics.json").read_text()) == figures
    assert len(place.server.log) == asked, "neither way asks anything"


def _change_reply(place: Place, first: Path) -> None:
    with closing(sqlite3.connect(place.file)) as db, db:
        db.execute("UPDATE calls SET text = text || ' ' WHERE rowid = 1")


def _forget_reply(place: Place, first: Path) -> None:
    with closing(sqlite3.connect(place.file)) as db, db:
        db.execute("DELETE FROM calls WHERE rowid = 2")


def _change_scores(place: Place, first: Path) -> None:
    path = first / "iteration-1" / "scores.parquet"
    path.write_bytes(path.read_bytes() + b" ")


def _remove_seal(place: Place, first: Path) -> None:
    (first / "seal.json").unlink()


def _other_code(place: Place, first: Path) -> None:
    path = first / "manifest.json"
    path.write_text(path.read_text().replace(manifest(first)["code"], "0" * 12))


def _edit_case(place: Place, first: Path) -> None:
    data = place.root / "data.jsonl"
    data.write_text(data.read_text().replace("Case 3 says 9 things.", "Case 3 says ten things."))


@pytest.mark.thorough(tried=2)
@pytest.mark.parametrize(("change", "words", "asked_again"), [
    (_change_reply, (), True),
    (_change_scores, (), False),
    (None, ("dataset.limit=4",), False),
    (_forget_reply, (), True),
    (_remove_seal, (), False),
    (_other_code, (), False),
    (_edit_case, (), True),
    (None, ("retry_errors=true",), False),
    (None, ("judge.temperature=0.5",), True),
    (None, ("metrics=[chunk_faithfulness,retrieval,faithfulness]",), False),
])  # fmt: skip
def test_where_anything_differs_all_cases_are_judged_over_the_stored_replies(place, change, words, asked_again) -> None:
    first = made(place)
    asked = len(place.server.log)
    if change is not None:
        change(place, first)
    second = made(place, LOWER, *words)
    assert second != first
    assert "measured_in" not in manifest(second)
    assert (len(place.server.log) > asked) == asked_again
    bodies = [line["body"] for line in place.server.log]
    assert len(bodies) - len(set(bodies)) == (change in (_change_reply, _forget_reply)), "what is no longer stored is asked a second time"
    before = tables(second)
    shutil.rmtree(first)
    shutil.rmtree(second)
    asked = len(place.server.log)
    assert tables(made(place, LOWER, *words)) == before, "the same rows as without another run"
    assert len(place.server.log) == asked


FAITHFUL = "metrics=[faithfulness]"
FAULTS = ["400", "length", "refusal", "not_json"]  # bad_request, cut_short, refused, unparsable


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_permanent_failure_is_taken_over_until_retry_errors_asks_again(place: Place, fault: str) -> None:
    """`not_json` is for every question: the text of a repair names no case."""
    place.server.faults = [ServerFault.read(fault if fault == "not_json" else f"{fault}:match=case 3 say")]
    first = made(place, FAITHFUL, code=4)
    asked = len(place.server.log)
    place.server.faults = []
    second = made(place, FAITHFUL, LOWER, code=4)
    assert len(place.server.log) == asked, "only the scoring differs"
    assert manifest(second)["measured_in"] == {"1": first.name}
    assert main(["task=verify", f"run={second}"]) == 0
    cost = json.loads((second / "iteration-1" / "cost.json").read_text())
    assert cost["spent"]["replies"] == 0
    third = made(place, FAITHFUL, LOWER, "retry_errors=true")
    assert (third, len(place.server.log) > asked) == (second, True)
    assert {row["status"] for row in rows(third / "iteration-1" / "scores.parquet")} == {"ok"}
    assert main(["task=verify", f"run={third}"]) == 0
