"""Blocks that are too many for one page: which stay, what the files beside it hold, and that a name tells a content."""

import gzip
import json
import re
from base64 import b64decode
from typing import Any

import pytest
from markupsafe import Markup

from ragpipe.pages.data_blocks import DataBlock, json_block
from ragpipe.pages.page_file import Page, page_html
from ragpipe.pages.side_files import SideFolder, divided_blocks

CALL = re.compile(r'ragpipeBlock\("([a-z]+\d*)","([A-Za-z0-9+/=]*)"\);')
LETTERS = [DataBlock(name, name[0].upper() * 100) for name in ("d0", "t0", "d1", "d2", "text", "cols", "index")]


def divided(blocks: list[DataBlock], limit: int, file_bytes: int = 10**6) -> tuple[list[DataBlock], dict[str, str]]:
    saved: dict[str, str] = {}
    folder = SideFolder("report.data", lambda name, content: saved.update({name: content.decode()}), limit, file_bytes)
    return divided_blocks(blocks, folder), saved


def files_of(inside: list[DataBlock]) -> Any:
    (block,) = [block for block in inside if block.name == "files"]
    return json.loads(gzip.decompress(b64decode(block.text)))


def test_within_the_limit_all_stay() -> None:
    inside, saved = divided(LETTERS, 700)
    assert (inside, saved) == (LETTERS, {})


def test_beyond_it_index_and_columns_stay_and_the_page_says_where_the_others_are() -> None:
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


def test_a_file_holds_what_fits_and_a_block_is_never_divided() -> None:
    blocks = [DataBlock(f"d{n}", "A" * size) for n, size in enumerate((40, 60, 1, 500, 10))]
    inside, saved = divided(blocks, 0, file_bytes=100)
    assert [names for _, names in files_of(inside)["files"]] == [["d0", "d1"], ["d2"], ["d3"], ["d4"]]
    assert len(saved) == 4


def test_another_content_has_another_name_and_the_same_has_the_same() -> None:
    names = [sorted(divided([json_block("d0", value)], 0)[1]) for value in (["a"], ["a"], ["b"])]
    assert names[0] == names[1] != names[2]


def test_hostile_text_stays_inside_its_string() -> None:
    """A case cannot write code into a script: its text is compressed, and the rest is base64."""
    (content,) = divided([json_block("d0", ['");alert(1);//</script>\\'])], 0)[1].values()
    match = CALL.fullmatch(content.strip())
    assert match
    assert json.loads(gzip.decompress(b64decode(match[2]))) == ['");alert(1);//</script>\\']


@pytest.mark.parametrize("name", ["D0", "d0-1", "", "../x", 'd0"'])
def test_a_name_that_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="a data block cannot be called"):
        divided([DataBlock(name, "A")], 0)


def test_a_folder_elsewhere_is_refused() -> None:
    with pytest.raises(ValueError, match="a folder beside a page cannot be called"):
        divided_blocks([DataBlock("d0", "A")], SideFolder("../x", lambda name, content: None, 0))


@pytest.mark.parametrize(("limit", "loads"), [(100, False), (99, True)])
def test_only_a_divided_page_may_load_and_only_by_one_policy(limit: int, loads: bool) -> None:
    folder = SideFolder("report.data", lambda name, content: None, limit)
    html = page_html(Page("p", Markup(""), "", "go()", [DataBlock("d0", "A" * 100)]), folder)
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', html)
    assert policy
    parts = dict(part.split(" ", 1) for part in policy[1].split("; "))
    assert parts["script-src"].endswith(" 'self'") is loads
    assert parts["trusted-types"] == ("ragpipe-side-files" if loads else "'none'")
    assert parts["default-src"] == "'none'"
