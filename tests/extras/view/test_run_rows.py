"""What the page says of runs: differences, series, history, counters; and of files with wrong values."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ragpipe.core.version import FORMAT
from ragpipe.extras.view.index_document import history_lines, index_document, index_page, progress_document
from ragpipe.extras.view.run_changes import all_changes, runs_before
from ragpipe.extras.view.run_index import Listing, RunIndex
from ragpipe.report.page_file import page_html
from ragpipe.store.processes import this_process
from ragpipe.store.progress import CallCounts, CaseCounts, ProgressState, iso_time
from tests.support.compared_runs import IDENTITY
from tests.support.listed_runs import listed_run
from tests.support.page_blocks import block_json

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test
IDS = [f"{n:012x}" for n in range(10)]


def listing_of(folder: Path) -> Listing:
    return RunIndex(folder).read_all()


def test_a_run_is_compared_with_the_newest_one_that_was_measured_in_the_same_way(tmp_path: Path) -> None:
    home = tmp_path / "x"
    other_judge = {**IDENTITY, "judge_identity": {"model": "m-2"}}
    listed_run(home, IDS[0], 0.5, day=1)
    listed_run(home, IDS[1], 0.5, day=2, identity=other_judge)
    listed_run(home, IDS[2], 0.7, day=3)
    listed_run(tmp_path / "y", IDS[3], 0.9, day=4)
    runs = listing_of(tmp_path).runs
    assert {key: run.key for key, run in runs_before(runs).items()} == {f"x/{IDS[2]}": f"x/{IDS[0]}"}
    change = all_changes(runs)[f"x/{IDS[2]}"]
    assert change is not None
    assert change.words.startswith("+0.20 [")
    assert change.state == "better"


def test_a_line_breaks_where_something_was_measured_in_another_way(tmp_path: Path) -> None:
    for place, identity in enumerate([IDENTITY, IDENTITY, {**IDENTITY, "judge_identity": {"model": "m-2"}}]):
        listed_run(tmp_path / "x", IDS[place], 0.5 + place / 10, day=1 + place, identity=dict(identity))
    listed_run(tmp_path / "alone", IDS[5], 0.5)
    runs = listing_of(tmp_path).runs
    (line,) = history_lines(runs, all_changes(runs))
    assert (line["name"], line["score"], line["from"], line["to"]) == ("x", "grade", "2026-01-01", "2026-01-03")
    nodes = line["svg"][2]
    paths = [attributes["d"] for tag, attributes, _ in nodes if tag == "path" and attributes["class"] == "way"]
    assert [path.count("L") for path in paths] == [1, 0]  # two runs joined, the third alone
    marks = [node for node in nodes if node[0] == "a"]
    assert [mark[1]["href"] for mark in marks] == [f"runs/x/{run_id}/report.html" for run_id in IDS[:3]]
    assert marks[1][2][0][1]["class"] == "run better"


def hold(run: Path, *, updated: float | None = None, phase: Any = "judging", until: str | None = None, **owner: Any) -> None:
    """Lock the folder for this process, or for another `owner`, and write what it shows of its progress."""
    me = this_process()
    lock = {"pid": me.pid, "host": me.host, "mark": me.mark, "command": "/x/ragpipe/__main__.py +experiment=e name=x", **owner}
    (run / ".lock").write_text(json.dumps(lock))
    state = ProgressState(
        phase, me, iso_time(), iso_time(updated), CaseCounts(40, 10, 4), CallCounts(30, 25, 3, 2, 2), waiting_until=until,
        rate_per_second=1.5, tokens=1234, usd=0.5, errors=1, error_groups={"rate_limit": 2, "<b>": 1}, seconds_left=95.0,
        command="/x/ragpipe/__main__.py +experiment=e 'data={a: 1}'",
    )  # fmt: skip
    (run / "iteration-1").mkdir(exist_ok=True)
    (run / "iteration-1" / ".progress.json").write_text(json.dumps({"state": state.as_json()}))


@pytest.fixture
def unfinished(tmp_path: Path) -> Path:
    run = listed_run(tmp_path / "x", IDS[0], 0.5, iterations={}).root
    (run / "final" / "metrics.json").unlink()
    (run / "config.yaml").write_text("name: x\niterations: 3\n")
    return run


def only(folder: Path) -> dict[str, Any]:
    (live,) = progress_document(listing_of(folder), "r")["live"].values()
    return dict(live)


def test_the_counters_of_a_run_that_goes_on(unfinished: Path, tmp_path: Path) -> None:
    hold(unfinished)
    live = only(tmp_path)
    assert (live["state"], live["reason"]) == ("running", "")
    assert live["live"]["done"] == "10 of 120 cases"  # three iterations of 40
    assert (live["live"]["left"], live["resume"]) == ("2 min left", "")
    assert live["live"]["errors"] == [["rate_limit", "2"], ["<b>", "1"]]
    figures = dict(live["live"]["figures"])
    assert figures == {
        "sent": "30", "answered": "25", "in flight": "3", "waiting": "2", "requests without a reply": "2", "cases resumed": "4",
        "cases with an error": "1", "tokens": "1,234", "answers per second": "1.5", "cost": "$0.5000",
    }  # fmt: skip


CASES = [  # the end of a journal, and what the card shows
    ({"faithfulness": 0.9, "mine": 2.0}, [["faithfulness", "0.90", "pass"], ["mine", "2.00", ""]]),
    ({"faithfulness": 0.5, "hallucination_on_unanswerable": 1.0}, [["faithfulness", "0.50", "miss"], ["hallucination_on_unanswerable", "1.00", "miss"]]),
    ({"faithfulness": None}, []),
]  # fmt: skip


def test_a_run_that_goes_on_has_its_newest_cases(unfinished: Path, tmp_path: Path) -> None:
    hold(unfinished)
    manifest = json.loads((unfinished / "manifest.json").read_text())
    limits = {"faithfulness": 0.85, "hallucination_on_unanswerable": 0.0, "mine": 1.0}
    manifest["identity"]["scoring"] = {"thresholds": limits, "weights": {"faithfulness": 1.0}}
    (unfinished / "manifest.json").write_text(json.dumps(manifest))
    lines = [{"sample_id": f"q{n}", "method": "m", "question": f"<b>{n}?", "result": result} for n, (result, _) in enumerate(CASES)]
    journal = "".join(json.dumps(line) + "\n" for line in [{"format": FORMAT}, *lines])
    (unfinished / "iteration-1" / "journal.jsonl").write_text(journal + '{"torn')
    cases = list(only(tmp_path)["live"]["cases"])
    assert cases == [(f"<b>{n}?", "m", shown) for n, (_, shown) in reversed(list(enumerate(CASES)))]
    (unfinished / "iteration-1" / "journal.jsonl").write_text("{}\n[]\nnull\n" + "[" * 9000 + "\n")
    assert only(tmp_path)["live"]["cases"] == ()


@pytest.mark.thorough(tried=2)
@pytest.mark.parametrize(("phase", "host", "silent_s", "state", "reason"), [
    ("judging", None, 20, "running", ""),
    ("judging", None, 41, "stalled", "no sign for 4.*end it before you start it again"),
    ("collecting", None, 41, "stalled", "no sign for 4"),
    ("scoring", None, 41, "running", ""),
    ("judging", "elsewhere", 0, "running", ""),
    ("judging", "elsewhere", 300, "stalled", "no sign for 5 min from process 1 on elsewhere"),
])  # fmt: skip
def test_half_a_minute_of_silence_is_a_stall_where_a_run_would_speak(
    unfinished: Path, tmp_path: Path, phase: str, host: str | None, silent_s: int, state: str, reason: str
) -> None:
    who: dict[str, Any] = {} if host is None else {"pid": 1, "mark": "", "host": host}
    hold(unfinished, updated=datetime.now(UTC).timestamp() - silent_s, phase=phase, **who)
    live = only(tmp_path)
    assert live["state"] == state
    assert re.match(reason, live["reason"])


COMMAND = "python -m ragpipe +experiment=e 'data={a: 1}'"


def test_a_run_that_was_stopped_has_the_command_that_goes_on_with_it(unfinished: Path, tmp_path: Path) -> None:
    assert (only(tmp_path)["state"], only(tmp_path)["resume"]) == ("stopped", ""), "nobody knows how it was started"
    hold(unfinished)
    (unfinished / ".lock").unlink()  # as Ctrl-C leaves the folder
    assert (only(tmp_path)["state"], only(tmp_path)["resume"]) == ("stopped", COMMAND)
    (row,) = index_document(tmp_path, listing_of(tmp_path), {}, "r")["rows"]
    assert row["resume"] == COMMAND


@pytest.mark.parametrize(("iteration", "is_held", "state", "resume"), [
    ("incomplete", False, "incomplete", COMMAND),  # calls failed for a passing reason
    ("complete", True, "complete", ""),  # a task works over the finished run
])  # fmt: skip
def test_a_judged_run_is_not_unfinished(tmp_path: Path, iteration: str, is_held: bool, state: str, resume: str) -> None:
    run = listed_run(tmp_path / "x", IDS[0], 0.5, iterations={"1": iteration}).root
    hold(run, phase="done")
    if not is_held:
        (run / ".lock").unlink()
    (row,) = index_document(tmp_path, listing_of(tmp_path), {}, "r")["rows"]
    assert (row["state"], row.get("resume", "")) == (state, resume)
    assert progress_document(listing_of(tmp_path), "r")["live"] == {}


def test_texts_of_folders_stay_texts(tmp_path: Path) -> None:
    name = "<img src=x onerror=alert(1)>\u202e"
    listed_run(tmp_path / name, IDS[0], 0.5)
    (row,) = index_document(tmp_path, listing_of(tmp_path), {}, "r")["rows"]
    assert row["name"] == "<img src=x onerror=alert(1)>\\u202e"
    assert row["links"][0][1] == f"runs/%3Cimg%20src%3Dx%20onerror%3Dalert%281%29%3E%E2%80%AE/{IDS[0]}/report.html"


NESTED: Any = []
for _ in range(900):
    NESTED = [NESTED]
VALUES: dict[str, Any] = {
    "null": None, "true": True, "negative": -1, "zero": 0, "huge": 10**400, "large": 1e308, "nan": float("nan"), "infinite": float("inf"),
    "empty": "", "text": "<script>alert(1)</script>", "surrogate": "\ud800", "long": "x" * 100_000, "early": "0001-01-01T00:00:00+14:00",
    "late": "9999-12-31T23:59:59-14:00", "local": "2026-01-01T00:00:00", "list": [], "object": {}, "numbers": [1], "key": {"\ud800": 1}, "nested": NESTED,
}  # fmt: skip
FILES = ("manifest.json", "gates.json", "final/metrics.json", "final/cost.json", ".lock", "iteration-1/.progress.json")
LIVE = (".lock", "iteration-1/.progress.json")


def places(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in a JSON value, itself among them; of equal siblings the first three."""
    yield path
    items = list(content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ())
    for key, value in items[:3] if isinstance(content, list) else items:
        yield from places(value, (*path, key))


