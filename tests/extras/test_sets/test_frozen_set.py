"""Frozen sets: the three files, their hash, and what is refused."""

import hashlib
import json
from typing import Any

import pytest

from ragpipe.core.errors import ConfigError, DataError, OutputError
from ragpipe.data.dataset import open_dataset
from ragpipe.data.settings import DatasetSettings
from ragpipe.extras.test_sets.frozen_set import write_frozen_set

CASES: list[dict[str, Any]] = [
    {"id": "b", "question": "Wer?", "category": "grounded", "method": "live", "answer": "Ada.", "contexts": []},
    {"id": "a", "question": "Wann?", "expected": {"behavior": "reject"}, "meta": {"origin": {"kind": "log"}}},
    {"id": "c", "question": "Où ça?", "outputs": [{"method": "live", "answer": "1"}, {"method": "old", "answer": "2"}]},
]
CARD = {"made": "Drawn from <b>logs</b>.", "seed": 7, "sources": [{"path": "log|2.jsonl", "sha256": "ab" * 32}]}


def test_the_three_files(tmp_path):
    folder = tmp_path / "new" / "my-set"
    digest = write_frozen_set(folder, iter(CASES), CARD)
    assert sorted(path.name for path in folder.iterdir()) == ["card.json", "card.md", "cases.jsonl"]
    assert [path.name for path in folder.parent.iterdir()] == ["my-set"]
    content = (folder / "cases.jsonl").read_bytes()
    assert digest == hashlib.sha256(content).hexdigest()
    assert [json.loads(line) for line in content.decode().splitlines()] == CASES
    card = json.loads((folder / "card.json").read_text(encoding="utf-8"))
    assert card == {
        "cases": 3, "outputs": {"live": 2, "old": 1},
        "counts": {
            "category": {"(none)": 2, "grounded": 1}, "expected.behavior": {"(none)": 2, "reject": 1},
            "origin.kind": {"(none)": 2, "log": 1},
        },
        **CARD, "sha256": digest,
    }  # fmt: skip
    text = (folder / "card.md").read_text(encoding="utf-8")
    assert "<b>" not in text.replace("\\<b\\>", "")
    assert "| category | grounded | 1 |" in text
    assert f"dataset.sha256={digest}" in text
    assert "| `log¦2.jsonl` |" in text


def test_the_hash_lets_the_set_in_and_no_other(tmp_path):
    digest = write_frozen_set(tmp_path / "set", CASES, CARD)
    settings = DatasetSettings(path="set/cases.jsonl", sha256=digest)
    assert [record.sample.id for record in open_dataset(settings, tmp_path)] == ["b", "a", "c", "c"]
    by_digest = settings.model_copy(update={"sha256": open_dataset(settings, tmp_path).digest})
    assert open_dataset(by_digest, tmp_path).digest == by_digest.sha256
    with open(tmp_path / "set" / "cases.jsonl", "a", encoding="utf-8") as file:
        file.write("\n")
    with pytest.raises(DataError, match="not the one that the configuration names") as error:
        open_dataset(settings, tmp_path)
    changed = hashlib.sha256((tmp_path / "set" / "cases.jsonl").read_bytes()).hexdigest()
    (problem,) = error.value.problems
    assert problem.key == "dataset.sha256"
    assert changed in problem.found
    assert problem.expected == digest


def test_nothing_is_ever_overwritten(tmp_path):
    (tmp_path / "empty").mkdir()
    write_frozen_set(tmp_path / "empty", CASES, CARD)
    before = (tmp_path / "empty" / "cases.jsonl").read_bytes()
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("empty", "file", "link"):
        with pytest.raises(ConfigError, match="never overwritten"):
            write_frozen_set(tmp_path / name, CASES[:1], CARD)
    assert (tmp_path / "empty" / "cases.jsonl").read_bytes() == before
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(("cases", "match"), [
    ([], "no records"),
    ([{"id": "a", "question": "x", "anwser": "y"}], r"set/cases\.jsonl:1 \(id 'a'\): anwser"),
    ([{"id": "a", "question": "x"}, {"id": "a", "question": "y"}], r"set/cases\.jsonl:2: id"),
    ([{"question": "x"}, {"id": "a", "question": " "}], r"set/cases\.jsonl:2 \(id 'a'\): question"),
])  # fmt: skip
def test_cases_that_could_not_be_evaluated_are_refused_and_leave_nothing(cases, match, tmp_path):
    with pytest.raises(DataError, match=match):
        write_frozen_set(tmp_path / "set", cases, CARD)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OutputError, match="file"):
        write_frozen_set(tmp_path / "file" / "set", CASES, CARD)
