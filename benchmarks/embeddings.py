"""How long the NumPy MiniLM takes, beside sentence-transformers where that is installed, and what unrelated texts score.

    python benchmarks/embeddings.py [--texts 400] [--corpus ../shared/data/clapnq_dev/corpus.jsonl]

With a corpus ({"id", "text"} a line; the first line of a text is its title) it prints the baseline of BERTScore: the mean F1
of random pairs of sentences of different passages, as `ragpipe/extras/models/bert_score.py` has it.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from ragpipe.extras.models.embedders import SentenceTransformers
from ragpipe.extras.models.token_matching import EncoderSettings, PairScores
from ragpipe.judge.embedder import MiniLM
from ragpipe.judge.minilm import MiniLMVectors

PAIRS, SHORTEST, LONGEST = 1000, 6, 40  # pairs; words of a sentence
WORDS = [
    "the",
    "of",
    "a",
    "report",
    "city",
    "river",
    "bees",
    "honey",
    "budget",
    "law",
    "north",
    "seven",
    "green",
    "engine",
    "letter",
    "between",
    "under",
    "made",
    "said",
]


def timed(name: str, compute: Callable[[list[str]], object], texts: list[str]) -> None:
    compute(texts[:1])  # loads the files
    start = time.perf_counter()
    compute(texts)
    seconds = time.perf_counter() - start
    print(f"{name}: {seconds:.1f} s for {len(texts)} texts, {1000 * seconds / len(texts):.1f} ms a text")


def baseline(path: Path, layer: int) -> None:
    draw, sentences = random.Random(0), []
    for line in path.open(encoding="utf-8"):
        body = json.loads(line)["text"].split("\n", 1)[-1]
        fitting = [s.strip() for s in body.split(" . ") if SHORTEST <= len(s.split()) <= LONGEST]
        sentences += fitting[:1]
    scorer = PairScores(EncoderSettings(layer=layer))
    found = [json.loads(scorer([tuple(draw.sample(sentences, 2))])[0])["f1"] for _ in range(PAIRS)]
    print(f"layer {layer}: mean F1 {statistics.mean(found):.4f}, deviation {statistics.stdev(found):.4f}, {PAIRS} pairs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=400)
    parser.add_argument("--corpus", type=Path)
    options = parser.parse_args()
    draw = random.Random(0)
    texts = [" ".join(draw.choices(WORDS, k=draw.randint(40, 60))) for _ in range(options.texts)]
    timed("minilm (NumPy)", MiniLMVectors(MiniLM()), texts)
    if find_spec("sentence_transformers"):
        from ragpipe.extras.models.embedders import SentenceTransformersVectors

        timed("sentence-transformers", SentenceTransformersVectors(SentenceTransformers()), texts)
    if options.corpus:
        baseline(options.corpus, 6)


if __name__ == "__main__":
    main()
