"""The built site: every page is there and can be reached, nothing is loaded from elsewhere, and no list or table is lost on the way."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from markdown_it import MarkdownIt

from tests.support.docs_site import BuiltPage, built_name, built_pages, site_pages
from tests.support.pages import ROOT

pytestmark = pytest.mark.docs


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("material", reason="needs the extra dev-docs")
    folder = tmp_path_factory.mktemp("docs") / "site"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


def test_every_page_and_link_is_there_and_nothing_comes_from_elsewhere(site: Path) -> None:
    pages = dict(built_pages(site))
    reached, pending = {"index.html"}, ["index.html"]
    while pending:
        name = pending.pop()
        for link in pages[name].links:
            target = _target(site, name, link)
            if target in pages and target not in reached:
                reached.add(target)
                pending.append(target)
    assert reached == {built_name(page) for page in site_pages()}
    wrong = []
    for name, page in built_pages(site):
        for address in page.loads:
            external = bool(urlsplit(address).scheme or urlsplit(address).netloc)
            if external or _target(site, name, address) is None:
                wrong.append(f"{name}: {address}")
    assert wrong == []
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert "url(http" not in styles
    assert "@import" not in styles
    wrong = []
    for name, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme in ("https", "http") or name == "404.html":
                continue
            target = _target(site, name, link)
            anchors = pages[target].anchors if target in pages else set()
            if target is None or (parts.fragment and target in pages and unquote(parts.fragment) not in anchors):
                wrong.append(f"{name}: {link}")
    assert wrong == []
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    found = {entry["location"].partition("#")[0] or "index.html" for entry in index["docs"]}
    assert found == {built_name(page) for page in site_pages() if not page.startswith("decisions/")}
    assert (site / "search" / "search_index.js").is_file(), "what pages that are opened from disk search in"


@pytest.mark.parametrize("page", sorted(site_pages()))
def test_the_site_shows_the_lists_and_tables_of_a_forge(site: Path, page: str) -> None:
    """Python-Markdown wants a blank line before a list and four blanks within one; CommonMark, which forges read, does not."""
    expected: Counter[str] = Counter()
    pending = MarkdownIt("commonmark").enable("table").parse(site_pages()[page].read_text(encoding="utf-8"))
    for token in pending:
        expected[token.tag] += token.nesting == 1
    built = BuiltPage(site / built_name(page)).counts
    compared = ("h1", "h2", "h3", "h4", "ul", "ol", "li", "table", "tr", "blockquote")
    assert {tag: built.get(tag, 0) for tag in compared} == {tag: expected[tag] for tag in compared}


def _target(site: Path, page: str, address: str) -> str | None:
    """The file that an address on a page means, as a path below the site; None where there is none."""
    path = unquote(urlsplit(address).path)
    target = (site / page).parent / path if path else site / page
    if page == "404.html" and path.startswith("/"):
        target = site / path.lstrip("/")
    target = target / "index.html" if target.is_dir() else target
    return target.resolve().relative_to(site.resolve()).as_posix() if target.is_file() else None
