"""Runs over files of buckets: the same run as from disk, published seal last, read where they are published; and no key anywhere."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from ragpipe.cli import main
from tests.support.buckets import KEY_ID, SECRET, bucket_server, server, storage_words
from tests.support.s3_server import S3Server

__all__ = ["server"]
pytestmark = pytest.mark.slow  # whole runs, several per test
ROWS = [
    {"id": f"q{i}", "question": f"What does case {i} say?", "answer": f"Case {i} says {i * 3} things.", "reference": f"{i * 3} things",
     "contexts": [f"Passage of case {i}: it says {i * 3} things."]}
    for i in range(4)
]  # fmt: skip
DATA = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
COMMON = ["dataset=jsonl", "metrics=[faithfulness]", "name=r"]
PROMPTS = Path(__file__).parents[3] / "prompts" / "faithfulness"


def _start(server: S3Server, *words: str) -> int:
    return main([*words, *storage_words(server)])


def _run(*words: str) -> Path:
    assert main([*COMMON, *words]) == 0
    return Path("outputs/r/latest").resolve()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.jsonl").write_bytes(DATA)
    return tmp_path


@pytest.fixture(scope="module")
def first_published(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, bytes], list[str], Path]:
    """The id of a run that is published below s3://b/runs, the objects, the keys in the order in which they were put, the folder."""
    folder = tmp_path_factory.mktemp("published")
    with pytest.MonkeyPatch.context() as patch, bucket_server(patch) as server:
        patch.chdir(folder)
        server.objects["b/d/data.jsonl"] = DATA
        run = _run("dataset.path=s3://b/d/data.jsonl", "publish=s3://b/runs", *storage_words(server))
        return run.name, server.objects, [seen.path for seen in server.seen("PUT")], folder


@pytest.fixture
def published(first_published: tuple[str, dict[str, bytes], list[str], Path], here: Path, server: S3Server) -> str:
    """The id of that run: a copy of its folder is below `outputs`, and the objects are on the server."""
    run_id, objects, _, folder = first_published
    shutil.copytree(folder / "outputs", here / "outputs", symlinks=True)
    server.objects |= objects
    return run_id


def _sealed_objects(server: S3Server) -> list[str]:
    return [key for key in server.objects if key.startswith("b/runs/")]


@pytest.mark.thorough
def test_the_place_of_the_data_is_no_part_of_the_run(here: Path, server: S3Server) -> None:
    server.objects |= {"b/d/data.jsonl": DATA, "b/d/part/one.jsonl": DATA}
    server.objects |= {f"b/mine/faithfulness/{path.name}": path.read_bytes() for path in PROMPTS.glob("*.jinja")}
    local = _run("dataset.path=data.jsonl")
    remote = _run("dataset.path=s3://b/d/data.jsonl", "prompt_dirs=[s3://b/mine]", *storage_words(server))
    over_http = _run(f"dataset.path={server.endpoint}/b/d/data.jsonl", *storage_words(server))
    by_pattern = _run("dataset.path=s3://b/d/part", "dataset.files={main: '*.jsonl'}", *storage_words(server))
    assert local == remote == over_http == by_pattern  # one run: the same folder, by the content alone
    again = [seen for seen in server.requests if seen.method == "GET" and seen.path == "b/d/data.jsonl"]
    assert len(again) == 2  # once by each address, however often it was read


@pytest.mark.thorough
def test_templates_of_a_bucket_are_frozen_in_the_run(here: Path, server: S3Server) -> None:
    verify = (PROMPTS / "verify.v2.jinja").read_bytes().replace(b"decide for each", b"now decide for each")
    server.objects["b/mine/faithfulness/verify.v9.jinja"] = verify
    words = ["dataset.path=data.jsonl", "prompt_dirs=[s3://b/mine]", "metrics.faithfulness.prompts.verify=v9"]
    run = _run(*words, *storage_words(server))
    assert len(server.seen("GET", "b/mine/faithfulness/verify.v9.jinja")) == 1
    server.objects.clear()
    assert (run / "prompts" / "faithfulness" / "verify.v9.jinja").read_bytes() == verify
    assert main(["task=verify", f"run={run}"]) == 0


