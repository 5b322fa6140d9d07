"""task=store over the store of real runs against the local server, and retry_errors by the server's log."""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ragpipe.cli import main
from ragpipe.core.digest import sha256
from ragpipe.engine.cache_miss import nearest_call, stored_as
from ragpipe.schema.call import Call
from ragpipe.store.calls.call_rows import SharedValues, packed, store, time_of
from ragpipe.store.calls.call_store import CallStore
from ragpipe.testing.openai_faults import ServerFault
from ragpipe.testing.openai_server import OpenAIServer, serving
from tests.support.harness import arguments, write_cases

pytestmark = pytest.mark.slow  # whole runs, several per test

CASES = 4


@dataclass
class Place:
    server: OpenAIServer
    words: list[str]
    root: Path
    capsys: Any

    def run(self, *more: str, expected: int = 0) -> int:
        before = len(self.server.log)
        assert main([*self.words, *more]) == expected
        self.capsys.readouterr()
        return len(self.server.log) - before

    def store(self, *words: str, expected: int = 0) -> str:
        assert main(["task=store", f"output_dir={self.root / 'out'}", *words]) == expected
        shown = self.capsys.readouterr()
        return shown.out + shown.err

    @property
    def folder(self) -> Path:
        return (self.root / "out" / "torture" / "latest").resolve()

    def json(self, name: str) -> dict[str, Any]:
        return json.loads((self.folder / name).read_text())

    def inputs(self) -> list[dict[str, Any]]:
        return pq.read_table(self.folder / "iteration-1" / "judge_inputs.parquet").to_pylist()

    @property
    def file(self) -> Path:
        return self.root / "out" / ".store" / "calls.sqlite"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Iterator[Place]:
    monkeypatch.chdir(tmp_path)
    data = write_cases(tmp_path / "data.jsonl", CASES)
    with serving() as server:
        words = arguments(data, tmp_path / "out", server.url, metrics="correctness")
        yield Place(server, words, tmp_path, capsys)


def test_stats_count_what_the_log_counts(place: Place) -> None:
    assert place.run() == CASES
    text = place.store(f"to={place.root / 'stats.json'}")
    assert "price unknown" in text
    found = json.loads((place.root / "stats.json").read_text())
    used = place.json("iteration-1/cost.json")["used"]
    assert (found["replies"]["calls"], found["failures"]["calls"]) == (CASES, 0)
    assert found["replies"]["tokens_in"] == used["tokens_in"] > 0
    paid = found["paid"]
    assert (paid["replies"], paid["tokens_in"], paid["usd"], paid["unpriced"]) == (
        CASES, sum(line["usage"]["prompt_tokens"] for line in place.server.log), None, CASES,
    )  # fmt: skip
    assert found["damaged"] == 0
    assert found["paid_by_run"] == {place.folder.name: {**paid, "folder": True}}
    assert found["claims"] == {"alive": 0, "dead": 0, "unknown": 0}


def test_prune_counts_then_deletes_and_the_bill_stays(place: Place) -> None:
    place.run()
    first = place.folder
    place.run("judge.temperature=0.5")
    run = f"run={first}"
    assert f"would go: {CASES} calls" in place.store("action=prune", run)
    assert "would go: 0 calls" in place.store("action=prune", "unused=true")
    assert f"deleted: {CASES} calls" in place.store("action=prune", run, "dry_run=false")
    assert "would go: 0 calls" in place.store("action=prune", run)
    with closing(sqlite3.connect(place.file)) as db:
        assert db.execute("SELECT COUNT(*) FROM payments").fetchone() == (2 * CASES,)
        assert db.execute("SELECT COUNT(*) FROM calls").fetchone() == (CASES,)
    assert "prune of everything" in place.store("action=prune", expected=2)
    assert "older_then_days" in place.store("action=prune", "failures=true", "older_then_days=9", expected=2)


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("days", ["-1", "100001", "1e12", ".inf", ".nan"])
def test_an_age_that_no_call_can_have_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], days: str) -> None:
    words = ["task=store", "action=prune", f"older_than_days={days}", f"output_dir={tmp_path}"]
    assert main(words) == 2
    assert "older_than_days" in capsys.readouterr().err


