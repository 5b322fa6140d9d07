"""How far the rules judge agrees with experts on whether a citation bears out its claim.

    python benchmarks/rules_citations.py --data data

Every claim of the ExpertQA file that cites a passage (not only an address) and has a verdict of an expert; accurate for the
expert means `Complete`. Nothing was chosen on these. docs/judges.md states the row, and a slow test recomputes it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from rules import kappa

from ragpipe.judge.rules.rules_judge import check_citations
from ragpipe.judge.rules.settings import RulesSettings

LABELS = {"Complete": True, "Partial": False, "Incomplete": False, "Missing": False}
SHORTEST = 6  # words after the address from which a piece of evidence is a passage


def labelled(path: Path) -> Iterator[tuple[str, str, bool]]:
    """Claim, cited text, and whether the expert found the support complete."""
    for line in path.read_text(encoding="utf-8").split("\n"):
        for record in json.loads(line)["answers"].values() if line else ():
            for claim in record["claims"]:
                passages = [len(piece.partition("\n")[2].split()) >= SHORTEST for piece in claim["evidence"]]
                if claim["support"] in LABELS and any(passages):
                    yield claim["claim_string"], "\n".join(claim["evidence"]), LABELS[claim["support"]]


def measure(path: Path) -> str:
    """The row of the table."""
    rows = list(labelled(path))
    truth = np.array([label for *_, label in rows])
    said = np.array([_accurate(claim, passage) for claim, passage, _ in rows])
    agree, always = float((truth == said).mean()), float(truth.mean())
    found, alarms = int((truth & said).sum()), int((~truth & said).sum())
    shares = f"{found} of {int(truth.sum())} | {alarms} of {int((~truth).sum())}"
    return f"| {len(rows)} | {shares} | {agree:.3f} | {always:.3f} | {kappa(truth, said):.3f} |"


def _accurate(claim: str, passage: str) -> bool:
    return check_citations([{"text": claim, "source": 1}], [passage], RulesSettings()).verdicts[0].accurate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    print(measure(parser.parse_args().data / "expertqa" / "rand_val.jsonl"))


if __name__ == "__main__":
    main()
