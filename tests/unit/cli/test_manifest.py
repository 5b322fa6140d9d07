"""Which manifest beside a run is believed, and which folder is taken for one that never became a run."""

import json
import os

import pytest

from ragpipe.cli.tasks.store import validate
from ragpipe.core.errors import ConfigError
from ragpipe.core.version import FORMAT
from ragpipe.runs.manifest import previous_manifest
from ragpipe.runs.run_inputs import remove_unstarted
from ragpipe.store.journal import HEADER
from ragpipe.store.run_folder import RunFolder

NEWEST, THIS = "a" * 12, "b" * 12


def manifest(**other):
    return {
        "format": FORMAT, "run_id": NEWEST, "data": {"name": "x", "digest": "d", "tables": "t"}, "iterations": {"1": "complete"},
        "identity": {"metrics": {}, "judge_identity": {}}, **other,
    }  # fmt: skip


@pytest.fixture
def latest(tmp_path):
    """Puts a manifest into the newest run beside another one, which it gives back."""

    def put(content):
        newest = RunFolder.at(tmp_path, "x", NEWEST).create()
        newest.manifest.write_text(json.dumps(content))
        newest.point_latest()
        return RunFolder.at(tmp_path, "x", THIS)

    return put


def test_the_run_before_is_the_newest_other_one(latest):
    this = latest(manifest())
    assert previous_manifest(this) == manifest()
    assert previous_manifest(RunFolder(this.root.parent / NEWEST)) == {}, "a run is not before itself"


@pytest.mark.parametrize("run_id", ["c" * 12, "../../elsewhere", "/etc", ".", "", 7, None])
def test_a_manifest_that_names_another_run_is_not_followed(latest, run_id):
    """Its id is taken for a path beside this run, from which frozen cases are linked."""
    assert previous_manifest(latest(manifest(run_id=run_id))) == {}


@pytest.mark.parametrize("lost", ["identity", "data", "iterations", "run_id", "format"])
def test_half_a_manifest_is_no_run_before(latest, lost):
    whole = manifest()
    del whole[lost]
    assert previous_manifest(latest(whole)) == {}


def test_a_pointer_that_leads_out_is_not_followed(latest, tmp_path):
    this = latest(manifest())
    stranger = tmp_path / "elsewhere" / NEWEST
    stranger.mkdir(parents=True)
    (stranger / "manifest.json").write_text(json.dumps(manifest()))
    this.latest.unlink()
    os.symlink(f"../elsewhere/{NEWEST}", this.latest)
    assert previous_manifest(this) == {}


def test_a_folder_that_never_became_a_run_goes_and_one_that_lost_its_manifest_stays(tmp_path):
    unborn = RunFolder.at(tmp_path, "x", NEWEST).create()
    unborn.samples.write_bytes(b"frozen")
    remove_unstarted(unborn)
    assert not unborn.root.exists()
    judged = RunFolder.at(tmp_path, "x", THIS).create()
    judged.iteration(1).create().journal.write_bytes(HEADER + b"{}\n")
    judged.report.write_text("figures")
    remove_unstarted(judged)
    assert judged.report.read_text() == "figures"


@pytest.mark.parametrize(("words", "key", "found"), [
    ({"action": "export"}, "to", "nothing"), ({"action": "export", "to": "calls.csv"}, "to", "'calls.csv'"),
    ({"action": "import"}, "from", "nothing"),
])  # fmt: skip
def test_a_key_that_is_missing_or_wrong(words, key, found):
    with pytest.raises(ConfigError) as caught:
        validate({"output_dir": "out", **words})
    (problem,) = caught.value.problems
    assert (problem.key, problem.found, problem.expected) == (key, found, "a .jsonl file")