def changed(content: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copy = content.copy()
    copy[path[0]] = changed(content[path[0]], path[1:], value)
    return copy


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("file", FILES)
def test_no_wrong_value_takes_the_page_away(tmp_path: Path, file: str) -> None:
    """Every field of every JSON file of a run folder with a wrong value: the page stays, and the other runs on it."""
    good, bad = IDS[:2]
    listed_run(tmp_path / "x", good, 0.6)
    run = listed_run(tmp_path / "x", bad, 0.5, day=2).root
    hold(run, until=iso_time())
    (run / "gates.json").write_text(json.dumps({"gates": [{"outcome": "blocked", "sentence": "too low"}]}))
    if file not in LIVE:
        (run / ".lock").unlink()
    content = json.loads((run / file).read_text())
    index = RunIndex(tmp_path)
    for path in places(content):
        for name, value in VALUES.items():
            (run / file).write_text(json.dumps(changed(content, path, value)))
            listing = index.read_all()
            document = index_document(tmp_path, listing, dict.fromkeys(runs_before(listing.runs)), "r")
            texts = [json.dumps(part, allow_nan=False, ensure_ascii=False) for part in (document, progress_document(listing, "r"))]
            assert all(text.encode("utf-8") for text in texts)
            states = {row["id"]: row["state"] for row in document["rows"]}
            assert states[good] == "complete", (file, path, name)
            assert set(states) == {good, bad}, (file, path, name)
            assert max(map(len, texts)) < 20_000, (file, path, name)
    page = block_json(page_html(index_page(document, is_live=True)), "index")
    assert page == {**json.loads(texts[0]), "isLive": True}
