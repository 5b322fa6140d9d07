"""`task=view` and the site of `task=export` from the command line, over real runs; the server over a folder that changes."""

import asyncio
import logging
import re
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from ragpipe.cli.command_line import compose, main
from ragpipe.core.errors import ConfigError
from tests.extras.view.viewed_runs import allowed, client_of
from tests.support.listed_runs import listed_run
from tests.support.page_blocks import block_json
from tests.support.place import output_of

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test
A, B = "aaaaaaaaaaaa", "bbbbbbbbbbbb"


def test_the_output_folder_may_still_be_made(here: Path) -> None:
    assert str(compose(["task=view"]).root) == "outputs"
    assert str(compose(["task=view", "output_dir=mine"]).root) == "mine"
    (here / "outputs").write_text("")
    with pytest.raises(ConfigError, match="no folder"):
        compose(["task=view"])


async def test_the_first_run_of_a_folder_that_was_not_there_appears(here: Path) -> None:
    async with client_of(here / "outputs") as (client, server):

        async def index() -> dict[str, Any]:
            return dict(await (await client.get("/index.json", headers=allowed(server))).json())

        assert (await index())["error"].endswith("outputs: no such folder; a first run makes it")
        listed_run(here / "outputs" / "first", A, 0.5)
        for _ in range(100):
            if (content := await index())["rows"]:
                break
            await asyncio.sleep(0.1)
        assert ([row["key"] for row in content["rows"]], content["error"]) == ([f"first/{A}"], "")


async def test_a_run_that_is_deleted_while_it_is_shown_is_gone_without_a_fault(here: Path) -> None:
    listed_run(here / "x" / "a", A, 0.5)
    listed_run(here / "x" / "a", B, 0.5)
    async with client_of(here / "x") as (client, server):
        assert (await client.get(f"/runs/a/{A}/report.html", headers=allowed(server))).status == 200
        shutil.rmtree(here / "x" / "a" / A)
        assert (await client.get(f"/runs/a/{A}/report.html", headers=allowed(server))).status == 404
        for _ in range(100):
            content = await (await client.get("/index.json", headers=allowed(server))).json()
            if len(content["rows"]) == 1:
                break
            await asyncio.sleep(0.1)
        assert [row["id"] for row in content["rows"]] == [B]


async def test_a_fault_of_the_server_is_one_line_in_its_terminal(
    here: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    listed_run(here / "x" / "a", A, 0.5)
    async with client_of(here / "x") as (client, server):

        def fail() -> None:
            raise RuntimeError("the disk is on fire\x1b[2J")

        monkeypatch.setattr(server.index, "listing", fail)
        with caplog.at_level(logging.WARNING):
            answer = await client.get("/progress", headers=allowed(server))
        assert answer.status == 500
        assert "fire" not in await answer.text()
        assert answer.headers["Cache-Control"] == "no-store"
    assert [record.getMessage() for record in caplog.records] == ["GET /progress: RuntimeError: the disk is on fire\\x1b[2J"]


@pytest.mark.thorough
def test_the_site_of_real_runs_from_the_command_line(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every link of the index and of the comparison leads to a file of the site; what cannot be read is left out."""
    for limit in (4, 5):
        assert main(["dataset=demo", "metrics=[retrieval]", "name=demo", f"dataset.limit={limit}"]) == 0
    runs = [path.name for path in (here / "outputs" / "demo").iterdir() if re.fullmatch(r"[0-9a-f]{12}", path.name)]
    assert len(runs) == 2
    base, candidate = (f"outputs/demo/{run}" for run in runs)
    assert main(["task=compare", f"base={base}", f"candidate={candidate}", "compare.accept=[data]"]) == 0
    broken = Path(shutil.copytree(here / base, here / "outputs" / "demo" / "cccccccccccc"))
    (broken / "report.html").unlink()
    (broken / "report.html").mkdir()
    printed = output_of(["task=export", "formats=[site]", "dir=site"], 0, capsys).out
    assert "2 runs, 1 comparison; 1 run left out" in printed
    site = here / "site"
    index = block_json((site / "index.html").read_text(encoding="utf-8"), "index")
    links = [link for row in index["rows"] for _, link in row["links"]] + [link for _, link in index["comparisons"]]
    assert len(links) == 5
    assert all((site / unquote(link)).is_file() for link in links)
    for run in runs:
        copy = (site / "runs" / "demo" / run / "report.html").read_text(encoding="utf-8")
        without_bar = re.sub(r'<nav class="served bar.*?</nav>\n', "", copy, count=1, flags=re.DOTALL)
        assert without_bar == (here / "outputs" / "demo" / run / "report.html").read_text(encoding="utf-8") != copy
    assert main(["task=export", "formats=[site]", "dir=site", f"run={base}"]) == 2
    assert main(["task=export", "formats=[site]", "dir=outputs/site"]) == 2
