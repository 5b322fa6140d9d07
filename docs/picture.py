"""Draws docs/quickstart.svg from a real run of the quickstart: `python docs/picture.py`.

The run is started as the README says; what it prints is put into rich's picture of a terminal. The fonts that rich would
have fetched from the network are taken out: the reader's own monospaced font is used.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

HERE = Path(__file__).resolve().parent
WORDS = ("+experiment=quickstart",)
WIDTH = 96


def printed() -> str:
    """What the quickstart prints in an empty folder, on a terminal of `WIDTH` columns."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "ragpipe", *WORDS], cwd=folder, capture_output=True, text=True, check=True,
            env={**os.environ, "COLUMNS": str(WIDTH), "PYTHONPATH": str(HERE.parent)},
        )  # fmt: skip
    return done.stdout


def picture(output: str) -> str:
    """The output as an SVG that needs nothing from outside."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text(f"$ python -m ragpipe {' '.join(WORDS)}", style="bold"))
    for line in output.rstrip("\n").split("\n"):
        console.print(_styled(line.rstrip()), soft_wrap=False, overflow="fold", no_wrap=False)
    svg = console.export_svg(title="ragpipe", unique_id="quickstart")
    svg = svg.replace(
        "<svg ", '<svg xml:space="preserve" ', 1
    )  # else some renderers drop the blanks a line begins with
    svg = re.sub(r"@font-face\s*\{.*?\}\s*", "", svg, flags=re.S)
    return "\n".join(line.rstrip() for line in svg.replace("Fira Code", "ui-monospace, Menlo, Consolas").split("\n"))


def _styled(line: str) -> Text:
    """One style a line: a line in one piece stays aligned in every renderer."""
    if re.match(r" (score|method)\b", line):
        return Text(line, style="bold")
    return Text(line, style="dim" if re.match(r" {8,}", line) else "")


if __name__ == "__main__":
    (HERE / "quickstart.svg").write_text(picture(printed()), encoding="utf-8")
