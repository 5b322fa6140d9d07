"""A working directory with one small data set and its option, and a secret in the environment."""

from pathlib import Path

import pytest

from tests.support.broken_configs import DATA, MINE

SECRET = "c0ffee-secret-c0ffee"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "conf/dataset").mkdir(parents=True)
    (tmp_path / "data").mkdir()
    (tmp_path / "conf/dataset/mine.yaml").write_text(MINE)
    (tmp_path / "data/mine.jsonl").write_text(DATA)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAGPIPE_TEST_API_KEY", SECRET)
    return tmp_path
