"""`s3://` by s3fs, against a local server: the same run as from disk, published and fetched; and no key anywhere."""

from pathlib import Path

import pytest

from ragpipe.cli.command_line import main
from tests.extras.objects.conftest import KEY_ID, SECRET
from tests.extras.objects.test_published_runs import COMMON, DATA
from tests.support.place import output_of
from tests.support.s3_server import S3Server

pytestmark = [pytest.mark.slow, pytest.mark.objects]


@pytest.fixture
def here(here: Path, server: S3Server) -> Path:
    s3fs = pytest.importorskip("s3fs")
    s3fs.S3FileSystem.clear_instance_cache()  # it would go on with the server of another test
    server.objects["b/d/data.jsonl"] = DATA
    return here


def test_a_run_over_a_bucket_is_published_fetched_and_verified(here: Path, server: S3Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMMON, "dataset.path=s3://b/d/data.jsonl", "publish=s3://b/runs"]) == 0
    run = Path("outputs/r/latest").resolve()
    assert len(server.seen("GET", "b/d/data.jsonl")) == 1
    put = [seen.path for seen in server.seen("PUT")]
    assert put[-3:] == [f"b/runs/r/{run.name}/{name}" for name in ("manifest.json", "seal.json")] + ["b/runs/r/latest"]
    server.requests.clear()
    assert "it was there already" in output_of(["task=publish", f"run={run}", "publish=s3://b/runs"], 0, capsys).out
    assert not [seen for seen in server.requests if seen.method not in ("GET", "HEAD")]
    assert main(["task=fetch", "run=s3://b/runs/r/latest", "output_dir=elsewhere"]) == 0
    assert (Path("elsewhere/r") / run.name / "seal.json").read_bytes() == (run / "seal.json").read_bytes()


def test_what_cannot_be_published_is_said_before_anything_is_asked(here: Path, server: S3Server, monkeypatch, capsys) -> None:
    words = [*COMMON, "dataset.path=s3://b/d/data.jsonl", "publish=s3://no-such-bucket/runs"]
    said = output_of(words, 2, capsys).err
    assert "nothing can be published; nothing was started" in said
    assert "s3://no-such-bucket: publish" in said
    assert not list(Path("outputs").rglob("manifest.json"))


def test_no_key_is_in_any_file_or_message(here: Path, server: S3Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMMON, "dataset.path=s3://b/d/data.jsonl", "publish=s3://b/runs"]) == 0
    server.statuses += [403] * 20
    said = "".join(output_of(["task=fetch", "run=s3://b/runs/r/latest", "output_dir=elsewhere"], 2, capsys))
    assert "credentials come from the environment" in said
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    written = {str(path): path.read_bytes() for path in files} | server.objects
    assert any(name.endswith("config.yaml") for name in written)
    header = server.requests[0].headers["authorization"]
    assert KEY_ID in header
    assert SECRET not in header
    for secret in (KEY_ID, SECRET, KEY_ID[4:], SECRET[9:]):
        assert not [name for name, content in written.items() if secret.encode() in content]
        assert secret not in said