def test_a_run_is_published_seal_last_and_only_once(
    published: str,
    first_published: tuple[str, dict[str, bytes], list[str], Path],
    server: S3Server,
    capsys: pytest.CaptureFixture[str],
) -> None:
    put = first_published[2]
    folder = f"b/runs/r/{published}"
    assert put[-3:] == [f"{folder}/manifest.json", f"{folder}/seal.json", "b/runs/r/latest"]
    local = Path("outputs/r/latest").resolve()
    for name in (
        "seal.json",
        "manifest.json",
        "iteration-1/scores.parquet",
        "report.html",
        "prompts/faithfulness/verify.v2.jinja",
    ):
        assert server.objects[f"{folder}/{name}"] == (local / name).read_bytes()
    server.requests.clear()
    assert _start(server, "task=publish", f"run={local}", "publish=s3://b/runs") == 0
    assert "(0 files sent, " in capsys.readouterr().out
    assert not [seen for seen in server.requests if seen.method in ("PUT", "POST", "DELETE")]
    server.objects[f"{folder}/report.md"] += b"changed there"
    assert _start(server, "task=publish", f"run={local}", "publish=s3://b/runs") == 0
    assert server.objects[f"{folder}/report.md"] == (local / "report.md").read_bytes()
    assert [seen.path for seen in server.seen("PUT")].count(f"{folder}/report.html") == 0


@pytest.mark.thorough
def test_the_file_that_could_not_be_sent_is_named(
    published: str, server: S3Server, capsys: pytest.CaptureFixture[str]
) -> None:
    """The note of what was sent fails as well: it is not what is said."""
    local = Path("outputs/r/latest").resolve()
    first = next(iter(json.loads((local / "seal.json").read_bytes())["files"]))
    server.after_put = lambda: server.statuses.extend([503] * 99)
    assert _start(server, "task=publish", f"run={local}", "publish=s3://b/elsewhere") == 6
    said = capsys.readouterr().err
    assert f"s3://b/elsewhere/r/{published}/{first}" in said
    assert ".published.json" not in said


