"""The page in a real browser: what filters, order and keys do, that no width breaks it, and that nothing leaves the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from ragpipe.schema.score import ScoreSpec
from tests.support.browser import CHROMIUM, Page, tab
from tests.support.run_tables import Row, score, write_run
from tests.unit.reports.test_report_html import ATTACKS, page, write

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")]

SHOWN = "[...document.querySelectorAll('.case:not([hidden]) .who')].map(e => e.textContent.trim())"
COUNT = "document.querySelector('#filter output').value"


def setting(**values: object) -> str:
    """Fill in the form as a hand would, and let it know."""
    steps = [f"form.elements.{name}.value = {str(value)!r};" for name, value in values.items()]
    return f"(() => {{ const form = document.getElementById('filter'); form.reset(); {''.join(steps)} form.dispatchEvent(new Event('input')); }})()"


def faults(found: Page) -> list[object]:
    """What the console or the network told that should not be: exceptions, refused styles, requests that leave the file."""
    asked = [e["params"]["request"]["url"] for e in found.events if e["method"] == "Network.requestWillBeSent"]
    told = [e for e in found.events if e["method"] in ("Runtime.exceptionThrown", "Log.entryAdded", "Page.javascriptDialogOpening")]  # fmt: skip
    return [*told, *(url for url in asked if not url.startswith("file:"))]


async def test_filters_and_order(tmp_path: Path) -> None:
    """Faithfulness 0, .5, 1 of method a and .25, .75, .95 of b, the threshold .85. There is no overall score of a single part: the page filters
    by the score itself."""
    values = {"a": (0.0, 0.5, 1.0), "b": (0.25, 0.75, 0.95)}
    write_run(tmp_path, [Row(f"q{i}", m, {"faithfulness": v[i]}) for i in range(3) for m, v in values.items()])
    score(tmp_path, [ScoreSpec("faithfulness")])
    page(tmp_path)
    async with tab() as found:
        await found.open(tmp_path / "report.html")
        assert await found.run(COUNT) == "6 of 6 cases"
        first = await found.run(SHOWN)
        assert first[:3] == ["q0 a", "q0 b", "q1 a"]  # failed, the worst first
        for fields, shown in (
            ({"method": "b"}, ["q0 b", "q1 b", "q2 b"]),
            ({"verdict": "pass", "sort": "data"}, ["q2 a", "q2 b"]),
            ({"sort": "falling"}, ["q2 a", "q2 b", "q1 b", "q1 a", "q0 b", "q0 a"]),
            ({"score": "faithfulness", "sort": "rising", "least": 0.25, "most": 0.75}, ["q0 b", "q1 a", "q1 b"]),
            ({"find": "WHAT IS Q1?", "sort": "data"}, ["q1 a", "q1 b"]),
            ({"verdict": "error"}, []),
        ):
            await found.run(setting(**fields))
            assert await found.run(SHOWN) == shown, fields
            assert await found.run(COUNT) == f"{len(shown)} of 6 cases"
        await found.run("document.querySelector('#filter button[type=reset]').click()")
        await found.run("new Promise(done => setTimeout(done, 50))")
        assert await found.run(SHOWN) == first
        assert not faults(found)


async def test_keys_and_addresses_open_a_case(tmp_path: Path) -> None:
    write(tmp_path)
    page(tmp_path)
    async with tab() as found:
        await found.open(tmp_path / "report.html")
        await found.run("document.querySelector('.case > summary').focus()")
        assert not await found.run("document.querySelector('.case').open")
        await found.key("Enter", 13)
        assert await found.run("document.querySelector('.case').open")
        await found.run("location.hash = 'case-2'")
        await found.run("0")
        assert await found.run("document.getElementById('case-2').open")
        unnamed = (
            "[...document.querySelectorAll('select, input:not([type=hidden])')].filter(e => !e.closest('label')).length"
        )
        assert await found.run(unnamed) == 0


@pytest.mark.parametrize("width", [320, 768, 1600])
async def test_no_width_breaks_the_page(tmp_path: Path, width: int) -> None:
    write(tmp_path, "a_word_without_any_break_" * 12)
    page(tmp_path)
    async with tab() as found:
        await found.size(width, dark=width == 768)
        await found.open(tmp_path / "report.html")
        await found.run("document.querySelectorAll('details').forEach(e => { e.open = true; })")
        assert await found.run("document.documentElement.scrollWidth") <= width
        assert not faults(found)


async def test_hostile_texts_do_nothing(tmp_path: Path) -> None:
    async with tab() as found:
        for number, attack in enumerate(ATTACKS):
            page(write(tmp_path / str(number), attack))
            found.events.clear()
            await found.open(tmp_path / str(number) / "report.html")
            await found.run("document.querySelectorAll('details').forEach(e => { e.open = true; })")
            assert await found.run(COUNT) == "3 of 3 cases"
            assert await found.run(
                "window.pwned === undefined && document.querySelectorAll('img, iframe, base').length === 0"
            )
            assert not faults(found)


async def test_the_policy_stops_what_would_be_added(tmp_path: Path) -> None:
    """Were an element to come in after all, it could neither run nor call: the browser refuses it."""
    text = page(write(tmp_path))
    added = "<script>window.pwned=1</script><img src='http://127.0.0.1:9/x.png' onerror='window.pwned=2'><p style='color:red' id='p'>"
    (tmp_path / "report.html").write_text(text.replace("</main>", f"{added}</main>"), encoding="utf-8")
    async with tab() as found:
        await found.open(tmp_path / "report.html")
        assert await found.run("window.pwned === undefined")
        assert await found.run("getComputedStyle(document.getElementById('p')).color") != "rgb(255, 0, 0)"
        assert any("Content Security Policy" in str(fault) for fault in faults(found))
