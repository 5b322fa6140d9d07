"""Every benchmark runs in its smallest size and prints figures: a renamed function must not be found a year later."""

import subprocess
import sys
from pathlib import Path

import pytest
from goals import BENCHMARKS

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.mark.thorough
@pytest.mark.parametrize("name", [name for name in BENCHMARKS if name != "pages"])
def test_the_smallest_size_prints_figures(name: str, real_data: Path) -> None:
    words = [str(real_data) if word == "DATA" else word for word in BENCHMARKS[name]]
    done = subprocess.run([sys.executable, str(FOLDER / f"{name}.py"), *words, "--small"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert any(character.isdigit() for character in done.stdout)


@pytest.mark.thorough
@pytest.mark.browser
def test_the_pages_in_their_smallest_size() -> None:
    done = subprocess.run([sys.executable, str(FOLDER / "pages.py"), "--small"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "elements" in done.stdout
