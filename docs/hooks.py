"""What mkdocs needs to make a site of docs/: pages link to files of the repository as on a forge, and here these links are led on.

The README of the repository is the first page of the site, and docs/README.md its page of all pages (`ROOT_PAGES`); any other file that a
page links to is copied to `files/`. A folder in the `nav` of mkdocs.yml stands for its pages. `BOOSTS` orders what the search finds.
The first page leads to `DEMO`, the report of a demonstration that is run while the site is built.
"""

from __future__ import annotations

import os
import posixpath
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
ROOT_PAGES = {
    "README.md": "index.md",
    "docs/README.md": "all-pages.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
"""Markdown files with another place or name on the site: by path from the root, their pages."""
BOOSTS = {
    "changelog.md": 0.05,
    "contributing.md": 0.2,
    "deviations.md": 0.2,
    "configuration.md": 0.2,
    "file-formats.md": 0.2,
    "ci.md": 8,
    "how-a-run-works.md": 4,
    "adding-a-metric.md": 4,
    "comparing.md": 4,
    "rejudging.md": 4,
    "calibrating.md": 3,
    "datasets.md": 3,
    "gates.md": 3,
    "judges.md": 3,
    "costs.md": 3,
    "systems.md": 3,
    "prompts.md": 3,
    "monitoring.md": 3,
    "python.md": 3,
}
"""What the relevance of a page in the search is multiplied by, by its name on the site; 1 for all others. A word of daily use leads to the page
about it, not to one that mentions it in a title."""
DEMO = "demo/report.html"
_PICTURE = re.compile(r"^!\[[^]]*\]\(report\.png\)\n", re.M)
UNSEARCHED = "decisions/"
"""Pages of this folder are on the site, and its search does not find them."""
SHOWN = {".json", ".png", ".svg", ".txt", ".html"}
"""Suffixes that a browser shows; other files get `.txt`, so that it does not download them."""
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#|/)([^)\s#]+)(#[^)\s]*)?(?=\))")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Folders in `nav` become their pages."""
    config.nav = expand(config.nav or [])
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages at the root, and the files outside of docs/ that any page links to."""
    from mkdocs.structure.files import File

    sources = {name: ROOT / path for path, name in ROOT_PAGES.items()}
    if (listed := files.get_file_from_path("README.md")) is not None:
        files.remove(listed)
    for name, source in sources.items():
        files.append(File.generated(config, name, content=source.read_text(encoding="utf-8")))
    pages = {file.src_uri: sources.get(file.src_uri, ROOT / "docs" / file.src_uri) for file in files.documentation_pages()}
    linked = {target for name, source in pages.items() for target in targets(name, source.read_text(encoding="utf-8"))}
    for target in sorted(linked):
        address = address_of(target)
        if address.startswith("files/") and (ROOT / target).is_file():
            files.append(File.generated(config, address, content=(ROOT / target).read_bytes()))
    with tempfile.TemporaryDirectory() as made:
        files.append(File.generated(config, DEMO, content=demo_report(Path(made)).read_bytes()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page with its links led to where their targets stand on the site, and with its weight in the search."""
    boost = next((value for name, value in BOOSTS.items() if fnmatch(page.file.src_uri, name)), 1)
    page.meta["search"] = {"exclude": True} if page.file.src_uri.startswith(UNSEARCHED) else {"boost": boost}
    text = led_on(markdown, page.file.src_uri)
    if page.file.src_uri == ROOT_PAGES["README.md"]:
        page.meta["template"] = "home.html"  # it shows the picture, in light and in dark
        text = _PICTURE.sub("", text)
    return text


def demo_report(folder: Path) -> Path:
    """report.html of the demonstration with recorded replies, run in an empty folder."""
    command = [sys.executable, "-m", "ragpipe", "+experiment=quickstart_llm"]
    subprocess.run(command, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True, capture_output=True)
    return folder / "outputs" / "quickstart_llm" / "latest" / "report.html"


def expand(nav: list[Any]) -> list[Any]:
    """A navigation in which every folder (`decisions/`) is the list of its pages, README.md first."""
    entries: list[Any] = []
    for entry in nav:
        if isinstance(entry, dict):
            ((title, value),) = entry.items()
            if isinstance(value, list):
                value = expand(value)
            elif str(value).endswith("/"):
                pages = sorted(path.name for path in (ROOT / "docs" / value).glob("*.md"))
                value = [value + name for name in sorted(pages, key=lambda name: name != "README.md")]
            entry = {title: value}
        entries.append(entry)
    return entries


def targets(name: str, markdown: str) -> Iterator[str]:
    """The files of the repository that a page of the site links to, as paths from its root."""
    for link in _LINK.finditer(markdown):
        yield _resolved(name, link[1])


def address_of(target: str) -> str:
    """Where a file of the repository stands on the site."""
    if target in ROOT_PAGES:
        return ROOT_PAGES[target]
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    return f"files/{target}" if Path(target).suffix in SHOWN else f"files/{target}.txt"


def led_on(markdown: str, name: str) -> str:
    """The text of a page of the site with each link to a file of the repository as one to its address on the site. A link to what does not
    exist stays, and mkdocs warns of it."""

    def lead(link: re.Match[str]) -> str:
        target = _resolved(name, link[1])
        if not (ROOT / target).is_file():
            return link[0]
        return posixpath.relpath(address_of(target), posixpath.dirname(name) or ".") + (link[2] or "")

    return _LINK.sub(lead, markdown)


def _resolved(name: str, link: str) -> str:
    """The path from the root of the repository that a link on a page of the site means."""
    sources = {page: path for path, page in ROOT_PAGES.items()}
    return posixpath.normpath(posixpath.join(posixpath.dirname(sources.get(name, f"docs/{name}")), link))
