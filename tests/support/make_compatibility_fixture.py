"""`python -m tests.support.make_compatibility_fixture`: the run folder and the call store that docs/reproducibility.md promises to read.

Writes `tests/fixtures/format_<number>.tar.gz` with the ragpipe of this checkout: six cases, two iterations, a language model as judge
whose replies are written down here and come over HTTP from a local server, a gate, a draw with labels by two people, a calibration,
a baseline of the judge, and the store's replies as an exported file. `made.json` says when, by which version and with which words.
The report is left out, because its bytes are not promised, and so is what names the machine.

A fixture that a release has is never made again: `--replace` is for one that no release has yet. When the number of the format
rises, make the new one beside the old ones.
"""

import argparse
import json
import sys
import tarfile
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from ragpipe.core.version import FORMAT, __version__
from ragpipe.testing.openai_server import serving
from tests.support.harness import finish

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
NAME = "bank"
QUESTIONS = {
    "q1": ("When does the branch open?", "The branch opens at 9 on weekdays.", "It is closed on Sundays."),
    "q2": ("What does a transfer cost?", "A transfer costs 2 euros.", "Transfers inside the bank are free."),
    "q3": ("How is a card blocked?", "A card is blocked by phone.", "Blocking takes effect within a minute."),
}
"""A question, and the two sentences of the document that answers it."""
SUPPORTED = {("q1", "old"): 2, ("q2", "old"): 1, ("q3", "old"): 0, ("q1", "new"): 2, ("q2", "new"): 2, ("q3", "new"): 1}
"""How many of the two claims of each answer the judge calls supported. In iteration 2 it calls both of `FLIPPED` so."""
FLIPPED = ("q2", "old")
RANK = {"old": 2, "new": 1}
"""Where the right document stands among the retrieved ones."""
PEOPLE = {"ann": ("none", "partly", "all"), "bob": ("none", "none", "all")}
"""What each person calls an answer with 0, 1 and 2 supported claims."""
WORDS = [
    "dataset=jsonl", "dataset.path=cases.jsonl", f"name={NAME}", "iterations=2", "metrics=[faithfulness,retrieval]",
    "metrics.retrieval.k=[1]", "metrics.retrieval.score_k=1", "judge=llm", "judge.model=openai/scripted-2026-01-01", "judge.endpoint=scripted",
    "judge.api_key_env=RAGPIPE_TEST_KEY", "judge.prices={input: 0.1, output: 0.4}", "scoring.thresholds.faithfulness=0.7",
    "scoring.weights.faithfulness=0.75", "scoring.weights.retrieval_score=0.25",
    "+scoring.gates.faithful={score: faithfulness, min: 0.5, by: point, tier: quality}", "report.formats=[terminal]",
]  # fmt: skip
"""The command of the run, but for the address of the judge."""
DRIFT = ["task=drift", *(word for word in WORDS if word.startswith("judge"))]
"""The command of the baseline of the judge, but for its address."""


def fixture_path(number: int) -> Path:
    return FIXTURES / f"format_{number}.tar.gz"


def answer_text(sample: str, method: str) -> str:
    return " ".join(claims(sample, method))


def claims(sample: str, method: str) -> list[str]:
    return [f"The {method} guide says: {sentence}" for sentence in QUESTIONS[sample][1:]]


def cases() -> list[dict[str, Any]]:
    return [
        {
            "id": sample, "method": method, "question": QUESTIONS[sample][0], "answer": answer_text(sample, method),
            "contexts": _contexts(sample, RANK[method]), "relevant_docs": [f"{sample}.md"], "category": "fees" if sample == "q2" else "service",
            "recorded": {"human_faithfulness": supported / 2},
        }
        for (sample, method), supported in SUPPORTED.items()
    ]  # fmt: skip


def _contexts(sample: str, rank: int) -> list[dict[str, str]]:
    right = {"id": sample, "doc_id": f"{sample}.md", "text": " ".join(QUESTIONS[sample][1:])}
    wrong = {"id": "x", "doc_id": "x.md", "text": "The bank was founded in 1872."}
    return [right, wrong] if rank == 1 else [wrong, right]


