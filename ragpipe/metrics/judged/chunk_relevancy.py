"""Does the answer respond to the question, in line with at least one chunk? A chain of questions over the chunks."""

from __future__ import annotations

from typing import Any

from ragpipe.core.sample import Case
from ragpipe.metrics.shared.chunk_chain import ChunkChain


class ChunkRelevancyMetric(ChunkChain):
    """1 / 0: are question and answer together in line with at least one chunk?

    The same chain as `chunk_faithfulness`, but the judge sees the question too: an answer to something else is a NO, and
    so is a chunk about another matter. Whether each detail is right plays no part. At most one call per chunk. Nothing
    retrieved: 0 (`no_context_retrieved`) without a call. An answer that only declines, by `patterns`, is skipped
    (`no_claims`). Needs an answer.
    """

    def case_values(self, case: Case) -> dict[str, Any]:
        return {"question": case.question, "answer": case.answer}
