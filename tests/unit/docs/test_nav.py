"""The navigation of the site, links that are led on, and what the architecture page draws and names."""

import re
from importlib import import_module
from typing import Any

import pytest

from tests.support.docs_site import docs_script, nav_groups, site_pages, site_settings
from tests.support.pages import DOCS
from tests.unit.test_layers import MODULES, ROOMS


def test_pages_stand_in_the_navigation_once_and_begin_with_their_title() -> None:
    listed = [page for _, pages in nav_groups() for page in pages]
    assert sorted(listed) == sorted(site_pages()), "add the page to `nav` of mkdocs.yml, and to docs/README.md"
    untitled = [name for name, path in site_pages().items() if not path.read_text(encoding="utf-8").startswith("# ")]
    assert untitled == [], "the title of a page is what the navigation shows"


def test_the_index_and_the_decisions_are_listed_in_order() -> None:
    hooks, titles, groups = docs_script("hooks.py"), ["", ""], dict[tuple[str, ...], list[str]]()
    for line in (DOCS / "README.md").read_text(encoding="utf-8").splitlines():
        if heading := re.match(r"(##|###) (.+)", line):
            titles = [titles[0], heading[2]] if heading[1] == "###" else [heading[2], ""]
        elif line.startswith("- "):
            linked = [hooks.address_of(target) for target in hooks.targets("all-pages.md", line)]
            groups.setdefault(tuple(filter(None, titles)), []).extend(linked[:1])
    expected = {group: [page for page in pages if page != "all-pages.md"] for group, pages in nav_groups() if group != ("Decisions",)}
    assert groups.pop(("Decisions",)) == ["decisions/README.md"]
    assert list(groups.items()) == list(expected.items())
    (pages,) = [pages for group, pages in nav_groups() if group == ("Decisions",)]
    text = (DOCS / "decisions" / "README.md").read_text(encoding="utf-8")
    assert ["decisions/README.md", *(f"decisions/{name}" for name in re.findall(r"^- \[.*\]\((.+)\)", text, re.M))] == pages


@pytest.mark.parametrize(("page", "link", "expected"), [
    ("ci.md", "[a](gates.md#tiers)", "[a](gates.md#tiers)"),
    ("ci.md", "[a](../CHANGELOG.md)", "[a](changelog.md)"),
    ("ci.md", "[a](../README.md#tests)", "[a](index.md#tests)"),
    ("ci.md", "[a](ci/evaluate.sh)", "[a](ci/evaluate.sh)"),
    ("ci.md", "[a](../LICENSE)", "[a](files/LICENSE.txt)"),
    ("decisions/0009-clustered-intervals.md", "[a](../statistics.md)", "[a](../statistics.md)"),
    ("decisions/0009-clustered-intervals.md", "[a](../../CONTRIBUTING.md#style)", "[a](../contributing.md#style)"),
    ("index.md", "![a](docs/README.md)", "![a](all-pages.md)"),
    ("all-pages.md", "[a](ci.md) [b](../README.md)", "[a](ci.md) [b](index.md)"),
    ("index.md", "[a](benchmarks/measured.py)", "[a](files/benchmarks/measured.py.txt)"),
    ("index.md", "[a](#tests) [b](https://jinja.palletsprojects.com) [c](mailto:a@b)", None),
    ("index.md", "[a](docs/no-such-page.md)", None),
])  # fmt: skip
def test_a_link_leads_to_where_its_target_stands_on_the_site(page: str, link: str, expected: str | None) -> None:
    assert docs_script("hooks.py").led_on(link, page) == (expected or link)


def test_the_site_asks_nothing_of_the_network() -> None:
    settings = site_settings()
    assert settings["theme"]["font"] is False
    assert settings["strict"] is True
    assert "analytics" not in settings["extra"]
    assert "repo_url" not in settings, "the theme would ask the forge for the number of stars"
    assert not any(path.startswith("http") for key in ("extra_css", "extra_javascript") for path in settings[key])


PAGE = (DOCS / "architecture.md").read_text(encoding="utf-8")
NAMES = sorted(
    set(re.findall(r"`([a-z_]+(?:\.\w+)+)`", PAGE.partition("## Where things are added")[2])) - {"records.parquet", "metrics.json"}
)


def resolve(name: str) -> Any:
    parts = f"ragpipe.{name}".split(".")
    length = max(n for n in range(1, len(parts) + 1) if ".".join(parts[:n]) in MODULES)
    value: Any = import_module(".".join(parts[:length]))
    for part in parts[length:]:
        value = getattr(value, part)
    return value


def test_the_drawing_is_that_of_the_imports_and_shows_the_rooms_of_the_layers() -> None:
    script = docs_script("rooms.py")
    assert script.main(check=True) == 0, "run `python docs/rooms.py`"
    assert [room for room in ROOMS if room != "__main__"] == list(script.ROOMS)


@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith((".parquet", ".md", ".py"))])
def test_what_the_page_names_exists(name: str) -> None:
    assert resolve(name) is not None