def script() -> list[dict[str, Any]]:
    """What the judge answers, by the texts in the question."""
    entries: list[dict[str, Any]] = []
    for (sample, method), supported in SUPPORTED.items():
        first = claims(sample, method)[0]
        extract, verify = f"{first}.*Task: list the factual", f"{first}.*Task: decide for each"
        entries.append({"match": extract, "reply": json.dumps({"claims": claims(sample, method)})})
        if (sample, method) == FLIPPED:
            entries.append({"match": verify, "reply": _verdicts(sample, supported), "times": 1})
            supported = 2
        entries.append({"match": verify, "reply": _verdicts(sample, supported)})
    return entries


def _verdicts(sample: str, supported: int) -> str:
    return json.dumps(
        {
            "verdicts": [
                {
                    "index": number, "evidence": [QUESTIONS[sample][number]] if number <= supported else [], "reason": "As written down.",
                    "verdict": "supported" if number <= supported else "not_supported",
                }
                for number in (1, 2)
            ]
        }
    )  # fmt: skip


def make(folder: Path) -> None:
    (folder / "cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases()), encoding="utf-8")
    with serving(script=script()) as server:
        _start(folder, *WORDS, f"judge.api_base={server.url}")
        requests = len(server.log)
        _start(folder, *DRIFT, f"judge.api_base={server.url}")
    (folder / "outputs" / NAME / "latest").unlink()
    (manifest,) = folder.glob(f"outputs/{NAME}/*/manifest.json")
    run = manifest.parent
    _start(folder, "task=label", f"run={run.relative_to(folder)}", "label.metric=faithfulness", "label.n=6")
    (draw,) = (run / "labels").iterdir()
    sheets = [_sheet(draw, person) for person in PEOPLE]
    names = ",".join(str(sheet.relative_to(folder)) for sheet in sheets)
    _start(folder, "task=label", f"run={run.relative_to(folder)}", f"label.import=[{names}]")
    for path in sheets:
        path.unlink()
    _start(folder, "task=calibrate", f"run={run.relative_to(folder)}")
    _start(folder, "task=store", "action=export", "to=replies.jsonl")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    made = {"format": FORMAT, "ragpipe": __version__, "at": now, "words": WORDS, "requests": requests}
    (folder / "made.json").write_text(json.dumps(made, indent=2) + "\n", encoding="utf-8")
    _without_the_machine(folder)


def _start(folder: Path, *words: str) -> None:
    code, text = finish(words, folder)
    if code:
        raise RuntimeError(f"exit code {code} of: {' '.join(words)}\n{text}")


def _sheet(draw: Path, person: str) -> Path:
    """The labels of a person for every case of a draw, as `label.import` reads them."""
    rows = pq.read_table(draw / "draw.parquet").to_pylist()
    path = draw.parents[3] / f"sheet-{person}.csv"
    filled = [f"{row['item']},{person},{PEOPLE[person][SUPPORTED[row['sample_id'], row['method']]]}\n" for row in rows]
    path.write_text("item,annotator,label\n" + "".join(filled), encoding="utf-8")
    return path


def _without_the_machine(folder: Path) -> None:
    """Take away what belongs to this machine alone: its name, its paths, and the empty logs that SQLite keeps beside a store."""
    for path in folder.rglob(".progress.json"):
        content = json.loads(path.read_text(encoding="utf-8"))
        content["state"] |= {"host": "localhost", "command": f"ragpipe {' '.join(WORDS)}"}
        path.write_text(json.dumps(content, indent=2), encoding="utf-8")
    for path in folder.rglob("calls.sqlite-*"):
        if path.name.endswith("-wal") and path.stat().st_size:
            raise RuntimeError(f"{path} has changes that are not in the store")
        path.unlink()


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def main() -> int:
    """Make the fixture of the current format. Refuses where it exists, unless `--replace`. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replace", action="store_true", help="make it anew: only where no release has it")
    replace, target = parser.parse_args().replace, fixture_path(FORMAT)
    if target.exists() and not replace:
        print(f"{target} exists: a fixture that a release has is never made again (--replace, where none has)")
        return 2
    with tempfile.TemporaryDirectory() as scratch:
        make(Path(scratch))
        target.parent.mkdir(exist_ok=True)
        with tarfile.open(target, "w:gz") as archive:
            archive.add(scratch, ".", filter=_anonymous)
    print(f"made {target}: {target.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
