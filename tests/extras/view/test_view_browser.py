"""The page over all runs in a real browser: list, address, keys, comparison by clicking, a server that goes and comes back."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pytest

from ragpipe.extras.view.site import write_site
from tests.extras.view.viewed_runs import ViewProcess, view_process
from tests.support.harness import Server, arguments, run_folder, start, write_cases
from tests.support.listed_runs import listed_run
from tests.support.playwright_pages import AXE, OpenPage, axe_violations, open_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.slow, pytest.mark.browser]
HOSTILE = "<img src=x onerror=alert(1)>"
RUNS = 70


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """70 runs of `nightly`, two of another name, a broken one, and a name that would be markup."""
    root = tmp_path_factory.mktemp("view") / "outputs"
    for place in range(RUNS):
        listed_run(root / "nightly", f"{place:012x}", 0.3 + place / 200, day=1 + place % 28, source_run=None)
    listed_run(root / "other", "aaaaaaaaaaaa", 0.5, day=29)
    listed_run(root / "other", "bbbbbbbbbbbb", 0.8, day=30)
    listed_run(root / HOSTILE, "cccccccccccc", 0.5, day=31)
    broken = root / "other" / "dddddddddddd"
    broken.mkdir()
    (broken / "manifest.json").write_text(json.dumps({"format": 1, "name": HOSTILE}))
    return root


@pytest.fixture(scope="module")
def view(outputs: Path) -> Iterator[ViewProcess]:
    with view_process(outputs) as process:
        yield process


def until(tab: Any, script: str, seconds: float = 20) -> None:
    """Wait for an expression on the page. Playwright's own way needs `eval`, which the page's policy refuses."""
    deadline = time.monotonic() + seconds
    while not tab.evaluate(script):
        assert time.monotonic() < deadline, script
        tab.wait_for_timeout(100)


def opened(page: OpenPage, view: ViewProcess, fragment: str = "") -> Any:
    """The page, once its list stands there and every run is read."""
    tab = page.page
    tab.goto(view.address)
    if fragment:
        tab.goto(view.address.split("?")[0] + fragment)
    tab.wait_for_selector("html[data-ready=all]", state="attached")
    until(tab, "!document.getElementById('states').textContent.includes('still')")
    return tab


def faults(page: OpenPage) -> list[str]:
    """What the page should not do; requests to its own server are what it is for."""
    return [fault for fault in page.faults if not fault.startswith("request: http://127.0.0.1:")]


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (1440, "dark"), (390, "light"), (390, "dark")])
def test_the_page_is_accessible_small_and_as_wide_as_its_window(browser: Browser, view: ViewProcess, width: int, scheme: Any) -> None:
    with open_page(browser, width=width, color_scheme=scheme) as page:
        tab = opened(page, view)
        assert page.sideways() == 0
        assert tab.evaluate("document.querySelectorAll('*').length") <= 3000
        assert tab.locator("#rows tr").count() == 50
        assert "refused" in tab.text_content("#rows")
        assert HOSTILE in tab.text_content("#rows")
        if AXE:
            assert axe_violations(tab) == []
        assert faults(page) == []


def test_filters_stand_in_the_address_and_come_back_from_it(browser: Browser, view: ViewProcess) -> None:
    with open_page(browser) as page:
        tab = opened(page, view)
        tab.keyboard.press("/")
        tab.keyboard.type("other bbbb")
        until(tab, "location.hash.includes('q=other')")
        assert tab.text_content("#count") == f"1 of {RUNS + 4}"
        tab.select_option("#state", "refused")
        assert tab.text_content("#count").startswith(f"0 of {RUNS + 4}; without ")
        assert page.address() == "#v=1&q=other%20bbbb&state=refused"
        again = opened(page, view, "#v=1&name=nightly&sort=best")
        assert again.text_content("#count") == f"{RUNS} of {RUNS + 4}"
        assert again.text_content("#rows tr:first-child small") == f"{RUNS - 1:012x}"  # the highest score
        again.click("#more")
        assert again.locator("#rows tr").count() == RUNS
        assert faults(page) == []


def test_two_runs_chosen_by_keys_give_the_command_that_compares_them(browser: Browser, view: ViewProcess) -> None:
    with open_page(browser) as page:
        tab = opened(page, view, "#v=1&name=other")
        for key in ("j", "j", "x"):  # past the refused run, which cannot be chosen
            tab.keyboard.press(key)
        for key in ("j", "x"):
            tab.keyboard.press(key)
        command = tab.text_content("#choice")
        assert command.startswith("To compare them, run: python -m ragpipe task=compare base='")
        assert "/other/aaaaaaaaaaaa' candidate='" in command
        assert command.endswith("/other/bbbbbbbbbbbb'")
        assert faults(page) == []


def test_a_report_of_another_program_reads_nothing_of_the_server(browser: Browser, outputs: Path, view: ViewProcess) -> None:
    page_text = """<!doctype html><title>waiting</title><script>
      fetch("/index.json").then((r) => r.text()).then((t) => { document.title = "read " + t.length; })
        .catch(() => { let kept = "no"; try { kept = document.cookie + localStorage.length; } catch { kept = "refused"; } document.title = "refused, " + kept; });
    </script>"""
    (outputs / "other" / "aaaaaaaaaaaa" / "report.html").write_text(page_text)
    with open_page(browser) as page:
        tab = opened(page, view)
        tab.goto(f"http://127.0.0.1:{view.port}/runs/other/aaaaaaaaaaaa/report.html")
        until(tab, "document.title !== 'waiting'")
        assert tab.title() == "refused, refused"


def test_a_run_is_live_in_two_tabs_then_stalled_and_the_server_comes_back(browser: Browser, tmp_path: Path) -> None:
    out = tmp_path / "outputs"
    out.mkdir()
    data = write_cases(tmp_path / "cases.jsonl", 30)
    with Server(tmp_path / "log.jsonl", ["--latency-ms", "400"]) as server, open_page(browser) as page:
        with view_process(out) as view:
            first = opened(page, view)
            assert "+experiment=quickstart" in first.text_content("#none")
            second = page.page.context.new_page()
            second.goto(f"http://127.0.0.1:{view.port}/")
            run = start(arguments(data, out, server.url, concurrency=4), tmp_path, stdout=subprocess.DEVNULL)
            for tab in (second, first):
                tab.bring_to_front()
                tab.wait_for_selector(".run-live.running .figures", timeout=60_000)
            run.send_signal(signal.SIGKILL)
            run.wait()
            for tab in (second, first):
                tab.bring_to_front()
                tab.wait_for_selector(".run-live.stalled .resume", timeout=20_000)
                assert "python -m ragpipe dataset=jsonl" in tab.text_content(".resume")
            (run_folder(out) / ".lock").unlink()  # as after Ctrl-C
            first.wait_for_selector("#rows tr details summary", timeout=20_000)
            first.click("#rows tr details summary")
            first.wait_for_timeout(2500)  # over two answers of the server, which leave it open
            assert "python -m ragpipe dataset=jsonl" in first.inner_text("#rows tr details[open] .resume")
            assert not first.is_visible("#live-section")
            port = view.port
        first.bring_to_front()
        first.wait_for_selector("#message:not([hidden])", timeout=20_000)
        assert "No connection to the server" in first.text_content("#message")
        with view_process(out, f"view.port={port}") as again:
            until(first, "document.getElementById('message').textContent.includes('new token')")
            first.goto(again.address)
            first.wait_for_selector("#rows tr details summary", timeout=20_000)


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
def test_the_static_folder_opens_from_disk_and_every_link_leads_to_a_page(
    browser: Browser, outputs: Path, tmp_path: Path, width: int, scheme: Any
) -> None:
    home = tmp_path / "outputs"
    for place, name in enumerate(("nightly", HOSTILE, "a\nb", "n" * 200, "%2e#?")):
        listed_run(home / name, "aaaaaaaaaaaa", 0.4, day=1 + place)
        listed_run(home / name, "bbbbbbbbbbbb", 0.6, day=10 + place)
    assert write_site(home, tmp_path / "site")[0] == 10
    with open_page(browser, width=width, color_scheme=scheme) as page:
        page.open(tmp_path / "site" / "index.html")
        assert page.sideways() == 0
        assert page.page.locator("#rows input").count() == 0
        links = page.page.evaluate(
            "[...document.querySelectorAll('main a')].map((a) => new URL(a.getAttribute('href'), location.href).href)"
        )
        assert len(set(links)) == 20  # two reports per run, which the marks of the history repeat
        if AXE:
            assert axe_violations(page.page) == []
        for link in sorted(set(links)):
            assert Path(unquote(urlsplit(link).path)).is_file(), link
        page.page.click("#rows tr:first-child .run-link")
        assert (page.page.title(), page.faults) == ("report", [])
