"""A page lets only its own style and script act, and shows every value as text."""

import gzip
import json
import re
from base64 import b64decode
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from markupsafe import Markup

from ragpipe.report import page_file
from ragpipe.report.page_file import DataBlock, Page, SideFolder, core_style, divided_blocks, json_block, page_html

ASSETS = Path(__file__).resolve().parents[3] / "ragpipe" / "report" / "assets"


@pytest.mark.parametrize(("style", "script", "kind"), [("a</Style>", "", "style"), ("", "'</script>'", "script")])
def test_text_that_would_end_its_element_is_refused(style: str, script: str, kind: str) -> None:
    with pytest.raises(ValueError, match=f"the {kind} of the page 'p' contains its own end tag"):
        page_html(Page("p", Markup(""), style, script))


def test_pages_carry_scripts_that_ask_for_nothing_with_their_licence() -> None:
    """What a policy would refuse, and what an address may not reach, is not in the files to begin with."""
    for path in ASSETS.glob("*.js"):
        text = path.read_text(encoding="utf-8")
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "fetch(", "XMLHttpRequest", "import("):
            assert word not in text, (path.name, word)
    assert "url(" not in core_style()
    assert "@import" not in core_style()
    text = (ASSETS / "word_diff.js").read_text(encoding="utf-8")
    assert "jsdiff 9.0.0" in text
    assert "BSD 3-Clause License" in text
    assert "Copyright (c) 2009-2015, Kevin Decker" in text


def content(block: DataBlock) -> bytes:
    return gzip.decompress(b64decode(block.text))


def test_texts_stay_texts() -> None:
    block = json_block("d0", {"\ud800": "</script><script>alert(1)</script>\x1b"})
    assert json.loads(content(block)) == {"\\ud800": "</script><script>alert(1)</script>\\x1b"}
    # A case cannot write code into a script: its text is compressed, and the rest is base64.
    (only,) = divided([json_block("d0", ['");alert(1);//</script>\\'])], 0)[1].values()
    (_, text) = CALL.fullmatch(only.strip()).groups()
    assert json.loads(gzip.decompress(b64decode(text))) == ['");alert(1);//</script>\\']


def test_columns_and_texts_that_cases_share() -> None:
    codes, values = np.array([1, 2, 255], np.uint8), np.array([0.5, np.nan, -1.0], np.float32)
    block, layout = page_file.column_block({"verdict": codes, "difference": values})
    assert layout == [{"name": "difference", "type": "f4", "offset": 0}, {"name": "verdict", "type": "u1", "offset": 12}]
    raw = content(block)
    np.testing.assert_array_equal(np.frombuffer(raw[:12], "<f4"), values)
    assert list(raw[12:]) == [1, 2, 255]
    pool = page_file.TextPool()
    texts = [f"chunk {n}" for n in range(page_file.TEXTS_PER_BLOCK + 2)]
    numbers = [pool.number(text) for text in texts]
    assert numbers == list(range(page_file.TEXTS_PER_BLOCK + 2))
    assert [pool.number(text) for text in texts] == numbers
    blocks = [*pool.full_blocks(), *pool.blocks()]
    assert [block.name for block in blocks] == ["t0", "t1"], "each is taken once"
    assert [len(json.loads(content(block))) for block in blocks] == [page_file.TEXTS_PER_BLOCK, 2]
    assert json.loads(content(blocks[1])) == texts[page_file.TEXTS_PER_BLOCK :]


@pytest.mark.parametrize(("state", "fragment"), [
    ({}, "#v=1"),
    ({"q": "", "method": None}, "#v=1"),
    ({"slice": "category:policy", "case": "dao-01/rerank/1"}, "#v=1&slice=category:policy&case=dao-01/rerank/1"),
    ({"q": "a&b=c #1 100%"}, "#v=1&q=a%26b%3Dc%20%231%20100%25"),
    ({"q": "Größe"}, "#v=1&q=Gr%C3%B6%C3%9Fe"),
])  # fmt: skip
def test_the_fragment_of_a_state(state: dict[str, str | None], fragment: str) -> None:
    assert page_file.page_address(**state) == fragment


CALL = re.compile(r'ragpipeBlock\("([a-z]+\d*)","([A-Za-z0-9+/=]*)"\);')
LETTERS = [DataBlock(name, name[0].upper() * 100) for name in ("d0", "t0", "d1", "d2", "text", "cols", "index")]


def divided(blocks: list[DataBlock], limit: int, file_bytes: int = 10**6) -> tuple[list[DataBlock], dict[str, str]]:
    saved: dict[str, str] = {}
    folder = SideFolder("report.data", lambda name, content: saved.update({name: content.decode()}), limit, file_bytes)
    return divided_blocks(blocks, folder), saved


def files_of(inside: list[DataBlock]) -> Any:
    (block,) = [block for block in inside if block.name == "files"]
    return json.loads(content(block))


def test_a_file_holds_what_fits_in_whole_blocks() -> None:
    blocks = [DataBlock(f"d{n}", "A" * size) for n, size in enumerate((40, 60, 1, 500, 10))]
    inside, saved = divided(blocks, 0, file_bytes=100)
    assert [names for _, names in files_of(inside)["files"]] == [["d0", "d1"], ["d2"], ["d3"], ["d4"]]
    assert len(saved) == 4
    assert divided(LETTERS, 700) == (LETTERS, {}), "within the limit all stay"
    inside, saved = divided(LETTERS, 699)
    assert [block.name for block in inside] == ["cols", "index", "files"]
    files = files_of(inside)
    assert files["folder"] == "report.data"
    assert [names for _, names in files["files"]] == [["d0", "d1", "d2"], ["t0"], ["text"]]
    for file, names in files["files"]:
        assert [CALL.fullmatch(line)[1] for line in saved[file].splitlines()] == names  # type: ignore[index]
        assert re.fullmatch(rf"{names[0]}-[0-9a-f]{{16}}\.js", file)
    texts = {found[1]: found[2] for content in saved.values() for found in CALL.finditer(content)}
    assert texts == {block.name: block.text for block in LETTERS if block.name not in ("cols", "index")}


@pytest.mark.parametrize(("limit", "loads"), [(100, False), (99, True)])
def test_only_a_divided_page_may_load_and_only_by_one_policy(limit: int, loads: bool) -> None:
    folder = SideFolder("report.data", lambda name, content: None, limit)
    html = page_html(Page("p", Markup(""), "", "go()", [DataBlock("d0", "A" * 100)]), folder)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', html)
    parts = dict(part.split(" ", 1) for part in policy.split("; "))
    assert parts["script-src"].endswith(" 'self'") is loads
    assert parts["trusted-types"] == ("ragpipe-side-files" if loads else "'none'")
    assert parts["default-src"] == "'none'"