@pytest.mark.thorough
def test_the_comparison_of_a_sweep_is_no_unfinished_run(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-m", *place.words, "scoring.weights.faithfulness=0.2,0.3"]) == 0
    assert "would go: 0 calls" in place.store("action=prune", "unused=true")
    capsys.readouterr()
    assert main(["task=runs", *(word for word in place.words if word.startswith("output_dir="))]) == 0
    assert "sweeps" not in capsys.readouterr().out


def test_unused_is_what_no_run_rests_on(place: Place) -> None:
    import shutil

    place.run()
    first = place.folder
    place.run("judge.temperature=0.5")
    shutil.rmtree(first)
    assert f"deleted: {CASES} calls" in place.store("action=prune", "unused=true", "dry_run=false")
    assert place.run("judge.temperature=0.5") == 0
    assert place.run() == CASES


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("ending", ["parquet", "jsonl"])
def test_another_store_takes_the_replies_and_asks_nobody(place: Place, ending: str) -> None:
    place.run()
    file = place.root / f"replies.{ending}"
    assert f"{CASES} calls" in place.store("action=export", f"to={file}")
    assert b"sk-sentinel" not in file.read_bytes()
    other = f"store.path={place.root / 'other'}"
    assert f"{CASES} calls imported, 0 were in the store already" in place.store("action=import", f"from={file}", other)
    assert f"0 calls imported, {CASES} were in the store already" in place.store("action=import", f"from={file}", other)
    assert place.run(other, f"output_dir={place.root / 'out2'}") == 0


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize(("column", "value"), [("text", "other"), ("key", "0" * 64), ("paid_usd", 0.0), ("fields", "{}")])
def test_a_changed_row_is_refused_before_anything_is_taken_in(place: Place, column: str, value: Any) -> None:
    place.run()
    file = place.root / "replies.parquet"
    place.store("action=export", f"to={file}")
    rows = pq.read_table(file).to_pylist()
    rows[CASES - 1][column] = value
    for resealed in (False, True):
        if resealed:
            if column in ("text", "paid_usd"):
                break  # a row of another reply under the same question: nothing but its digest can tell
            cells = {name: cell for name, cell in rows[CASES - 1].items() if name != "row_sha256"}
            rows[CASES - 1]["row_sha256"] = sha256(cells)
        pq.write_table(pa.Table.from_pylist(rows, schema=pq.read_schema(file)), file)
        text = place.store("action=import", f"from={file}", f"store.path={place.root / 'other'}", expected=2)
        assert f"row {CASES}" in text
        assert not (place.root / "other" / "calls.sqlite").exists()


def test_why_names_the_part_and_shows_the_text(place: Place) -> None:
    place.run()
    first = place.folder.name
    place.run("judge.temperature=0.5")
    text = place.store("action=why", f"run={place.folder}", "case=q00001", "metric=correctness")
    assert f"of run {first}" in text
    assert "differs in: judge.sampling\n" in text
    data = place.root / "data.jsonl"
    data.write_text(data.read_text().replace("Case 1 says 3 things.", "Case 1 says 4 things."))
    assert place.run() == 1
    text = place.store("action=why", f"run={place.folder}", "case=q00001")
    assert "differs in: messages\n" in text
    assert "Case 1 says 3 things." in text
    assert "Case 1 says 4 things." in text
    text = place.store("action=why", f"run={place.folder}", "case=q00002")
    assert "did not ask it" in text
    assert "found:    none for case=nobody\n" in place.store("action=why", f"run={place.folder}", "case=nobody", expected=2)


def test_why_shows_no_other_cases_question(place: Place) -> None:
    """Four questions that differ in their messages alone, of which none was ever asked in another form."""
    assert place.run() == CASES
    first, *_, last = sorted(place.inputs(), key=lambda row: created(place, row["key"]))
    text = place.store("action=why", f"run={place.folder}", f"case={first['sample_id']}")
    assert "nothing was stored before it" in text
    none = "no stored call resembles it: none before it has its messages"
    text = place.store("action=why", f"run={place.folder}", f"case={last['sample_id']}")
    assert f"{none}, and none is of the same case and the same step (correctness / grade) or template\n" in text
    assert "differs in" not in text
    assert first["sample_id"] not in text
    text = place.store("action=why", f"key={last['key']}", f"output_dir={place.root / 'none'}", f"store.path={place.file.parent}")
    assert f"{none}, and no run under output_dir says which case asked it\n" in text


def created(place: Place, key: str) -> tuple[int, int]:
    """When a call was stored, and as which."""
    with closing(sqlite3.connect(place.file)) as db:
        return db.execute("SELECT created_at, rowid FROM calls WHERE key = ?", (bytes.fromhex(key),)).fetchone()


@pytest.mark.thorough
def test_why_holds_a_question_against_its_own_earlier_form(place: Place) -> None:
    """Another temperature and another text: the own question differs in two parts, each other case's in one."""
    chain = [word.replace("[correctness]", "[correctness,chunk_faithfulness]") for word in place.words]
    place.words = [*chain, "metrics.chunk_faithfulness.exhaustive=true"]
    place.run()
    data = place.root / "data.jsonl"
    record = [json.loads(line) for line in data.read_text().splitlines()]
    record[2]["answer"] = "Case 2 says 7 things."
    record[3]["contexts"][2] = "Passage 2 of case 3 was written anew."
    data.write_text("".join(json.dumps(one) + "\n" for one in record))
    place.run()
    text = place.store("action=why", f"run={place.folder}", "case=q00003", "step=refine")
    (changed,) = (part for part in text.split("q00003 / ") if "differs in: messages\n" in part)
    assert "-Passage 2 of case 3: " in changed
    assert "+Passage 2 of case 3 was written anew." in changed
    assert "Passage 1" not in text, "the second rank is no earlier form of the third"
    place.run("judge.temperature=0.5")
    record[2]["answer"] = "Case 2 says 8 things."
    data.write_text("".join(json.dumps(one) + "\n" for one in record))
    place.run("judge.temperature=0.25")
    text = place.store("action=why", f"run={place.folder}", "case=q00002", "metric=correctness")
    assert "differs in: judge.sampling, messages\n" in text
    assert "Case 2 says 7 things." in text
    assert "Case 2 says 8 things." in text


def test_the_nearest_of_many_is_found(tmp_path: Path) -> None:
    path = tmp_path / "calls.sqlite"
    CallStore(path, run_id="r").close()
    count = 5_000
    judge = {f"judge.{n}": sha256(n) for n in range(9)}
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("BEGIN")
        shared = SharedValues(db)
        for i in range(count):
            made = Call(f"{i:064x}", "", "j", "ok", fields={**judge, "messages": sha256(i)}, run_id="r",
                        created_at=time_of(i))  # fmt: skip
            store(db, shared, packed(made, "r"))
        db.execute("COMMIT")
    asked = stored_as(path, f"{count - 1:064x}")[0]
    found = nearest_call(path, asked, resembling={f"{7:064x}"})
    assert found is not None
    assert (int(found.call.key, 16), found.differing) == (7, ("messages",))
    found = nearest_call(path, asked)
    assert found is not None
    assert int(found.call.key, 16) == count - 2


def test_retry_errors_asks_for_what_failed_and_nothing_is_paid_for_nothing(place: Place) -> None:
    place.server.faults = [ServerFault.read(f"content_filter_400:match={n}") for n in ("Case 1 says", "Case 3 says")]
    place.run(expected=4)
    failing = [row["wire_hash"] for row in place.inputs() if row["status"] != "ok"]
    assert len(failing) == 2
    before = place.json("iteration-1/cost.json")["spent"]
    assert before["calls"] == CASES - 2, "who is refused without an answer pays nothing"
    place.server.faults = []
    assert place.run(expected=4) == 0  # without retry_errors a failure stands
    seen = len(place.server.log)
    place.run("retry_errors=true")
    asked = [line["body"] for line in place.server.log[seen:]]
    assert Counter(asked) == Counter(failing)
    after = place.json("iteration-1/cost.json")
    assert after["spent"]["calls"] == CASES
    assert after["saved"]["calls"] == after["wasted"]["calls"] == after["wasted"]["replies"] == 0
    assert all(after["spent"][name] > before[name] for name in ("replies", "tokens_in", "tokens_out"))
    assert place.run("retry_errors=true") == 0
