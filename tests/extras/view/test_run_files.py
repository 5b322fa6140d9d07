"""Files of run folders that anybody may have made: what is read, what is served, and what is refused."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from yarl import URL

from ragpipe.core.errors import DataError
from ragpipe.extras.view.listed_run import resume_command
from ragpipe.extras.view.run_files import bytes_below, json_below, opened_below
from ragpipe.extras.view.run_index import RunIndex
from tests.extras.view.viewed_runs import allowed, client_of
from tests.support.listed_runs import PAGE, listed_run
from tests.support.ordinary_user import folder_for_all, ordinary_user

ID = "0123456789ab"


@pytest.mark.parametrize("parts", [
    ("..", "x"), ("a", "..", "b"), ("",), (".",), ("a/b",), ("a\0",), ("link",), ("to", "x"), ("pipe",),
    ("folder",), ("absent",),
])  # fmt: skip
def test_what_is_no_regular_file_below_the_folder_is_refused(tmp_path: Path, parts: tuple[str, ...]) -> None:
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    (tmp_path / "x").write_text("outside")
    (root / "link").symlink_to(tmp_path / "x")
    (root / "to").symlink_to(tmp_path)
    os.mkfifo(root / "pipe")
    with pytest.raises(DataError):
        opened_below(root, parts)


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    assert bytes_below(tmp_path, "a", limit=5) == b"12345"
    with pytest.raises(DataError, match="more than 4 bytes"):
        bytes_below(tmp_path, "a", limit=4)


@pytest.mark.parametrize("text", ["", "[]", "nul", "{", '{"a":' * 100_000, "\xff"])
def test_broken_json_is_a_data_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text, encoding="latin-1")
    with pytest.raises(DataError):
        json_below(tmp_path, "a.json")


def hostile_manifest(run: Path, **parts: Any) -> None:
    (run / "manifest.json").write_text(json.dumps({**json.loads((run / "manifest.json").read_text()), **parts}))


@pytest.mark.slow
def test_each_hostile_folder_is_one_line_and_the_good_run_stays(tmp_path: Path) -> None:
    home = tmp_path / "outputs" / "nightly"
    good = listed_run(home, "aaaaaaaaaaaa", 0.6)
    names = {name: f"{place:012x}" for place, name in enumerate(
        ["json", "array", "format", "fifo", "device", "link", "final", "nan", "text", "iterations", "huge", "empty"]
    )}  # fmt: skip
    for name, run_id in names.items():
        if name != "empty":
            listed_run(home, run_id, 0.5)
    at = {name: home / run_id for name, run_id in names.items()}
    (at["json"] / "manifest.json").write_text("{not json")
    (at["array"] / "manifest.json").write_text("[1]")
    hostile_manifest(at["format"], format=99)
    (at["fifo"] / "manifest.json").unlink()
    os.mkfifo(at["fifo"] / "manifest.json")
    (at["device"] / "gates.json").unlink()
    (at["device"] / "gates.json").symlink_to("/dev/zero")
    (at["link"] / "final" / "metrics.json").rename(tmp_path / "metrics.json")
    (at["link"] / "final" / "metrics.json").symlink_to(tmp_path / "metrics.json")
    (at["final"] / "final").rename(tmp_path / "final")
    (at["final"] / "final").symlink_to(tmp_path / "final")
    metrics = json.loads((good.final.metrics).read_text())
    metrics["overall"]["scores"]["grade"]["mean"] = float("nan")
    (at["nan"] / "final" / "metrics.json").write_text(json.dumps(metrics))
    metrics["overall"]["scores"]["grade"]["mean"] = "<b>1</b>"
    (at["text"] / "final" / "metrics.json").write_text(json.dumps(metrics))
    hostile_manifest(at["iterations"], iterations=[1])
    with open(at["huge"] / "manifest.json", "wb") as file:
        file.truncate(1 << 40)
    at["empty"].mkdir()
    listing = RunIndex(tmp_path / "outputs").read_all()
    states = {run.run_id: (run.status.state, run.status.reason) for run in listing.runs}
    assert states["aaaaaaaaaaaa"] == ("complete", "")
    expected = {**dict.fromkeys(names, "broken"), "format": "refused", "nan": "complete"}
    assert {name: states[run_id][0] for name, run_id in names.items()} == expected
    told = {"json": "no readable JSON", "fifo": "no regular file", "huge": "more than", "format": "format 99"}
    told |= dict.fromkeys(("device", "link", "final"), "symbolic link")
    assert {name: reason for name, reason in told.items() if reason not in states[names[name]][1]} == {}
    assert states[names["empty"]][1] == "no manifest.json"


@pytest.mark.slow
def test_a_folder_that_cannot_be_read_hides_no_other() -> None:
    with folder_for_all() as home:
        listed_run(home / "good", ID, 0.5)
        listed_run(home / "good", "bbbbbbbbbbbb", 0.5).root.chmod(0)
        (home / "closed").mkdir(mode=0)
        (home / "away").symlink_to("/")
        with ordinary_user():
            runs = {run.key: run.status for run in RunIndex(home).read_all().runs}
    assert set(runs) == {f"good/{ID}", "good/bbbbbbbbbbbb"}
    assert (runs[f"good/{ID}"].state, runs["good/bbbbbbbbbbbb"].state) == ("complete", "broken")
    assert "Permission denied" in runs["good/bbbbbbbbbbbb"].reason


@pytest.mark.parametrize(("command", "expected"), [
    ("/env/lib/ragpipe/__main__.py +experiment=x 'dataset.sample={rate: 0.05}'", "python -m ragpipe +experiment=x 'dataset.sample={rate: 0.05}'"),
    ("/usr/bin/ragpipe name=x", "python -m ragpipe name=x"),
    ("/env/ragpipe/__main__.py 'name=x; rm -rf ~' '$(id)'", "python -m ragpipe 'name=x; rm -rf ~' '$(id)'"),
    ("rm -rf /", ""),
    ("/tmp/notragpipe x", ""),
    ("my_script.py", ""),
    ("'unbalanced", ""),
    ("", ""),
])  # fmt: skip
def test_only_a_start_of_ragpipe_is_offered_to_be_repeated(command: str, expected: str) -> None:
    assert resume_command(command) == expected


@pytest.mark.thorough(tried=7)
@pytest.mark.slow
@pytest.mark.parametrize(("path", "status"), [
    (f"/runs/a/{ID}/report.html", 200),
    (f"/runs/a/{ID}/report.md", 200),
    (f"/runs/a/{ID}/manifest.json", 404),
    (f"/runs/a/{ID}/config.yaml", 404),
    (f"/runs/a/{ID}/samples.parquet", 404),
    (f"/runs/a/{ID}/../{ID}/report.html", 404),
    (f"/runs/a/%2e%2e/a/{ID}/report.html", 404),
    (f"/runs/a%2F{ID}/report.html", 200),
    (f"/runs//a/{ID}/report.html", 404),
    ("/runs/../../etc/report.html", 404),
    (f"/runs/b/{ID}/report.html", 404),
    (f"/runs/a/{ID}/report.data/d1.js", 200),
    (f"/runs/a/{ID}/report.data/..%2freport.js", 404),
    (f"/runs/a/{ID}/report.data/absent.js", 404),
    (f"/runs/a/{ID}/report.data/evil.js", 404),
    (f"/runs/a/{ID}/compare.data/d1.js", 404),
    (f"/runs/a/{ID}/calibration/calibration.html", 200),
    (f"/runs/a/{ID}/calibration/calibration.json", 404),
    (f"/runs/a/{ID}/calibration/other.html", 404),
    (f"/runs/a/{ID}/labels/d/label.html", 200),
    (f"/runs/a/{ID}/labels/linked/label.html", 404),
    (f"/runs/a/{ID}/labels/../calibration/calibration.html", 404),
    ("/runs/a/history/history.html", 200),
    ("/runs/a/history/history.csv", 404),
    ("/runs/.store/drift/0f.html", 200),
    ("/runs/.store/calls.html", 404),
])  # fmt: skip
async def test_only_files_of_the_index_are_served(tmp_path: Path, path: str, status: int) -> None:
    run = listed_run(tmp_path / "outputs" / "a", ID, 0.5)
    (run.root / "report.data").mkdir()
    (run.root / "report.data" / "d1.js").write_text('ragpipeBlock("d1","H4sI+/=");\nragpipeBlock("t0","");\n')
    (run.root / "report.data" / "evil.js").write_text('ragpipeBlock("d1","H4sI");\nfetch("/");\n')
    (tmp_path / "report.html").write_text("outside")
    home = tmp_path / "outputs"
    for file in ("calibration/calibration.html", "calibration/calibration.json", "calibration/other.html", "labels/d/label.html"):
        (run.root / file).parent.mkdir(parents=True, exist_ok=True)
        (run.root / file).write_text('{"scores": {}}' if file.endswith(".json") else PAGE)
    (run.root / "labels" / "linked").symlink_to(run.root / "labels" / "d")
    for file in ("a/history/history.html", "a/history/history.csv", ".store/drift/0f.html", ".store/calls.html"):
        (home / file).parent.mkdir(parents=True, exist_ok=True)
        (home / file).write_text(PAGE)
    async with client_of(tmp_path / "outputs") as (client, server):
        url = URL(str(client.make_url("/")).rstrip("/") + path, encoded=True)
        answer = await client.session.get(url, headers=allowed(server))
        assert answer.status == status
        if path.endswith("report.html") and status == 200:
            assert await answer.text() == PAGE


@pytest.mark.slow
def test_a_report_that_is_a_pipe_has_no_link(tmp_path: Path) -> None:
    run = listed_run(tmp_path / "a", ID, 0.5)
    run.html.unlink()
    os.mkfifo(run.html)
    (listed,) = RunIndex(tmp_path).read_all().runs
    assert (listed.status.state, listed.files) == ("complete", ("report.md",))


@pytest.mark.slow
async def test_a_page_that_is_not_ours_runs_in_a_sandbox(tmp_path: Path) -> None:
    listed_run(tmp_path / "outputs" / "a", ID, 0.5).html.write_text("<script>fetch('/index.json')</script>")
    async with client_of(tmp_path / "outputs") as (client, server):
        answer = await client.get(f"/runs/a/{ID}/report.html", headers=allowed(server))
        policy = answer.headers["Content-Security-Policy"]
        assert "sandbox allow-scripts" in policy
        assert "allow-same-origin" not in policy
        assert "default-src 'none'" in policy
