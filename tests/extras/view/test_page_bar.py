"""The bar above a served page: the way back, the runs beside it, its other pages, and its comparison with the previous run."""

import re
import shlex
from pathlib import Path

import pytest

from ragpipe.cli.command_line import main
from ragpipe.extras.view.site import write_site
from ragpipe.report.model import Report, RunVerdict
from ragpipe.report.page_file import page_html
from ragpipe.report.section_page import section_page
from tests.extras.view.viewed_runs import allowed, client_of
from tests.support.listed_runs import listed_run

pytestmark = pytest.mark.slow  # made runs: over 30 ms a test
IDS = [f"{n:012x}" for n in range(3)]
OURS = page_html(section_page(Report("ours", "", "", RunVerdict("plain", "", "said"), (), ())))


@pytest.fixture
def outputs(tmp_path: Path) -> Path:
    """Three runs of a name, the middle one with a calibration; each page is one of ours."""
    for place, run_id in enumerate(IDS):
        run = listed_run(tmp_path / "outputs" / "a b", run_id, 0.5 + place / 10, day=1 + place)
        run.html.write_text(OURS)
    page = tmp_path / "outputs" / "a b" / IDS[1] / "calibration" / "calibration.html"
    page.parent.mkdir()
    page.write_text(OURS)
    return tmp_path / "outputs"


def bar_of(html: str) -> tuple[list[tuple[str, str]], str]:
    """The links of the bar, as (address, words), and its command."""
    match = re.search(r'<nav class="served[^>]*>(.*?)</nav>', html, re.S)
    assert match
    code = re.search(r"<code>(.*?)</code>", match[1])
    return re.findall(r'<a href="([^"]*)">([^<]*)</a>', match[1]), code[1] if code else ""


async def served(outputs: Path, path: str) -> tuple[list[tuple[str, str]], str]:
    async with client_of(outputs) as (client, server):
        answer = await client.get(f"/runs/{path}", headers=allowed(server))
        assert answer.status == 200
        text = await answer.text()
        assert int(answer.headers["Content-Length"]) == len(text.encode())
        return bar_of(text)


async def test_a_bar_leads_to_other_pages_and_tells_strangers_nothing(outputs: Path) -> None:
    links, command = await served(outputs, f"a b/{IDS[1]}/report.html")
    top = "../../../"
    assert links == [
        (top, "All runs"), (f"{top}runs/a%20b/{IDS[1]}/calibration/calibration.html", "calibration"),
        (f"{top}runs/a%20b/{IDS[0]}/report.html", "← previous run"), (f"{top}runs/a%20b/{IDS[2]}/report.html", "next run →"),
    ]  # fmt: skip
    words = shlex.split(command.replace("&#39;", "'"))
    assert words[:4] == ["python", "-m", "ragpipe", "task=compare"]
    assert words[4:] == [f"base={outputs}/a b/{IDS[0]}", f"candidate={outputs}/a b/{IDS[1]}"]
    links, _ = await served(outputs, f"a b/{IDS[1]}/calibration/calibration.html")
    assert links[:2] == [("../../../../", "All runs"), (f"../../../../runs/a%20b/{IDS[1]}/report.html", "report")]
    assert main(["task=compare", f"base={outputs}/a b/{IDS[0]}", f"candidate={outputs}/a b/{IDS[1]}"]) == 0
    links, command = await served(outputs, f"a b/{IDS[1]}/report.html")
    assert command == ""
    (link,) = (address for address, words in links if words == "compared with the previous run")
    assert (outputs / link.removeprefix("../../../runs/").replace("%20", " ")).is_file()
    (outputs / "a b" / IDS[1] / "report.html").write_text("<body><header>mine</header><script>1</script>")
    assert (await served(outputs, f"a b/{IDS[1]}/report.html")) == ([("../../../", "All runs")], "")
    async with client_of(outputs) as (client, server):
        answer = await client.get("/shared", params={"a": f"a b/{IDS[0]}", "b": f"a b/{IDS[1]}"}, headers=allowed(server))
        assert await answer.json() == {"shared": 30}


def test_a_site_has_the_bar_without_a_command(outputs: Path, tmp_path: Path) -> None:
    write_site(outputs, tmp_path / "site")
    page = tmp_path / "site" / "runs" / "a b" / IDS[1] / "report.html"
    links, command = bar_of(page.read_text())
    assert (links[0], command) == (("../../../index.html", "All runs"), "")
    assert all((page.parent / address.replace("%20", " ")).is_file() for address, _ in links)
