"""Whatever is wrong is refused before anything is done: exit 2, every fault named with its place, nothing written."""

from collections import Counter
from pathlib import Path

import pytest

from ragpipe.cli import main
from tests.support.broken_configs import CASES, Broken

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test


def _tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else b"" for p in folder.rglob("*")}


def _params() -> list[object]:
    """The first of every row always, the rest with the slow tests: each composes anew, 0.2 s of processor time."""
    seen: Counter[str] = Counter()
    found = []
    for case in CASES:
        row = case.id.split()[0]
        seen[row] += 1
        found.append(pytest.param(case, id=case.id, marks=[pytest.mark.slow] if seen[row] > 1 else []))
    return found


@pytest.mark.thorough(tried=20)
@pytest.mark.parametrize("case", _params())
def test_refused_before_anything(case: Broken, here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for name, text in case.files.items():
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    before = _tree(here)
    code = main(case.words)
    out, err = capfd.readouterr()
    assert code == 2, err
    assert "Traceback" not in out + err
    assert [text for text in case.says if text not in err] == [], err
    assert [text for text in case.hides if text in out + err] == []
    assert "found:" in err
    assert "expected:" in err
    assert _tree(here) == before


def test_no_two_cases_are_the_same() -> None:
    assert len({case.id for case in CASES}) == len(CASES) >= 40
