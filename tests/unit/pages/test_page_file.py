"""A page lets only its own style and script act, and shows every value as text."""

import base64
import hashlib
import re
from pathlib import Path

import pytest
from markupsafe import Markup

from ragpipe.pages.data_blocks import DataBlock
from ragpipe.pages.page_file import PIECES, Page, core_script, core_style, page_environment, page_html

ASSETS = Path(__file__).resolve().parents[3] / "ragpipe" / "pages" / "assets"


def sha(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def test_the_policy_names_style_and_script_and_nothing_else() -> None:
    html = page_html(
        Page("a <b> & \x1b", Markup("<main>{x}\u202e</main>"), "b{color:red}", "go()", [DataBlock("index", "QUJD")])
    )
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', html)
    assert policy
    assert policy[1].split("; ") == [
        "default-src 'none'",
        f"style-src '{sha('b{color:red}')}'",
        f"script-src '{sha('go()')}'",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
    assert "<title>a &lt;b&gt; &amp; \\x1b</title>" in html
    assert "<main>{x}\\u202e</main>" in html
    assert '<script type="text/plain" id="block-index">QUJD</script>' in html


@pytest.mark.parametrize(("style", "script", "kind"), [("a</Style>", "", "style"), ("", "'</script>'", "script")])
def test_text_that_would_end_its_element_is_refused(style: str, script: str, kind: str) -> None:
    with pytest.raises(ValueError, match=f"the {kind} of the page 'p' contains its own end tag"):
        page_html(Page("p", Markup(""), style, script))


def test_the_pieces_are_the_files() -> None:
    assert sorted(PIECES) == sorted(path.stem for path in ASSETS.glob("*.js"))
    script = core_script(["keys", "dom"])
    assert script.startswith('"use strict";\n// dom.js')
    assert script.index("class Keys") > script.index("function make")
    assert "VirtualList" not in script
    with pytest.raises(ValueError, match="no piece 'lists'"):
        core_script(["lists"])


def test_no_script_writes_markup_or_asks_for_anything() -> None:
    """What a policy would refuse, and what an address may not reach, is not in the files to begin with."""
    for path in ASSETS.glob("*.js"):
        text = path.read_text(encoding="utf-8")
        for word in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "fetch(",
            "XMLHttpRequest",
            "import(",
        ):
            assert word not in text, (path.name, word)
    assert "url(" not in core_style()
    assert "@import" not in core_style()


def test_a_vendored_file_keeps_its_licence() -> None:
    text = (ASSETS / "word_diff.js").read_text(encoding="utf-8")
    assert "jsdiff 9.0.0" in text
    assert "BSD 3-Clause License" in text
    assert "Copyright (c) 2009-2015, Kevin Decker" in text


def test_values_of_a_template_are_escaped(tmp_path: Path) -> None:
    (tmp_path / "x.jinja").write_text("<p>{{ text }}{{ mark }}</p>")
    body = page_environment(tmp_path).get_template("x.jinja").render(text="<i>\u202e", mark=Markup("<b>\x07</b>"))
    assert body == "<p>&lt;i&gt;\\u202e<b>\x07</b></p>"
