"""Every field of every JSON file of a run folder with a wrong value: the page stays, and the other runs on it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ragpipe.extras.view.index_document import index_document, index_page, progress_document
from ragpipe.extras.view.run_changes import runs_before
from ragpipe.extras.view.run_index import RunIndex
from ragpipe.report.page_file import page_html
from ragpipe.store.processes import this_process
from ragpipe.store.progress import CallCounts, CaseCounts, ProgressState, iso_time
from tests.support.listed_runs import listed_run
from tests.support.page_blocks import block_json

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test
GOOD, BAD = "aaaaaaaaaaaa", "bbbbbbbbbbbb"
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


def make_run(home: Path, *, is_live: bool) -> Path:
    run = listed_run(home, BAD, 0.5, day=2).root
    me = this_process()
    lock = {"pid": me.pid, "host": me.host, "mark": me.mark, "command": "/x/ragpipe name=x"}
    state = ProgressState("judging", me, iso_time(), iso_time(), CaseCounts(40, 10), CallCounts(30, 25, 3, 2, 2), waiting_until=iso_time(),
                          error_groups={"rate_limit": 2}, seconds_left=95.0)  # fmt: skip
    if is_live:
        (run / ".lock").write_text(json.dumps(lock))
    (run / "iteration-1").mkdir(exist_ok=True)
    (run / "iteration-1" / ".progress.json").write_text(json.dumps({"state": state.as_json()}))
    (run / "gates.json").write_text(json.dumps({"gates": [{"outcome": "blocked", "sentence": "too low"}]}))
    return run


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
@pytest.mark.parametrize("file", [pytest.param(file, marks=() if file == "gates.json" else pytest.mark.slow) for file in FILES])
def test_no_wrong_value_takes_the_page_away(tmp_path: Path, file: str) -> None:
    listed_run(tmp_path / "nightly", GOOD, 0.6)
    run = make_run(tmp_path / "nightly", is_live=file in LIVE)
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
            assert states[GOOD] == "complete", (file, path, name)
            assert set(states) == {GOOD, BAD}, (file, path, name)
            assert max(map(len, texts)) < 20_000, (file, path, name)
    page = block_json(page_html(index_page(document, is_live=True)), "index")
    assert page == {**json.loads(texts[0]), "isLive": True}
