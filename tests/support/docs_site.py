"""The documentation as a site: its navigation as mkdocs.yml has it, its hook as a module, and the built pages as a browser gets them."""

import importlib.util
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import yaml

from tests.support.pages import DOCS, ROOT


class _Loader(yaml.SafeLoader):
    """Reads mkdocs.yml without mkdocs: what a tag of Python stands for is not needed here."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: suffix)


@cache
def docs_script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"docs_{Path(name).stem}", DOCS / name)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def site_settings() -> dict[str, Any]:
    return yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), _Loader)


def nav_groups() -> list[tuple[tuple[str, ...], list[str]]]:
    """The navigation as (titles from the top, pages of that group), in its order; folders as their pages."""
    groups: dict[tuple[str, ...], list[str]] = {}

    def walk(entries: list[Any], titles: tuple[str, ...]) -> None:
        for entry in entries:
            if isinstance(entry, str):
                groups.setdefault(titles, []).append(entry)
                continue
            ((title, value),) = entry.items()
            if isinstance(value, list):
                walk(value, (*titles, title))
            else:
                groups.setdefault(titles, []).append(value)

    walk(docs_script("hooks.py").expand(site_settings()["nav"]), ())
    return list(groups.items())


def site_pages() -> dict[str, Path]:
    renamed = {ROOT / path: name for path, name in docs_script("hooks.py").ROOT_PAGES.items()}
    pages = {path.relative_to(DOCS).as_posix(): path for path in sorted(DOCS.rglob("*.md")) if path not in renamed}
    return pages | {name: path for path, name in renamed.items()}


def built_name(page: str) -> str:
    folder, _, name = page.rpartition("/")
    return f"{folder}/index.html".lstrip("/") if name == "README.md" else page.removesuffix(".md") + ".html"


class BuiltPage(HTMLParser):
    """What stands in a built page: `loads` are addresses that a browser fetches by itself, `links` those of `a`, `counts` how often each
    element stands in the article, and `anchors` all ids."""

    FETCHED: ClassVar = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "object": "data"}
    FETCHED_RELATIONS = frozenset({"stylesheet", "icon", "preload", "preconnect", "modulepreload", "dns-prefetch", "manifest"})

    def __init__(self, path: Path):
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.counts: dict[str, int] = {}
        self._in_article = False
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values["id"]} if "id" in values else set()
        self._in_article |= tag == "article"
        if self._in_article:
            self.counts[tag] = self.counts.get(tag, 0) + 1
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag == "link" and self.FETCHED_RELATIONS & set(values.get("rel", "").split()):
            self.loads.append(values["href"])
        if address := values.get(self.FETCHED.get(tag, "")):
            self.loads.append(address)

    def handle_endtag(self, tag: str) -> None:
        self._in_article &= tag != "article"


def built_pages(site: Path) -> Iterator[tuple[str, BuiltPage]]:
    """Every HTML file of a built site that mkdocs made, by its path."""
    for path in sorted(site.rglob("*.html")):
        name = path.relative_to(site).as_posix()
        if not name.startswith(("files/", "demo/")):
            yield name, BuiltPage(path)
