"""A run folder alone, copied to another place, its data set and call store gone, in processes without a network."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.harness import Server, arguments, environment, finish, write_cases
from tests.support.waiting import HANGS_AFTER_S

UNSHARED = ["unshare", "--user", "--map-root-user", "--net"]
FIRST, SECOND = "openai/test-model-2026-01-01", "openai/second-model-2026-01-01"


def may_unshare() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*UNSHARED, "true"], capture_output=True).returncode == 0


def without_network(words: list[str], cwd: Path) -> tuple[int, str]:
    names = ("PATH", "PYTHONPATH", "LANG", "VIRTUAL_ENV")
    kept = {name: text for name, text in environment().items() if name in names}
    found = subprocess.run(
        [*UNSHARED, sys.executable, "-m", "ragpipe", *words], cwd=cwd, env={**kept, "HOME": "/nowhere"}, text=True,
        stdin=subprocess.DEVNULL, capture_output=True, timeout=HANGS_AFTER_S,
    )  # fmt: skip
    return found.returncode, found.stdout + found.stderr


@pytest.mark.skipif(not may_unshare(), reason="this machine lets nobody unshare its network")
def test_a_copied_folder_is_enough_without_a_network(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    with Server(tmp_path / "log.jsonl") as server:
        data = write_cases(here / "data.jsonl", 40)
        out = here / "out"
        first = arguments(data, out, server.url)
        code, text = finish(first, here)
        assert code == 0, text
        second = [word for word in first if not word.startswith("judge.model=")] + [f"judge.model={SECOND}"]
        code, text = finish(second, here)
        assert code == 0, text
        shutil.copytree((out / "torture" / "latest").resolve(), there / "run")
        shutil.copytree(out / ".store", there / "store")
    shutil.rmtree(here)
    stored = ["task=rejudge", "run=run", "rejudge.mode=stored"]
    judge = ["judge=llm", "judge.endpoint=test", "judge.api_base=http://127.0.0.1:9/v1", f"judge.model={FIRST}"]
    code, text = without_network(["task=rescore", "run=run", "scoring.thresholds.faithfulness=0.1"], there)
    assert (code, "changed against" in text) == (0, True), text
    code, text = without_network(["task=verify", "run=run"], there)
    assert (code, "verify: identical." in text) == (0, True), text
    code, text = without_network(stored, there)  # the run's own replies
    assert (code, "asked nothing again" in text) == (0, True), text
    code, text = without_network([*stored, *judge, "store.path=store"], there)  # the other judge's, from a copied store
    assert (code, "verdicts equal" in text) == (0, True), text
    (found,) = there.glob("*/agreement.json")
    document = json.loads(found.read_text())
    assert (document["old"]["judge"], document["new"]["judge"]) == (f"{SECOND}@test", f"{FIRST}@test")
    assert {score["new"]["coverage"] for score in document["scores"].values()} == {1.0}
    code, text = without_network([*stored, *judge, "judge.season=x"], there)
    assert (code, "questions without a stored reply were not asked" in text) == (4, True), text
