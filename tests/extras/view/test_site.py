"""The static folder: what it holds, what it leaves out, and what it never overwrites."""

import errno
import shutil
from pathlib import Path
from urllib.parse import unquote

import pytest

from ragpipe.core.errors import ConfigError, DataError, OutputError
from ragpipe.extras.view.site import write_site
from tests.support.listed_runs import PAGE, listed_run
from tests.support.page_blocks import block_json

A, B, C = "aaaaaaaaaaaa", "bbbbbbbbbbbb", "cccccccccccc"


@pytest.fixture
def outputs(tmp_path: Path) -> Path:
    """Two finished runs of a name with levels and spaces, and one that is not finished."""
    home = tmp_path / "outputs" / "team 1" / "night%ly"
    listed_run(home, A, 0.5, day=1)
    listed_run(home, B, 0.7, day=2)
    listed_run(home, C, 0.6, day=3, iterations={})
    return tmp_path / "outputs"


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_a_site_holds_finished_runs_and_names_no_machine(outputs: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    assert write_site(outputs, site) == (2, 0, 1)
    runs = {f"runs/team 1/night%ly/{run}/report.{kind}" for run in (A, B) for kind in ("html", "md")}
    assert files(site) == {"index.html", "site.json", *runs}
    index = block_json((site / "index.html").read_text(encoding="utf-8"), "index")
    links = [link for row in index["rows"] for _, link in row["links"]]
    assert ({unquote(link) for link in links}, (site / unquote(links[0])).read_text()) == (runs, PAGE)
    assert [row["id"] for row in index["rows"]] == [B, A]  # the newest first
    assert index["rows"][0]["change"][1] == "better"  # .7 against .5 over 30 questions
    assert not index["isLive"]
    write_site(outputs, tmp_path / "site")
    text = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    index = block_json(text, "index")
    assert str(tmp_path) not in text + str(index)
    assert "connect-src" not in text
    assert index["folder"] == "outputs"


@pytest.mark.slow
def test_a_second_site_replaces_the_first_with_equal_bytes(outputs: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    write_site(outputs, site)
    (site / "CNAME").write_text("example.org")
    shutil.rmtree(outputs / "team 1" / "night%ly" / A)
    write_site(outputs, site)
    assert files(site) == {"CNAME", "index.html", "site.json", *(f"runs/team 1/night%ly/{B}/report.{kind}" for kind in ("html", "md"))}  # fmt: skip
    for name in ("one", "two"):
        write_site(outputs, tmp_path / name)
    assert (tmp_path / "one" / "index.html").read_bytes() == (tmp_path / "two" / "index.html").read_bytes()


@pytest.mark.slow
def test_a_site_that_was_interrupted_is_replaced_by_the_next_one(outputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "copyfileobj", full)  # after the first file was begun
        with pytest.raises(OutputError, match="the disk is full"):
            write_site(outputs, tmp_path / "site")
    assert write_site(outputs, tmp_path / "site")[0] == 2
    assert (tmp_path / "site" / "index.html").is_file()


@pytest.mark.slow
def test_where_no_site_is_made(outputs: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "index.html").write_text("mine")
    with pytest.raises(ConfigError, match="a folder with other files"):
        write_site(outputs, tmp_path / "mine")
    with pytest.raises(ConfigError, match="a folder inside"):
        write_site(outputs, outputs / "site")
    assert (tmp_path / "mine" / "index.html").read_text() == "mine"
    for run in (A, B):
        shutil.rmtree(outputs / "team 1" / "night%ly" / run)
    with pytest.raises(DataError, match="a finished run"):
        write_site(outputs, tmp_path / "site")
    assert not (tmp_path / "site").exists()