@pytest.mark.thorough
def test_a_run_that_is_published_in_part_is_no_run(
    here: Path, server: S3Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server.objects["b/other"] = b"1"
    run = _run("dataset.path=data.jsonl")
    puts = 0

    def break_down(seen_before: int = 9) -> None:
        """Refuse everything after so many files."""
        nonlocal puts
        puts = len(server.seen("PUT"))
        if puts >= seen_before:
            server.statuses += [503] * 12

    server.after_put = break_down
    assert _start(server, *COMMON, "dataset.path=data.jsonl", "publish=s3://b/runs") == 6
    said = capsys.readouterr().err
    assert "task=publish" in said
    assert f"the run is whole: {Path('outputs/r') / run.name}" in said
    server.after_put, server.statuses[:] = (lambda: None), []
    assert f"b/runs/r/{run.name}/seal.json" not in server.objects
    assert len(_sealed_objects(server)) >= 5
    for task in ("verify", "fetch"):
        assert _start(server, f"task={task}", f"run=s3://b/runs/r/{run.name}", "output_dir=elsewhere") == 2
        assert "published in part" in capsys.readouterr().err
    assert not list(Path("elsewhere/r").glob("*/manifest.json"))
    assert _start(server, "task=publish", f"run={run}", "publish=s3://b/runs") == 0
    assert _start(server, "task=verify", f"run=s3://b/runs/r/{run.name}") == 0


def test_published_runs_are_read_where_they_are(
    published: str,
    server: S3Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    address = f"s3://b/runs/r/{published}"
    local = Path("outputs/r/latest").resolve()
    (tmp_path / "far").mkdir()
    monkeypatch.chdir(tmp_path / "far")
    assert _start(server, "task=verify", "run=s3://b/runs/r/latest") == 0
    assert "verify: identical" in capsys.readouterr().out
    assert _start(server, "task=explain", f"run={address}", "case=q1", "metric=faithfulness") == 0
    assert _start(server, "task=compare", f"base={address}", f"candidate={local}") == 0
    capsys.readouterr()
    assert _start(server, "task=rescore", f"run={address}") == 2
    assert "task=fetch" in capsys.readouterr().err
    assert _start(server, "task=fetch", "run=s3://b/runs/r") == 0
    assert main(["task=rescore", f"run=outputs/r/{published}", "scoring.thresholds.faithfulness=0.5"]) == 0


def test_a_file_that_was_changed_there_is_found(
    published: str, server: S3Server, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"b/runs/r/{published}/iteration-1/metrics.json"
    server.objects[name] = server.objects[name].replace(b"uncalibrated", b"calibrated", 1)
    assert server.objects[name] != Path("outputs/r/latest/iteration-1/metrics.json").read_bytes()
    assert _start(server, "task=verify", f"run=s3://b/runs/r/{published}") == 3
    assert "differs  iteration-1/metrics.json" in capsys.readouterr().out
    assert _start(server, "task=explain", f"run=s3://b/runs/r/{published}", "case=q1", "metric=faithfulness") == 2
    assert "content that its seal does not name" in capsys.readouterr().err


@pytest.mark.thorough
@pytest.mark.parametrize("key", ["created_at", "identity", "run_id", "name"])
def test_a_manifest_that_was_changed_there_is_found(
    published: str, server: S3Server, capsys: pytest.CaptureFixture[str], key: str
) -> None:
    """It is no file that the seal has the digest of: the seal holds what it says."""
    where = f"b/runs/r/{published}/manifest.json"
    changes = {"created_at": "2001-01-01T00:00:00+00:00", "identity": {}, "run_id": "0123456789ab", "name": "better"}
    manifest = json.loads(server.objects[where])
    assert manifest[key] != changes[key]
    server.objects[where] = json.dumps(manifest | {key: changes[key]}).encode()
    address = f"run=s3://b/runs/r/{published}"
    for words in (["task=fetch", "output_dir=elsewhere"], ["task=explain", "case=q1", "metric=faithfulness"]):
        assert _start(server, *words, address) == 2
        assert "a manifest that its seal does not hold" in capsys.readouterr().err
    assert not Path("elsewhere").exists()


def test_a_run_is_the_one_of_its_address(published: str, server: S3Server, capsys: pytest.CaptureFixture[str]) -> None:
    for key in _sealed_objects(server):
        server.objects[key.replace(published, "0123456789ab")] = server.objects[key]
    assert _start(server, "task=fetch", "run=s3://b/runs/r/0123456789ab", "output_dir=elsewhere") == 2
    assert f"the run {published}, and not 0123456789ab" in capsys.readouterr().err
    assert not Path("elsewhere").exists()


@pytest.mark.thorough
def test_a_run_that_was_changed_here_is_not_published(
    published: str, server: S3Server, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Path(shutil.copytree(Path("outputs/r/latest").resolve(), "copy"))
    (run / "report.md").write_text("better than it was")
    server.requests.clear()
    assert _start(server, "task=publish", f"run={run}", "publish=s3://b/elsewhere") == 2
    assert "not what was sealed" in capsys.readouterr().err
    assert not server.requests
    (run / "seal.json").unlink()
    assert _start(server, "task=publish", f"run={run}", "publish=s3://b/elsewhere") == 2
    assert "no seal.json" in capsys.readouterr().err
    assert _start(server, "task=publish", f"run={run}") == 2
    assert "publish=s3://bucket/prefix" in capsys.readouterr().err


@pytest.mark.thorough
def test_a_run_goes_to_any_store_that_fsspec_knows_and_back(
    published: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    local = Path("outputs/r/latest").resolve()
    assert main(["task=publish", f"run={local}", "publish=memory://anyfiles-runs/all"]) == 0
    assert main(["task=publish", f"run={local}", "publish=memory://anyfiles-runs/all"]) == 0
    assert "(0 files sent, " in capsys.readouterr().out
    (tmp_path / "far").mkdir()
    monkeypatch.chdir(tmp_path / "far")
    assert main(["task=fetch", "run=memory://anyfiles-runs/all/r/latest"]) == 0
    for path in (path for path in local.rglob("*.parquet")):
        assert (Path("outputs/r") / published / path.relative_to(local)).read_bytes() == path.read_bytes()
    assert main(["task=verify", "run=memory://anyfiles-runs/all/r"]) == 0
    capsys.readouterr()
    assert main(["task=runs"]) == 0
    assert capsys.readouterr().out.count(published) == 1  # the copy that was verified is no run of its own


@pytest.mark.thorough
def test_what_cannot_be_published_is_said_before_anything_is_asked(
    here: Path, server: S3Server, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _start(server, *COMMON, "dataset.path=data.jsonl", "publish=s3://no-such-bucket/runs") == 2
    said = capsys.readouterr().err
    assert "nothing can be published; nothing was started" in said
    assert "expected: a bucket that answers" in said
    nobody = ["storage.endpoint=http://127.0.0.1:1", "storage.tries=1"]
    assert _start(server, *COMMON, "dataset.path=data.jsonl", "publish=s3://no-such-bucket/runs", *nobody) == 2
    said = capsys.readouterr().err
    assert "s3://no-such-bucket: publish" in said
    assert "expected: a bucket that answers" in said
    assert not list(Path("outputs").rglob("manifest.json"))


def test_no_key_is_in_any_file_or_message(
    published: str, server: S3Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.statuses += [403]
    assert _start(server, "task=verify", f"run=s3://b/runs/r/{published}") == 2
    assert _start(server, *COMMON, "dataset.path=s3://b/d/data.jsonl", "--cfg", "job") == 0
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    written = {str(path): path.read_bytes() for path in files} | server.objects
    said = "".join(capsys.readouterr())
    assert any(name.endswith("config.yaml") for name in written)
    assert "s3://" in said
    for secret in (KEY_ID, SECRET, KEY_ID[4:], SECRET[9:]):
        assert not [name for name, content in written.items() if secret.encode() in content]
        assert secret not in said
