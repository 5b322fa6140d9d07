"""label.html in a real browser: by keys, by clicks, on a phone; what is undone, kept, saved, loaded; and that nothing leaves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ragpipe.calibration.label_files import draw_folders, read_drawn, read_labels
from ragpipe.cli.command_line import main
from tests.support.playwright_pages import AXE, OpenPage, axe_violations, open_page, wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser
GRADES = {"1": "all", "2": "partly", "3": "none", "0": None}
VALUES = {"all": 1.0, "partly": 0.5, "none": 0.0, None: None}
ASKED = 60


def page_of(run: Path) -> Path:
    (folder,) = draw_folders(run)
    return folder / "label.html"


@contextmanager
def asked_for_a_name(browser: Browser, run: Path, script: str = "", **options: Any) -> Iterator[OpenPage]:
    """The page, which waits for a name; at the end it has done nothing that it should not."""
    with open_page(browser, **options) as opened:
        opened.page.add_init_script(script)
        opened.page.goto(page_of(run).as_uri())
        opened.page.wait_for_selector("#who:not([hidden])")
        yield opened
        assert opened.faults == []


def begin(opened: OpenPage, name: str = "ann") -> None:
    opened.page.keyboard.type(name)
    opened.page.keyboard.press("Enter")
    opened.page.wait_for_selector("#case:not([hidden])")


@contextmanager
def labelling(browser: Browser, run: Path, name: str = "ann", **options: Any) -> Iterator[OpenPage]:
    with asked_for_a_name(browser, run, **options) as opened:
        begin(opened, name)
        yield opened


def slot(opened: OpenPage) -> str:
    return str(opened.page.get_attribute("#case", "data-item"))


def progress(opened: OpenPage) -> str:
    return str(opened.page.text_content("#progress-text"))


def pressed(opened: OpenPage) -> list[str]:
    return opened.page.locator("#grades [aria-pressed=true]").all_text_contents()


def saved(opened: OpenPage, path: Path) -> list[dict[str, Any]]:
    with opened.page.expect_download() as download:
        opened.page.keyboard.press("s")
    assert download.value.suggested_filename.endswith(".jsonl")
    download.value.save_as(path)
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_sixty_cases_by_keys_and_back_into_the_run(browser: Browser, run: Path, tmp_path: Path) -> None:
    given = {}
    with labelling(browser, run) as opened:
        for place in range(ASKED):
            key = "1230"[place % 4]
            assert slot(opened) not in given
            given[slot(opened)] = GRADES[key]
            opened.page.keyboard.press(key)
        assert progress(opened) == f"{ASKED} of {ASKED}"
        assert opened.page.is_visible("#done")
        events = saved(opened, tmp_path / "ann.jsonl")
        assert "file saved" in str(opened.page.text_content("#kept"))
    assert {event["item"]: event["label"] for event in events} == given
    assert main(["task=label", f"run={run}", f"label.import=[{tmp_path / 'ann.jsonl'}]"]) == 0
    (folder,) = draw_folders(run)
    items = {(row["sample_id"], row["method"], row["repeat"]): row["item"] for row in read_drawn(folder).to_pylist()}
    labels = {items[row["sample_id"], row["method"], row["repeat"]]: row["label"] for row in read_labels(folder).to_pylist()}
    assert labels == {name: VALUES[grade] for name, grade in given.items()}
    assert main(["task=verify", f"run={run}"]) == 0


def test_each_person_has_an_order_of_their_own(browser: Browser, run: Path) -> None:
    orders = []
    for name in ("ann", "bob", "ann"):
        with labelling(browser, run, name) as opened:
            orders.append([(slot(opened), opened.page.keyboard.press("ArrowRight"))[0] for _ in range(8)])
    assert orders[0] == orders[2] != orders[1]


def test_clicks_on_a_phone_in_the_dark(browser: Browser, run: Path, tmp_path: Path) -> None:
    with labelling(browser, run, width=390, height=844, color_scheme="dark", has_touch=True) as opened:
        page = opened.page
        assert opened.sideways() == 0
        for button in page.locator("#foot button").all():
            box = button.bounding_box()
            assert box
            assert min(box["height"], box["width"]) >= 44
            assert box["y"] + box["height"] <= 844  # in sight without scrolling
        chosen = {}
        for text in ["all", "partly", "none", "cannot tell", "all"]:
            chosen[slot(opened)] = None if text == "cannot tell" else text
            page.locator("#grades button", has_text=text).tap()
        page.locator("#undo").tap()
        del chosen[slot(opened)]
        page.locator("#back").tap()
        assert (pressed(opened), progress(opened)) == (["0cannot tell"], f"4 of {ASKED}")
        with page.expect_download() as download:
            page.locator("#save").tap()
        download.value.save_as(tmp_path / "a.jsonl")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(17, 25, 28)"
    events = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text("utf-8").splitlines()]
    assert [event["undo"] for event in events] == [False] * 5 + [True]
    last = {event["item"]: event.get("label") for event in events if not event["undo"]}
    assert {name: last[name] for name in chosen} == chosen


def test_undo_goes_back_and_brings_the_first_grade_back(browser: Browser, run: Path) -> None:
    with labelling(browser, run) as opened:
        order = []
        for key in "1231":
            order.append(slot(opened))
            opened.page.keyboard.press(key)
        for name in reversed(order):
            opened.page.keyboard.press("u")
            assert (slot(opened), pressed(opened)) == (name, [])
        assert progress(opened) == f"0 of {ASKED}"
        opened.page.keyboard.press("u")
        assert slot(opened) == order[0]
    with labelling(browser, run) as opened:
        first = slot(opened)
        opened.page.keyboard.press("1")
        opened.page.keyboard.press("ArrowLeft")
        assert (slot(opened), pressed(opened)) == (first, ["1all"])
        opened.page.keyboard.press("3")
        opened.page.keyboard.press("ArrowLeft")
        assert pressed(opened) == ["3none"]
        opened.page.keyboard.press("u")
        assert (slot(opened), pressed(opened)) == (first, ["1all"])
        assert progress(opened) == f"1 of {ASKED}"


def test_a_reload_keeps_labels_and_notes_and_the_browser_no_text(browser: Browser, run: Path, tmp_path: Path) -> None:
    with labelling(browser, run) as opened:
        page = opened.page
        noted = slot(opened)
        page.keyboard.press("n")
        page.keyboard.type("claims 1 and 2 u")  # keys are dead in the field
        page.keyboard.press("Escape")
        page.keyboard.press("2")
        page.keyboard.press("n")
        page.keyboard.type("only a note")
        page.keyboard.press("Escape")
        alone = slot(opened)
        page.reload()
        page.wait_for_selector("#case:not([hidden])")
        assert progress(opened) == f"1 of {ASKED}"
        assert (slot(opened), page.input_value("#note")) == (alone, "only a note")
        page.keyboard.press("ArrowLeft")
        assert (slot(opened), page.input_value("#note"), pressed(opened)) == (noted, "claims 1 and 2 u", ["2partly"])
        kept = page.evaluate("JSON.stringify(localStorage)")
        text = page.text_content("#left .text") or ""
        assert text
        assert text[:20] not in kept
        events = saved(opened, tmp_path / "a.jsonl")
    assert main(["task=label", f"run={run}", f"label.import=[{tmp_path / 'a.jsonl'}]"]) == 0
    (row,) = read_labels(draw_folders(run)[0]).to_pylist()
    assert (row["label"], row["grade"], row["note"]) == (0.5, "partly", "claims 1 and 2 u")
    assert len(events) == 3


def test_a_full_browser_asks_to_save_and_loses_nothing(browser: Browser, run: Path, tmp_path: Path) -> None:
    full = "Storage.prototype.setItem = () => { throw new DOMException('full', 'QuotaExceededError'); };"
    with labelling(browser, run, script=full) as opened:
        page = opened.page
        for _ in range(3):
            page.keyboard.press("1")
        assert "Save the file now" in str(page.text_content("#alert"))
        assert "not kept here" in str(page.text_content("#kept"))
        assert len(saved(opened, tmp_path / "a.jsonl")) == 3


def test_a_saved_file_goes_on_in_another_browser(browser: Browser, run: Path, tmp_path: Path) -> None:
    with labelling(browser, run) as opened:
        for key in "1230":
            opened.page.keyboard.press(key)
        opened.page.keyboard.press("u")
        there = slot(opened)
        saved(opened, tmp_path / "a.jsonl")
    other = tmp_path / "other.jsonl"
    other.write_text((tmp_path / "a.jsonl").read_text("utf-8").replace('"draw":"faith', '"draw":"other'), encoding="utf-8")
    with asked_for_a_name(browser, run) as opened:
        page = opened.page
        page.set_input_files("#file", other)
        page.wait_for_selector("#alert:not([hidden])")
        assert "of another draw" in str(page.text_content("#alert"))
        page.set_input_files("#file", tmp_path / "a.jsonl")
        page.wait_for_selector("#case:not([hidden])")
        assert (progress(opened), slot(opened)) == (f"3 of {ASKED}", there)
        assert "ann" in str(page.text_content("#kept"))
        page.keyboard.press("u")
        assert progress(opened) == f"2 of {ASKED}"


def test_two_tabs_add_to_the_same_labels_and_one_that_writes_over_another_loses_none(browser: Browser, run: Path) -> None:
    with labelling(browser, run) as opened:
        second = opened.page.context.new_page()
        second.goto(page_of(run).as_uri())
        second.wait_for_selector("#case:not([hidden])")
        opened.page.keyboard.press("1")
        second.keyboard.press("ArrowRight")
        second.keyboard.press("2")
        for tab in (second, opened.page):
            wait_until(tab, f"document.querySelector('#progress-text').textContent === '2 of {ASKED}'")
        # what a tab writes that has not yet seen the labels of both
        kept = "Object.keys(localStorage).find((name) => name.endsWith('.ann'))"
        second.evaluate(f"localStorage.setItem({kept}, JSON.stringify({{saved: 0, events: []}}))")
        wait_until(second, f"JSON.parse(localStorage.getItem({kept})).events.length === 2")
        assert progress(opened) == f"2 of {ASKED}"


def test_another_person_takes_over_and_finds_the_own_labels_again(browser: Browser, run: Path) -> None:
    with labelling(browser, run) as opened:
        page = opened.page
        for name, before in (("ann", 0), ("bob", 0), ("ann", 2)):
            assert progress(opened) == f"{before} of {ASKED}"
            page.keyboard.press("1")
            page.keyboard.press("2")
            if before:
                break
            page.click("#other")
            page.wait_for_selector("#who:not([hidden])")
            begin(opened, "bob" if name == "ann" else "ann")
        wait_until(page, f"document.querySelector('#progress-text').textContent === '4 of {ASKED}'")
        assert "ann: kept here" in str(page.text_content("#kept"))


def test_the_first_key_after_the_name_is_a_grade_even_before_the_page_is_drawn(browser: Browser, run: Path) -> None:
    with asked_for_a_name(browser, run) as opened:
        page = opened.page
        page.keyboard.type("ann")
        page.evaluate("""() => {
            document.querySelector("#who-form").requestSubmit();
            document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key: "1", bubbles: true }));
        }""")
        assert progress(opened) == f"1 of {ASKED}"


def test_names_divide_the_cases(browser: Browser, run: Path) -> None:
    assert main(["task=label", f"run={run}", "label.metric=faithfulness", "label.annotators=[ann,bob]"]) == 0
    with asked_for_a_name(browser, run) as opened:
        page = opened.page
        assert page.locator("#name option").all_text_contents() == ["ann", "bob"]
        page.select_option("#name", "bob")
        page.click("#who-form button")
        page.wait_for_selector("#case:not([hidden])")
        assert progress(opened) == "0 of 36"  # 12 for both, half of the other 48


def test_keys_are_listed_and_everything_is_reached_by_tab(browser: Browser, run: Path) -> None:
    with labelling(browser, run) as opened:
        names = set()
        for _ in range(16):
            opened.page.keyboard.press("Tab")
            names.add(opened.page.evaluate("document.activeElement.textContent || document.activeElement.id"))
        assert {"Save", "Load", "?", "1all", "2partly", "3none", "0cannot tell", "uundo", "note"} <= names
        assert names >= {"\u2190", "\u2192"}
    with labelling(browser, run) as opened:
        page = opened.page
        page.keyboard.press("?")
        dialog = str(page.text_content("dialog"))
        assert all(word in dialog for word in ("all", "partly", "none", "cannot tell", "undo", "write a note", "save"))
        page.keyboard.press("Tab")
        page.locator("dialog input").uncheck()
        page.keyboard.press("Escape")
        page.keyboard.press("1")
        assert progress(opened) == f"0 of {ASKED}"


@pytest.mark.skipif(AXE is None, reason="needs axe-playwright-python, of the extra dev-browser")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_axe_finds_nothing(browser: Browser, run: Path, scheme: str, width: int) -> None:
    with labelling(browser, run, color_scheme=scheme, width=width) as opened:
        assert axe_violations(opened.page) == []
        for _ in range(ASKED):
            opened.page.keyboard.press("1")
        assert axe_violations(opened.page) == []
