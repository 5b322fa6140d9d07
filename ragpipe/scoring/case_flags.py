"""What is odd about a case, whatever its scores: texts that address the judge, and answers that say nothing.

Flags are for the reader. They change no score: a false one must cost nothing, and an attack that no pattern knows must not look safe.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic_core import from_json

from ragpipe.patterns.hostile_text import degenerate_signs, suspicious_signs
from ragpipe.prompting.fences import foreign_tags
from ragpipe.scoring.case_blocks import CaseBlock

SUSPICIOUS, DEGENERATE = "suspicious", "degenerate"
FOREIGN_TAG = "tag_of_"


def case_flags(block: CaseBlock) -> dict[str, pa.Array]:
    """The columns `flags` and `flag_reasons` of a block.

    `flags` holds `suspicious` where the answer has a sign of `suspicious_signs` or any text holds another one's fence tag, and
    `degenerate` where the answer says nothing of its own. `flag_reasons` names the part and the sign:
    `answer: orders_to_judge`, `contexts: tag_of_question`.
    """
    flags: list[list[str]] = []
    reasons: list[list[str]] = []
    for case in _texts(block):
        answer, question = case["answer"], case["question"]
        odd = [f"answer: {sign}" for text in answer for sign in suspicious_signs(text)]
        odd += [f"{holder}: {FOREIGN_TAG}{owner}" for holder, owner in foreign_tags(case)]
        empty = [f"answer: {sign}" for text in answer for sign in degenerate_signs(text, question[0], case["contexts"])]
        flags.append([name for name, signs in ((SUSPICIOUS, odd), (DEGENERATE, empty)) if signs])
        reasons.append([*odd, *empty])
    kind = pa.list_(pa.string())
    return {"flags": pa.array(flags, kind), "flag_reasons": pa.array(reasons, kind)}


def _texts(block: CaseBlock) -> Iterator[dict[str, Sequence[str]]]:
    """The texts of each case by part. An answer that is not recorded, or of a system that failed, is none."""
    contexts: list[list[str]] = [[] for _ in range(len(block))]
    texts = block.chunks.column("text")
    with_text = np.flatnonzero(pc.greater(pc.binary_length(texts), 0).fill_null(False).to_numpy(zero_copy_only=False))
    kept = texts.take(pa.array(with_text)).to_pylist()
    for case, text in zip(block.chunks.cases[with_text].tolist(), kept, strict=True):
        contexts[case].append(text)
    outputs, samples = block.outputs, block.samples
    rows = zip(
        samples["question"].to_pylist(),
        outputs["answer"].to_pylist(),
        outputs["error"].to_pylist(),
        samples["references"].to_pylist(),
        samples["history"].to_pylist(),
        contexts,
        strict=True,
    )
    for question, answer, error, references, history, passages in rows:
        yield {
            "question": [question],
            "answer": [] if answer is None or error else [answer],
            "contexts": passages,
            "references": references or [],
            "history": [turn["text"] for turn in from_json(history)] if history else [],
        }
