"""What changes between two starts, and odd but lawful data, through the command line. Rows of the fault list in brackets."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from ragpipe.cli.command_line import main
from ragpipe.core.resources import prompts_dir

pytestmark = pytest.mark.slow  # several whole runs

CASE = {"id": "q1", "question": "Who wrote it?", "answer": "Ada wrote it in 1843.", "contexts": ["Ada wrote it in 1843."]}
WORDS = ["dataset=jsonl", "dataset.path=cases.jsonl", "metrics=[faithfulness]", "name=x"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write(CASE)
    return tmp_path


def write(*cases: dict[str, Any]) -> None:
    Path("cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))


def folders() -> set[str]:
    return {path.name for path in Path("outputs/x").iterdir() if path.is_dir() and not path.is_symlink()}


def metrics() -> dict[str, Any]:
    return json.loads(Path("outputs/x/latest/iteration-1/metrics.json").read_text())


def test_a_changed_configuration_opens_its_own_folder_and_says_the_difference(capsys: pytest.CaptureFixture[str]) -> None:
    """[E8]"""
    assert main(WORDS) == 0
    assert main([*WORDS, "scoring.thresholds.faithfulness=0.5"]) == 0
    assert len(folders()) == 2
    assert "scoring.thresholds.faithfulness: 0.85 -> 0.5" in capsys.readouterr().out
    assert main(WORDS) == 0
    assert len(folders()) == 2, "going back finds the first folder again"


def test_an_edited_template_opens_its_own_folder_and_is_warned_about(capsys: pytest.CaptureFixture[str]) -> None:
    """[E9, E10] told by the text's hash, not by the version's name; both hashes are named."""
    shutil.copytree(prompts_dir() / "faithfulness", "mine/faithfulness")
    words = [*WORDS, "prompt_dirs=[mine]"]
    assert main(words) == 0
    template = Path("mine/faithfulness/verify.v2.jinja")
    template.write_text(template.read_text() + "Be quick.\n")
    capsys.readouterr()
    assert main(words) == 0
    said = capsys.readouterr().err
    assert len(folders()) == 2
    hashes = [json.loads(Path(f"outputs/x/{f}/manifest.json").read_text())["prompts"] for f in sorted(folders())]
    texts = {sha[:12] for prompts in hashes for name, sha in prompts.items() if name.startswith("faithfulness/verify.v2@")}
    assert len(texts) == 2
    assert all(text in said for text in texts)
    assert "faithfulness/verify.v2 has another text" in said


def test_a_huge_record_is_read_and_judged() -> None:
    """[D19] two million characters of context."""
    write({**CASE, "contexts": ["word " * 400_000 + "Ada wrote it in 1843."]})
    assert main(WORDS) == 0
    assert metrics()["overall"]["scores"]["faithfulness"]["mean"] == 1.0
